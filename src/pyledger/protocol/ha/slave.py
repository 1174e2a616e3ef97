"""The slave's side of one HA connection.

The master sends frames `i64 offset | i32 size | size bytes`; the bytes are the commit log's, cut anywhere. A
slave takes them at exactly its own end, so its log is always a prefix of the master's. It reports its end: at
once, after each progress, and when it was silent for long. Bytes of a frame are handed on as they come.

Differs: upstream reports for the first time only after 5 s of silence.

Source: RocketMQ store/.../ha/DefaultHAClient.java.
"""

import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from pyledger.config.ha import HaConfig

FRAME_HEADER = struct.Struct(">qi")
"""Where the bytes stand in the log, and how many they are; 0: a heartbeat."""
OFFSET_MAX = 10**18
"""Physical offset (bytes) that no log reaches: a folder of log files takes no names beyond."""


class SlaveState(Enum):
    """What a connection is about."""

    READY = "READY"
    """Nothing came yet."""
    TRANSFER = "TRANSFER"
    SHUTDOWN = "SHUTDOWN"
    """To be closed, for the reason given."""


TRANSITIONS = {
    (SlaveState.READY, "frame in order"): SlaveState.TRANSFER,
    (SlaveState.READY, "frame out of order"): SlaveState.SHUTDOWN,
    (SlaveState.READY, "silence"): SlaveState.SHUTDOWN,
    (SlaveState.TRANSFER, "frame in order"): SlaveState.TRANSFER,
    (SlaveState.TRANSFER, "frame out of order"): SlaveState.SHUTDOWN,
    (SlaveState.TRANSFER, "silence"): SlaveState.SHUTDOWN,
}


class Piece(NamedTuple):
    """Bytes for the log."""

    offset: int
    """Physical offset where they stand."""
    data: memoryview


class SlaveConnection:
    """Turns what a master sends into pieces of the log, and says what to report."""

    def __init__(self, config: HaConfig, max_offset: int, frame_bytes_max: int, now_ms: int) -> None:
        """A connection that was just made.

        Args:
            config: Intervals.
            max_offset: End of the slave's log, a physical offset (bytes).
            frame_bytes_max: Size of a log file: no frame crosses one.
            now_ms: The time.
        """
        self._config = config
        self._frame_bytes_max = frame_bytes_max
        self.state = SlaveState.READY
        self.problem = ""
        """Why the connection must be closed, in state SHUTDOWN."""
        self.max_offset = max_offset
        """End of what was handed out. Invariant: no piece begins elsewhere."""
        self.stored_offset = max_offset
        """End of what is stored as it should be; this is what is reported."""
        self.master_offset = max_offset
        """How far the master's log goes, as far as its frames tell."""
        self._reported: int | None = None
        self._head = bytearray()
        self._left = 0
        self._read_ms = self._wrote_ms = now_ms

    @property
    def between_frames(self) -> bool:
        """Whether what comes next begins with a frame's header."""
        return not (self._left or self._head) and self.state is not SlaveState.SHUTDOWN

    def rest_of_frame(self, chunk: memoryview, now_ms: int) -> Piece | None:
        """What a chunk begins with, where that belongs to the frame before; to be stored as by `take`."""
        self._read_ms = now_ms
        if not self._left or self.state is SlaveState.SHUTDOWN:
            return None
        return self._piece(chunk[: self._left])

    def heard(self, now_ms: int) -> None:
        """Bytes came then that did not come to `take`."""
        self._read_ms = max(self._read_ms, now_ms)

    def reported(self, offset: int, now_ms: int) -> None:
        """A physical offset (bytes), which is stored as it should be, was reported then."""
        self.stored(offset)
        self._reported, self._wrote_ms = offset, max(self._wrote_ms, now_ms)

    def took(self, end_offset: int) -> None:
        """Whole frames in order were stored, up to a physical offset (bytes), without coming to `take`."""
        # Behind: an empty log that shall begin at the frame whose bytes are still to come.
        if self.state is SlaveState.SHUTDOWN or end_offset <= self.max_offset:
            return
        self._step("frame in order")
        self.max_offset = end_offset
        self.master_offset = max(self.master_offset, end_offset)

    def take(self, chunk: memoryview, now_ms: int) -> Iterator[Piece]:
        """The pieces of the log in bytes that came; each must be stored before the next is asked for."""
        self._read_ms = now_ms
        at = 0
        while at < len(chunk) and self.state is not SlaveState.SHUTDOWN:
            if not self._left:
                at = self._take_header(chunk, at)
                continue
            piece = self._piece(chunk[at : at + self._left])
            at += len(piece.data)
            yield piece

    def _piece(self, data: memoryview) -> Piece:
        piece = Piece(self.max_offset, data)
        self._left -= len(data)
        self.max_offset += len(data)
        return piece

    def _take_header(self, chunk: memoryview, at: int) -> int:
        """Read a frame's header, or a part of it; where to go on in the chunk."""
        if not self._head and len(chunk) - at >= FRAME_HEADER.size:
            offset, size = FRAME_HEADER.unpack_from(chunk, at)
            at += FRAME_HEADER.size
        else:
            missing = FRAME_HEADER.size - len(self._head)
            self._head += chunk[at : at + missing]
            at = min(at + missing, len(chunk))
            if len(self._head) < FRAME_HEADER.size:
                return at
            offset, size = FRAME_HEADER.unpack(self._head)
            self._head.clear()
        self._begin(offset, size)
        return at

    def _begin(self, offset: int, size: int) -> None:
        if not 0 <= size <= self._frame_bytes_max:
            self._step("frame out of order", f"a frame says that it has {size} bytes")
        elif not 0 <= offset <= OFFSET_MAX - self._frame_bytes_max:
            self._step("frame out of order", f"a frame begins at {offset}: no log reaches there")
        elif self.max_offset not in (0, offset):
            self._step(
                "frame out of order", f"the master goes on at {offset}, this log ends at {self.max_offset}"
            )
        else:
            self._step("frame in order")
            if size:
                self.max_offset = offset
            self._left = size
            self.master_offset = max(self.master_offset, offset + size)

    def stored(self, offset: int) -> None:
        """All below a physical offset (bytes) is stored as it should be."""
        self.stored_offset = max(self.stored_offset, offset)

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        if self.state is not SlaveState.SHUTDOWN and now_ms - self._read_ms > self._config.silence_max_ms:
            self._step("silence", f"the master was silent for {now_ms - self._read_ms} ms")

    def report(self, now_ms: int) -> int | None:
        """The offset (bytes) to report now; None: nothing has to be said."""
        if self.state is SlaveState.SHUTDOWN:
            return None
        due = now_ms - self._wrote_ms > self._config.heartbeat_interval_ms
        if self._reported is not None and self.stored_offset == self._reported and not due:
            return None
        self._reported = self.stored_offset
        self._wrote_ms = now_ms
        return self.stored_offset

    def deadline_ms(self) -> int:
        """When `tick` and `report` are needed at the latest."""
        report_ms = self._wrote_ms + self._config.heartbeat_interval_ms
        return min(report_ms, self._read_ms + self._config.silence_max_ms) + 1

    def describe(self) -> str:
        """State, end and report in a line."""
        why = f": {self.problem}" if self.problem else ""
        rest = f", {self._left} bytes of a frame to come" if self._left else ""
        return f"{self.state.value} end {self.max_offset}, stored {self.stored_offset}{rest}{why}"

    def _step(self, happened: str, problem: str = "") -> None:
        self.state = TRANSITIONS[self.state, happened]
        self.problem = problem


def merged_offset(own: int | None, seen: int | None, master: int) -> int:
    """What a slave takes for a queue offset (units) of a group.

    Args:
        own: The slave's own; None: it has none.
        seen: The master's at the last copy; None: there was none.
        master: The master's now.
    """
    went_back = seen is not None and master < seen
    return master if own is None or went_back else max(own, master)
