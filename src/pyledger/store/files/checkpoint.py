"""The `checkpoint` file: up to which store times log, queues and index are durable.

4096 bytes, of which the first 40 are five i64, big-endian; the rest is zero. See docs/formats/checkpoint.md.
Source: RocketMQ store/.../StoreCheckpoint.java.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from pyledger.errors import StoreIOError
from pyledger.regular_file import open_regular
from pyledger.store.files.meta_file import write_file

CHECKPOINT_BYTES = 4096
SAFETY_MS = 3000
_FIELDS = struct.Struct(">5q")


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Times of the last durable record of each part, in ms since 1970 UTC; 0 where not known."""

    physic_msg_timestamp: int = 0
    """Store time (ms) of a record up to which the commit log is on disk."""
    logics_msg_timestamp: int = 0
    """Store time (ms) of the last record put into a consume queue."""
    index_msg_timestamp: int = 0
    """Store time (ms) of the last record in the newest index file that is full and on disk."""
    master_flushed_offset: int = 0
    """Physical offset (bytes) that a slave knows to be on its master's disk."""
    confirm_phy_offset: int = 0
    """Physical offset (bytes) of the last record that the last recovery found."""

    @property
    def min_timestamp_ms(self) -> int:
        """Records stored before this time (ms) are in the log and in their queues, on disk."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)

    @property
    def log_timestamp_ms(self) -> int:
        """Records stored before this time (ms) are in the log, on disk; 0 where not known."""
        return max(0, self.physic_msg_timestamp - SAFETY_MS)

    def encode(self) -> bytes:
        """The whole file."""
        fields = (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        )
        return _FIELDS.pack(*fields).ljust(CHECKPOINT_BYTES, b"\0")


def decode(data: bytes) -> StoreCheckpoint | None:
    """Decode the file's bytes; None when they are too few or name a time before 1970."""
    if len(data) < _FIELDS.size:
        return None
    fields = _FIELDS.unpack_from(data)
    return None if min(fields) < 0 else StoreCheckpoint(*fields)


def read(path: str) -> StoreCheckpoint | None:
    """Read a checkpoint file; None, "nothing is known", when it is missing or unusable.

    Raises:
        StoreIOError: the file is there and cannot be read.
    """
    try:
        with open(path, "rb", opener=open_regular) as file:
            return decode(file.read(CHECKPOINT_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreIOError(path, "read", error.strerror or str(error)) from error


def write(path: str, checkpoint: StoreCheckpoint) -> None:
    """Replace a checkpoint file.

    Raises:
        StoreIOError: the operating system refused; the old file is still whole.

    Durability: on return the new content survives a power cut; before that the old one or the new one does.
    """
    write_file(Path(path), checkpoint.encode(), backup=False)
