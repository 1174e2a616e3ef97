"""More sends than may be under way at once."""

import asyncio
from collections.abc import Iterator

import pytest

from pyledger.client.producer.producer import AsyncProducer
from pyledger.errors import RemotingTooMuchRequestError, SendError
from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.server import RemotingServer
from pyledger.wire.remoting.command import RemotingCommand
from tests.client.peers import Cluster, ScriptedBroker, cluster
from tests.net.conftest import Run

ORDER = Message("Orders", b"one")
ANSWER_AFTER_MS = 30


class SlowBroker(ScriptedBroker):
    """Answers sends after a while, and counts how many wait."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.at_once = self.at_once_max = 0

    async def answer(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        answer = self.handle(connection, request)
        if request.code == RequestCode.SEND_MESSAGE_V2:
            self.at_once += 1
            self.at_once_max = max(self.at_once_max, self.at_once)
            await asyncio.sleep(ANSWER_AFTER_MS / 1000)
            self.at_once -= 1
        return answer


async def slow_cluster() -> tuple[Cluster, SlowBroker]:
    broker = SlowBroker()
    made = Cluster([broker])
    made.server, broker.server = RemotingServer(made.handle), RemotingServer(broker.answer)
    await made.server.start()
    await broker.server.start()
    return made, broker


async def close(made: Cluster) -> None:
    for server in (made.server, *[broker.server for broker in made.brokers]):
        assert server is not None
        await server.close()


def test_time_begins_with_the_turn(run: Run) -> None:
    """A hundred sends, two at once, take longer than each may."""

    async def main() -> None:
        made, broker = await slow_cluster()
        async with AsyncProducer("G", made.address, sends_in_flight_max=2) as producer:
            await producer.send(ORDER)
            results = await asyncio.gather(*[producer.submit(ORDER, timeout_ms=1400) for _ in range(100)])
            assert len({one.unique_key for one in results}) == 100
            assert broker.at_once_max == 2
            assert len(broker.of(RequestCode.SEND_MESSAGE_V2)) == 101
        await close(made)

    run(main())


def test_try_without_a_turn_fails(run: Run) -> None:
    async def main() -> None:
        made, broker = await slow_cluster()
        async with AsyncProducer("G", made.address, sends_in_flight_max=2) as producer:
            await producer.send(ORDER)
            under_way = [producer.submit(ORDER, wait=False) for _ in range(2)]
            with pytest.raises(RemotingTooMuchRequestError, match="sends_in_flight_max"):
                producer.submit(ORDER, wait=False)
            await asyncio.gather(*under_way)
            await producer.submit(ORDER, wait=False)
        assert len(broker.of(RequestCode.SEND_MESSAGE_V2)) == 4
        await close(made)

    run(main())


def test_cancelled_send_gives_its_turn_away(run: Run) -> None:
    async def main() -> None:
        made, broker = await slow_cluster()
        async with AsyncProducer("G", made.address, sends_in_flight_max=1) as producer:
            await producer.send(ORDER)
            first, second, third = (producer.submit(ORDER) for _ in range(3))
            first.cancel()
            second.cancel()
            await third
        # The first was written already, the second waited for its turn.
        assert len(broker.of(RequestCode.SEND_MESSAGE_V2)) == 3
        await close(made)

    run(main())


def test_close_waits_for_what_waits(run: Run) -> None:
    async def main() -> None:
        made, broker = await slow_cluster()
        async with AsyncProducer("G", made.address, sends_in_flight_max=2) as producer:
            futures = [producer.submit(ORDER) for _ in range(9)]
        assert all(future.done() for future in futures)
        assert len(broker.of(RequestCode.SEND_MESSAGE_V2)) == 9
        await close(made)

    run(main())


def test_many_in_order_with_as_many_under_way_as_may_be(run: Run) -> None:
    taken = 0

    async def main() -> None:
        made, broker = await slow_cluster()

        def endless() -> Iterator[Message | list[Message]]:
            nonlocal taken
            for number in range(50):
                taken = number + 1
                # No more are taken than have been stored, may be under way, and one.
                assert taken <= len(broker.requests) + 8 + 1
                yield Message("Orders", b"%d" % number) if number % 10 else [ORDER, ORDER]

        async with AsyncProducer("G", made.address, sends_in_flight_max=8) as producer:
            results = await producer.send_many(endless())
            assert len(results) == 50
            assert [len(one.unique_key.split(",")) for one in results] == ([2] + [1] * 9) * 5
            assert broker.at_once_max <= 8
            assert len(broker.of(RequestCode.SEND_BATCH_MESSAGE)) == 5
        await close(made)

    run(main())


def test_first_failure_of_many_ends_them(run: Run) -> None:
    async def main() -> None:
        async with cluster() as peers, AsyncProducer("G", peers.address, sends_in_flight_max=2) as producer:
            await producer.send(ORDER)
            broker = peers.brokers[0]
            broker.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL)
            with pytest.raises(SendError, match="as the test says"):
                await producer.send_many([ORDER] * 100)
            assert 1 < len(broker.of(RequestCode.SEND_MESSAGE_V2)) < 20

    run(main())


def test_flood_is_stored_whole(run: Run) -> None:
    """Without a wait between them, with the default limit."""

    async def main() -> None:
        async with cluster() as peers, AsyncProducer("G", peers.address) as producer:
            results = await asyncio.gather(*[producer.submit(ORDER) for _ in range(5000)])
            assert len({one.unique_key for one in results}) == 5000
            assert len(peers.brokers[0].of(RequestCode.SEND_MESSAGE_V2)) == 5000

    run(main())


def test_broken_connection_is_tried_again(run: Run) -> None:
    """Answers never come; connections break; the sends go to the other broker."""

    async def main() -> None:
        async with cluster("a", "b") as peers, AsyncProducer("G", peers.address) as producer:
            await producer.send_many([ORDER] * 4)
            one = peers.brokers[0]
            one.ignore(RequestCode.SEND_MESSAGE_V2, 1000)
            before = len(one.of(RequestCode.SEND_MESSAGE_V2))
            futures = [producer.submit(ORDER) for _ in range(20)]
            while len(one.of(RequestCode.SEND_MESSAGE_V2)) < before + 10:
                await asyncio.sleep(0.01)
            one.connections[-1].abort()
            assert one.server is not None
            await one.server.close()
            results = await asyncio.gather(*futures)
            assert {result.queue.broker_name for result in results} == {"b"}

    run(main())
