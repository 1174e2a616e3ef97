"""What users do with clients, told once: played against our own broker, and against RocketMQ's.

Each scenario takes the address of a name server, a word that makes its names new, and a folder; it counts
every message.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

from pyledger.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    ClientConfig,
    Message,
    PullStatus,
    ReceivedMessage,
    ReconsumeLater,
    TransactionState,
)
from pyledger.client.identity import now_ms
from pyledger.model import names

Scenario = Callable[[str, str, str], Coroutine[Any, Any, None]]
"""Gets the name server, a word for names, and a folder."""
LIMIT_S = 100


async def until(is_done: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    """Wait until something is so."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while not is_done():
        assert loop.time() < end, f"not within {limit_s} s: {what}"
        await asyncio.sleep(0.02)


async def settle(seconds: float = 0.5) -> None:
    """Give what must not come the time to come."""
    await asyncio.sleep(seconds)


async def create(producer: AsyncProducer, *topics: str) -> None:
    """Let first messages create topics; consumers that start later do not wait for them."""
    for topic in topics:
        await producer.send(Message(topic, b"first"))


async def sends_of_all_kinds(namesrv: str, word: str, _folder: str) -> None:
    topic = f"Kinds{word}"
    got: Counter[bytes] = Counter()
    async with AsyncProducer(f"p{word}", namesrv, compression="zstd") as producer:
        await create(producer, topic)
        async with AsyncPushConsumer(
            f"c{word}",
            namesrv,
            listener=lambda message: got.update([message.body]),
            consume_from="first_offset",
        ) as consumer:
            consumer.subscribe(topic)
            wanted = Counter([b"first"])
            for number in range(50):
                await producer.send(Message(topic, b"sync %d" % number))
                wanted[b"sync %d" % number] += 1
            soon = [producer.submit(Message(topic, b"soon %d" % number)) for number in range(100)]
            wanted.update(b"soon %d" % number for number in range(100))
            await asyncio.gather(*soon)
            for start in range(0, 300, 30):
                bodies = [b"batch %d" % number for number in range(start, start + 30)]
                await producer.send([Message(topic, body) for body in bodies])
                wanted.update(bodies)
            for size in (4095, 4096, 100_000):
                await producer.send(Message(topic, b"z" * size))
                wanted[b"z" * size] += 1
            await until(lambda: sum(got.values()) >= sum(wanted.values()), f"{sum(wanted.values())} messages")
            await settle()
            assert got == wanted


async def tags_choose(namesrv: str, word: str, _folder: str) -> None:
    topic = f"Tags{word}"
    got: list[tuple[str | None, bytes]] = []
    async with AsyncProducer(f"p{word}", namesrv) as producer:
        await create(producer, topic)
        consumer = AsyncPushConsumer(
            f"c{word}",
            namesrv,
            listener=lambda message: got.append((message.tags, message.body)),
            consume_from="first_offset",
        )
        consumer.subscribe(topic, "A || B")
        async with consumer:
            # Aa and BB have one hash code: the broker cannot tell them apart.
            for tag in ("A", "C", "B", None, "Aa", "BB"):
                await producer.send(Message(topic, str(tag).encode(), tags=tag))
            await until(lambda: len(got) >= 2, "two messages")
            await settle()
            assert sorted(got) == [("A", b"A"), ("B", b"B")]
        got.clear()
        other = AsyncPushConsumer(
            f"d{word}",
            namesrv,
            listener=lambda message: got.append((message.tags, message.body)),
            consume_from="first_offset",
        )
        other.subscribe(topic, "BB")
        async with other:
            await until(lambda: bool(got), "one message")
            await settle()
            assert got == [("BB", b"BB")]


async def sql_chooses(namesrv: str, word: str, _folder: str) -> None:
    topic = f"Sql{word}"
    got: list[bytes] = []
    async with AsyncProducer(f"p{word}", namesrv) as producer:
        await create(producer, topic)
        consumer = AsyncPushConsumer(
            f"c{word}",
            namesrv,
            listener=lambda message: got.append(message.body),
            consume_from="first_offset",
        )
        consumer.subscribe(topic, "a > 3 AND colour = 'red'", sql=True)
        async with consumer:
            for number in range(8):
                colour = "red" if number % 2 else "blue"
                properties = {"a": str(number), "colour": colour}
                await producer.send(Message(topic, b"%d" % number, properties=properties))
            await until(lambda: len(got) >= 2, "two messages")
            await settle()
            assert sorted(got) == [b"5", b"7"]


async def failures_come_again_and_die(namesrv: str, word: str, _folder: str) -> None:
    topic, group = f"Retry{word}", f"c{word}"
    tries: dict[bytes, list[tuple[str, int]]] = defaultdict(list)

    def listener(message: ReceivedMessage) -> ReconsumeLater | None:
        tries[message.body].append((message.topic, message.reconsume_times))
        if message.body == b"raises" and message.reconsume_times == 0:
            raise ValueError("the first time always fails")
        if message.body == b"never" or (message.body == b"once" and message.reconsume_times == 0):
            return ReconsumeLater(delay_level=1)
        return None

    async with AsyncProducer(f"p{word}", namesrv) as producer:
        await create(producer, topic)
        consumer = AsyncPushConsumer(
            group, namesrv, listener=listener, consume_from="first_offset", reconsume_times_max=2
        )
        consumer.subscribe(topic)
        async with consumer, AsyncPullConsumer(f"dead{word}", namesrv) as dead:
            for body in (b"good", b"once", b"never"):
                await producer.send(Message(topic, body))
            await until(lambda: len(tries[b"never"]) >= 3 and len(tries[b"once"]) >= 2, "retries")
            await settle(2)
            assert tries[b"good"] == [(topic, 0)]
            assert tries[b"once"] == [(topic, 0), (topic, 1)]
            assert tries[b"never"] == [(topic, 0), (topic, 1), (topic, 2)]
            [queue] = [one for one in await dead.queues(names.dlq_topic(group)) if one.queue_id == 0]
            result = await dead.pull(queue, 0)
            assert [message.body for message in result.messages] == [b"never"]


async def orderly_keeps_order(namesrv: str, word: str, _folder: str) -> None:
    topic, group = f"Order{word}", f"c{word}"
    got: dict[int, list[int]] = defaultdict(list)
    failed: set[int] = set()

    def listener(message: ReceivedMessage) -> ReconsumeLater | None:
        number = int(message.body)
        if number == 5 and message.queue_id not in failed:
            failed.add(message.queue_id)
            return ReconsumeLater(suspend_ms=50)
        got[message.queue_id].append(number)
        return None

    def member() -> AsyncPushConsumer:
        one = AsyncPushConsumer(group, namesrv, listener=listener, orderly=True, consume_from="first_offset")
        one.subscribe(topic)
        return one

    def count() -> int:
        return sum(map(len, got.values()))

    async with AsyncProducer(f"p{word}", namesrv) as producer:
        await producer.send(Message(topic, b"-1"))
        queues = await producer.queues(topic)
        first, second = member(), member()
        async with first:
            for number in range(20):
                for queue in queues:
                    await producer.send(Message(topic, b"%d" % number), queue=queue)
            await until(lambda: count() == 1 + 20 * len(queues), "all messages")
            async with second:
                await until(lambda: bool(second.queues) and len(first.queues) < len(queues) + 1, "sharing")
                for number in range(20, 40):
                    for queue in queues:
                        await producer.send(Message(topic, b"%d" % number), queue=queue)
                await until(lambda: count() == 1 + 40 * len(queues), "all messages")
            await until(lambda: len(first.queues) == len(queues) + 1, "all queues again")
    assert failed == {queue.queue_id for queue in queues}
    for numbers in got.values():
        assert [number for number in numbers if number >= 0] == list(range(40))


async def broadcast_reaches_all(namesrv: str, word: str, folder: str) -> None:
    topic, group = f"All{word}", f"c{word}"
    got: dict[str, list[bytes]] = {"a": [], "b": []}

    def member(name: str) -> AsyncPushConsumer:
        one = AsyncPushConsumer(
            group,
            namesrv,
            listener=lambda message: got[name].append(message.body),
            message_model="broadcasting",
            client=ClientConfig(instance_name=f"{name}{word}", offsets_folder=folder),
        )
        one.subscribe(topic)
        return one

    async with AsyncProducer(f"p{word}", namesrv) as producer:
        await create(producer, topic)
        count = len(await producer.queues(topic))
        async with member("a") as a, member("b") as b:
            await until(lambda: len(a.queues) == len(b.queues) == count, "all queues at both")
            await settle()
            for number in range(20):
                await producer.send(Message(topic, b"%d" % number))
            await until(lambda: min(map(len, got.values())) >= 20, "20 messages at both")
        # One of them goes on where it stopped: its offsets are in its file.
        await producer.send(Message(topic, b"later"))
        async with member("a"):
            await until(lambda: got["a"][-1] == b"later", "one more message")
            await settle()
    wanted = sorted(b"%d" % number for number in range(20))
    assert sorted(got["b"]) == wanted
    assert sorted(got["a"]) == sorted([*wanted, b"later"])


async def group_goes_on_where_it_stopped(namesrv: str, word: str, _folder: str) -> None:
    topic, group = f"Hand{word}", f"c{word}"
    got: Counter[bytes] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        await asyncio.sleep(0.001)
        got[message.body] += 1

    def member() -> AsyncPushConsumer:
        one = AsyncPushConsumer(group, namesrv, listener=listener, consume_from="first_offset")
        one.subscribe(topic)
        return one

    async def produce(producer: AsyncProducer, numbers: range) -> None:
        for number in numbers:
            await producer.send(Message(topic, b"%d" % number))

    async with AsyncProducer(f"p{word}", namesrv) as producer:
        await create(producer, topic)
        first, second = member(), member()
        async with first:
            await produce(producer, range(100))
            await until(lambda: len(got) >= 101, "100 messages")
            async with second:
                await until(lambda: bool(second.queues), "a share for the second")
                await produce(producer, range(100, 200))
        await produce(producer, range(200, 300))
        async with member():
            await until(lambda: len(got) == 301, "all messages")
            await settle()
    assert set(got) == {b"first", *(b"%d" % number for number in range(300))}
    # In good order nothing comes twice, but for what was on its way when queues changed hands.
    assert sum(got.values()) <= 301 + 64


async def pulls_and_polls(namesrv: str, word: str, _folder: str) -> None:
    topic, group = f"Pull{word}", f"c{word}"
    async with AsyncProducer(f"p{word}", namesrv) as producer:
        await create(producer, topic)
        before_ms = now_ms()
        await settle(0.01)
        for number in range(40):
            await producer.send(Message(topic, b"%d" % number))
    wanted = {b"first", *(b"%d" % number for number in range(40))}
    async with AsyncPullConsumer(group, namesrv) as consumer:
        found, later = set(), 0
        for queue in await consumer.queues(topic):
            assert await consumer.committed_offset(queue) in {-1, 0}
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            later += end - await consumer.offset_by_time(queue, before_ms)
            while offset < end:
                result = await consumer.pull(queue, offset, count_max=7)
                assert result.status is PullStatus.FOUND
                found |= {message.body for message in result.messages}
                offset = result.next_offset
            assert (await consumer.pull(queue, end)).status is PullStatus.NO_NEW_MESSAGE or end == 0
            assert (await consumer.pull(queue, end + 9)).status is PullStatus.OFFSET_ILLEGAL
            await consumer.commit(queue, offset)
            assert await consumer.committed_offset(queue) == offset
        assert found == wanted
        assert later in {40, 41}  # 4.9 takes the nearest message, be it earlier

    async def poll(consumer: AsyncLitePullConsumer, bodies: list[bytes], count: int) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + LIMIT_S
        while len(bodies) < count and loop.time() < end:
            bodies += [message.body for message in await consumer.poll(500)]

    polled: list[bytes] = []
    subscriber = AsyncLitePullConsumer(f"l{word}", namesrv, consume_from="first_offset")
    subscriber.subscribe(topic)
    async with subscriber:
        await poll(subscriber, polled, 41)
        await subscriber.commit()
        queues = subscriber.queues
        await settle()
        assert sum([max(0, await subscriber.committed_offset(queue)) for queue in queues]) == 41
    assert sorted(polled) == sorted(wanted)

    async with AsyncLitePullConsumer(f"m{word}", namesrv) as chooser:
        queues = (await chooser.fetch_queues(topic))[:2]
        await chooser.assign(queues)
        for queue in queues:
            await chooser.seek_to_begin(queue)
        twice: list[bytes] = []
        await poll(chooser, twice, 1)
        for queue in queues:
            await chooser.seek_to_end(queue)
        assert await chooser.poll(300) == []


async def request_is_replied(namesrv: str, word: str, _folder: str) -> None:
    topic = f"Ask{word}"
    async with AsyncProducer(f"p{word}", namesrv) as producer, AsyncProducer(f"r{word}", namesrv) as replier:
        await create(producer, topic)

        async def listener(message: ReceivedMessage) -> None:
            if names.REPLY_TO_CLIENT in message.properties:
                await replier.reply(message, b"re: " + message.body)

        consumer = AsyncPushConsumer(f"c{word}", namesrv, listener=listener)
        consumer.subscribe(topic)
        async with consumer:
            await until(lambda: len(consumer.queues) >= 4, "queues")
            await settle()
            for number in range(5):
                reply = await producer.request(Message(topic, b"%d" % number), timeout_ms=20_000)
                assert reply.body == b"re: %d" % number


async def transactions_end_as_told(namesrv: str, word: str, _folder: str) -> None:
    topic = f"Trans{word}"
    got: Counter[bytes] = Counter()
    checks: Counter[bytes] = Counter()

    async def check(message: ReceivedMessage) -> TransactionState:
        checks[message.body] += 1
        return TransactionState.COMMIT if message.body == b"asked, then yes" else TransactionState.ROLLBACK

    async with AsyncTransactionProducer(f"p{word}", namesrv, check=check) as producer:
        await create(producer, topic)
        consumer = AsyncPushConsumer(
            f"c{word}",
            namesrv,
            listener=lambda message: got.update([message.body]),
            consume_from="first_offset",
        )
        consumer.subscribe(topic)
        async with consumer:
            for body, state in (
                (b"yes", TransactionState.COMMIT),
                (b"no", TransactionState.ROLLBACK),
                (b"asked, then yes", TransactionState.UNKNOWN),
                (b"asked, then no", TransactionState.UNKNOWN),
            ):
                result = await producer.send_in_transaction(Message(topic, body), lambda _m, _id, s=state: s)
                assert result.state is state
            await until(lambda: got[b"asked, then yes"] > 0 and checks[b"asked, then no"] > 0, "checks")
            await settle(2)
    assert got == Counter([b"first", b"yes", b"asked, then yes"])
    assert set(checks) == {b"asked, then yes", b"asked, then no"}


async def delayed_messages_wait(namesrv: str, word: str, _folder: str) -> None:
    await delays(namesrv, word, timers=False)


async def timed_messages_wait(namesrv: str, word: str, _folder: str) -> None:
    await delays(namesrv, word, timers=True)


async def delays(namesrv: str, word: str, *, timers: bool) -> None:
    topic = f"Delay{word}"
    came: dict[bytes, float] = {}
    loop = asyncio.get_running_loop()

    async def listener(message: ReceivedMessage) -> None:
        came[message.body] = loop.time()

    async with AsyncProducer(f"p{word}", namesrv) as producer:
        await create(producer, topic)
        consumer = AsyncPushConsumer(f"c{word}", namesrv, listener=listener, consume_from="first_offset")
        consumer.subscribe(topic)
        async with consumer:
            await until(lambda: b"first" in came, "the first message")
            sent = loop.time()
            if timers:
                await producer.send(Message(topic, b"in 3 s"), delay_ms=3000)
                await producer.send(Message(topic, b"at 4 s"), deliver_at_ms=now_ms() + 4000)
                wanted = {b"in 3 s": 3, b"at 4 s": 4}
            else:
                await producer.send(Message(topic, b"level 1", delay_level=1))
                await producer.send(Message(topic, b"level 2", delay_level=2))
                wanted = {b"level 1": 1, b"level 2": 5}
            await until(lambda: len(came) == 1 + len(wanted), "all messages")
            for body, seconds in wanted.items():
                assert came[body] - sent > seconds - 1.1, body


BASIC: tuple[Scenario, ...] = (
    sends_of_all_kinds,
    tags_choose,
    sql_chooses,
    failures_come_again_and_die,
    orderly_keeps_order,
    broadcast_reaches_all,
    group_goes_on_where_it_stopped,
    pulls_and_polls,
    delayed_messages_wait,
)
FURTHER: tuple[Scenario, ...] = (request_is_replied, transactions_end_as_told, timed_messages_wait)
