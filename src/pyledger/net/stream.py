"""A stream of frames over one transport: reading, writing, back-pressure, the end of it.

What a frame means is not known here. A wake-up of the event loop reads what has come, hands on every whole
frame in it, and writes all that was sent meanwhile at once.

Two limits bound the memory of a connection. A server does not read from a peer that does not read its
responses, or that has too many requests being processed; frames already received wait. On either side, a
connection with more than `backlog_max_bytes` to be written is aborted. On a server, frames also wait when an
iteration of the event loop has handled enough, see `fair_queue`.
"""

import asyncio
import logging
import socket
from collections.abc import Iterable
from typing import Any

from pyledger.errors import FrameError, RemotingTimeoutError
from pyledger.log_events import event, logger
from pyledger.net.endpoint import CLOSE_TIMEOUT_MS, Endpoint, Received
from pyledger.net.fair_queue import ITERATION_BYTES, REQUEST_BYTES
from pyledger.net.outbox import NO_LIMIT, Outbox
from pyledger.net.sockets import address_text
from pyledger.net.timers import Alarm
from pyledger.net.waiting_frames import WaitingFrames
from pyledger.wire.remoting.command import Buffer
from pyledger.wire.remoting.framing import FrameDecoder, StreamDecoder
from pyledger.wire.remoting.native_codec import RequestDecoder

log = logger("net")

FLUSH_BYTES = 64 << 10
"""While one wake-up is handled, responses are written whenever this many bytes are queued."""
CHARGE_BYTES = 64 << 10
"""Work is charged to the fair queue in steps of this size, and at the end of a wake-up."""
BULK_BYTES = 64 << 10
"""A peer that sends this much at once waits for the next iteration once the present one has cost enough."""
FRAMES_PER_ITERATION_MAX = ITERATION_BYTES // REQUEST_BYTES
"""Waiting frames that are handled in one iteration of the event loop."""
WRITE_BYTES = 256 << 10
"""Bytes that a server writes to one connection before it serves the others."""


def decoder_of(endpoint: Endpoint[Any]) -> StreamDecoder[Any]:
    """Return the decoder that splits bytes into frames, and decodes requests where batches are answered."""
    kind = endpoint.decoder or (FrameDecoder if endpoint.answer_batch is None else RequestDecoder)
    return kind(endpoint.limits.frame_max_bytes)


class FrameStream(asyncio.Protocol):
    """The part of a connection that is bytes and frames."""

    __slots__ = (
        "_active_at",
        "_burst",
        "_cost_bytes",
        "_counted_bytes",
        "_deadline",
        "_decoder",
        "_drain_waiters",
        "_finishing",
        "_flush_bytes",
        "_frame_error",
        "_handling",
        "_idle",
        "_outbox",
        "_paused",
        "_queued",
        "_received_at",
        "_received_bytes",
        "_secure",
        "_transport",
        "_waiting",
        "_write_lock",
        "closed",
        "endpoint",
        "finish_tag",
        "held_bytes",
        "remote_address",
        "socket",
    )

    def __init__(self, endpoint: Endpoint[Any], own: socket.socket, *, secure: bool) -> None:
        """Made by a server or a client.

        Args:
            endpoint: What the connections of this side share.
            own: The connection's socket.
            secure: Whether TLS is used; without, bytes are written to the socket itself.
        """
        self.endpoint = endpoint
        self.remote_address = self._frame_error = ""
        self.closed = False
        self.held_bytes = 0
        self.finish_tag = 0
        self.socket = own
        self._secure = secure
        self._decoder = decoder_of(endpoint)
        # Frames that came before the connection was paused or queued, still to be handled.
        self._waiting = WaitingFrames()
        self._drain_waiters: list[asyncio.Future[None]] = []
        self._write_lock = asyncio.Lock()
        self._flush_bytes = min(FLUSH_BYTES, endpoint.limits.high_water_mark_bytes)
        self._handling = False
        self._burst = False
        self._paused = False
        # It waits for another iteration of the event loop.
        self._queued = False
        # Bytes not charged yet; bytes of the outbox at the last charge; bytes received.
        self._cost_bytes = self._counted_bytes = self._received_bytes = 0
        self._finishing = False
        self._active_at = self._received_at = endpoint.loop.time()
        self._idle = Alarm(self._check_idle)
        self._deadline = Alarm(self.abort)

    # --- for the class that knows what frames mean

    def take(self, frames: list[Received]) -> list[Received]:
        """Handle frames; returns those that have to wait: the connection was paused or has used up its share.

        Raises:
            FrameError: one is malformed.
        """
        raise NotImplementedError

    def written(self) -> None:
        """Some bytes were written."""

    def ended(self, problem: str) -> None:
        """The connection is gone."""

    def has_work(self) -> bool:
        """Whether handlers are still processing requests."""
        return False

    def busy(self) -> bool:
        """Whether more is likely to be sent in this iteration of the event loop."""
        return False

    def overworked(self) -> bool:
        """Whether the limit of requests being processed is reached."""
        return False

    def work_bytes(self) -> int:
        """Bytes of the requests being processed."""
        return 0

    # --- what the transport calls

    def connection_made(self, transport: Any) -> None:
        """The connection is open, and its TLS handshake is complete."""
        # Any: uvloop's transports are no subclasses of asyncio's, but have all their methods.
        self._transport = transport
        self.remote_address = address_text(transport.get_extra_info("peername"))
        self._outbox = Outbox(self._transport, None if self._secure else self.socket)
        self.endpoint.wheel.arm(self._idle, self.endpoint.limits.idle_seconds * 1000)

    def data_received(self, data: bytes) -> None:
        """Handle the frames that `data` completes."""
        if self.closed:
            return
        self._active_at = self._received_at = self.endpoint.loop.time()
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            self._reject(error)
            return
        self._cost_bytes += len(data)
        self._received_bytes += len(data)
        if self._paused:
            self._waiting.append(frames)
        elif self._queued:
            self._waiting.append(frames)
            self.stop_reading()
        elif frames:
            self._handle_fairly(frames)
        spent = self._charge()
        self._count()
        if self.endpoint.memory.must_wait(self):
            self.stop_reading()
        elif spent and len(data) >= BULK_BYTES and not self._queued and self.stop_reading():
            # libuv would read on as long as there is more: 8 MiB, of each connection.
            self._queue()

    def connection_lost(self, error: Exception | None) -> None:
        """Release everything and notify the waiters: the connection is gone."""
        self.closed = True
        # A stream without cycles is freed now; the cycle collector of an idle server may never run.
        self._idle.dispose()
        self._deadline.dispose()
        self._decoder.clear()
        self._outbox.clear()
        self._waiting.clear()
        self.endpoint.memory.forget(self, self.work_bytes())
        self._wake_drained()
        closed = "the connection was closed" if error is None else f"the connection broke ({error})"
        self.ended(self._frame_error or closed)

    def go_secure(self, transport: Any) -> None:
        """Use TLS from now on."""
        self._transport, self._secure = transport, True
        self._outbox = Outbox(transport, None)

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self._outbox.blocked = True

    def resume_writing(self) -> None:
        """The kernel takes more."""
        self._outbox.blocked = False
        self._flush()

    # --- what the application calls

    def write(self, parts: Iterable[Buffer]) -> None:
        """Send whole frames that are encoded already; on a closed connection they are dropped."""
        if self.closed:
            return
        for part in parts:
            if part:
                self._outbox.put(part)
        self._put()

    async def drain(self) -> None:
        """Wait until no more than the low water mark is to be written, or the connection is closed."""
        if self.closed or self._outbox.queued_bytes <= self.endpoint.limits.low_water_mark_bytes:
            return
        await self._progress()

    async def wait_writable(self, left_ms: float, timeout_ms: int) -> None:
        """Wait, at most `left_ms` of a call's `timeout_ms`, until another request may be queued.

        Raises:
            RemotingTimeoutError: the peer reads too slowly.
        """
        try:
            # One at a time: the first request may fill the queue again.
            async with asyncio.timeout(max(0.0, left_ms) / 1000), self._write_lock:
                if self._outbox.queued_bytes > self.endpoint.limits.high_water_mark_bytes:
                    await self.drain()
        except TimeoutError:
            raise RemotingTimeoutError(self.remote_address, timeout_ms) from None

    async def finish(self) -> None:
        """Read no more; wait until every request that was taken is answered and written."""
        if self._transport.is_closing():
            return
        self._finishing = True
        self._transport.pause_reading()
        while not self.closed and (self.has_work() or self._waiting or self._outbox.queued_bytes):
            await self._progress()

    def close(self) -> None:
        """Write what is queued, then close; abort after `CLOSE_TIMEOUT_MS`. Idempotent."""
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
        """Whether no further request should be read now: too many are queued or being processed."""
        return (
            self._outbox.queued_bytes > self.endpoint.limits.high_water_mark_bytes
            or self.overworked()
            or self.endpoint.memory.must_wait(self)
        )

    def done_bytes(self) -> int:
        """Whole frames received and bytes written since it was opened."""
        return self._received_bytes - self._decoder.pending_bytes + self._outbox.written_bytes

    # --- reading

    def _handle_fairly(self, frames: list[Received]) -> None:
        """Handle frames now, or in another iteration of the event loop."""
        if self.endpoint.fair_queue.exhausted and self.endpoint.limits.throttles_reading:
            self._waiting.append(frames)
            self._queue()
        else:
            self._handle(frames)

    def _queue(self) -> None:
        self._queued = True
        self.endpoint.fair_queue.wait(self)

    def handle_queued(self) -> None:
        """Write and handle what waited for another iteration of the event loop."""
        self._queued = False
        self._flush()
        if self._paused:
            self.go_on()
        elif not (self.closed or self.must_pause()):
            self._handle_waiting()
        if self._finishing:
            self._wake_drained()
        self._charge()
        self._count()

    def charge_call(self) -> bool:
        """Charge a call of a handler; return whether the other frames have to wait."""
        put_bytes = self._outbox.put_bytes
        self._cost_bytes += REQUEST_BYTES + put_bytes - self._counted_bytes
        self._counted_bytes = put_bytes
        return self._cost_bytes >= CHARGE_BYTES and self._charge() and self.endpoint.limits.throttles_reading

    def _charge(self) -> bool:
        """Charge the work done; return whether the rest has to wait for another iteration."""
        cost_bytes, self._cost_bytes = self._cost_bytes, 0
        return self.endpoint.fair_queue.charge(self, cost_bytes)

    def handle_later(self, frame: Any) -> None:
        """Give `take` a frame again that it put off, before all that wait; now, if it may be handled."""
        self._waiting.put_first(frame)
        if not (self._paused or self._queued or self._handling or self.closed):
            if self.endpoint.fair_queue.exhausted:
                self._queue()
            else:
                self._handle_waiting()

    def _handle_waiting(self) -> None:
        # No more than one iteration can take: the rest would be moved and counted again in each.
        self._handle(self._waiting.take_first(FRAMES_PER_ITERATION_MAX))

    def _handle(self, frames: list[Received]) -> None:
        self._handling = True
        later = len(self._waiting)
        try:
            if rest := self.take(frames):
                # Between what was put off meanwhile and what came later.
                self._waiting.append_before(rest, later)
        except FrameError as error:
            self._reject(error)
            return
        finally:
            self._handling = False
        if self._waiting and not (self._paused or self._queued or self.closed):
            self._queue()
        self._flush()

    def _reject(self, error: FrameError) -> None:
        self._frame_error = str(error)
        self.report(log, logging.WARNING, "frame rejected", problem=error)
        self.abort()

    def report(
        self,
        target: logging.Logger,
        level: int,
        message: str,
        error: BaseException | None = None,
        /,
        **fields: object,
    ) -> None:
        """Log what the peer caused, at a bounded rate; see `EventLimiter`."""
        self.endpoint.events.event(target, level, message, error, peer=self.remote_address, **fields)

    def must_pause(self) -> bool:
        """After each request: write when much is queued; stop reading when the connection is congested."""
        if self._outbox.queued_bytes > self._flush_bytes:
            self._flush()
        return self.congested and self.stop_reading()

    def stop_reading(self) -> bool:
        """Stop reading until `go_on`; False when it is paused already, or this side never pauses."""
        if self._paused or self.closed or not self.endpoint.limits.throttles_reading:
            return False
        self._paused = True
        self._transport.pause_reading()
        self.endpoint.memory.paused(self)
        return True

    def _count(self) -> None:
        """Report the bytes held now; after the end these are the requests being processed."""
        held = (
            self._outbox.queued_bytes
            + self._decoder.pending_bytes
            + self._waiting.size_bytes
            + self.work_bytes()
        )
        if held != self.held_bytes:
            difference, self.held_bytes = held - self.held_bytes, held
            self.endpoint.memory.change(difference)

    def go_on(self) -> None:
        """Handle what waited while the connection was paused; read on when all of it is done."""
        if not self._paused or self._queued or self._handling or self.closed:
            return
        if self.congested:
            self.endpoint.memory.paused(self)
            return
        if self._waiting and self.endpoint.fair_queue.exhausted:
            self._queue()
            return
        self._paused = False
        self._handle_waiting()
        # Reading is stopped still where the rest was queued: the queue calls this again.
        self._paused = self._paused or self._queued
        if not (self._paused or self._finishing or self._transport.is_closing()):
            self._transport.resume_reading()

    def _check_idle(self) -> None:
        """Close after a time without a byte read or written, or check again later."""
        idle_seconds = self.endpoint.loop.time() - self._active_at
        left_ms = (self.endpoint.limits.idle_seconds - idle_seconds) * 1000
        if left_ms > 0:
            self.endpoint.wheel.arm(self._idle, left_ms)
        else:
            event(log, logging.INFO, "connection idle", peer=self.remote_address)
            self.abort()

    # --- writing

    def _put(self) -> None:
        """Write now, or with what else is sent in this iteration of the event loop."""
        outbox = self._outbox
        if self._handling and outbox.queued_bytes <= self._flush_bytes:
            return
        if outbox.queued_bytes > self.endpoint.limits.backlog_max_bytes:
            self._flush(fairly=False)
            if outbox.queued_bytes > self.endpoint.limits.backlog_max_bytes:
                self.report(log, logging.WARNING, "peer does not read")
                self.abort()
            return
        if self._handling or self._burst:
            return
        self._flush()
        if self.busy():
            # The first of many is written at once, the others of this iteration together.
            self._burst = True
            self.endpoint.loop.call_soon(self._end_burst)

    def _end_burst(self) -> None:
        self._burst = False
        self._flush()

    def _flush(self, *, fairly: bool = True) -> None:
        outbox, fair_queue = self._outbox, self.endpoint.fair_queue
        if not outbox.queued_bytes:
            return
        fairly = fairly and self.endpoint.limits.throttles_reading
        if fairly and fair_queue.exhausted and outbox.queued_bytes > self._flush_bytes:
            if not self._queued:
                self._queue()
            return
        written = outbox.written_bytes
        try:
            outbox.flush(WRITE_BYTES if fairly else NO_LIMIT)
        except OSError as error:
            event(log, logging.DEBUG, "connection broke", peer=self.remote_address, problem=error)
            self.abort()
            return
        if not self._handling:
            self._count()
        if outbox.written_bytes != written:
            self._cost_bytes += outbox.written_bytes - written
            if self._cost_bytes >= CHARGE_BYTES:
                self._charge()
            self._active_at = self.endpoint.loop.time()
            self._progressed()
        if outbox.queued_bytes and not (outbox.blocked or self._queued):
            self._queue()  # the rest of what one call may write

    def _progressed(self) -> None:
        outbox = self._outbox
        self.written()
        if self.closed:
            if not outbox.queued_bytes:
                self._transport.close()
        elif outbox.queued_bytes <= self.endpoint.limits.low_water_mark_bytes:
            if self._drain_waiters:
                self._wake_drained()
            if self._paused:
                self.endpoint.loop.call_soon(self.go_on)

    async def _progress(self) -> None:
        """Wait until something was written or handled, or the connection is closed."""
        waiter = self.endpoint.loop.create_future()
        self._drain_waiters.append(waiter)
        await waiter

    def _wake_drained(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
