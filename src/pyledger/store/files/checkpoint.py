"""The `checkpoint` file: the store times up to which log, queues and index are durable.

4,096 bytes: five big-endian i64, then zeroes. See docs/formats/checkpoint.md.
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
    """Store times of the last durable records, in ms since 1970 UTC; 0 where not known."""

    physic_msg_timestamp: int = 0
    """Store time (ms) of a record up to which the commit log is on disk."""
    logics_msg_timestamp: int = 0
    """Store time (ms) of the last record put into a consume queue."""
    index_msg_timestamp: int = 0
    """Store time (ms) of the last record in the newest index file that is full and on disk."""
    master_flushed_offset: int = 0
    """On a slave: the physical offset (bytes) up to which its master has flushed."""
    confirm_phy_offset: int = 0
    """Physical offset (bytes) of the last record that the last recovery found."""

    @property
    def min_timestamp_ms(self) -> int:
        """Records stored before this time (ms) are durable in the log and in their queues."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)

    @property
    def log_timestamp_ms(self) -> int:
        """Records stored before this time (ms) are durable in the log; 0 where not known."""
        return max(0, self.physic_msg_timestamp - SAFETY_MS)

    def encode(self) -> bytes:
        """Return the content of the file."""
        fields = (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        )
        return _FIELDS.pack(*fields).ljust(CHECKPOINT_BYTES, b"\0")


def decode(data: bytes) -> StoreCheckpoint | None:
    """Decode the content of the file; None when it is too short or has a negative field."""
    if len(data) < _FIELDS.size:
        return None
    fields = _FIELDS.unpack_from(data)
    return None if min(fields) < 0 else StoreCheckpoint(*fields)


def read(path: str) -> StoreCheckpoint | None:
    """Read a checkpoint file; None when it is missing or unusable.

    Raises:
        StoreIOError: the file exists but cannot be read.
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
        StoreIOError: a system call failed; the old file is unchanged.

    Durability: on return the new content survives a power failure; before that, the old or new one.
    """
    write_file(Path(path), checkpoint.encode(), backup=False)
