"""One connection of remoting: frames in, frames out, requests both ways.

A wake-up of the event loop reads what has come, handles every whole frame in it, and writes all answers at once.
Requests and answers of the two directions share the connection; only bit 0 of the flag tells them apart.
Invariant: a call in `calls` holds one permit, and either ends in `finish` or is abandoned.

Source: RocketMQ remoting/.../netty/NettyRemotingAbstract.java; spec section 5.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any

from pyledger.errors import (
    FrameError,
    InvariantError,
    PyLedgerError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
)
from pyledger.log import event, logger
from pyledger.net.calls import Done, Outcome, PendingCall
from pyledger.net.endpoint import Answer, Endpoint
from pyledger.net.outbox import Outbox
from pyledger.net.timers import Timer
from pyledger.wire.codes import ResponseCode
from pyledger.wire.framing import FrameDecoder
from pyledger.wire.remoting import RemotingCommand, decode, encode_head

log = logger("net")

ONEWAY = 2
GO_AWAY_REMARK = "please go away"
GO_AWAY_ABOVE_VERSION = 475
"""Peers up to this version (5.3.1) do not know GO_AWAY."""
FLUSH_BYTES = 64 << 10
"""While one wake-up is handled, so many bytes of answers are written before the next request is looked at."""
REMARK_CHARACTERS_MAX = 1024
CLOSE_TIMEOUT_MS = 5_000
"""How long a connection that is closed may take to write what is left."""


class IdleCheck(Timer):
    """Closes its connection after a time without a byte read or written; looks once per such time."""

    __slots__ = ("_connection",)

    def __init__(self, connection: "Connection") -> None:
        super().__init__()
        self._connection = connection

    def expire(self) -> None:
        """Close, or look again when the connection may have been idle for long enough."""
        rest_ms = self._connection.idle_left_ms()
        if rest_ms > 0:
            self._connection.endpoint.wheel.arm(self, rest_ms)
        else:
            event(log, logging.INFO, "connection idle", peer=self._connection.remote_address)
            self._connection.abort()


class CloseDeadline(Timer):
    """Cuts a connection whose last bytes nobody takes."""

    __slots__ = ("_connection",)

    def __init__(self, connection: "Connection") -> None:
        super().__init__()
        self._connection = connection

    def expire(self) -> None:
        """The time to write what was left is over."""
        self._connection.abort()


class Connection(asyncio.Protocol):
    """A connection, of a server or of a client; both sides may send requests."""

    __slots__ = (
        "_active_at",
        "_burst",
        "_deadline",
        "_decoder",
        "_drain_waiters",
        "_handling",
        "_idle",
        "_oneway_ends",
        "_outbox",
        "_plain",
        "_received_at",
        "_transport",
        "_waiting",
        "_work",
        "calls",
        "closed",
        "data",
        "endpoint",
        "language",
        "remote_address",
        "version",
    )

    def __init__(self, endpoint: Endpoint, plain: socket.socket | None) -> None:
        """Made by a server or a client.

        Args:
            endpoint: What the connections of this side share.
            plain: The connection's own socket; None with TLS.
        """
        self.endpoint = endpoint
        self.remote_address = ""
        self.version = 0
        self.language: int | None = None
        self.data: dict[Any, Any] = {}
        self.calls: dict[int, PendingCall] = {}
        self.closed = False
        self._plain = plain
        self._decoder = FrameDecoder(endpoint.limits.frame_max_bytes)
        # Frames that came before the connection was throttled, still to be handled.
        self._waiting: deque[memoryview] = deque()
        self._work: set[asyncio.Future[Answer]] = set()
        # Where in the stream of written bytes each one-way request ends that holds a permit.
        self._oneway_ends: deque[int] = deque()
        self._drain_waiters: list[asyncio.Future[None]] = []
        self._handling = False
        self._burst = False
        self._active_at = self._received_at = endpoint.loop.time()
        self._idle = IdleCheck(self)
        self._deadline = CloseDeadline(self)

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands, its TLS handshake included."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport: Any = transport
        self.remote_address = address_text(transport.get_extra_info("peername"))
        self._outbox = Outbox(transport, self._plain)
        self.endpoint.connections[self] = None
        self.endpoint.wheel.arm(self._idle, self.endpoint.limits.idle_seconds * 1000)
        if self.endpoint.on_open is not None:
            self.endpoint.on_open(self)

    def data_received(self, data: bytes) -> None:
        """Handle the frames that `data` completes."""
        if self.closed:
            return
        self._active_at = self._received_at = self.endpoint.loop.time()
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            self._refuse(error)
            return
        if self._waiting:
            self._waiting.extend(frames)
        elif frames:
            if self.endpoint.intake is not None:
                self._handling = True
                try:
                    frames = self.endpoint.intake(self, frames)
                finally:
                    self._handling = False
            self._take(frames)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone; everybody who waits for it is told."""
        self.closed = True
        self._idle.cancel()
        self._deadline.cancel()
        self._outbox.clear()
        self._waiting.clear()
        for _ in range(len(self._oneway_ends)):
            self.endpoint.oneway_permits.give()
        self._oneway_ends.clear()
        self.endpoint.connections.pop(self, None)
        problem = f"the connection broke ({error})" if error is not None else "the connection was closed"
        for opaque in tuple(self.calls):
            if (call := self.calls.pop(opaque, None)) is not None:
                call.finish(RemotingSendRequestError(self.remote_address, problem))
        self._wake_drained()
        if self.endpoint.on_close is not None:
            self.endpoint.on_close(self)

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self._outbox.blocked = True

    def resume_writing(self) -> None:
        """The kernel takes more."""
        self._outbox.blocked = False
        self._flush()

    # --- what the application calls

    def send(self, command: RemotingCommand, parts: Sequence[memoryview] = ()) -> None:
        """Send a command; on a closed connection it is dropped.

        Args:
            command: A response, or a request whose answer nobody awaits.
            parts: Sent behind the command's own body, as part of it. Nothing is copied while the peer reads;
                each view is kept alive until it is written.
        """
        if self.closed:
            return
        outbox = self._outbox
        body = command.body
        outbox.put(encode_head(command, len(body) + sum(map(len, parts))))
        if body:
            outbox.put(body)
        for part in parts:
            if part:
                outbox.put(part)
        self._sent()

    def write(self, parts: Iterable[bytes | memoryview]) -> None:
        """Send whole frames that are encoded already; on a closed connection they are dropped."""
        if self.closed:
            return
        for part in parts:
            if part:
                self._outbox.put(part)
        self._sent()

    async def call(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and wait for its answer.

        Args:
            command: A request; its opaque is set here.
            timeout_ms: For everything: a permit, room to write, the answer.

        Raises:
            RemotingTooMuchRequestError: no permit became free in time; nothing was sent.
            RemotingTimeoutError: no answer came in time.
            RemotingSendRequestError: the connection is closed, or closed before the answer came.
        """
        loop = self.endpoint.loop
        started = loop.time()
        left_ms: float = timeout_ms
        if not self.endpoint.async_permits.try_take():
            await self.endpoint.async_permits.take(timeout_ms)
            left_ms -= (loop.time() - started) * 1000
        try:
            if self._outbox.queued_bytes > self.endpoint.limits.high_water_mark_bytes:
                await self._drain_within(left_ms, timeout_ms)
                left_ms = timeout_ms - (loop.time() - started) * 1000
            future = loop.create_future()
            pending = self._start(command, left_ms, partial(settle, future))
        except BaseException:
            self.endpoint.async_permits.give()
            raise
        sent_at = loop.time()
        try:
            answer: RemotingCommand = await future
        except RemotingTimeoutError:
            enough = left_ms > 100 or left_ms > timeout_ms / 4
            if self.endpoint.limits.close_on_timeout and enough and self._received_at < sent_at:
                self.abort()
            raise
        except asyncio.CancelledError:
            pending.abandon()
            raise
        return answer

    def start_call(self, command: RemotingCommand, timeout_ms: int, done: Done) -> PendingCall:
        """Send a request; `done` gets its answer, or the error, from the event loop.

        Args:
            command: A request; its opaque is set here.
            timeout_ms: For the answer.
            done: Called once, unless the returned call is abandoned. Must not raise.

        Raises:
            RemotingTooMuchRequestError: no permit is free; nothing was sent.
            RemotingSendRequestError: the connection is closed.
        """
        permits = self.endpoint.async_permits
        if not permits.try_take():
            raise permits.exhausted(0)
        try:
            return self._start(command, timeout_ms, done)
        except BaseException:
            permits.give()
            raise

    def call_oneway(self, command: RemotingCommand) -> None:
        """Send a request that has no answer.

        Raises:
            RemotingTooMuchRequestError: no permit is free: too many are not written yet.
            RemotingSendRequestError: the connection is closed.
        """
        if self.closed:
            raise RemotingSendRequestError(self.remote_address, "the connection is closed")
        permits = self.endpoint.oneway_permits
        if not permits.try_take():
            raise permits.exhausted(0)
        command.opaque = self.endpoint.next_opaque()
        command.flag |= ONEWAY
        outbox = self._outbox
        self.send(command)
        end = outbox.written_bytes + outbox.queued_bytes
        if self.closed or end == outbox.written_bytes:
            permits.give()
        else:
            self._oneway_ends.append(end)

    async def drain(self) -> None:
        """Wait until no more than the low water mark is to be written, or the connection is closed."""
        if self.closed or self._outbox.queued_bytes <= self.endpoint.limits.low_water_mark_bytes:
            return
        waiter = self.endpoint.loop.create_future()
        self._drain_waiters.append(waiter)
        await waiter

    async def finish(self) -> None:
        """Read no more; wait until every request that was taken is answered and written."""
        self._transport.pause_reading()
        while not self.closed and (self._work or self._waiting or self._outbox.queued_bytes):
            if self._work:
                await asyncio.wait(self._work)
            else:
                waiter = self.endpoint.loop.create_future()
                self._drain_waiters.append(waiter)
                await waiter

    def close(self) -> None:
        """Write what is queued, then close; what takes too long is cut off. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self.endpoint.wheel.arm(self._deadline, CLOSE_TIMEOUT_MS)
        self._flush()
        if not self._outbox.queued_bytes:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what is queued is lost."""
        self.closed = True
        self._outbox.clear()
        self._transport.abort()

    @property
    def queued_bytes(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._outbox.queued_bytes

    @property
    def congested(self) -> bool:
        """Whether no further request should be taken now: too much to write, or too many in work."""
        limits = self.endpoint.limits
        return self._outbox.queued_bytes > limits.high_water_mark_bytes or len(self._work) >= limits.requests_max

    def idle_left_ms(self) -> float:
        """How long until this connection has been idle for as long as it may, in ms."""
        idle_seconds = self.endpoint.loop.time() - self._active_at
        return (self.endpoint.limits.idle_seconds - idle_seconds) * 1000

    # --- requests of the peer

    def _take(self, frames: list[memoryview]) -> None:
        self._handling = True
        try:
            for index, frame in enumerate(frames):
                command = decode(frame)
                if command.is_response:
                    if (call := self.calls.pop(command.opaque, None)) is not None:
                        call.finish(command)
                    else:
                        event(log, logging.DEBUG, "answer to no request", peer=self.remote_address)
                    continue
                self._serve(command)
                if self._must_pause():
                    self._waiting.extend(frames[index + 1 :])
                    break
                if self.closed:
                    return
        except FrameError as error:
            self._refuse(error)
            return
        finally:
            self._handling = False
        if self._outbox.queued_bytes:
            self._flush()

    def _serve(self, request: RemotingCommand) -> None:
        self.version, self.language = request.version, request.language
        if self.endpoint.going_away and request.version > GO_AWAY_ABOVE_VERSION:
            self._answer(request, request.response(ResponseCode.GO_AWAY, GO_AWAY_REMARK))
            return
        try:
            answer = self.endpoint.handler(self, request)
        except InvariantError:
            raise
        except Exception as error:  # noqa: BLE001 - one request's failure is told to its sender, nobody else
            answer = self._failure(request, error)
        if answer is None:
            return
        if isinstance(answer, RemotingCommand):
            self._answer(request, answer)
            return
        work = asyncio.ensure_future(answer, loop=self.endpoint.loop)
        self._work.add(work)
        work.add_done_callback(partial(self._work_done, request))

    def _work_done(self, request: RemotingCommand, work: asyncio.Future[Answer]) -> None:
        self._work.discard(work)
        if work.cancelled():
            return
        error = work.exception()
        if isinstance(error, InvariantError):
            self.abort()
            raise error
        answer = self._failure(request, error) if error is not None else work.result()
        if answer is not None:
            self._answer(request, answer)
        if self._waiting:
            self._go_on()

    def _answer(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        if not request.flag & ONEWAY:
            self.send(answer)

    def _failure(self, request: RemotingCommand, error: BaseException) -> RemotingCommand:
        if not isinstance(error, PyLedgerError):
            log.error("request failed code=%d peer=%s", request.code, self.remote_address, exc_info=error)
        remark = f"{type(error).__name__}: {error}"[:REMARK_CHARACTERS_MAX]
        return request.response(ResponseCode.SYSTEM_ERROR, remark)

    def _refuse(self, error: FrameError) -> None:
        event(log, logging.WARNING, "frame refused", peer=self.remote_address, problem=error)
        self.abort()

    def _must_pause(self) -> bool:
        """Write when much is queued, and stop reading while the peer takes no answers."""
        if self._outbox.queued_bytes > FLUSH_BYTES:
            self._flush()
        if self.endpoint.limits.throttles_reading and self.congested:
            self._transport.pause_reading()
            return True
        return False

    def _go_on(self) -> None:
        """Handle what waited while the connection was throttled; read on when all of it is done."""
        if self._handling or self.closed or self.congested:
            return
        frames = list(self._waiting)
        self._waiting.clear()
        self._take(frames)
        if not self._waiting and not self.closed and not self.congested:
            self._transport.resume_reading()

    # --- writing

    def _start(self, command: RemotingCommand, timeout_ms: float, done: Done) -> PendingCall:
        """Send a request that holds a permit."""
        if self.closed:
            raise RemotingSendRequestError(self.remote_address, "the connection is closed")
        opaque = command.opaque = self.endpoint.next_opaque()
        pending = PendingCall(self, opaque, int(timeout_ms), done)
        self.calls[opaque] = pending
        self.endpoint.wheel.arm(pending, timeout_ms)
        try:
            self.send(command)
        except BaseException:
            del self.calls[opaque]
            pending.cancel()
            raise
        return pending

    async def _drain_within(self, left_ms: float, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(max(0.0, left_ms) / 1000):
                await self.drain()
        except TimeoutError:
            raise RemotingTimeoutError(self.remote_address, timeout_ms) from None

    def _sent(self) -> None:
        """Write now, or with what else is sent in this turn of the event loop."""
        outbox = self._outbox
        if outbox.queued_bytes > self.endpoint.limits.backlog_max_bytes:
            self._flush()
            if outbox.queued_bytes > self.endpoint.limits.backlog_max_bytes:
                event(log, logging.WARNING, "peer does not read", peer=self.remote_address)
                self.abort()
            return
        if self._handling or self._burst:
            return
        self._flush()
        if len(self.calls) > 1 or self._work:
            # The first of many goes at once; those that follow in this turn go together.
            self._burst = True
            self.endpoint.loop.call_soon(self._end_burst)

    def _end_burst(self) -> None:
        self._burst = False
        self._flush()

    def _flush(self) -> None:
        outbox = self._outbox
        if not outbox.queued_bytes:
            return
        written = outbox.written_bytes
        try:
            outbox.flush()
        except OSError as error:
            event(log, logging.DEBUG, "connection broke", peer=self.remote_address, problem=error)
            self.abort()
            return
        if outbox.written_bytes != written:
            self._active_at = self.endpoint.loop.time()
            self._written()

    def _written(self) -> None:
        outbox = self._outbox
        while self._oneway_ends and self._oneway_ends[0] <= outbox.written_bytes:
            self._oneway_ends.popleft()
            self.endpoint.oneway_permits.give()
        if self.closed:
            if not outbox.queued_bytes:
                self._transport.close()
        elif outbox.queued_bytes <= self.endpoint.limits.low_water_mark_bytes:
            if self._drain_waiters:
                self._wake_drained()
            if self._waiting:
                self._go_on()

    def _wake_drained(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def settle(future: asyncio.Future[RemotingCommand], outcome: Outcome) -> None:
    """Give a future what became of its call."""
    if future.done():
        return
    if isinstance(outcome, RemotingError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def address_text(peer: Any) -> str:
    """`ip:port`, with brackets around an IPv6 address; empty for a socket that is gone already."""
    if not isinstance(peer, tuple) or len(peer) < 2:
        return ""
    return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
