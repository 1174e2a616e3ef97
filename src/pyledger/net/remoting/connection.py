"""One connection of remoting: requests and their answers, both ways.

Requests and answers of the two directions share the connection; only bit 0 of the flag distinguishes them.
Invariant: a request in `in_flight` holds one permit, and is either finished or abandoned.

Source: RocketMQ remoting/.../netty/NettyRemotingAbstract.java.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, cast

from pyledger.errors import (
    InvariantError,
    PyLedgerError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from pyledger.log_events import logger
from pyledger.model.remoting_codes import ResponseCode
from pyledger.net.deferred import Deferred
from pyledger.net.endpoint import Answer, BatchAnswer, Endpoint, Frame, Received
from pyledger.net.remoting.pending_requests import BUCKET_MS, TimeoutBucket
from pyledger.net.stream import FrameStream
from pyledger.wire.remoting.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    Buffer,
    RemotingCommand,
    command_of,
    encode_head,
)
from pyledger.wire.remoting.native_codec import AnswerDecoder, AppendBatch, DecodedRequest, ResponseFuture
from pyledger.wire.remoting.versions import V5_3_1

log = logger("net")

GO_AWAY_REMARK = "please go away"
REMARK_CHARACTERS_MAX = 1024
UNEXPECTED_REMARK = "the request failed; the log of the process that answered has the reason"
FRAME_BYTES = attrgetter("frame_bytes")
"""Of a decoded request, without a call for each; `size_of` is for all frames."""
Work = Deferred[Any] | asyncio.Future[Any]
"""What completes with the answer to a request, or to a batch of them."""
SILENT_MS_MIN = 100
"""After a shorter timeout a connection without received bytes is not closed.
Source: RocketMQ remoting/.../netty/NettyRemotingClient.java (MIN_CLOSE_TIMEOUT_MILLIS).
"""
HEAD_BYTES = 64 << 10
"""Reserved for the head of a request, which is not encoded yet when the backlog is checked."""


class Connection(FrameStream):
    """A connection, of a server or of a client; both sides may send requests.

    Belongs to one event loop: another thread sends by the loop's `call_soon_threadsafe`.

    Attributes:
        remote_address: `ip:port` of the peer.
        version: Of the peer, from its last request; 0 before.
        language: Of the peer, from its last request; None before, and when it is unknown.
        data: The application's own.
        in_flight: Requests of ours without a response yet, by opaque.
        closed: Nothing can be sent any more.
    """

    __slots__ = (
        "_oneway_ends",
        "_processing_bytes",
        "_processing_requests",
        "_timeout_bucket",
        "_work",
        "data",
        "in_flight",
        "language",
        "version",
    )

    def __init__(self, endpoint: "Endpoint[Connection]", own: socket.socket, *, secure: bool) -> None:
        """Made by a server or a client.

        Args:
            endpoint: What the connections of this side share.
            own: The connection's socket.
            secure: Whether TLS is used; without, bytes are written to the socket itself.
        """
        super().__init__(endpoint, own, secure=secure)
        self.version = 0
        self.language: int | None = None
        self.data: dict[Any, Any] = {}
        self.in_flight: dict[int, ResponseFuture] = {}
        if endpoint.answer_batch is None:
            self._decoder = AnswerDecoder(endpoint.limits.frame_max_bytes, self.in_flight)
        self._timeout_bucket: TimeoutBucket | None = None
        # Results that handlers still owe: how many requests each answers, and of how many bytes.
        self._work: dict[Work, tuple[int, int]] = {}
        self._processing_requests = self._processing_bytes = 0
        # Ends, in the stream of written bytes, of the one-way requests that hold a permit.
        self._oneway_ends: deque[int] = deque()

    def connection_made(self, transport: Any) -> None:
        """The connection is open."""
        super().connection_made(transport)
        self.endpoint.add(self)

    def send(self, command: RemotingCommand, parts: Sequence[bytes | memoryview] = ()) -> None:
        """Send a command; on a closed connection it is dropped.

        Args:
            command: A response, or a request whose response is ignored.
            parts: Sent after the command's own body, as part of it. Nothing is copied while the peer reads;
                each view is kept alive until it is written.
        """
        if self.closed:
            return
        outbox = self._outbox
        body = command.body
        outbox.put(encode_head(command, len(body) + sum(map(len, parts)) if parts else None))
        if body:
            outbox.put(body)
        for part in parts:
            if part:
                outbox.put(part)
        self._put()

    async def call(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and wait for its answer.

        Args:
            command: A request; its opaque is set here.
            timeout_ms: For everything: a permit, space in the write queue, the answer.

        Raises:
            RemotingTooMuchRequestError: no permit became free in time; nothing was sent.
            RemotingTimeoutError: no answer came in time.
            RemotingSendRequestError: the connection is closed, or closed before the answer came.
        """
        endpoint, permits = self.endpoint, self.endpoint.async_permits
        loop = endpoint.loop
        started, left_ms = loop.time(), timeout_ms
        if not permits.try_take():
            await permits.take(timeout_ms, self.remote_address)
            left_ms = timeout_ms - int((loop.time() - started) * 1000)
        try:
            if self._outbox.queued_bytes > endpoint.limits.high_water_mark_bytes:
                await self.wait_writable(left_ms, timeout_ms)
                left_ms = timeout_ms - int((loop.time() - started) * 1000)
            self._check_backlog(command)
            command.opaque = opaque = endpoint.next_opaque()
            parts = encode_head(command), command.body
        except BaseException:
            permits.give()
            raise
        future: asyncio.Future[RemotingCommand] = loop.create_future()
        self._start(ResponseFuture(future), opaque, parts, left_ms)
        try:
            return await future
        except asyncio.CancelledError:
            self.abandon(opaque)
            raise

    @property
    def takes_calls(self) -> bool:
        """Whether `start` may be used by a caller that limits the bytes to be written itself."""
        return not self.closed and self.endpoint.async_permits.free > 0

    @property
    def writable(self) -> bool:
        """Whether `start` may be used now."""
        return self.takes_calls and self._outbox.queued_bytes <= self.endpoint.limits.high_water_mark_bytes

    def start(self, pending: ResponseFuture, opaque: int, parts: Iterable[Buffer], timeout_ms: int) -> None:
        """Send an encoded request on a connection that is `writable`, without waiting.

        Args:
            pending: Finished with the response or the error, never before this returns.
            opaque: Of the request; from `endpoint.next_opaque`.
            parts: The whole frame.
            timeout_ms: For the response.
        """
        self.endpoint.async_permits.free -= 1
        self._start(pending, opaque, parts, timeout_ms)

    def abandon(self, opaque: int) -> None:
        """Drop the response to a request when it comes: no caller waits for it any more."""
        if self.in_flight.pop(opaque, None) is not None:
            self.endpoint.async_permits.give()

    def call_oneway(self, command: RemotingCommand) -> None:
        """Send a request that has no answer.

        Raises:
            RemotingTooMuchRequestError: no permit is free, or too much waits to be written; nothing was sent.
            RemotingSendRequestError: the connection is closed.
        """
        permits = self.endpoint.oneway_permits
        if not permits.try_take():
            raise permits.exhausted(self.remote_address)
        self._send_oneway(command)

    async def call_oneway_within(self, command: RemotingCommand, timeout_ms: int) -> None:
        """Send a request that has no answer, waiting at most `timeout_ms` until it can be queued.

        Raises:
            RemotingTooMuchRequestError: no permit became free in time; nothing was sent.
            RemotingTimeoutError: the peer reads too slowly; nothing was sent.
            RemotingSendRequestError: the connection is closed.
        """
        started = self.endpoint.loop.time()
        if self._outbox.queued_bytes > self.endpoint.limits.high_water_mark_bytes:
            await self.wait_writable(timeout_ms, timeout_ms)
        left_ms = timeout_ms - (self.endpoint.loop.time() - started) * 1000
        await self.endpoint.oneway_permits.take(left_ms, self.remote_address)
        self._send_oneway(command)

    # --- what the stream calls

    def take(self, frames: list[Received]) -> list[Received]:
        """Handle frames, until the connection has to be paused."""
        outbox, work, permits = self._outbox, self._work, self.endpoint.async_permits
        index = 0
        while index < len(frames):
            frame = frames[index]
            if isinstance(frame, ResponseFuture):
                index += 1
                permits.give()
                frame.finish(None)
                continue
            taken = self._answer_batch(frames, index) if isinstance(frame, DecodedRequest) else 0
            if not taken:
                if isinstance(frame, AppendBatch):
                    frames[index : index + 1] = frame.frames
                    continue
                taken = 1
                command = command_of(frame)
                if command.flag & FLAG_RESPONSE:
                    index += 1
                    pending = self.in_flight.pop(command.opaque, None)
                    if pending is not None:
                        permits.give()
                        pending.finish(command)
                    continue
                self._serve(command)
            index += taken
            if self.closed:
                break
            if self.charge_call():
                return frames[index:]
            if (work or outbox.queued_bytes > self._flush_bytes) and self.must_pause():
                return frames[index:]
        return []

    def written(self) -> None:
        """Some bytes were written: one-way requests among them give their permits back."""
        while self._oneway_ends and self._oneway_ends[0] <= self._outbox.written_bytes:
            self._oneway_ends.popleft()
            self.endpoint.oneway_permits.give()

    def ended(self, problem: str) -> None:
        """Fail the requests in flight and free their permits: the connection is gone."""
        self._timeout_bucket = None
        for _ in range(len(self._oneway_ends)):
            self.endpoint.oneway_permits.give()
        self._oneway_ends.clear()
        self._fail(tuple(self.in_flight), RemotingSendRequestError(self.remote_address, problem))
        self.endpoint.remove(self)

    def has_work(self) -> bool:
        """Whether handlers are still processing requests."""
        return bool(self._work)

    def busy(self) -> bool:
        """Whether more is likely to be sent in this iteration: several requests are not completed."""
        return len(self.in_flight) > 1 or bool(self._work)

    def overworked(self) -> bool:
        """Whether the limit of requests being processed is reached."""
        return self._processing_requests >= self.endpoint.limits.requests_max

    def work_bytes(self) -> int:
        """Bytes of the requests being processed."""
        return self._processing_bytes

    # --- requests of the peer

    def _serve(self, request: RemotingCommand) -> None:
        self.version, self.language = request.version, request.language
        # Peers up to 5.3.1 do not know GO_AWAY.
        if self.endpoint.going_away and request.version > V5_3_1:
            self._answer(request, request.response(ResponseCode.GO_AWAY, GO_AWAY_REMARK))
            return
        try:
            answer = self.endpoint.handler(self, request)
            if isinstance(answer, Deferred) and answer.done():
                answer = answer.result()
        except InvariantError:
            raise
        except Exception as error:  # noqa: BLE001 - one failed request concerns no other client
            answer = self._failure(request, error)
        if answer is None or isinstance(answer, RemotingCommand):
            self._answer(request, answer)
            return
        work: Work = answer if isinstance(answer, Deferred) else asyncio.ensure_future(answer)
        self._begin_work(work, 1, len(request.body))
        work.add_done_callback(partial(self._work_done, (request,)))

    def _answer_batch(self, frames: list[Received], index: int) -> int:
        """Answer a decoded request and the rest of its batch; return how many, 0: it needs the handler."""
        answer_batch, request = self.endpoint.answer_batch, frames[index]
        assert isinstance(request, DecodedRequest)
        requests = cast("list[Frame]", frames)  # a connection whose requests are decoded decodes no answers
        if answer_batch is None or self.endpoint.going_away:
            return 0
        self.version, self.language = request.version, request.language
        try:
            answer, taken = answer_batch(self, requests, index)
            if isinstance(answer, Deferred) and answer.done():
                answer = answer.result()
        except InvariantError:
            raise
        except Exception as error:  # noqa: BLE001 - one failed request concerns no other client
            self._answer(request, self._failure(request, error))
            return 1
        if answer is None or isinstance(answer, bytes | RemotingCommand):
            self._answer(request, answer)
        else:
            taken_now = cast("list[DecodedRequest]", frames[index : index + taken])
            self._begin_work(answer, taken, sum(map(FRAME_BYTES, taken_now)))
            answer.add_done_callback(partial(self._work_done, taken_now))
        return taken

    def _begin_work(self, work: Work, requests: int, size_bytes: int) -> None:
        self._work[work] = requests, size_bytes
        self._processing_requests += requests
        self._processing_bytes += size_bytes

    def _end_work(self, work: Work) -> None:
        requests, size_bytes = self._work.pop(work, (0, 0))
        self._processing_requests -= requests
        self._processing_bytes -= size_bytes
        self._count()

    def _work_done(self, requests: Sequence[RemotingCommand | DecodedRequest], work: Work) -> None:
        self._end_work(work)
        if work.cancelled():
            return
        error = work.exception()
        if isinstance(error, InvariantError):
            self.abort()
            raise error
        if error is None:
            self._answer(requests[0], work.result())
        else:
            for request in requests:
                self._answer(request, self._failure(request, error))
        if self._paused:
            self.go_on()
        if self._finishing:
            self._wake_drained()

    def _answer(self, request: RemotingCommand | DecodedRequest, answer: BatchAnswer) -> None:
        """Send the answer to a request, or whole frames to a batch that begins with it."""
        if isinstance(answer, bytes):
            if answer:
                self.write((answer,))
        elif answer is not None and not request.flag & FLAG_ONEWAY:
            self.send(answer)

    def _failure(self, request: RemotingCommand | DecodedRequest, error: BaseException) -> RemotingCommand:
        if isinstance(request, DecodedRequest):
            request = command_of(request)
        if not isinstance(error, PyLedgerError):
            self.report(log, logging.ERROR, "request failed", error, code=request.code)
            return request.response(ResponseCode.SYSTEM_ERROR, UNEXPECTED_REMARK)
        remark = f"{type(error).__name__}: {error}"[:REMARK_CHARACTERS_MAX]
        return request.response(ResponseCode.SYSTEM_ERROR, remark)

    # --- requests of ours

    def _start(self, pending: ResponseFuture, opaque: int, parts: Iterable[Buffer], timeout_ms: int) -> None:
        """Send a request that holds a permit."""
        self.in_flight[opaque] = pending
        endpoint, bucket = self.endpoint, self._timeout_bucket
        now = endpoint.loop.time()
        if bucket is None or now >= bucket.closes_at or bucket.timeout_ms != timeout_ms:
            bucket = self._timeout_bucket = TimeoutBucket(now, timeout_ms, self._time_out)
            endpoint.wheel.arm(bucket, timeout_ms + BUCKET_MS)
        bucket.opaques.append(opaque)
        self.write(parts)

    def _fail(self, opaques: Iterable[int], error: RemotingError) -> None:
        """Finish requests that are still in flight with an error."""
        for opaque in opaques:
            if (pending := self.in_flight.pop(opaque, None)) is not None:
                self.endpoint.async_permits.give()
                pending.finish(error)

    def _time_out(self, bucket: TimeoutBucket) -> None:
        """Fail what is still in flight of a bucket; close the connection if it was silent meanwhile."""
        late = [opaque for opaque in bucket.opaques if opaque in self.in_flight]
        is_silent = bucket.timeout_ms > SILENT_MS_MIN and self._received_at <= bucket.sent_at
        if late and is_silent and self.endpoint.limits.close_on_timeout:
            self.abort()  # before a caller that is notified sends again
        self._fail(late, RemotingTimeoutError(self.remote_address, bucket.timeout_ms))

    def _check_backlog(self, command: RemotingCommand) -> None:
        """Raise if a request of ours would exceed the backlog above which the connection is aborted."""
        if self.closed:
            raise RemotingSendRequestError(self.remote_address, "the connection is closed")
        limit_bytes = self.endpoint.limits.backlog_max_bytes
        if self._outbox.queued_bytes + len(command.body) + HEAD_BYTES > limit_bytes:
            raise RemotingTooMuchRequestError(
                self.remote_address, limit_bytes, "write_backlog_max_bytes", "bytes"
            )

    def _send_oneway(self, command: RemotingCommand) -> None:
        """Send a request that holds a permit until the kernel has taken it."""
        command.opaque = self.endpoint.next_opaque()
        command.flag |= FLAG_ONEWAY
        outbox = self._outbox
        try:
            self._check_backlog(command)
            self.send(command)
        except BaseException:
            self.endpoint.oneway_permits.give()
            raise
        if self.closed or not outbox.queued_bytes:
            self.endpoint.oneway_permits.give()
        else:
            self._oneway_ends.append(outbox.written_bytes + outbox.queued_bytes)


Handler = Callable[[Connection, RemotingCommand], Answer | Awaitable[Answer]]
"""Answers a request of the peer. None: the handler holds the request and answers it later.
Called from the event loop, so it must not block; where it has to wait it returns an awaitable."""
