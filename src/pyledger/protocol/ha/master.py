"""The master's side of one HA connection.

A slave sends only physical offsets of 8 bytes: each acknowledges the log up to it, and the transfer starts at
the first one. The master sends frames of the log from there, and an empty frame as heartbeat. A slave without
a log starts at the beginning of the log's last file, as in upstream.

Less than a full frame is held back until the slave has acknowledged the end of the last complete transfer:
small records are sent and acknowledged together, and wait for one report at most.

Differs: the connection is closed by an offset beyond the data sent or below an earlier one, and by a first
offset below the start of the log. Upstream accepts the first two and never responds to the last. A slave that
reports but receives nothing is disconnected, too.

Source: RocketMQ store/.../ha/DefaultHAConnection.java.
"""

import struct
from enum import Enum
from typing import NamedTuple

from pyledger.config.ha import HaConfig

REPORT = struct.Struct(">q")
FLOW_WINDOW_MS = 1_000
"""Period of the transfer limit."""


class MasterState(Enum):
    """State of a connection."""

    READY = "READY"
    """Waiting for the first report."""
    TRANSFER = "TRANSFER"
    SHUTDOWN = "SHUTDOWN"
    """To be closed; `problem` has the reason."""


TRANSITIONS = {
    (MasterState.READY, "report"): MasterState.TRANSFER,
    (MasterState.READY, "false report"): MasterState.SHUTDOWN,
    (MasterState.READY, "silence"): MasterState.SHUTDOWN,
    (MasterState.TRANSFER, "report"): MasterState.TRANSFER,
    (MasterState.TRANSFER, "false report"): MasterState.SHUTDOWN,
    (MasterState.TRANSFER, "silence"): MasterState.SHUTDOWN,
}


class LogRange(NamedTuple):
    """Range of a master's log: physical offsets (bytes)."""

    start: int
    end: int
    file_bytes: int
    """Size of a log file."""


class Transfer(NamedTuple):
    """A frame to send."""

    offset: int
    """Physical offset (bytes) of its first byte; of a heartbeat, where the next frame starts."""
    size: int
    """0: a heartbeat."""


class MasterConnection:
    """Processes a slave's reports and decides what to send."""

    def __init__(self, config: HaConfig, now_ms: int) -> None:
        """Create the state of an accepted connection."""
        self._config = config
        self.state = MasterState.READY
        self.problem = ""
        """Why the connection must be closed, in state SHUTDOWN."""
        self.slave_ack_offset = -1
        """Acknowledged physical offset (bytes); -1: no report yet. Invariant: it never decreases and was
        never beyond the end of the log."""
        self.next_offset = -1
        """Physical offset (bytes) at which the next transfer starts."""
        # Last known end of the log, and its end when all of it was sent. Both are ends of records, so the
        # slave will report them.
        self._log_end = self._drained = -1
        self._offered = -1
        """Physical offset (bytes) up to which the log has been sent."""
        self._stuck_at: int | None = None
        self._stuck_ms = now_ms
        self._head = bytearray()
        self._read_ms = self._wrote_ms = self._window_ms = now_ms
        self._window_left = config.transfer_rate_max_bytes

    def receive(self, data: bytes, log: LogRange, now_ms: int) -> bool:
        """Process bytes from a slave; return whether its offset has advanced."""
        self._read_ms = now_ms
        before = self.slave_ack_offset
        if len(data) == REPORT.size and not self._head:
            self._report(REPORT.unpack(data)[0], log)
            return self.slave_ack_offset > before and self.state is not MasterState.SHUTDOWN
        self._head += data
        whole = len(self._head) // REPORT.size * REPORT.size
        for (offset,) in REPORT.iter_unpack(self._head[:whole]):
            self._report(offset, log)
            if self.state is MasterState.SHUTDOWN:
                return False
        del self._head[:whole]
        return self.slave_ack_offset > before

    def _report(self, offset: int, log: LogRange) -> None:
        if offset > log.end:
            problem = f"the slave reports {offset}, this log ends at {log.end}: its tail is not from here"
            self._step("false report", problem)
        elif self.state is MasterState.TRANSFER and offset > self._offered:
            problem = f"the slave reports {offset}, it was sent nothing beyond {self._offered}"
            self._step("false report", problem)
        elif offset < 0 or offset < self.slave_ack_offset:
            self._step("false report", f"the slave went back from {self.slave_ack_offset} to {offset}")
        elif self.state is MasterState.READY and 0 < offset < log.start:
            problem = f"the slave wants to go on at {offset}, this log starts at {log.start}: empty the slave"
            self._step("false report", problem)
        else:
            if self.state is MasterState.READY:
                self.next_offset = offset or max(log.start, log.end - log.end % log.file_bytes)
                self._offered = self.next_offset
            self._step("report")
            self.slave_ack_offset = offset

    def sendable(self, log: LogRange, now_ms: int) -> int:
        """Return up to which physical offset (bytes) the log may be sent now, starting at `next_offset`.

        It is `next_offset` if everything is sent, before the first report, while less than a frame is held
        back, and until `resume_ms` if the transfer limit is reached.
        """
        at, end, config = self.next_offset, log.end, self._config
        if self.state is not MasterState.TRANSFER or at >= end:
            return at
        self._log_end = end
        if self.slave_ack_offset < self._drained:
            last_file = end - 1 - (end - 1) % log.file_bytes
            end -= (end - max(at, last_file)) % config.transfer_batch_bytes
        if config.flow_control:
            if now_ms - self._window_ms >= FLOW_WINDOW_MS:
                self._window_ms, self._window_left = now_ms, config.transfer_rate_max_bytes
            end = min(end, at + self._window_left)
        self._offered = max(self._offered, end)
        return end

    def next_transfer(self, log: LogRange, now_ms: int) -> Transfer | None:
        """Return the next frame of the log; None if nothing may be sent."""
        at, end = self.next_offset, self.sendable(log, now_ms)
        if at >= end:
            return None
        file_end = at - at % log.file_bytes + log.file_bytes
        return Transfer(at, min(self._config.transfer_batch_bytes, end - at, file_end - at))

    @property
    def resume_ms(self) -> int | None:
        """Time at which a transfer continues that reached the limit; None: not reached."""
        return None if self._window_left else self._window_ms + FLOW_WINDOW_MS

    def sent(self, transfer: Transfer, now_ms: int) -> None:
        """Note that a frame was sent."""
        self.sent_to(transfer.offset + transfer.size, now_ms)

    def sent_to(self, offset: int, now_ms: int) -> None:
        """Frames up to a physical offset (bytes) are on their way."""
        if self._config.flow_control:
            self._window_left -= offset - self.next_offset
        self.next_offset = offset
        if offset == self._log_end:
            self._drained = offset
        self._wrote_ms = now_ms

    def tick(self, now_ms: int, waits_at: int | None = None) -> Transfer | None:
        """Return the heartbeat to send, if one is due.

        Args:
            now_ms: The time.
            waits_at: Physical offset (bytes) up to which the slave received frames while more wait to be
                sent; None: it received all.
        """
        if self.state is MasterState.SHUTDOWN:
            return None
        if waits_at is None or waits_at != self._stuck_at:
            self._stuck_at, self._stuck_ms = waits_at, now_ms
        elif now_ms - self._stuck_ms > self._config.silence_max_ms:
            self._step("silence", f"the slave took nothing for {now_ms - self._stuck_ms} ms")
            return None
        if now_ms - self._read_ms > self._config.silence_max_ms:
            self._step("silence", f"the slave was silent for {now_ms - self._read_ms} ms")
            return None
        due = now_ms - self._wrote_ms > self._config.heartbeat_interval_ms
        return Transfer(self.next_offset, 0) if due and self.state is MasterState.TRANSFER else None

    def deadline_ms(self) -> int:
        """Latest time of the next `tick`."""
        silence_ms = self._read_ms + self._config.silence_max_ms
        if self.state is not MasterState.TRANSFER:
            return silence_ms + 1
        return min(silence_ms, self._wrote_ms + self._config.heartbeat_interval_ms) + 1

    def describe(self) -> str:
        """Return state, offset and acknowledgement in one line."""
        why = f": {self.problem}" if self.problem else ""
        return f"{self.state.value} next {self.next_offset}, acknowledged {self.slave_ack_offset}{why}"

    def _step(self, happened: str, problem: str = "") -> None:
        self.state = TRANSITIONS[self.state, happened]
        self.problem = problem
