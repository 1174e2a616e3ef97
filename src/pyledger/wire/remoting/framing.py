"""Split a stream of bytes into frames.

A frame is `length i32 | serialize type u8, header length u24 | header | body`, big-endian; `length` counts
all after itself. The length is checked before a byte is kept for it, and memory grows only with what arrived.

Source: RocketMQ remoting/.../netty/NettyDecoder.java.
"""

from typing import Generic, TypeVar

from pyledger.errors import FrameError

FRAME_SIZE_MAX_BYTES = 16 * 1024 * 1024
LENGTH_BYTES = 4
HEADER_WORD_BYTES = 4

F = TypeVar("F")


class StreamDecoder(Generic[F]):
    """Splits the bytes of one connection into frames, and keeps an incomplete frame."""

    __slots__ = ("_pending", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = FRAME_SIZE_MAX_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._pending = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has begun."""
        return len(self._pending)

    def clear(self) -> None:
        """Drop a frame that has begun."""
        self._pending = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[F]:
        """Take received bytes; return the frames that they complete.

        Args:
            data: What came next. `bytes` are not copied: a frame that lies within them is a view of them, and
                keeps them alive. Other buffers may be reused by the caller, so their bytes are copied.

        Raises:
            FrameError: a length is too large or too small. The connection must end; frames that came before
                it in `data` are lost with it.
        """
        whole: bytes | bytearray
        if self._pending:
            self._pending += data
            whole, self._pending = self._pending, bytearray()
        else:
            whole = data if isinstance(data, bytes) else bytes(data)
        frames, taken_bytes = self.split(whole)
        if taken_bytes < len(whole):
            if isinstance(whole, bytearray) and not taken_bytes:
                self._pending = whole
            else:
                self._pending = bytearray(memoryview(whole)[taken_bytes:])
        return frames

    def split(self, data: bytes | bytearray) -> tuple[list[F], int]:
        """Split complete frames off the start of immutable bytes; also return their size in bytes.

        Raises:
            FrameError: a length is too large or too small.
        """
        raise NotImplementedError


class FrameDecoder(StreamDecoder[memoryview]):
    """Gives each frame as a view without its length word, for `pyledger.wire.remoting.command.decode`."""

    __slots__ = ()

    def split(self, data: bytes | bytearray) -> tuple[list[memoryview], int]:
        """Split complete frames off the start of immutable bytes; also return their size in bytes.

        Raises:
            FrameError: a length is too large or too small.
        """
        frames = []
        view = memoryview(data).toreadonly()
        start, size, length_max = 0, len(view), self.max_frame_bytes - LENGTH_BYTES
        while size - start >= LENGTH_BYTES:
            length = int.from_bytes(view[start : start + LENGTH_BYTES], signed=True)
            if not HEADER_WORD_BYTES <= length <= length_max:
                raise FrameError(f"a frame of {length} bytes is announced, the limit is {length_max}")
            end = start + LENGTH_BYTES + length
            if end > size:
                break
            frames.append(view[start + LENGTH_BYTES : end])
            start = end
        return frames, start
