"""Topics at a broker that runs, read as Spark's tasks read them: without a JVM."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyledger.broker_tail import BrokerTail, read_range
from pyspark_pyledger.options import check_stream, parse_read_options
from pyspark_pyledger.partitions import BrokerRange
from pyspark_pyledger.schema import schema_of
from pyspark_pyledger.stream_reader import StreamReader
from pyspark_pyledger.stream_source import plan_brokers

from pyledger import arrow
from pyledger.client.blocking.admin import Admin
from pyledger.client.blocking.producer import Producer
from pyledger.errors import ConfigError, DataLostError, RemotingError
from pyledger.model.message import Message, MessageQueue
from pyledger.model.topic import TopicConfig
from pyledger.servers.local.rocketmq import LocalBroker
from tests.servers.ha.link import linked
from tests.servers.ha.pair import brokers, caught_up, until
from tests.servers.ha.test_links import service_of

TOPIC = "flights"
SEND_TIMEOUT_MS = 60_000
MANY = 200
"""More than a broker gives at once."""
PACKED_BYTES = 9000
"""Enough for a producer to pack it."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path / "store") as running:
        send(running, 40)
        yield running


def send(node: LocalBroker, count: int) -> None:
    with Producer("spark", node.address, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        for number in range(count):
            body = f"{number}".encode() * (100 if number % 2 else 1)
            producer.send(Message(TOPIC, body, tags="AB"[number % 2], keys=f"k{number}"))


def read(address: str, **options: str) -> list[dict[str, Any]]:
    named = {"namesrv": address, "topic": TOPIC, **options}
    parsed = parse_read_options(named)
    schema = to_arrow_schema(schema_of(parsed.columns), timezone="UTC")
    found: list[dict[str, Any]] = []
    for part in plan_brokers(parsed):
        assert isinstance(part, BrokerRange)
        for batch in read_range(part, schema, parsed):
            assert batch.schema.equals(schema)
            assert 0 < batch.num_rows <= parsed.batch_rows
            found += batch.to_pylist()
    return found


def by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def test_rows_are_those_of_the_folder(node: LocalBroker) -> None:
    columns = ",".join(arrow.COLUMNS)
    wanted = arrow.scan(node.folder, topics=TOPIC, columns=arrow.COLUMNS).read_all().to_pylist()
    assert by_place(read(node.address, columns=columns)) == by_place(wanted)
    assert by_place(read(node.address, columns=columns, batchRows="3")) == by_place(wanted)
    plain = arrow.scan(node.folder, topics=TOPIC, columns=["topic", "queueId", "queueOffset", "body"])
    some = read(node.address, columns="topic,queueId,queueOffset,body", maxRecordsPerPartition="7")
    assert by_place(some) == by_place(plain.read_all().to_pylist())


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"tags": "A"}, 20),
        ({"tags": "A || B"}, 40),
        ({"startingTimestamp": str(1 << 50)}, 0),
        ({"endingTimestamp": str(1 << 50)}, 40),
        ({"minPartitions": "11"}, 40),
        ({"startingOffsets": '{"flights": {"0": -1}}', "queues": "0"}, 0),
        ({"endingOffsets": '{"flights": {"0": 2}}', "queues": "0"}, 2),
        ({"preferSlave": "true"}, 40),
    ],
)
def test_options_pick_rows(node: LocalBroker, options: dict[str, str], wanted: int) -> None:
    assert len(read(node.address, **options)) == wanted


@pytest.mark.parametrize("wanted", [1, 3, 4, 11, 25, 100])
def test_as_many_partitions_are_made_as_are_asked_for(node: LocalBroker, wanted: int) -> None:
    for queues in ("0", "0,1,2,3"):
        named = {"namesrv": node.address, "topic": TOPIC, "queues": queues, "minPartitions": str(wanted)}
        parts = plan_brokers(parse_read_options(named))
        rows = sum(part.end - part.start for part in parts if isinstance(part, BrokerRange))
        assert rows == 10 * len(queues.split(","))
        assert len(parts) >= min(wanted, rows)


def test_packed_bodies_are_unpacked_as_those_of_the_folder(node: LocalBroker) -> None:
    with Producer("spark", node.address, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        producer.send(Message(TOPIC, b"x" * PACKED_BYTES))
    columns = ["queueId", "queueOffset", "topic", "body", "bodyLength", "sysFlag"]
    for word in ("true", "false"):
        wanted = arrow.scan(node.folder, topics=TOPIC, columns=columns, decompress=word == "true")
        rows = read(node.address, columns=",".join(columns), decompress=word)
        assert by_place(rows) == by_place(wanted.read_all().to_pylist())
        assert (max(len(row["body"]) for row in rows) == PACKED_BYTES) == (word == "true")


def test_queues_and_topics_that_come_later_are_read_from_their_start(node: LocalBroker) -> None:
    options = parse_read_options({"namesrv": node.address, "topics": f"{TOPIC},later"})
    stream = StreamReader(schema_of(("topic", "queueId", "queueOffset")), options)
    start = stream.initialOffset()
    assert start.keys() == {TOPIC}
    with Admin(node.address) as admin:
        for topic, queues in ((TOPIC, 6), ("later", 1)):
            admin.create_topic(TopicConfig(topic, queues, queues), address=node.broker_address)
    with Producer("spark", node.address, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        for topic, queue_id in ((TOPIC, 5), ("later", 0), ("later", 0)):
            [at] = {queue.broker_name for queue in producer.queues(topic)}
            producer.send(Message(topic, b"new"), queue=MessageQueue(topic, at, queue_id))
    end = stream.latestOffset(start, ReadAllAvailable())
    batches = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert sorted(found) == [(TOPIC, 5, 0), ("later", 0, 0), ("later", 0, 1)]
    stream.stop()


def test_a_stream_goes_on_where_it_was_and_disturbs_no_group(node: LocalBroker) -> None:
    options = parse_read_options(
        {"namesrv": node.address, "topic": TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "9"}
    )
    check_stream(options)
    stream = StreamReader(schema_of(("queueId", "queueOffset", "body")), options)
    position, triggers = stream.initialOffset(), []
    limit = stream.getDefaultReadLimit()
    while (end := stream.latestOffset(position, limit)) != position:
        found = [batch for part in stream.partitions(position, end) for batch in stream.read(part)]
        triggers.append(sum(batch.num_rows for batch in found))
        position = end
    assert triggers == [9, 9, 9, 9, 4]
    send(node, 6)
    again = StreamReader(schema_of(("body",)), options)
    later = again.latestOffset(position, ReadAllAvailable())
    rows = [
        row
        for part in again.partitions(position, later)
        for batch in again.read(part)
        for row in batch["body"]
    ]
    assert len(rows) == 6
    assert again.reportLatestOffset() == later
    assert (
        len(list((node.folder / "config").glob("consumerOffset.json"))) == 0
        or "TOOLS" not in (node.folder / "config/consumerOffset.json").read_text()
    )
    for one in (stream, again):
        one.stop()


def test_what_a_broker_no_longer_has_is_an_error(node: LocalBroker) -> None:
    options = parse_read_options({"namesrv": node.address, "topic": TOPIC})
    careless = parse_read_options({"namesrv": node.address, "topic": TOPIC, "failOnDataLoss": "false"})
    schema = to_arrow_schema(schema_of(("body",)), timezone="UTC")
    [first, *_] = plan_brokers(options)
    assert isinstance(first, BrokerRange)
    beyond = BrokerRange(first.broker_name, TOPIC, first.queue_id, first.start, first.end + 50)
    short = {"suspend_timeout_ms": 1}
    with pytest.raises(DataLostError, match=f"ends at {first.end}, below {first.end + 50}"):
        list(read_range(beyond, schema, options, **short))
    assert sum(batch.num_rows for batch in read_range(beyond, schema, careless, **short)) == first.end


def test_a_slave_serves_when_its_master_is_gone(tmp_path: Path) -> None:
    def produce(address: str) -> None:
        with Producer("spark", address, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
            for number in range(20):
                producer.send(Message(TOPIC, b"%d" % number))

    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            slave = await pair.start(1, "slave")
            address = pair.name_server.address
            await asyncio.to_thread(produce, address)
            await caught_up(master, slave)
            await until(lambda: TOPIC in slave.context.tables.topics.topics)
            options = parse_read_options({"namesrv": address, "topic": TOPIC, "columns": "body"})
            tail = await asyncio.to_thread(BrokerTail, options)
            before = dict(await asyncio.to_thread(tail.refresh))
            assert sum(queue.max_offset for queue in before.values()) == 20
            rows = await asyncio.to_thread(read, address, preferSlave="true")
            assert len(rows) == 20
            await master.close()
            # The route that the tail has names the master still.
            assert await asyncio.to_thread(tail.refresh) == before
            assert len(await asyncio.to_thread(read, address)) == 20
            await asyncio.to_thread(tail.close)

    asyncio.run(main())


def produce(address: str, count: int) -> None:
    """Messages of one queue."""
    queue = MessageQueue(TOPIC, "broker-a", 0)
    with Producer("spark", address, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        producer.send([Message(TOPIC, b"%d" % number) for number in range(count)], queue=queue)


def test_a_broker_that_goes_away_in_the_middle_is_left_for_its_slave(tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            slave = await pair.start(1, "slave")
            address = pair.name_server.address
            await asyncio.to_thread(produce, address, MANY)
            await caught_up(master, slave)
            await until(lambda: TOPIC in slave.context.tables.topics.topics)
            options = parse_read_options(
                {"namesrv": address, "topic": TOPIC, "columns": "body", "batchRows": "1"}
            )
            [part] = [one for one in await asyncio.to_thread(plan_brokers, options) if one.end > one.start]
            schema = to_arrow_schema(schema_of(("body",)), timezone="UTC")
            ranges = [read_range(part, schema, options) for _ in range(2)]
            firsts = [await asyncio.to_thread(next, rows) for rows in ranges]
            await master.close()
            found = firsts[:1] + await asyncio.to_thread(list, ranges[0])
            bodies = [body for batch in found for body in batch["body"].to_pylist()]
            assert bodies == [b"%d" % number for number in range(MANY)]
            await slave.close()
            with pytest.raises(RemotingError, match="flights/0 of broker-a: no broker answered"):
                await asyncio.to_thread(list, ranges[1])

    asyncio.run(main())


def test_a_slave_that_is_behind_is_no_loss(tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            async with linked(service_of(master).port) as link:
                slave = await pair.start(1, "slave", ha={"master_address": link.address})
                address = pair.name_server.address
                await asyncio.to_thread(produce, address, 9)
                await caught_up(master, slave)
                await until(lambda: TOPIC in slave.context.tables.topics.topics)
                link.carries.clear()
                await asyncio.to_thread(produce, address, MANY)
                more = {"preferSlave": "true", "maxRecordsPerPartition": "20", "columns": "queueOffset"}
                rows = await asyncio.to_thread(read, address, **more)
                assert slave.store.max_offset < master.store.max_offset
                assert [row["queueOffset"] for row in rows] == list(range(9 + MANY))
                link.carries.set()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"namesrv": "127.0.0.1:1"}, "topic: is missing"),
        ({"namesrv": "127.0.0.1:1", "topic": "t", "path": "/x"}, "read folders or brokers"),
        ({"namesrv": "127.0.0.1:1", "topic": "t", "maxBytesPerTrigger": "9"}, "an option for folders"),
        (
            {"namesrv": "127.0.0.1:1", "topic": "t", "onCorrupt": "skip"},
            "onCorrupt: is an option for folders",
        ),
        (
            {"namesrv": "127.0.0.1:1", "topic": "t", "checkCrcs": "false"},
            "checkCrcs: is an option for folders",
        ),
        ({"path": "/x", "preferSlave": "true"}, "preferSlave: is an option for brokers"),
        ({"path": "/x", "accessKey": "k", "secretKey": "s"}, "accessKey: is an option for brokers"),
    ],
)
def test_options_that_do_not_fit_brokers_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_read_options(options)


def test_a_topic_that_is_not_there_is_named(node: LocalBroker) -> None:
    with pytest.raises(ConfigError, match="there is no topic 'absent'"):
        read(node.address, topic="absent")
