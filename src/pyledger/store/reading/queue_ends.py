"""The last units of consume queues, read from their files without mapping, recovery or trust."""

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyledger.config.store import BATCH_UNIT_BYTES, CONSUME_QUEUE_UNIT_BYTES
from pyledger.errors import StoreIOError
from pyledger.model.names import LIGHT_QUEUE_PREFIX
from pyledger.regular_file import open_regular
from pyledger.store.files.folder import (
    BATCH_QUEUE_FOLDER,
    QUEUE_FOLDER,
    StoreFile,
    StoreFolder,
    offset_files,
)

_RECORD = struct.Struct(">qi")
_BATCH = struct.Struct(">qh")
_AT_BATCH = 28
_KINDS = ((QUEUE_FOLDER, CONSUME_QUEUE_UNIT_BYTES), (BATCH_QUEUE_FOLDER, BATCH_UNIT_BYTES))


@dataclass(frozen=True, slots=True)
class QueueEnd:
    """The last file with units of a queue, and its last unit."""

    topic: str
    queue_id: int
    path: str
    """The file."""
    first_unit: int
    """Number of the file's first unit, counted over all files of the queue."""
    unit_count: int
    """Units in the file."""
    unit_bytes: int
    physical_offset: int
    """Physical offset (bytes) of the record that the last unit names."""
    size_bytes: int
    """Size of that record."""
    next_offset: int
    """Queue offset after the last unit."""

    def units_below(self, physical_offset: int) -> tuple[int, int]:
        """Find the last unit of the file that names a record below a physical offset (bytes).

        Returns:
            The physical offset that it names and the queue offset after it; without such a unit -1 and the
            first queue offset of the file.
        """
        try:
            with open(self.path, "rb", buffering=0, opener=open_regular) as file:
                handle = file.fileno()

                def unit(number: int) -> bytes:
                    return os.pread(handle, self.unit_bytes, number * self.unit_bytes)

                def offset_of(number: int) -> int:
                    return int(_RECORD.unpack_from(unit(number))[0])

                below = bisect_left(range(self.unit_count), physical_offset, key=offset_of)
                last = unit(below - 1) if below else unit(0)
        except OSError as error:
            raise StoreIOError(self.path, "read", error.strerror or str(error)) from error
        base, count = _numbers(last, self.first_unit + max(below - 1, 0))
        return (_RECORD.unpack_from(last)[0], base + count) if below else (-1, base)


def queue_ends(folder: StoreFolder) -> Iterator[QueueEnd]:
    """Yield the ends of all queues that have units.

    Light queues are left out: their records are in other queues, too.

    Cost: lists each queue and reads some of its units: 40 for a full file of the default size.
    """
    for kind, unit_bytes in (
        (QUEUE_FOLDER, CONSUME_QUEUE_UNIT_BYTES),
        (BATCH_QUEUE_FOLDER, BATCH_UNIT_BYTES),
    ):
        for topic, queue_id, path in folder.queue_folders(kind):
            if not topic.startswith(LIGHT_QUEUE_PREFIX):
                end = _end_of(topic, queue_id, offset_files(path), unit_bytes)
                if end is not None:
                    yield end


def _end_of(topic: str, queue_id: int, files: Sequence[StoreFile], unit_bytes: int) -> QueueEnd | None:
    for file in reversed(files):
        try:
            with open(file.path, "rb", buffering=0, opener=open_regular) as opened:
                handle = opened.fileno()
                count = _units_used(handle, file.size_bytes // unit_bytes, unit_bytes)
                last = os.pread(handle, unit_bytes, (count - 1) * unit_bytes) if count else b""
        except FileNotFoundError:
            continue  # deleted by retention meanwhile
        except OSError as error:
            raise StoreIOError(file.path, "read", error.strerror or str(error)) from error
        if len(last) == unit_bytes:
            first_unit = file.start_offset // unit_bytes
            base, messages = _numbers(last, first_unit + count - 1)
            offset, size_bytes = _RECORD.unpack_from(last)
            return QueueEnd(
                topic, queue_id, file.path, first_unit, count, unit_bytes, offset, size_bytes, base + messages
            )
    return None


def _units_used(handle: int, capacity: int, unit_bytes: int) -> int:
    """Units up to the first without a size; damage may hide later ones."""

    def is_free(number: int) -> bool:
        return not any(os.pread(handle, 4, number * unit_bytes + 8))

    most = 1  # most queues are short
    while most < capacity and not is_free(most):
        most *= 2
    return bisect_left(range(min(most, capacity)), True, key=is_free)


def _numbers(unit: bytes, number: int) -> tuple[int, int]:
    """First queue offset and number of messages of a unit; `number` is the queue offset of a plain one."""
    if len(unit) != BATCH_UNIT_BYTES:
        return number, 1
    base, count = _BATCH.unpack_from(unit, _AT_BATCH)
    return base, count
