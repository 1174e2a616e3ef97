"""Offsets of records, from consume queue files, which save scanning the log.

A unit is only a hint: an offset is used if a valid record starts there. If there are no queues, or their
files lag, there is no hint, and the caller scans the log.
"""

import os
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from pyledger._core import LogView, scan
from pyledger.regular_file import open_regular
from pyledger.store.files.folder import StoreFile, StoreFolder, offset_files
from pyledger.store.reading.queue_ends import queue_ends

QUEUES_MAX = 64
"""Limit of queues that are read."""
_UNIT_BYTES = 20


@dataclass(frozen=True)
class _Queue:
    """The units in the files of one queue."""

    files: list[StoreFile]

    @cached_property
    def unit_count(self) -> int:
        """Units from the first file to the last one that names an offset."""
        capacity = sum(file.size_bytes for file in self.files) // _UNIT_BYTES
        return bisect_left(range(capacity), True, key=lambda unit: self.offset_of(unit) <= 0)

    def offset_of(self, unit: int) -> int:
        """Physical offset (bytes) in a unit, which is counted from the first file; 0 when there is none."""
        where = unit * _UNIT_BYTES
        for file in self.files:
            if where < file.size_bytes:
                with open(file.path, "rb", opener=open_regular) as opened:
                    return int.from_bytes(os.pread(opened.fileno(), 8, where), "big", signed=True)
            where -= file.size_bytes
        return 0


class RecordHints:
    """Reads from the queue files of a folder where records start.

    Cost: a few reads of 8 bytes for each queue, of at most `QUEUES_MAX`.
    """

    def __init__(self, folder: StoreFolder, view: LogView) -> None:
        self._view = view
        self._folder = folder
        self.ends = list(islice(queue_ends(folder), QUEUES_MAX))
        """Where the first queues end."""

    def last(self) -> int | None:
        """Physical offset (bytes) of the last record that a queue names."""
        return self._checked(max((end.physical_offset for end in self.ends), default=-1))

    def first_from(self, physical_offset: int) -> int | None:
        """Physical offset (bytes) of a record at or soon after another, by the queue with the most units."""
        queue = self._busiest
        if queue is None:
            return None
        unit = bisect_left(range(queue.unit_count), physical_offset, key=queue.offset_of)
        return self._checked(queue.offset_of(unit)) if unit < queue.unit_count else None

    @cached_property
    def _busiest(self) -> _Queue | None:
        found = (
            _Queue(offset_files(path)) for _, _, path in islice(self._folder.queue_folders(), QUEUES_MAX)
        )
        queues = [queue for queue in found if queue.files]
        return max(queues, key=lambda queue: queue.unit_count, default=None)

    def _checked(self, offset: int) -> int | None:
        """The offset if a valid record starts there, else None."""
        if not self._view.start_offset <= offset < self._view.end_offset:
            return None
        return offset if scan(self._view, offset, offset + 1).record_count else None
