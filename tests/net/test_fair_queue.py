"""No client waits until others have got all that they requested."""

import asyncio
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from pyledger.config.net import NetConfig
from pyledger.net.bookkeeper.server import LedgerConnection, LedgerServer
from pyledger.net.endpoint import Answer, Frame
from pyledger.net.fair_queue import CREDIT_BYTES, ITERATION_BYTES, REQUEST_BYTES, FairQueue
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.server import RemotingServer
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from pyledger.wire.remoting.native_codec import AppendDecoder
from tests.net.conftest import Run
from tests.net.peers import RawPeer, raw, until

LIGHT, HEAVY = 1, 2


class Counting:
    """Answers requests, and sends the light client's where a test says."""

    def __init__(self, answer_bytes: int) -> None:
        self.body = bytes(answer_bytes)
        self.heavy = 0
        self.at_heavy: dict[int, Callable[[], None]] = {}
        self.light_at: list[int] = []

    def count(self, *, light: bool) -> bytes:
        """The body of an answer."""
        if light:
            self.light_at.append(self.heavy)
            return b""
        self.heavy += 1
        if (act := self.at_heavy.pop(self.heavy, None)) is not None:
            act()
        return self.body

    def handle(self, _connection: Connection, request: RemotingCommand) -> Answer:
        return request.response(0, body=self.count(light=request.code == LIGHT))

    def take(self, connection: LedgerConnection, frames: list[Any], at: int) -> int:
        body = self.count(light=frames[at][0] == LIGHT)
        connection.respond((struct.pack(">i", len(body) + 4) + bytes(4) + body,), 0)
        return 1


def no_batch(_connection: Connection, _frames: list[Frame], _at: int) -> tuple[None, int]:
    return None, 0


SERVERS: dict[str, Callable[[Counting], RemotingServer]] = {
    "name server": lambda one: RemotingServer(one.handle),
    "broker": lambda one: RemotingServer(one.handle, answer_batch=no_batch),
    "member": lambda one: RemotingServer(one.handle, answer_batch=no_batch, decoder=AppendDecoder),
    "bookie": lambda one: LedgerServer(one.take, lambda: False, host="127.0.0.1", port=0, config=NetConfig()),
}


def request_of(kind: str, code: int) -> bytes:
    if kind == "bookie":
        return struct.pack(">ibxxx", 4, code)
    return encode_frame(RemotingCommand.request(code))


async def read_on(peer: RawPeer) -> None:
    while await asyncio.get_running_loop().sock_recv(peer.socket, 1 << 20):
        pass


async def served(kind: str, answer_bytes: int, clients: int, requests: int) -> list[int]:
    """How many heavy requests are handled while a light one waits, each time."""
    counting = Counting(answer_bytes)
    server = SERVERS[kind](counting)
    await server.start()
    async with AsyncExitStack() as stack:
        light = await stack.enter_async_context(raw(server.port))
        peers = [await stack.enter_async_context(raw(server.port)) for _ in range(clients)]
        await until(lambda: len(server.connections) == clients + 1)
        sent_at = range(clients * requests // 3, clients * requests * 9 // 10, clients * requests // 10)
        for at in sent_at:
            # On loopback the server can read it at once.
            counting.at_heavy[at] = lambda: light.socket.sendall(request_of(kind, LIGHT))
        for peer in peers:
            await peer.send(request_of(kind, HEAVY) * requests)
        readers = [asyncio.create_task(read_on(peer)) for peer in peers]
        await until(lambda: counting.heavy == clients * requests)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    await server.close()
    return [handled - at for handled, at in zip(counting.light_at, sent_at, strict=True)]


@pytest.mark.parametrize("kind", SERVERS)
def test_large_answers_to_others_are_not_waited_for(run: Run, kind: str) -> None:
    answer_bytes = 512 << 10
    waits = run(served(kind, answer_bytes, clients=20, requests=30))
    assert max(waits) <= 3 * (ITERATION_BYTES // answer_bytes)


@pytest.mark.parametrize("kind", SERVERS)
def test_many_requests_of_others_are_not_waited_for(run: Run, kind: str) -> None:
    waits = run(served(kind, answer_bytes=10, clients=2, requests=3000))
    assert max(waits) <= 3 * (ITERATION_BYTES // REQUEST_BYTES)


class Flow:
    """A connection that has so much to do."""

    def __init__(self, queue: FairQueue, name: str, costs: list[int], log: list[str]) -> None:
        self.queue, self.name, self.costs, self.log = queue, name, costs, log
        self.finish_tag = 0
        self.aborted = False

    def handle_queued(self) -> None:
        if not self.costs:
            raise ValueError(self.name)
        self.log.append(self.name)
        self.queue.charge(self, self.costs.pop(0))
        if self.costs:
            self.queue.wait(self)

    def abort(self) -> None:
        self.aborted = True


async def log_of(log: list[str], length: int) -> list[str]:
    while len(log) < length:
        await asyncio.sleep(0)
    return log


def test_connection_below_its_share_does_not_wait() -> None:
    async def main() -> list[str]:
        queue, log = FairQueue(asyncio.get_running_loop()), list[str]()
        for name in "abc":
            queue.wait(Flow(queue, name, [5 * ITERATION_BYTES] * 3, log))
        await log_of(log, 4)
        queue.wait(Flow(queue, "light", [100] * 3, log))
        return await log_of(log, 12)

    assert asyncio.run(main()) == [*"abca", *["light"] * 3, *"bcabc"]


def test_connection_that_was_alone_lags_by_the_credit_only() -> None:
    async def main() -> list[str]:
        queue, log = FairQueue(asyncio.get_running_loop()), list[str]()
        alone = Flow(queue, "alone", [CREDIT_BYTES // 2] * 100, log)
        queue.wait(alone)
        await log_of(log, 100)
        alone.costs = [CREDIT_BYTES // 2] * 2
        queue.wait(alone)
        queue.wait(Flow(queue, "new", [CREDIT_BYTES // 2] * 5, log))
        return (await log_of(log, 107))[100:]

    assert asyncio.run(main()) == [*["new"] * 3, "alone", "new", "alone", "new"]


def test_connection_that_fails_is_aborted_and_the_others_continue() -> None:
    async def main() -> None:
        problems: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context))
        queue, log = FairQueue(loop), list[str]()
        bad = Flow(queue, "bad", [], log)
        queue.wait(bad)
        queue.wait(Flow(queue, "good", [1], log))
        while not log:
            await asyncio.sleep(0)
        assert bad.aborted
        assert [type(one["exception"]) for one in problems] == [ValueError]

    asyncio.run(main())
