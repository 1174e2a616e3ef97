"""All connections of a server together hold no more than they may, and those that behave go on."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from pyledger.config.net import NetConfig
from pyledger.net import memory
from pyledger.net.connection import Connection
from pyledger.net.server import RemotingServer
from pyledger.wire.remoting import RemotingCommand, encode_frame
from tests.net.conftest import Run
from tests.net.peers import ECHO, RawPeer, raw, serving, until

MIB = 1 << 20
LIMIT_BYTES = 2 * MIB
READ_BYTES = 256 << 10
"""What one wake-up of the event loop reads of a connection at most."""
CONFIG = NetConfig(
    held_bytes_max=LIMIT_BYTES,
    write_high_water_mark_bytes=MIB,
    write_low_water_mark_bytes=64 << 10,
)
GREEDY = 12


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stalls is cut soon."""
    monkeypatch.setattr(memory, "STALL_S", 0.05)


def held(server: RemotingServer) -> int:
    return sum(one.held_bytes for one in server.connections)


async def watched(server: RemotingServer, most: list[int]) -> None:
    while True:
        most.append(held(server))
        await asyncio.sleep(0)


async def answered(peer: RawPeer, body: bytes) -> None:
    answer = await peer.request(RemotingCommand.request(ECHO, body=body))
    assert answer.body == body


def test_frames_that_do_not_end(run: Run) -> None:
    async def main() -> None:
        async with serving(config=CONFIG) as server, AsyncExitStack() as stack:
            most: list[int] = []
            task = asyncio.create_task(watched(server, most))
            greedy = [await stack.enter_async_context(raw(server.port)) for _ in range(GREEDY)]
            begun = encode_frame(RemotingCommand.request(ECHO, body=bytes(MIB)))[:-1]
            sends = [asyncio.create_task(one.send(begun)) for one in greedy]
            await until(lambda: max(most) > LIMIT_BYTES)
            # Somebody is cut, until there is room for a peer that behaves.
            async with raw(server.port) as good:
                for _ in range(4):
                    await answered(good, bytes(MIB // 2))
            task.cancel()
            assert max(most) <= LIMIT_BYTES + 2 * READ_BYTES
            assert len(server.connections) < GREEDY + 1
            for send in sends:
                send.cancel()
            await asyncio.gather(*sends, return_exceptions=True)
        assert held(server) == 0

    run(main())


def test_answers_that_are_not_read(run: Run) -> None:
    async def main() -> None:
        async with serving(config=CONFIG) as server, AsyncExitStack() as stack:
            most: list[int] = []
            task = asyncio.create_task(watched(server, most))
            # Small buffers in the kernel: what is not read stays here.
            greedy = [await stack.enter_async_context(raw(server.port, 4096)) for _ in range(GREEDY)]
            request = encode_frame(RemotingCommand.request(ECHO, body=bytes(MIB // 2)))
            sends = [asyncio.create_task(one.send(request * 8)) for one in greedy]
            await until(lambda: max(most) > LIMIT_BYTES)
            async with raw(server.port) as good:
                for _ in range(4):
                    await answered(good, b"small")
            task.cancel()
            # What is over the limit is what was read already, and its answers.
            assert max(most) <= LIMIT_BYTES + 4 * MIB
            for send in sends:
                send.cancel()
            await asyncio.gather(*sends, return_exceptions=True)

    run(main())


def test_requests_in_work(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        begun: list[int] = []

        async def slow(request: RemotingCommand) -> RemotingCommand:
            await gate.wait()
            return request.response(0)

        def handler(_connection: Connection, request: RemotingCommand) -> asyncio.Future[RemotingCommand]:
            begun.append(len(request.body))
            return asyncio.ensure_future(slow(request))

        # Nobody is cut while the handler takes its time.
        async with serving(handler, config=CONFIG) as server, AsyncExitStack() as stack:
            # Four fit; what the others have begun fits, too, when those are answered.
            peers = [await stack.enter_async_context(raw(server.port)) for _ in range(6)]
            request = encode_frame(RemotingCommand.request(ECHO, body=bytes(MIB // 2)))
            sends = []
            for number, one in enumerate(peers, 1):
                sends.append(asyncio.create_task(one.send(request)))
                await until(lambda wanted=number: len(begun) == wanted or held(server) > LIMIT_BYTES)
            assert sum(begun) <= LIMIT_BYTES + MIB
            gate.set()
            await asyncio.gather(*sends)
            for one in peers:
                assert (await one.receive()).code == 0
            await until(lambda: held(server) == 0)
            assert len(begun) == len(peers)

    run(main())
