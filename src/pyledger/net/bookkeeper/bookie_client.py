"""Connections to bookies: requests are sent as they come, responses arrive in any order.

With TLS, a connection sends START_TLS (version 3) in clear, and nothing else before the handshake.

Source: BookKeeper proto/PerChannelBookieClient.java.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from pyledger.config.net import DAY_S, NetConfig, TlsConfig
from pyledger.errors import FrameError, LedgerFrameError
from pyledger.log_events import event, logger
from pyledger.model.address import split_address
from pyledger.net.endpoint import Endpoint, Received
from pyledger.net.sockets import open_socket, reason_of
from pyledger.net.stream import FrameStream
from pyledger.net.timers import Alarm
from pyledger.net.tls import client_context
from pyledger.wire.bookkeeper.start_tls import TLS_REQUEST, check_tls_answer
from pyledger.wire.remoting.framing import FrameDecoder, StreamDecoder

log = logger("net")

Done = Callable[[Any], None]
"""Gets what the codec made of the answer; None: there is none, and none will come."""
SWEEP_MS = 100
LENGTH_BYTES = 4
TLS_ANSWER_BYTES_MAX = 1 << 10


@dataclass(frozen=True, slots=True)
class Codec:
    """What a connection needs to know of a version of the protocol.

    Attributes:
        decode: Frame to the key of its request, and the answer.
    """

    decode: Callable[[memoryview], tuple[Hashable, Any]]
    decoder: Callable[[int], StreamDecoder[Any]] = FrameDecoder
    """Splits bytes into frames. It may return successful adds as their first number and their count alone."""
    added: Any = None
    """The answer that such an add gets."""


@dataclass(slots=True)
class RequestBatch:
    """Requests with consecutive numbers, perhaps only one.

    Attributes:
        number: Of the first that is not answered yet.
        end: After the last.
        done: Gets the number of the first answered request, how many of them have this answer, and the
            answer: `Codec.added`, another one, or None: no answer came.
        late_at: When the timeout expires, by the clock of the event loop.
    """

    number: int
    end: int
    done: Callable[[int, int, Any], None]
    late_at: float = 0.0


class BookieConnection(FrameStream):
    """A connection to one bookie."""

    __slots__ = ("_batches", "_codec", "_sweep", "calls", "problem")

    def __init__(self, endpoint: Endpoint[Any], own: socket.socket, codec: Codec, *, secure: bool) -> None:
        """Made by a client."""
        super().__init__(endpoint, own, secure=secure)
        self.problem = ""
        """Why it ended."""
        self.calls: dict[Hashable, list[tuple[float, Done]]] = {}
        # By the number of the first request without an answer.
        self._batches: dict[int, RequestBatch] = {}
        self._codec = codec
        self._sweep = Alarm(self._end_late)

    def connection_made(self, transport: Any) -> None:
        """The connection is open."""
        super().connection_made(transport)
        self.endpoint.add(self)

    def send(self, key: Hashable, parts: Sequence[bytes], timeout_ms: float, done: Done) -> None:
        """Send a whole frame.

        Args:
            key: Identifies the answer; requests with the same key share the first answer.
            parts: The frame, with its length.
            timeout_ms: For the answer.
            done: Called once, never before this returns.
        """
        if self.closed:
            self.endpoint.loop.call_soon(done, None)
            return
        self._sweep_later()
        call = (self.endpoint.loop.time() + timeout_ms / 1000, done)
        self.calls.setdefault(key, []).append(call)
        self.write(parts)

    def send_batch(self, batch: RequestBatch, frames: bytes, timeout_ms: float) -> None:
        """Send the frames of a batch.

        Args:
            batch: Its `done` is never called before this returns.
            frames: Of all its requests, with their lengths.
            timeout_ms: For the answers.
        """
        batch.late_at = self.endpoint.loop.time() + timeout_ms / 1000
        if self.closed:
            self.endpoint.loop.call_soon(batch.done, batch.number, batch.end - batch.number, None)
            return
        self._sweep_later()
        self._batches[batch.number] = batch
        self.write((frames,))

    def _sweep_later(self) -> None:
        if not (self.calls or self._batches):
            self.endpoint.wheel.arm(self._sweep, SWEEP_MS)

    # --- what the stream calls

    def take(self, frames: list[Any]) -> list[Received]:
        """Hand over answers."""
        decode = self._codec.decode
        for frame in frames:
            if isinstance(frame, tuple):
                self._added(*frame)
                continue
            assert isinstance(frame, memoryview)
            try:
                key, answer = decode(frame)
            except LedgerFrameError as error:
                raise FrameError(str(error)) from error
            self._answer(key, answer)
        return []

    def busy(self) -> bool:
        """Whether more is likely to be sent in this iteration of the event loop."""
        return len(self.calls) + len(self._batches) > 1

    def ended(self, problem: str) -> None:
        """The connection is gone: end every waiting request without an answer."""
        event(log, logging.DEBUG, "bookie gone", peer=self.remote_address, problem=problem)
        self.problem = problem
        self._sweep.dispose()
        self.endpoint.remove(self)
        self._end_all()

    def _added(self, number: int, count: int) -> None:
        """Adds succeeded."""
        while count:
            taken = self._answer_batch(number, count, self._codec.added)
            if not taken:
                self._answer(number, self._codec.added)
                taken = 1
            number, count = number + taken, count - taken

    def _answer(self, key: Hashable, answer: Any) -> None:
        if key not in self.calls and isinstance(key, int):
            self._answer_batch(key, 1, answer)
        for _, done in self.calls.pop(key, ()):
            done(answer)

    def _answer_batch(self, number: int, count: int, answer: Any) -> int:
        """Hand over the answer to consecutive requests; how many of them are in the batch of the first."""
        batch = self._batches.pop(number, None) or self._split(number)
        if batch is None:
            return 0
        taken = min(count, batch.end - number)
        if number + taken < batch.end:
            batch.number = number + taken
            self._batches[batch.number] = batch
        batch.done(number, taken, answer)
        return taken

    def _split(self, number: int) -> RequestBatch | None:
        """Answers came out of order: the end of a batch, from a number on."""
        for batch in self._batches.values():
            if batch.number < number < batch.end:
                rest = RequestBatch(number, batch.end, batch.done, batch.late_at)
                batch.end = number
                return rest
        return None

    def _end_all(self) -> None:
        self._end_batches(list(self._batches.values()))
        self._end(list(self.calls))

    def _end_late(self) -> None:
        now = self.endpoint.loop.time()
        self._end_batches([batch for batch in self._batches.values() if batch.late_at <= now])
        # Within one key the first has waited longest.
        self._end([key for key, waiting in self.calls.items() if waiting[0][0] <= now])
        if (self.calls or self._batches) and not self.closed:
            self.endpoint.wheel.arm(self._sweep, SWEEP_MS)

    def _end_batches(self, batches: list[RequestBatch]) -> None:
        for batch in batches:
            self._batches.pop(batch.number, None)
            batch.done(batch.number, batch.end - batch.number, None)

    def _end(self, keys: list[Hashable]) -> None:
        for key in keys:
            for _, done in self.calls.pop(key, ()):
                done(None)


class BookieClient:
    """One connection for each address, made when it is needed. Belongs to one event loop."""

    def __init__(
        self, codec: Codec, *, frame_max_bytes: int, connect_timeout_ms: int, tls: TlsConfig | None = None
    ) -> None:
        """A client that connects when it is first used.

        Args:
            codec: Version of the protocol.
            frame_max_bytes: Longest frame that it receives.
            connect_timeout_ms: How long a connection is tried.
            tls: Certificates, and whether to speak TLS at all.

        Raises:
            ConfigError: A certificate cannot be read.
        """
        self._codec = codec
        self._tls = tls or TlsConfig()
        self._context = client_context(self._tls)
        self._config = NetConfig(
            frame_max_bytes=frame_max_bytes, client_idle_seconds=DAY_S, connect_timeout_ms=connect_timeout_ms
        )
        self._endpoint: Endpoint[Any] | None = None
        self._connections: dict[str, BookieConnection] = {}
        # What each address is sent once it is connected; without a connection, each gets None.
        self._waiting: dict[str, list[Callable[[BookieConnection | None], None]]] = {}
        self._waiting_bytes: dict[str, int] = {}
        # Why an address was not reached last time: more of the same is not worth a warning.
        self._unreached: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def send(
        self, address: str, key: Hashable, parts: Sequence[bytes], timeout_ms: float, done: Done
    ) -> None:
        """Send a whole frame, over a new connection where there is none.

        Args:
            address: `host:port`.
            key: Identifies the answer.
            parts: The frame, with its length.
            timeout_ms: For the answer, counted from when the connection is open.
            done: Gets the answer; None: there is none, or too much waits for the connection. Called once,
                never before this returns.
        """
        if (connection := self.connected(address)) is not None:
            connection.send(key, parts, timeout_ms, done)
            return

        def connected(connection: BookieConnection | None) -> None:
            if connection is None:
                done(None)
            else:
                connection.send(key, parts, timeout_ms, done)

        self._when_connected(address, sum(map(len, parts)), connected)

    def send_batch(self, address: str, batch: RequestBatch, frames: bytes, timeout_ms: float) -> None:
        """Send the frames of a batch, over a new connection where there is none; see `send`."""
        if (connection := self.connected(address)) is not None:
            connection.send_batch(batch, frames, timeout_ms)
            return

        def connected(connection: BookieConnection | None) -> None:
            if connection is None:
                batch.done(batch.number, batch.end - batch.number, None)
            else:
                connection.send_batch(batch, frames, timeout_ms)

        self._when_connected(address, len(frames), connected)

    def _when_connected(
        self, address: str, size_bytes: int, act: Callable[[BookieConnection | None], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        waiting_bytes = self._waiting_bytes.get(address, 0)
        if self._closed or waiting_bytes > self._config.write_backlog_max_bytes:
            loop.call_soon(act, None)
            return
        self._waiting_bytes[address] = waiting_bytes + size_bytes
        waiting = self._waiting.setdefault(address, [])
        waiting.append(act)
        if len(waiting) == 1:
            task = loop.create_task(self._open(address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def connected(self, address: str) -> BookieConnection | None:
        """The connection to an address; None: there is none yet, or no more."""
        connection = self._connections.get(address)
        return None if connection is None or connection.closed else connection

    def problem(self, address: str) -> str:
        """Why an address gives no answer: it was not reached, or its connection ended; empty: not known."""
        if unreached := self._unreached.get(address):
            return unreached
        connection = self._connections.get(address)
        return connection.problem if connection is not None and connection.closed else ""

    async def close(self) -> None:
        """Close every connection; whoever waits gets no answer. Idempotent."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._endpoint is not None:
            await self._endpoint.close()

    async def _open(self, address: str) -> None:
        connection: BookieConnection | None = None
        try:
            connection = await self._connect(address)
        except (OSError, ValueError, TimeoutError) as error:
            problem = reason_of(error) if isinstance(error, OSError) else str(error)
            level = logging.DEBUG if address in self._unreached else logging.WARNING
            event(log, level, "bookie not reached", address=address, problem=problem)
            self._unreached[address] = problem
        else:
            self._unreached.pop(address, None)
        finally:
            self._waiting_bytes.pop(address, None)
            for act in self._waiting.pop(address):
                act(connection)

    async def _connect(self, address: str) -> BookieConnection:
        loop = asyncio.get_running_loop()
        if self._endpoint is None:
            self._endpoint = Endpoint(
                loop, self._config, _no_requests, server=False, decoder=self._codec.decoder
            )
        endpoint = self._endpoint
        context = self._context
        async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
            plain = await open_socket(address, 0, 0)
            try:
                if context is not None:
                    await request_tls(loop, plain)
                _, connection = await loop.create_connection(
                    lambda: BookieConnection(endpoint, plain, self._codec, secure=context is not None),
                    sock=plain,
                    ssl=context,
                    server_hostname=None if context is None else split_address(address)[0],
                    ssl_handshake_timeout=None if context is None else self._tls.handshake_timeout_ms / 1000,
                )
            except BaseException:
                plain.close()
                raise
        self._connections[address] = connection
        return connection


async def request_tls(loop: asyncio.AbstractEventLoop, plain: socket.socket) -> None:
    """Send START_TLS and wait until the bookie agrees.

    Raises:
        OSError: It does not agree, or the connection is gone.
    """
    await loop.sock_sendall(plain, TLS_REQUEST)
    size = int.from_bytes(await _receive(loop, plain, LENGTH_BYTES), "big")
    if not 0 < size <= TLS_ANSWER_BYTES_MAX:
        raise ConnectionRefusedError("its answer to START_TLS is malformed")
    try:
        check_tls_answer(memoryview(await _receive(loop, plain, size)))
    except LedgerFrameError as error:
        raise ConnectionRefusedError(str(error)) from error


async def _receive(loop: asyncio.AbstractEventLoop, plain: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        part = await loop.sock_recv(plain, size_bytes - len(data))
        if not part:
            raise ConnectionResetError("it closed the connection")
        data += part
    return data


def _no_requests(*_request: object) -> None:
    """Remoting's handler, never called: a bookie sends no requests."""
