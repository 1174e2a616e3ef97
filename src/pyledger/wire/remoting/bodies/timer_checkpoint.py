"""The body of 60, the progress of a master's timer messages: seven numbers of 64 bits.

Ours are followed by three more, which upstream does not read: the offset from which pending messages are
read again, that of the first pending message, and its time.

Source: RocketMQ store/.../timer/TimerCheckpoint.java.
"""

import struct
from typing import NamedTuple, Self

from pyledger.errors import MalformedBodyError
from pyledger.model.topic import NO_VERSION, DataVersion
from pyledger.wire.remoting.command import Buffer

NUMBERS = struct.Struct(">7q")
OURS = struct.Struct(">3q")


class TimerCheckpoint(NamedTuple):
    """Upstream's words; offsets are of the timer topic's queue, in units."""

    last_read_time_ms: int
    """What is due before was delivered."""
    last_timer_log_flush_pos: int = 0
    """A position in upstream's timer log."""
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    """Messages before it are known to the master."""
    version: DataVersion = NO_VERSION
    restart_offset: int = 0
    """Pending messages are at this offset or later."""
    first_offset: int = 0
    """Of those due at `first_ms`, the ones before it were delivered."""
    first_ms: int | None = None
    """When the first message that waits is due; None: the last three are not there."""

    def encode(self) -> bytes:
        """As it travels."""
        version = self.version
        numbers = (*self[:4], version.state_version, version.timestamp_ms, version.counter)
        ours = b"" if self.first_ms is None else OURS.pack(*self[5:])
        return NUMBERS.pack(*numbers) + ours

    @classmethod
    def decode(cls, body: Buffer) -> Self:
        """From a body.

        Raises:
            MalformedBodyError: it is too short.
        """
        if len(body) < NUMBERS.size:
            raise MalformedBodyError("TimerCheckpoint", "", f"{len(body)} bytes instead of {NUMBERS.size}")
        read_ms, log_position, offset, master_offset, *version = NUMBERS.unpack_from(body)
        state, timestamp_ms, counter = version
        ours = OURS.unpack_from(body, NUMBERS.size) if len(body) >= NUMBERS.size + OURS.size else ()
        edition = DataVersion(counter, state, timestamp_ms)
        return cls(read_ms, log_position, offset, master_offset, edition, *ours)
