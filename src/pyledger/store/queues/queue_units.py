"""The units of one consume queue as recovery would leave them: from its files, then from the log.

The log is the authority. Queue files save scanning it; if they are missing, lag, or name records after the
end of the log, units derived from the records are used instead.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyledger._core import (
    BatchConsumeQueue,
    ConsumeQueue,
    LogView,
    UnitRange,
    search_batch_units_by_time,
    search_units_by_time,
    select_units,
)
from pyledger.errors import IllegalMessageError
from pyledger.model.message import QueueRange
from pyledger.store.files.folder import (
    BATCH_QUEUE_FOLDER,
    DEFAULT_BATCH_QUEUE_FILE_BYTES,
    DEFAULT_QUEUE_FILE_BYTES,
    QUEUE_FOLDER,
    derived_folder,
)
from pyledger.store.queues.units import (
    BATCH_UNIT_BYTES,
    FILL_SIZE_BYTES,
    UNIT_BYTES,
    Raw,
    Units,
    batch_at,
    batches_below,
    plain_units,
)

StoredQueue = ConsumeQueue | BatchConsumeQueue


@dataclass(slots=True)
class QueueUnits:
    """One queue: queue offsets below `stored_end` from its files, the rest derived from the log."""

    folder: str
    """The store folder."""
    topic: str
    queue_id: int
    batch: bool
    """Whether a unit may represent several messages."""
    min_offset: int = 0
    """First queue offset whose record is still in the log."""
    stored_end: int = 0
    """Queue offset up to which the files are used."""
    derived_first: int = -1
    """Queue offset of the first derived unit; -1 without one."""
    max_offset: int = 0
    """Queue offset that the next message gets."""
    _derived: bytearray = field(default_factory=bytearray)
    """Raw units as the files hold them, 20 bytes each, of a batch queue 46."""
    _stored: StoredQueue | None = None

    @property
    def range(self) -> QueueRange:
        """Queue offsets that can be read."""
        return QueueRange(self.min_offset, self.max_offset)

    @property
    def has_units(self) -> bool:
        """Whether any message of the queue is left."""
        return self.min_offset < self.max_offset

    def chunks(self, start: int, end: int, count: int, *, newest_first: bool = False) -> Iterator[Raw]:
        """Raw 20-byte units of queue offsets [start, end), at most `count` in a chunk, fill units left out.

        A batch that begins before `start` and reaches into the range is among them. `newest_first` turns the
        order of the chunks around, not that within one.
        """
        start, end = max(start, self.min_offset), min(end, self.max_offset)
        parts = [self._stored_chunks, self._derived_chunks]
        for part in reversed(parts) if newest_first else parts:
            for raw in part(start, end, count, newest_first):
                yield select_units(raw)

    def array(self, start: int | None = None, end: int | None = None) -> Units:
        """Units of queue offsets [start, end); a copy."""
        first = self.min_offset if start is None else start
        last = self.max_offset if end is None else end
        return Units(b"".join(self.chunks(first, last, 1 << 16)))

    def misses_any(self, found: Units, start: int | None, end: int | None) -> bool:
        """Whether the result of `array` has no unit for some queue offsets in [start, end)."""
        first = self.min_offset if start is None else max(start, self.min_offset)
        last = self.max_offset if end is None else min(end, self.max_offset)
        return len(found) < last - first

    def add(self, units: UnitRange) -> None:
        """Add units derived from the log.

        The log is the authority: files are used only up to the first derived unit.
        """
        raw = memoryview(units)
        if not raw.nbytes:
            return
        if self.derived_first < 0:
            self.derived_first = units.first_queue_offset
            self.stored_end = min(self.stored_end, self.derived_first)
            if self.min_offset >= self.stored_end:
                self.min_offset = self.derived_first
        self._derived += raw
        self.max_offset = units.next_queue_offset

    def truncate_stored(self, physical_offset: int) -> None:
        """Use the files only for records below a physical offset (bytes); the rest must be derived."""
        low, high = self.min_offset, self.stored_end
        while low < high:
            middle = (low + high) // 2
            raw = self._open().units(middle, 1)
            if not raw.nbytes:
                high = middle
                continue
            place, size_bytes = struct.unpack_from(">qi", raw)
            if place < physical_offset or size_bytes == FILL_SIZE_BYTES:
                low = middle + 1
            else:
                high = middle
        self.stored_end = self.max_offset = low

    def correct_min(self, min_physical_offset: int) -> None:
        """Move `min_offset` to the first unit that names a record at or above the log's start (bytes)."""
        if self.min_offset < self.stored_end:
            stored = self._open()
            stored.correct_min_offset(min_physical_offset)
            self.min_offset = min(max(self.min_offset, stored.min_offset), self.stored_end)
        if self.min_offset >= self.stored_end:
            self.min_offset = self._derived_min(min_physical_offset)

    def offset_by_time(self, view: LogView, timestamp_ms: int, *, upper: bool) -> int:
        """Queue offset for a store time (ms): see `StoreReader.offset_by_time`."""
        if not self.has_units:
            return self.max_offset
        if self.derived_first < 0 and self._open().max_offset == self.stored_end:
            found = self._open().offset_by_time(view, timestamp_ms, upper=upper)
        else:
            found = self._search_joined(view, timestamp_ms, upper)
        return min(max(found, self.min_offset), self.max_offset)

    def _search_joined(self, view: LogView, timestamp_ms: int, upper: bool) -> int:
        """Search files and derived units as if one file row held them: where files begin counts."""
        kept = self.min_offset < self.stored_end
        where, parts = 0, []
        if kept:
            stored = self._open()
            stored.correct_min_offset(view.start_offset)
            where = stored.min_where
            parts = list(_stored_units(stored, self.min_offset, self.stored_end))
        file_size_bytes = self._stored_file_size_bytes()
        units = b"".join([*parts, self._derived])
        if self.batch:
            return search_batch_units_by_time(
                units,
                timestamp_ms,
                upper=upper,
                first_where=where,
                min_queue_offset=self.min_offset,
                file_size_bytes=file_size_bytes or DEFAULT_BATCH_QUEUE_FILE_BYTES,
            )
        return search_units_by_time(
            units,
            view,
            timestamp_ms,
            upper=upper,
            first_queue_offset=self.min_offset if kept else self.derived_first,
            min_queue_offset=self.min_offset,
            file_size_bytes=file_size_bytes or DEFAULT_QUEUE_FILE_BYTES,
        )

    def _stored_file_size_bytes(self) -> int:
        """Size of the queue's files; 0 without any, as for a queue that cannot name a folder."""
        try:
            return self._open().file_size_bytes
        except IllegalMessageError:
            return 0

    def _stored_chunks(self, start: int, end: int, count: int, newest_first: bool) -> Iterator[Raw]:
        end = min(end, self.stored_end)
        if start >= end:
            return
        stored = self._open()
        if isinstance(stored, BatchConsumeQueue):
            chunks = list(_stored_batches(stored, start, end, count))
            yield from reversed(chunks) if newest_first else chunks
            return
        firsts = range(start, end, count)
        for first in reversed(firsts) if newest_first else firsts:
            yield _joined(stored, first, min(first + count, end))

    def _derived_chunks(self, start: int, end: int, count: int, newest_first: bool) -> Iterator[Raw]:
        if self.derived_first < 0 or end <= self.derived_first:
            return
        if self.batch:
            low, high = self._derived_batches(start, end)
        else:
            low, high = max(0, start - self.derived_first), end - self.derived_first
        size = BATCH_UNIT_BYTES if self.batch else UNIT_BYTES
        firsts = range(low, high, count)
        for first in reversed(firsts) if newest_first else firsts:
            # A copy: a view held by a suspended iterator would keep `add` from appending.
            part = bytes(self._derived[first * size : min(first + count, high) * size])
            yield plain_units(part) if self.batch else part

    def _derived_batches(self, start: int, end: int) -> tuple[int, int]:
        """First and end index of the derived units of queue offsets [start, end)."""
        return max(0, batches_below(self._derived, start + 1) - 1), batches_below(self._derived, end)

    def _derived_min(self, min_physical_offset: int) -> int:
        if self.derived_first < 0:
            return self.max_offset
        if self.batch:
            batches = range(len(self._derived) // BATCH_UNIT_BYTES)
            at = bisect_left(batches, min_physical_offset, key=self._derived_place)
            return batch_at(self._derived, at)[0] if at < len(batches) else self.max_offset
        # Fill units name no place, so the array is not sorted: walk from the front; heads are deleted file by
        # file.
        first = max(self.min_offset, self.derived_first)
        while (
            first < self.max_offset and self._derived_place(first - self.derived_first) < min_physical_offset
        ):
            first += 1
        return first

    def _derived_place(self, index: int) -> int:
        """Physical offset (bytes) in a derived unit."""
        at = index * (BATCH_UNIT_BYTES if self.batch else UNIT_BYTES)
        return int.from_bytes(self._derived[at : at + 8], "big", signed=True)

    def _open(self) -> StoredQueue:
        if self._stored is None:
            self._stored = open_stored(self.folder, self.topic, self.queue_id, batch=self.batch)
            self._stored.recover()
        return self._stored

    def close(self) -> None:
        """Let go of the queue's files."""
        if self._stored is not None:
            self._stored.close()
            self._stored = None


def open_stored(store_path: str, topic: str, queue_id: int, *, batch: bool) -> StoredQueue:
    """Map the files of one queue read-only."""
    if batch:
        return BatchConsumeQueue(
            derived_folder(store_path, BATCH_QUEUE_FOLDER), topic, queue_id, readonly=True
        )
    return ConsumeQueue(derived_folder(store_path, QUEUE_FOLDER), topic, queue_id, readonly=True)


def _stored_units(stored: StoredQueue, start: int, end: int) -> Iterator[memoryview]:
    """Raw units of queue offsets [start, end) as the files hold them, file by file."""
    while start < end:
        raw = stored.units(start, end - start)
        if not raw.nbytes:
            return
        if isinstance(stored, BatchConsumeQueue):
            yield raw[: batches_below(raw, end) * BATCH_UNIT_BYTES]
            start = max(start + 1, _end_of_batches(raw))
        else:
            yield raw
            start += raw.nbytes // UNIT_BYTES


def _joined(stored: ConsumeQueue, start: int, end: int) -> Raw:
    """Units [start, end) in one piece; they may lie in two files."""
    parts = list(_stored_units(stored, start, end))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _stored_batches(stored: BatchConsumeQueue, start: int, end: int, count: int) -> Iterator[Raw]:
    while start < end:
        raw = stored.units(start, count)
        if not raw.nbytes:
            return
        yield plain_units(raw[: batches_below(raw, end) * BATCH_UNIT_BYTES])
        start = max(start + 1, _end_of_batches(raw))


def _end_of_batches(raw: Raw) -> int:
    """Queue offset after all units of a batch queue; those of damaged files need not ascend."""
    return max(batch_at(raw, index)[1] for index in range(len(raw) // BATCH_UNIT_BYTES))
