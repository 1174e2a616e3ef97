"""The slave's side of one HA connection.

The master sends frames `i64 offset | i32 size | size bytes`; the bytes are those of the commit log, split at
any position. A slave accepts them only at the end of its own log, which is therefore always a prefix of the
master's. It reports its end at once, after each progress, and as a heartbeat. Bytes of a frame are passed on
as they arrive.

Differs: upstream reports for the first time only after 5 s of silence.

Source: RocketMQ store/.../ha/DefaultHAClient.java.
"""

import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from pyledger.config.ha import HaConfig

FRAME_HEADER = struct.Struct(">qi")
"""Physical offset and number of the bytes; 0 bytes: a heartbeat."""
OFFSET_MAX = 10**18
"""Limit of physical offsets (bytes): names of log files have 20 digits."""


class SlaveState(Enum):
    """State of a connection."""

    READY = "READY"
    """Nothing received yet."""
    TRANSFER = "TRANSFER"
    SHUTDOWN = "SHUTDOWN"
    """To be closed; `problem` has the reason."""


TRANSITIONS = {
    (SlaveState.READY, "frame in order"): SlaveState.TRANSFER,
    (SlaveState.READY, "frame out of order"): SlaveState.SHUTDOWN,
    (SlaveState.READY, "silence"): SlaveState.SHUTDOWN,
    (SlaveState.TRANSFER, "frame in order"): SlaveState.TRANSFER,
    (SlaveState.TRANSFER, "frame out of order"): SlaveState.SHUTDOWN,
    (SlaveState.TRANSFER, "silence"): SlaveState.SHUTDOWN,
}


class Piece(NamedTuple):
    """Bytes to append to the log."""

    offset: int
    """Physical offset of the first one."""
    data: memoryview


class SlaveConnection:
    """Splits a master's frames into pieces of the log, and decides what to report."""

    def __init__(self, config: HaConfig, max_offset: int, frame_bytes_max: int, now_ms: int) -> None:
        """Create the state of a new connection.

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
        """End (bytes) of the pieces returned so far. Invariant: every piece starts here."""
        self.stored_offset = max_offset
        """End (bytes) of the log that is stored durably enough to be reported."""
        self.master_offset = max_offset
        """End (bytes) of the master's log according to its frames."""
        self._reported: int | None = None
        self._head = bytearray()
        self._left = 0
        self._read_ms = self._wrote_ms = now_ms

    @property
    def between_frames(self) -> bool:
        """Whether the next byte starts a frame's header."""
        return not (self._left or self._head) and self.state is not SlaveState.SHUTDOWN

    def rest_of_frame(self, chunk: memoryview, now_ms: int) -> Piece | None:
        """Return the part of a chunk that belongs to the previous frame; stored like pieces of `take`."""
        self._read_ms = now_ms
        if not self._left or self.state is SlaveState.SHUTDOWN:
            return None
        return self._piece(chunk[: self._left])

    def heard(self, now_ms: int) -> None:
        """Note that bytes arrived which were not passed to `take`."""
        self._read_ms = max(self._read_ms, now_ms)

    def reported(self, offset: int, now_ms: int) -> None:
        """Note that a stored physical offset (bytes) was reported."""
        self.stored(offset)
        self._reported, self._wrote_ms = offset, max(self._wrote_ms, now_ms)

    def took(self, end_offset: int) -> None:
        """Note that whole frames up to a physical offset (bytes) were stored without `take`."""
        # Lower only for an empty log, which starts at the frame whose bytes are still to arrive.
        if self.state is SlaveState.SHUTDOWN or end_offset <= self.max_offset:
            return
        self._step("frame in order")
        self.max_offset = end_offset
        self.master_offset = max(self.master_offset, end_offset)

    def take(self, chunk: memoryview, now_ms: int) -> Iterator[Piece]:
        """Yield the pieces of the log in received bytes; each must be stored before the next is requested."""
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
        """Read a frame's header, or part of it; return the position to continue at in the chunk."""
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
            self._step("frame out of order", f"a frame has a size of {size} bytes")
        elif not 0 <= offset <= OFFSET_MAX - self._frame_bytes_max:
            self._step("frame out of order", f"a frame begins at {offset}: no log can reach it")
        elif self.max_offset not in (0, offset):
            self._step(
                "frame out of order", f"the master continues at {offset}, this log ends at {self.max_offset}"
            )
        else:
            self._step("frame in order")
            if size:
                self.max_offset = offset
            self._left = size
            self.master_offset = max(self.master_offset, offset + size)

    def stored(self, offset: int) -> None:
        """Note that the log is stored up to a physical offset (bytes)."""
        self.stored_offset = max(self.stored_offset, offset)

    def tick(self, now_ms: int) -> None:
        """Check for the master's silence."""
        if self.state is not SlaveState.SHUTDOWN and now_ms - self._read_ms > self._config.silence_max_ms:
            self._step("silence", f"the master was silent for {now_ms - self._read_ms} ms")

    def report(self, now_ms: int) -> int | None:
        """Return the physical offset (bytes) to report now; None: no report is due."""
        if self.state is SlaveState.SHUTDOWN:
            return None
        due = now_ms - self._wrote_ms > self._config.heartbeat_interval_ms
        if self._reported is not None and self.stored_offset == self._reported and not due:
            return None
        self._reported = self.stored_offset
        self._wrote_ms = now_ms
        return self.stored_offset

    def deadline_ms(self) -> int:
        """Latest time of the next `tick` and `report`."""
        report_ms = self._wrote_ms + self._config.heartbeat_interval_ms
        return min(report_ms, self._read_ms + self._config.silence_max_ms) + 1

    def describe(self) -> str:
        """Return state, end and report in one line."""
        why = f": {self.problem}" if self.problem else ""
        rest = f", {self._left} bytes of a frame to come" if self._left else ""
        return f"{self.state.value} end {self.max_offset}, stored {self.stored_offset}{rest}{why}"

    def _step(self, happened: str, problem: str = "") -> None:
        self.state = TRANSITIONS[self.state, happened]
        self.problem = problem


def merged_offset(own: int | None, seen: int | None, master: int) -> int:
    """Return the queue offset (units) of a group that a slave adopts.

    Args:
        own: The slave's; None: it has none.
        seen: The master's at the last synchronization; None: there was none.
        master: The master's now.
    """
    went_back = seen is not None and master < seen
    return master if own is None or went_back else max(own, master)
