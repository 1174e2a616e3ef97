"""Consumers in Java and ours in one group, at RocketMQ's broker; each message is counted."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from pyledger.client import AsyncProducer, AsyncPushConsumer, Message, MessageQueue, ReceivedMessage
from tests.client.scenarios import settle, until
from tests.interop.java import Line
from tests.interop.peers import PEER_VERSIONS, RocketMQ, built_peer, cluster

pytestmark = [pytest.mark.java, pytest.mark.live, pytest.mark.timeout(600)]

REPEATS_MAX = 100
"""Java commits every five seconds and drops queues without waiting for its listeners."""


@pytest.fixture(scope="module", params=PEER_VERSIONS)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RocketMQ, str]]:
    """A version of RocketMQ, and the address of its name server."""
    peers = built_peer(request.param)
    with cluster(peers, tmp_path_factory.mktemp("rocketmq")) as namesrv:
        yield peers, namesrv


class Group:
    """One group, a producer that does not stop, and what was received by whom."""

    def __init__(self, peers: RocketMQ, namesrv: str, mode: str) -> None:
        self.peers, self.namesrv, self.mode = peers, namesrv, mode
        self.topic, self.name = f"Mixed_{mode}", f"mixed_{mode}"
        self.sent = 0
        self.full = False
        self.ours: list[bytes] = []
        self.theirs: list[bytes] = []
        self.order: dict[int, list[int]] = defaultdict(list)
        """Numbers by queue, as ours had them."""

    def listener(self, message: ReceivedMessage) -> None:
        self.ours.append(message.body)
        if message.topic == self.topic:
            self.order[message.queue_id].append(int(message.body))

    def member(self) -> AsyncPushConsumer:
        orderly = self.mode == "orderly"
        one = AsyncPushConsumer(
            self.name, self.namesrv, self.listener, orderly=orderly, consume_from="first_offset"
        )
        one.subscribe(self.topic)
        return one

    async def java(self, count: int) -> None:
        """A member in Java that leaves when it has consumed `count` messages."""
        group = ("--mode", self.mode, "--topic", self.topic, "--group", self.name)
        lines: list[Line] = await asyncio.to_thread(
            self.peers.run, "Consume", "--namesrv", self.namesrv, *group, "--expect", count, "--timeout", 120
        )
        self.theirs += [line["body"].encode() for line in lines if line["event"] == "message"]

    async def produce(self, producer: AsyncProducer) -> None:
        while not self.full:
            await producer.send(Message(self.topic, b"%d" % self.sent))
            self.sent += 1
            await asyncio.sleep(0.01)

    def queues_of(self, consumer: AsyncPushConsumer) -> list[MessageQueue]:
        return [queue for queue in consumer.queues if queue.topic == self.topic]


@pytest.mark.parametrize("mode", ["push", "orderly"])
def test_java_and_ours_share_queues_and_hand_over(servers: tuple[RocketMQ, str], mode: str) -> None:
    group = Group(*servers, mode)

    async def main() -> None:
        async with AsyncProducer("mixed", group.namesrv) as producer:
            producing = asyncio.create_task(group.produce(producer))
            await until(lambda: group.sent > 100, "the first hundred")
            async with group.member() as consumer:
                await until(lambda: len(group.ours) > 100, "the first hundred")
                count = len(group.queues_of(consumer))
                java = asyncio.create_task(group.java(200))
                await until(lambda: len(group.queues_of(consumer)) == count // 2, "a share for Java")
                await java
                await until(lambda: len(group.queues_of(consumer)) == count, "all queues again")
                java = asyncio.create_task(group.java(200))
                await until(lambda: len(group.queues_of(consumer)) == count // 2, "a share for Java")
            # Ours has left: Java's has it all, until it has enough.
            await java
            group.full = True
            await producing
            async with group.member():
                await until(
                    lambda: len({*group.ours, *group.theirs}) >= group.sent, "all that Java left over"
                )
                await settle(1)

    asyncio.run(main())
    got = Counter(group.ours) + Counter(group.theirs)
    assert set(got) == {b"%d" % number for number in range(group.sent)}
    assert len(group.theirs) >= 400
    assert sum(got.values()) - len(got) <= REPEATS_MAX
    if mode == "orderly":
        for numbers in group.order.values():
            first_seen = list(dict.fromkeys(numbers))
            assert first_seen == sorted(first_seen)
