"""Places where records start, told by consume queue files: they save walking the log.

A unit is only a hint: a place counts when a sound record stands there. Where there are no queues, or their
files are behind, there is no hint, and the caller walks.
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

QUEUES_ASKED = 64
"""Queues that are looked at, at most."""
_UNIT_BYTES = 20


@dataclass(frozen=True)
class _Queue:
    """The units of one queue, as its files hold them."""

    files: list[StoreFile]

    @cached_property
    def unit_count(self) -> int:
        """Units from the first file on to the last one that names a place."""
        room = sum(file.size_bytes for file in self.files) // _UNIT_BYTES
        return bisect_left(range(room), True, key=lambda unit: self.place(unit) <= 0)

    def place(self, unit: int) -> int:
        """Physical offset (bytes) that a unit names, counted from the first file; 0 when there is none."""
        where = unit * _UNIT_BYTES
        for file in self.files:
            if where < file.size_bytes:
                with open(file.path, "rb", opener=open_regular) as opened:
                    return int.from_bytes(os.pread(opened.fileno(), 8, where), "big", signed=True)
            where -= file.size_bytes
        return 0


class RecordHints:
    """Asks the queue files of a folder where records start.

    Cost: a few reads of 8 bytes for each queue that is looked at.
    """

    def __init__(self, folder: StoreFolder, view: LogView) -> None:
        self._view = view
        self._folder = folder
        self.ends = list(islice(queue_ends(folder), QUEUES_ASKED))
        """Where the first queues end."""

    def last(self) -> int | None:
        """Physical offset (bytes) of the furthest record that a queue names."""
        return self._sound(max((end.place for end in self.ends), default=-1))

    def first_from(self, physical_offset: int) -> int | None:
        """Physical offset (bytes) of a record at or soon behind a place, by the queue with the most units."""
        queue = self._busiest
        if queue is None:
            return None
        unit = bisect_left(range(queue.unit_count), physical_offset, key=queue.place)
        return self._sound(queue.place(unit)) if unit < queue.unit_count else None

    @cached_property
    def _busiest(self) -> _Queue | None:
        found = (
            _Queue(offset_files(path)) for _, _, path in islice(self._folder.queue_folders(), QUEUES_ASKED)
        )
        queues = [queue for queue in found if queue.files]
        return max(queues, key=lambda queue: queue.unit_count, default=None)

    def _sound(self, place: int) -> int | None:
        if not self._view.start_offset <= place < self._view.end_offset:
            return None
        return place if scan(self._view, place, place + 1).record_count else None
