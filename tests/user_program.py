"""A program of a user, for type checkers only: each line that is wrong names its mypy error in a comment."""

import asyncio
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta

from pyledger import (
    Admin,
    AsyncLedgerClient,
    AsyncProducer,
    LedgerClient,
    Message,
    MessageStore,
    Producer,
    PullConsumer,
    PushConsumer,
    StoreReader,
    arrow,
)
from pyledger.bookkeeper import ManagedCursor, ManagedLedger
from pyledger.client import ReceivedMessage, ReconsumeLater, SendResult, TopicConfig

NAME_SERVERS = "127.0.0.1:9876"


def produce() -> None:
    with Producer("shop", NAME_SERVERS, retries=5, compression="zstd") as producer:
        result: SendResult = producer.send(Message("Orders", b"one"), sharding_key="order-1")
        producer.send([Message("Orders", b"two"), Message("Orders", b"three")])
        future: Future[SendResult] = producer.submit(Message("Orders", b"four"), delay_ms=1000)
        print(result.queue_offset + future.result().queue_offset)
        producer.send_many((Message("Orders", b"%d" % n) for n in range(10)), timeout_ms=1000)
        producer.send_oneway(Message("Orders", b"five"))
        producer.send(Message("Orders", b"six"), sharding_keys="a")  # E: call-arg
        producer.send("six")  # E: arg-type
    Producer("shop", NAME_SERVERS, retrys=5)  # E: call-arg
    Producer("shop", NAME_SERVERS, retries="5")  # E: arg-type
    Producer("shop", NAME_SERVERS, compression="gzip")  # E: arg-type
    Producer("shop", NAME_SERVERS, sendMsgTimeout=5)  # E: call-arg


async def produce_on_asyncio() -> None:
    async with AsyncProducer("shop", NAME_SERVERS, send_timeout_ms=1000) as producer:
        future: asyncio.Future[SendResult] = producer.submit(Message("Orders", b"one"))
        result: SendResult = await future
        print(result.status)
        producer.send(Message("Orders", b"never sent"))  # E: unused-coroutine
    AsyncProducer("shop", NAME_SERVERS, send_timeout=1000)  # E: call-arg


def consume() -> None:
    def listen(message: ReceivedMessage) -> ReconsumeLater | None:
        return ReconsumeLater() if message.body == b"later" else None

    consumer = PushConsumer("billing", NAME_SERVERS, listener=listen, consume_from="first_offset", threads=2)
    consumer.subscribe("Orders", "food || drinks")
    with consumer:
        print(consumer.queues)
    PushConsumer("billing", NAME_SERVERS, listen)  # E: call-arg
    PushConsumer("billing", NAME_SERVERS, listener=listen, consume_from="begin")  # E: arg-type
    with PullConsumer("audit", NAME_SERVERS, pull_batch_count=64) as pulling:
        for queue in pulling.queues("Orders"):
            for message in pulling.pull(queue, pulling.min_offset(queue)).messages:
                print(message.body.decode())


def administer() -> None:
    with Admin(NAME_SERVERS, timeout_ms=5000) as admin:
        admin.create_topic(TopicConfig("Orders", read_queue_count=8, write_queue_count=8))
        print(admin.progress("billing").queues)
        yesterday = datetime.now(UTC) - timedelta(days=1)
        print(
            admin.query("Orders", "order-1", since=yesterday),
            admin.reset_offset("billing", "Orders", yesterday),
        )
    Admin(NAME_SERVERS, timeout=5000)  # E: call-arg


def keep() -> None:
    with MessageStore.open("store", flush_disk_type="sync", retention_hours=48) as store:
        print(store.put(Message("orders", b"one")).queue_offset)
        print(store.get("orders", 0, 0, max_count=10).status)
        print(store.query("orders", "A-2", since=datetime.now(UTC) - timedelta(hours=1), limit=10))
        store.get("orders", 0, 0, 10)  # E: call-arg
    MessageStore.open("store", retention_hour=48)  # E: call-arg
    MessageStore.open("store", flush_disk_type="later")  # E: arg-type
    with StoreReader.open("store") as reader:
        for message in reader.messages(order="queue", topics=["orders"], since=1_700_000_000_000):
            print(message.body)
        print(reader.messages("queue"))  # E: call-arg


def scan() -> None:
    arrow.scan("store", topics="orders", since=datetime.now(UTC))
    arrow.plan("store", topics="orders", min_partitions=4)
    arrow.plan("store", topic="orders")  # E: call-arg


def add_entries() -> None:
    with LedgerClient("sqlite:cluster.db") as client:
        with client.create(password=b"secret") as writer:
            future: Future[int] = writer.submit_add(b"one")
            print(future.result(), writer.add_many([b"two", b"three"]))
        with client.open(writer.ledger_id, b"secret") as reader:
            print([entry.payload for entry in reader.read()])
        with ManagedLedger(client, "orders", roll_bytes=1 << 20) as log:
            log.append(b"one")
        with ManagedCursor(client, "orders", "billing") as cursor:
            cursor.acknowledge(*(entry.position for entry in cursor.read(10)))
        client.create(passwd=b"secret")  # E: call-arg
    LedgerClient("sqlite:cluster.db", adds_pending_max=1)  # E: call-arg


async def add_entries_on_asyncio() -> None:
    async with AsyncLedgerClient("sqlite:cluster.db") as client, await client.create() as writer:
        print(await writer.add(b"one"))
