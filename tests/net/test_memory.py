"""All connections of a server together hold no more than they may, and those that behave go on."""

import asyncio
import contextlib
import gc
import itertools
import resource
import socket
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from pyledger.config.net import NetConfig
from pyledger.net import buffer_budget as memory
from pyledger.net.bookkeeper.server import LedgerConnection, LedgerServer
from pyledger.net.endpoint import Frame
from pyledger.net.fair_queue import ITERATION_BYTES
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.server import RemotingServer
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from pyledger.wire.remoting.native_codec import AppendDecoder
from tests.net.conftest import Run
from tests.net.peers import ECHO, Handler, RawPeer, echo, raw, serving, until

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
            assert max(most) <= LIMIT_BYTES * 5 // 4 + READ_BYTES
            assert len(server.connections) < GREEDY + 1
            for send in sends:
                send.cancel()
            await asyncio.gather(*sends, return_exceptions=True)
        assert held(server) == 0

    run(main())


def half_of(body_bytes: int) -> bytes:
    """A request that lacks its last byte."""
    return encode_frame(RemotingCommand.request(ECHO, body=bytes(body_bytes)))[:-1]


def test_small_requests_do_not_wait_for_large_ones(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Over the limit, by less than a quarter, and before anybody is cut."""
    monkeypatch.setattr(memory, "STALL_S", 3600)
    limit_bytes, begun = 16 * MIB, half_of(MIB * 3 // 2)
    config = NetConfig(held_bytes_max=limit_bytes)

    async def main() -> None:
        async with serving(config=config) as server, AsyncExitStack() as stack, asyncio.timeout(60):
            good = await stack.enter_async_context(raw(server.port))
            greedy = [await stack.enter_async_context(raw(server.port)) for _ in range(GREEDY)]
            sends = [asyncio.create_task(one.send(begun)) for one in greedy]
            await until(lambda: held(server) > limit_bytes)
            for number in range(50):
                await answered(good, bytes(number << 10))
            async with raw(server.port) as newcomer:
                await answered(newcomer, b"small")
            assert held(server) > limit_bytes
            for send in sends:
                send.cancel()
            await asyncio.gather(*sends, return_exceptions=True)

    run(main())
    assert "aborted for memory" not in caplog.text


def test_stalled_connections_are_aborted_though_others_free_a_little(run: Run) -> None:
    """Neither a few bytes less nor requests of others being processed are progress."""

    async def main() -> None:
        gate, processing, handler = slow_handler()
        async with serving(handler, config=CONFIG) as server, AsyncExitStack() as stack:
            worker = await stack.enter_async_context(raw(server.port))
            await worker.send(encode_frame(RemotingCommand.request(ECHO, body=b"slow")))
            await until(lambda: processing)
            small = [raw(server.port) for _ in range(400)]
            for one in small:
                await (await one.__aenter__()).send(half_of(100)[:12])
            await until(lambda: len(server.connections) == 1 + len(small))
            # So few and so large that the limit is passed, but not by so much that they are cut at once.
            greedy = [await stack.enter_async_context(raw(server.port)) for _ in range(2)]
            sends = [asyncio.create_task(one.send(half_of(MIB + (MIB >> 3)))) for one in greedy]
            ends = asyncio.gather(*(one.ended() for one in greedy))
            await until(lambda: held(server) > LIMIT_BYTES)
            while len(server.connections) > len(small) + 2:
                assert small, "no connection was aborted"
                await small.pop().__aexit__(None, None, None)
                await asyncio.sleep(0.001)
            ends.cancel()
            gate.set()
            assert (await worker.receive()).code == 0
            await asyncio.gather(*sends, ends, return_exceptions=True)
            for one in small:
                await one.__aexit__(None, None, None)

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


def test_an_iteration_reads_a_limited_amount(run: Run) -> None:
    """However much of frames that have only begun the kernel has received of each connection."""

    async def main() -> None:
        async with serving() as server, AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(raw(server.port)) for _ in range(GREEDY)]
            await until(lambda: len(server.connections) == GREEDY)
            begun, sent_bytes = half_of(8 * MIB), 0
            for one in peers:
                # Nothing is awaited: all of it is in the kernel's buffers before the server reads.
                with contextlib.suppress(BlockingIOError):
                    one_bytes = 0
                    while one_bytes < len(begun):
                        count = one.socket.send(memoryview(begun)[one_bytes:])
                        one_bytes, sent_bytes = one_bytes + count, sent_bytes + count
            seen = [0]
            while seen[-1] < sent_bytes:
                await asyncio.sleep(0)
                seen.append(held(server))
            steps = [after - before for before, after in itertools.pairwise(seen)]
            assert max(steps) <= ITERATION_BYTES + (GREEDY + 1) * READ_BYTES < sent_bytes / 2

    run(main())


def slow_handler() -> tuple[asyncio.Event, list[int], Handler]:
    """A handler whose answers wait for the gate; the gate, and the sizes of the bodies it has begun with."""
    gate = asyncio.Event()
    begun: list[int] = []

    async def slow(request: RemotingCommand) -> RemotingCommand:
        await gate.wait()
        return request.response(0)

    def handler(_connection: Connection, request: RemotingCommand) -> asyncio.Future[RemotingCommand]:
        begun.append(len(request.body))
        return asyncio.ensure_future(slow(request))

    return gate, begun, handler


def test_requests_processing(run: Run) -> None:
    async def main() -> None:
        gate, begun, handler = slow_handler()
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


# --- connections that end

ROUNDS, EACH, HALF_BYTES = 20, 100, 48 << 10
CONNECTION_BYTES = 16 << 10
"""What a connection costs beside what it was sent, at most."""
LEFT_BYTES = 2 << 10
"""What asyncio's own cycles keep of a closed connection until the collector runs, at most."""


def half_frame(kind: str) -> bytes:
    """A frame of 1 MiB that has only begun."""
    if kind == "bookie":
        return struct.pack(">iB", MIB, 0x0A) + bytes(HALF_BYTES)
    return encode_frame(RemotingCommand.request(ECHO, body=bytes(MIB)))[:HALF_BYTES]


def no_batch(_connection: Connection, _frames: list[Frame], _at: int) -> tuple[None, int]:
    return None, 0


def no_frames(_connection: LedgerConnection, _frames: list[Any]) -> list[Any]:
    return []


SERVERS: dict[str, Callable[[], RemotingServer]] = {
    "name server": lambda: RemotingServer(echo),
    "broker": lambda: RemotingServer(echo, answer_batch=no_batch),
    "member": lambda: RemotingServer(echo, answer_batch=no_batch, decoder=AppendDecoder),
    "bookie": lambda: LedgerServer(
        no_frames, lambda: False, host="127.0.0.1", port=0, config=NetConfig(frame_max_bytes=5 << 20)
    ),
}


@pytest.fixture
def no_collector() -> Iterator[None]:
    """An idle server hardly ever runs the cycle collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.usefixtures("no_collector")
def test_what_is_counted_is_what_is_held(run: Run, kind: str) -> None:
    """Thousands of connections come with half a frame and go, by a close or a reset."""

    async def main() -> None:
        server = SERVERS[kind]()
        await server.start()
        assert server._endpoint is not None
        memory, half = server._endpoint.memory, half_frame(kind)
        tracemalloc.start()
        try:
            begun, _ = tracemalloc.get_traced_memory()
            for number in range(ROUNDS):
                async with AsyncExitStack() as stack:
                    for _ in range(EACH):
                        peer = await stack.enter_async_context(raw(server.port))
                        if number % 2:
                            peer.socket.setsockopt(
                                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                            )
                        await peer.send(half)
                    await until(lambda: memory.total_bytes == EACH * len(half))
                    assert held(server) == memory.total_bytes
                    real, _ = tracemalloc.get_traced_memory()
                    assert (
                        0
                        <= real - begun - memory.total_bytes
                        < memory.total_bytes / 4 + EACH * CONNECTION_BYTES
                    )
                await until(lambda: not server.connections)
                assert memory.total_bytes == 0
            left, _ = tracemalloc.get_traced_memory()
            assert left - begun < ROUNDS * EACH * LEFT_BYTES, "closed connections are kept"
        finally:
            tracemalloc.stop()
            await server.close()

    run(main())


@pytest.mark.usefixtures("no_collector")
def test_requests_processing_count_after_their_connection(run: Run) -> None:
    async def main() -> None:
        gate, begun, handler = slow_handler()
        async with serving(handler) as server:
            assert server._endpoint is not None
            memory = server._endpoint.memory
            async with raw(server.port) as peer:
                await peer.send(encode_frame(RemotingCommand.request(ECHO, body=bytes(MIB))))
                await until(lambda: begun)
            await until(lambda: not server.connections)
            assert memory.total_bytes == MIB, "its handler still has it"
            gate.set()
            await until(lambda: memory.total_bytes == 0)

    run(main())


def test_connections_leave_descriptors_to_files(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main() -> None:
        with socket.socket() as plain:
            room = plain.fileno() + 20
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (room * 4 // 3, hard))
            async with AsyncExitStack() as stack:
                server = await stack.enter_async_context(serving())
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                peers = [await stack.enter_async_context(raw(server.port)) for _ in range(30)]
                assert await peers[-1].ended()
                descriptors = [one.socket.fileno() for one in server.connections]
                assert 1 <= len(descriptors) < 30
                assert max(descriptors) < room
                assert (await peers[0].request(RemotingCommand.request(ECHO))).code == 0
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    run(main())
    assert caplog.text.count("too many connections") == 1
