"""Received frames of a connection that are not handled yet."""

from collections import deque

from pyledger.net.endpoint import Received
from pyledger.wire.remoting.native_codec import DecodedRequest


def size_of(frame: Received) -> int:
    """Bytes of a frame that was received."""
    if isinstance(frame, memoryview):
        return len(frame)
    return frame.frame_bytes if isinstance(frame, DecodedRequest) else 0


class WaitingFrames:
    """A queue that knows how many bytes its frames have."""

    __slots__ = ("_frames", "size_bytes")

    def __init__(self) -> None:
        self._frames: deque[Received] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def append(self, frames: list[Received]) -> None:
        """Add frames after all others."""
        self._frames.extend(frames)
        self.size_bytes += sum(map(size_of, frames))

    def append_before(self, frames: list[Received], count: int) -> None:
        """Add frames before the last `count`."""
        self._frames.rotate(count)
        self.append(frames)
        self._frames.rotate(-count)

    def put_first(self, frame: Received) -> None:
        """Add a frame before all others."""
        self._frames.appendleft(frame)
        self.size_bytes += size_of(frame)

    def take_first(self, count: int) -> list[Received]:
        """Take the first frames, `count` at most."""
        frames = [self._frames.popleft() for _ in range(min(count, len(self._frames)))]
        self.size_bytes -= sum(map(size_of, frames))
        return frames

    def clear(self) -> None:
        """Forget all of them."""
        self._frames.clear()
        self.size_bytes = 0
