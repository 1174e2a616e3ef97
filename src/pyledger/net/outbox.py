"""The bytes that one connection still has to write.

Buffers are kept in order and are not copied: a part of a mapped file is written directly from the mapping,
whose view is held until then. While the kernel accepts no more, the transport gets one small piece, so
that it reports when the kernel accepts bytes again; the rest waits here.
Invariant: on a plain connection the transport's own buffer is empty unless `blocked`.
"""

import asyncio
import socket
from collections import deque
from itertools import islice

# More buffers than this are joined, up to `JOIN_BYTES`: one copy is then cheaper than many buffers.
GATHER_BUFFERS = 16
JOIN_BYTES = 64 << 10
# The kernel takes at most 1024 buffers at once (IOV_MAX).
SEND_BUFFERS_MAX = 1024
PIECE_BYTES = 64 << 10
NO_LIMIT = 1 << 62


class Outbox:
    """The write side of one connection. The protocol sets and clears `blocked`, as its transport requests."""

    __slots__ = ("_queue", "_socket", "_transport", "blocked", "put_bytes", "queued_bytes", "written_bytes")

    def __init__(self, transport: asyncio.WriteTransport, plain: socket.socket | None) -> None:
        """Write through `transport`, or around it to its own socket `plain` where there is no TLS."""
        self._transport = transport
        self._socket = plain
        self._queue: deque[bytes | bytearray | memoryview] = deque()
        self.put_bytes = 0
        self.queued_bytes = 0
        self.written_bytes = 0
        self.blocked = False
        if plain is not None:
            # The transport then pauses writing at the first byte left over, and resumes when none is left.
            transport.set_write_buffer_limits(high=0)

    def put(self, part: bytes | bytearray | memoryview) -> None:
        """Queue bytes; a view is kept alive until it is written. Nothing is written yet."""
        self._queue.append(part)
        self.put_bytes += len(part)
        self.queued_bytes += len(part)

    def clear(self) -> None:
        """Drop everything."""
        self._queue.clear()
        self.queued_bytes = 0

    def flush(self, limit_bytes: int = NO_LIMIT) -> None:
        """Write as much as the kernel takes now; once the transport closes, its socket is not ours any more.

        Args:
            limit_bytes: No more than this is written.

        Raises:
            OSError: the connection is broken.
        """
        if self._transport.is_closing():
            self.clear()
        end = self.written_bytes + limit_bytes
        while self._queue and not self.blocked and self.written_bytes < end:
            if self._socket is None:
                self._give_piece()
                continue
            sent = self._send(self._socket, end - self.written_bytes)
            self._drop(sent)
            if not sent:
                self._give_piece()

    def _send(self, target: socket.socket, limit_bytes: int) -> int:
        queue = self._queue
        try:
            if self.queued_bytes > limit_bytes:
                return target.sendmsg(self._first(limit_bytes))
            if len(queue) == 1:
                return target.send(queue[0])
            if len(queue) <= GATHER_BUFFERS:
                return target.sendmsg(queue)
            if self.queued_bytes <= JOIN_BYTES:
                joined = b"".join(queue)
                queue.clear()
                queue.append(joined)
                return target.send(joined)
            return target.sendmsg(list(islice(queue, SEND_BUFFERS_MAX)))
        except (BlockingIOError, InterruptedError):
            return 0

    def _drop(self, sent: int) -> None:
        """Forget the first `sent` bytes."""
        queue = self._queue
        self.queued_bytes -= sent
        self.written_bytes += sent
        if not self.queued_bytes:
            queue.clear()
            return
        while sent:
            first = memoryview(queue.popleft())
            if sent < first.nbytes:
                queue.appendleft(first[sent:])
                return
            sent -= first.nbytes

    def _give_piece(self) -> None:
        """Hand the transport a piece; it calls `pause_writing` if that has to wait."""
        data = b"".join(self._first(PIECE_BYTES))
        self._transport.write(data)
        self._drop(len(data))

    def _first(self, size_bytes: int) -> list[memoryview]:
        """Views of the first bytes, at most `size_bytes`."""
        pieces: list[memoryview] = []
        for part in islice(self._queue, SEND_BUFFERS_MAX):
            piece = memoryview(part)[:size_bytes]
            pieces.append(piece)
            size_bytes -= piece.nbytes
            if not size_bytes:
                break
        return pieces
