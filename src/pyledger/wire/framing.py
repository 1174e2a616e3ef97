"""Cut a stream of bytes into frames.

A frame is `length i32 | serialize type u8, header length u24 | header | body`, big-endian; `length` counts
all after itself. The length is checked before a byte is kept for it, and memory grows only with what arrived.

Source: RocketMQ remoting/.../netty/NettyDecoder.java.
"""

from pyledger.errors import FrameError

FRAME_SIZE_MAX_BYTES = 16 * 1024 * 1024
LENGTH_BYTES = 4
HEADER_WORD_BYTES = 4


class FrameDecoder:
    """Cuts what one connection receives into frames."""

    __slots__ = ("_max_length", "_pending")

    def __init__(self, max_frame_bytes: int = FRAME_SIZE_MAX_BYTES) -> None:
        self._max_length = max_frame_bytes - LENGTH_BYTES
        self._pending = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has begun."""
        return len(self._pending)

    def feed(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """Take received bytes; return the frames that they complete, each without its length word.

        Args:
            data: What came next. `bytes` are not copied: a frame that lies within them is a view of them, and
                keeps them alive. Other buffers may be reused by the caller, so their bytes are copied.

        Raises:
            FrameError: a length is too large or too small. The connection must end; frames that came before
                it in `data` are lost with it.
        """
        if self._pending:
            self._pending += data
            data, self._pending = self._pending, bytearray()
        elif not isinstance(data, bytes):
            data = bytes(data)
        frames = []
        view = memoryview(data).toreadonly()
        start, size = 0, len(view)
        while size - start >= LENGTH_BYTES:
            length = int.from_bytes(view[start : start + LENGTH_BYTES], signed=True)
            if not HEADER_WORD_BYTES <= length <= self._max_length:
                raise FrameError(f"a frame of {length} bytes is announced, the limit is {self._max_length}")
            end = start + LENGTH_BYTES + length
            if end > size:
                break
            frames.append(view[start + LENGTH_BYTES : end])
            start = end
        if start < size:
            self._pending = bytearray(view[start:]) if start or isinstance(data, bytes) else data
        return frames
