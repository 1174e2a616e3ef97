"""Consumers with our broker, where queues change hands and things go wrong; every delivery is counted."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from pyledger.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    Averagely,
    AveragelyByCircle,
    ConsistentHash,
    Message,
    MessageQueue,
    ReceivedMessage,
    ReconsumeLater,
)
from pyledger.client.consumer.consume_message_service import LISTENER_WAIT_MS
from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.loop import run
from pyledger.protocol.rebalance.strategies import Strategy
from pyledger.servers.local.rocketmq import LocalRocketMQ
from pyledger.wire.remoting.bodies.statistics import ConsumerRunning
from tests.client.scenarios import settle, until

pytestmark = pytest.mark.timeout(300)

TOPIC, GROUP = "T", "g"


@asynccontextmanager
async def broker(folder: Path, *bodies: bytes) -> AsyncIterator[LocalRocketMQ]:
    """A broker whose topic has some messages."""
    node = LocalRocketMQ(folder / "store")
    await node.start()
    try:
        await produce(node, bodies or [b"first"])
        yield node
    finally:
        await node.close()


async def produce(node: LocalRocketMQ, bodies: Iterable[bytes]) -> list[MessageQueue]:
    """Put messages into the queues of the topic, in turn; returns the queues."""
    async with AsyncProducer("p", node.address) as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body))
        return list(await producer.queues(TOPIC))


def play(folder: Path, story: Callable[[LocalRocketMQ], Coroutine[Any, Any, None]], *bodies: bytes) -> None:
    async def main() -> None:
        async with broker(folder, *bodies) as node:
            await story(node)

    run(main())


async def known(consumer: AsyncPushConsumer, topic: str) -> None:
    """Wait until the name server knows a topic."""
    while consumer.client.routes.route(topic) is None:
        await consumer.client.routes.refresh_all([topic])
        await asyncio.sleep(0.02)


def member(node: LocalRocketMQ, listener: Any = None, **options: Any) -> AsyncPushConsumer:
    consumer = AsyncPushConsumer(
        GROUP, node.address, listener=listener, consume_from="first_offset", **options
    )
    consumer.subscribe(TOPIC)
    return consumer


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_queues_change_hands_without_repeats(tmp_path: Path) -> None:
    got: Counter[bytes] = Counter()

    async def story(node: LocalRocketMQ) -> None:
        async with member(node, lambda message: got.update([message.body])) as first:
            await until(lambda: len(got) == 100, "the first hundred")
            # Nothing but the drop tells the offsets: the regular time for that has not come. It comes late,
            # because the first has just shared queues, and does so once a second at most.
            first.client.rebalance_soon()
            await settle(0.1)
            async with member(node, lambda message: got.update([message.body])) as second:
                await until(lambda: bool(second.queues), "a share for the second")
                await produce(node, numbered(100, 150))
                await until(lambda: len(got) == 150, "what came meanwhile")
                await settle(1.5)
                shares = first.queues, second.queues
                assert not set(shares[0]) & set(shares[1])
            await produce(node, numbered(150, 200))
            await until(lambda: len(got) == 200, "the last")
            await settle()
        assert got == Counter(numbered(0, 200))

    play(tmp_path, story, *numbered(0, 100))


def test_close_waits_for_listeners_and_keeps_what_they_did(tmp_path: Path) -> None:
    got: Counter[bytes] = Counter()

    async def story(node: LocalRocketMQ) -> None:
        begun = asyncio.Event()

        async def slow(message: ReceivedMessage) -> None:
            begun.set()
            await asyncio.sleep(0.3)
            got[message.body] += 1

        async with member(node, slow, threads=4):
            await begun.wait()
        assert 4 <= len(got) < 40
        async with member(node, lambda message: got.update([message.body])):
            await until(lambda: len(got) == 40, "the rest")
            await settle()
        assert got == Counter(numbered(0, 40))

    play(tmp_path, story, *numbered(0, 40))


def test_lost_lock_drops_the_queue_until_it_is_assigned_again(tmp_path: Path) -> None:
    got: dict[int, list[int]] = defaultdict(list)

    async def story(node: LocalRocketMQ) -> None:
        locks = node.broker.context.tables.locks
        hold = asyncio.Event()

        async def listener(message: ReceivedMessage) -> None:
            if message.queue_offset == 2:
                await hold.wait()
            if message.topic == TOPIC:
                got[message.queue_id].append(message.queue_offset)

        async with member(node, listener, orderly=True) as consumer:
            await until(lambda: sum(map(len, got.values())) == 8, "two messages of each queue")
            [queue] = [one for one in consumer.queues if (one.topic, one.queue_id) == (TOPIC, 0)]
            # Somebody else takes the queue, consumes four messages and says so.
            locks.groups[GROUP][queue].client_id = "other"
            await consumer._rebalance.renew_locks(
                list(consumer._assignments.values()), consumer._on_lock_lost
            )
            assert queue not in consumer.queues
            async with AsyncPullConsumer(GROUP, node.address) as other:
                await other.commit(queue, 6)
            hold.set()
            await until(lambda: sum(map(len, got.values())) == 8 + 3 * 8 + 1, "the other queues")
            await settle(1.2)
            seen = len(got[0])
            locks.unlock(GROUP, [queue], "other")
            await until(lambda: len(got[0]) == seen + 4, "the rest of the queue")
            await settle()
        # The third was with the listener.
        assert got == {0: [0, 1, 2, 6, 7, 8, 9], **{number: list(range(10)) for number in (1, 2, 3)}}

    play(tmp_path, story, *numbered(0, 40))


def test_messages_that_the_broker_does_not_take_back_are_sent(tmp_path: Path) -> None:
    got: list[tuple[bytes, int, str]] = []
    refused: list[str] = []
    retry_of: list[str | None] = []

    async def story(node: LocalRocketMQ) -> None:
        def refuse(_connection: object, request: Any) -> Any:
            refused.append(request.ext_fields["group"])
            return request.response(ResponseCode.SYSTEM_ERROR, "as the test says")

        node.broker._handlers.register(RequestCode.CONSUMER_SEND_MSG_BACK, refuse)

        async def listener(message: ReceivedMessage) -> ReconsumeLater | None:
            got.append((message.body, message.reconsume_times, message.topic))
            retry_of.append(message.properties.get(names.RETRY_TOPIC))
            await known(consumer, names.retry_topic(GROUP))
            return ReconsumeLater() if message.reconsume_times == 0 else None

        consumer = member(node, listener)
        async with consumer:
            await until(lambda: len(got) == 2, "the message, and again", 40)
            [offset] = [
                offset for queue, offset in consumer.status(TOPIC).items() if queue.topic == TOPIC and offset
            ]
            assert offset == 1
        assert got == [(b"first", 0, TOPIC), (b"first", 1, TOPIC)]
        assert refused == [GROUP]
        assert retry_of == [None, TOPIC]

    play(tmp_path, story)


def test_part_of_a_batch_comes_again(tmp_path: Path) -> None:
    batches: list[list[bytes]] = []

    async def story(node: LocalRocketMQ) -> None:
        async def listener(messages: list[ReceivedMessage]) -> ReconsumeLater | None:
            batches.append([message.body for message in messages])
            return ReconsumeLater(delay_level=1, done=2) if len(messages) == 4 else None

        await send_to_one_queue(node, numbered(1, 5))
        async with member(node, batch_listener=listener, batch_count_max=8) as consumer:
            consumer.subscribe("One")
            await until(lambda: sum(map(len, batches)) >= 7, "four messages, and two again")
            await settle()
        assert sorted(chain.from_iterable(batches)) == sorted([b"first", *numbered(1, 5), b"3", b"4"])

    play(tmp_path, story)


async def send_to_one_queue(node: LocalRocketMQ, bodies: Iterable[bytes]) -> None:
    async with AsyncProducer("p", node.address) as producer:
        await producer.send([Message("One", body) for body in bodies])


def test_lite_pull_commits_what_it_is_told(tmp_path: Path) -> None:
    def reader(node: LocalRocketMQ, **options: Any) -> AsyncLitePullConsumer:
        consumer = AsyncLitePullConsumer(GROUP, node.address, consume_from="first_offset", **options)
        consumer.subscribe(TOPIC)
        return consumer

    async def poll(consumer: AsyncLitePullConsumer, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            messages = await consumer.poll(10_000, count_max=1)
            assert messages, f"{len(found)} of {count}"
            found += [message.body for message in messages]
        return found

    async def story(node: LocalRocketMQ) -> None:
        everything = sorted(numbered(0, 20))
        async with reader(node, auto_commit=False) as consumer:
            assert sorted(await poll(consumer, 20)) == everything
        last = b""

        async def break_off() -> None:
            nonlocal last
            async with reader(node) as consumer:
                last = (await poll(consumer, 20))[-1]
                raise ValueError("in the middle")

        with pytest.raises(ValueError, match="in the middle"):
            await break_off()
        async with reader(node, auto_commit=False) as consumer:
            assert await poll(consumer, 1) == [last]
            await consumer.commit()
            await settle(0.2)
        async with reader(node) as consumer:
            assert not await consumer.poll(2500)

    play(tmp_path, story, *numbered(0, 20))


def test_member_that_the_broker_forgot_keeps_its_queues(tmp_path: Path) -> None:
    async def story(node: LocalRocketMQ) -> None:
        async with member(node, lambda _message: None) as consumer:
            await until(lambda: len(consumer.queues) == 5, "all queues")
            queues = consumer.queues
            consumers = node.broker.context.tables.consumers
            for channel in list(consumers.groups[GROUP].members):
                consumers.close_channel(channel)
            async with member(node, lambda _message: None) as other:
                await until(lambda: bool(other.queues), "a share for the other")
                await until(lambda: not set(consumer.queues) & set(other.queues), "no queue with both")
                assert set(consumer.queues) | set(other.queues) == set(queues)
                assert consumer.queues

    play(tmp_path, story)


def test_running_consumer_tells_what_it_does(tmp_path: Path) -> None:
    async def story(node: LocalRocketMQ) -> None:
        got: list[bytes] = []

        async def listener(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.01)
            got.append(message.body)
            if message.body == b"3" and message.reconsume_times == 0:
                raise ValueError("the first time fails")

        async with member(node, listener) as consumer:
            await until(lambda: len(got) == 40, "all messages")
            await until(lambda: consumer.running().status_table[TOPIC].consume_failed_msgs == 1, "a failure")
            running = consumer.running()
            status = running.status_table[TOPIC]
            assert status.pull_tps == pytest.approx(40 / 60)
            assert status.consume_ok_tps == pytest.approx(39 / 60)
            assert status.consume_failed_tps == pytest.approx(1 / 60)
            assert status.consume_rt >= 9
            assert {one.topic for one in running.subscription_set} == {TOPIC, names.retry_topic(GROUP)}
            assert (
                sum(one.commit_offset for queue, one in running.mq_table.items() if queue.topic == TOPIC) > 0
            )
            assert ConsumerRunning.decode(running.encode()) == running

    play(tmp_path, story, *numbered(0, 40))


@pytest.mark.parametrize(
    "strategy", [Averagely(), AveragelyByCircle(), ConsistentHash()], ids=lambda one: one.name
)
def test_members_share_by_their_strategy(tmp_path: Path, strategy: Strategy) -> None:
    async def story(node: LocalRocketMQ) -> None:
        got: Counter[bytes] = Counter()

        def one() -> AsyncPushConsumer:
            return member(node, lambda message: got.update([message.body]), strategy=strategy)

        async with one() as first, one() as second, one() as third:
            members = (first, second, third)
            await until(lambda: len(got) == 20, "all messages")
            ids = sorted(consumer.client.client_id for consumer in members)
            queues = sorted(await first.client.routes.subscribe_queues(TOPIC))
            for consumer in members:
                wanted = strategy.allocate(consumer.client.client_id, queues, ids)
                await until(
                    lambda consumer=consumer, wanted=wanted: (  # type: ignore[misc]
                        sorted(queue for queue in consumer.queues if queue.topic == TOPIC) == wanted
                    ),
                    f"the share of {strategy.name}",
                )
            await produce(node, numbered(20, 60))
            await until(lambda: len(got) == 60, "what came later")
            await settle()
        assert got == Counter(numbered(0, 60))

    play(tmp_path, story, *numbered(0, 20))


def test_many_queues_are_dropped_at_once(tmp_path: Path) -> None:
    """Each waits a moment for its listener; together they do not take longer."""

    async def story(node: LocalRocketMQ) -> None:
        hold = asyncio.Event()
        begun: set[int] = set()

        async def stuck(message: ReceivedMessage) -> None:
            begun.add(message.queue_id)
            await hold.wait()

        async with member(node, stuck) as consumer:
            await until(lambda: len(begun) == 4, "a listener on each queue")
            loop = asyncio.get_running_loop()

            def held() -> int:
                return sum(queue.topic == TOPIC for queue in consumer._assignments)

            consumer.unsubscribe(TOPIC)
            await until(lambda: held() < 4, "the first queue dropped")
            first = loop.time()
            await until(lambda: held() == 0, "all queues dropped")
            assert loop.time() - first < LISTENER_WAIT_MS / 1000
            hold.set()

    play(tmp_path, story, *numbered(0, 8))
