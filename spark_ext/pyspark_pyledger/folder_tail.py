"""The store folders that a stream follows: their queue ranges, the end of a trigger, and its partitions."""

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from pyledger import arrow
from pyledger.arrow import Partition
from pyledger.errors import PyLedgerError, StoreIOError, StoreNotFoundError
from pyledger.model.message import QueueRange
from pyledger.store import Units
from pyledger.store.files.folder import QUEUE_FOLDER
from pyledger.store.reading.reader import StoreReader
from pyspark_pyledger.offsets import Offsets, QueueKey
from pyspark_pyledger.options import ReadOptions, is_wanted
from pyspark_pyledger.planning import named_folders, partition_bytes
from pyspark_pyledger.trigger_budget import shares

Queue = tuple[str, int]
Spans = dict[Queue, tuple[int, int]]
"""Queue offsets [start, end) by topic and queue id."""
FIRST_WINDOW_UNITS = 1024


@dataclass(slots=True)
class _Followed:
    """One folder that can be read."""

    reader: StoreReader
    last: tuple[object, ...] | None = None
    """The last record that was read from it."""


class FolderTail:
    """The folders of a stream, kept open from one trigger to the next. Used by one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._followed: dict[str, _Followed] = {}
        self._ranges: dict[QueueKey, QueueRange] = {}
        self.replaced: set[str] = set()
        """Folders whose log was truncated or replaced: records that were read from them are gone."""
        self.unavailable: dict[str, PyLedgerError] = {}
        """Paths and folders that could not be read at the last refresh, and why."""
        self._last_seen: dict[str, tuple[object, ...]] = {}
        """The last records of folders that are unavailable."""

    def refresh(self) -> Mapping[QueueKey, QueueRange]:
        """Queue offsets that each wanted queue holds now.

        A folder that is missing, has lost its log or cannot be read is left out and added to `unavailable`.

        Raises:
            StoreNotFoundError: no path has ever held a store.
            StoreIOError: no store has ever been readable.

        Cost: a listing of each folder, and a pass over the records appended since the last refresh.
        """
        missing: dict[str, PyLedgerError] = {}
        named = dict(named_folders(self._options.paths, missing))
        self.unavailable = dict(missing)
        changed = False
        for source in self._followed.keys() - named.keys():
            path = self._followed[source].reader.path
            if path not in missing and os.path.dirname(path) not in missing:
                self.unavailable[source] = StoreNotFoundError(path, "no longer holds a log")
            self._release(source)
            changed = True
        for source, path in named.items():
            try:
                changed |= self._advance(source, path)
            except (StoreNotFoundError, StoreIOError) as error:
                self.unavailable[source] = error
                self._release(source)
                changed = True
        if self.unavailable and not self._followed and not self._last_seen:
            raise next(iter(self.unavailable.values()))
        if changed:
            self._ranges = {
                (topic, source, queue_id): held
                for source, one in self._followed.items()
                for (topic, queue_id), held in one.reader.queues().items()
                if is_wanted(self._options, topic, queue_id)
            }
        return self._ranges

    def is_authoritative(self, key: QueueKey) -> bool:
        """Return whether both log and queues of a folder were read, so that what is missing is lost.

        An empty log or a missing queue folder may mean that a file system is not mounted.
        """
        one = self._followed.get(key[1])
        if one is None or one.reader.max_offset == one.reader.min_offset:
            return False
        if key in self._ranges:
            return True
        try:
            return bool(os.listdir(os.path.join(one.reader.path, QUEUE_FOLDER)))
        except OSError:
            return False

    def _open(self, path: str) -> StoreReader:
        return StoreReader.open(path, on_corrupt=self._options.on_corrupt)

    def _advance(self, source: str, path: str) -> bool:
        """Bring one folder up to date; return whether its ranges may have changed."""
        one = self._followed.get(source)
        last = self._last_seen.get(source) if one is None else one.last
        changed = True
        if one is not None:
            try:
                changed = one.reader.refresh()
                is_same_log = last is None or _still_holds(one.reader, last)
            except PyLedgerError:
                # The log was truncated or replaced while it was followed: reopen it.
                is_same_log = False
            if not is_same_log:
                self._release(source)
                one = None
        if one is None:
            changed = True
            one = _Followed(self._open(path), last)
            self._followed[source] = one
            if last is not None and one.reader.max_offset == one.reader.min_offset:
                raise StoreNotFoundError(path, "its log is empty now, and was not before")
            if last is not None and not _still_holds(one.reader, last):
                self.replaced.add(source)
            self._last_seen.pop(source, None)
        stop = one.reader.stop
        if stop.last_record_offset >= 0:
            one.last = _record_at(one.reader, stop.last_record_offset)
        return changed

    def _release(self, source: str) -> None:
        """Close a folder, but remember the last record read from it."""
        one = self._followed.pop(source, None)
        if one is not None:
            one.reader.close()
            if one.last is not None:
                self._last_seen[source] = one.last

    def offset_by_time(self, key: QueueKey, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at a time (ms) or later, or the queue's end."""
        topic, source, queue_id = key
        return self._followed[source].reader.offset_by_time(topic, queue_id, timestamp_ms)

    def limit(self, starts: Offsets, ends: Offsets, rows: int | None, size_bytes: int | None) -> Offsets:
        """Return where a trigger of at most `rows` rows or `size_bytes` bytes ends.

        Each folder is limited in the order of its log, so that its queues advance together. Folders share the
        limit by their lag. A folder with a share gives at least one row, even if that exceeds the bytes.
        """
        if rows is None and size_bytes is None:
            return ends
        waiting = {source: self._spans(source, starts, ends) for source in self._followed}
        counts = {
            source: sum(end - start for start, end in spans.values()) for source, spans in waiting.items()
        }
        total = sum(counts.values())
        taken = counts if rows is None else shares(counts, rows)
        limited = dict(starts)
        for source, spans in waiting.items():
            if not taken[source]:
                continue
            found = limit_spans(
                self._followed[source].reader,
                spans,
                None if rows is None else taken[source],
                None if size_bytes is None else max(1, size_bytes * counts[source] // total),
            )
            limited |= {(topic, source, queue_id): end for (topic, queue_id), end in found.items()}
        return limited

    def plan(self, starts: Offsets, ends: Offsets) -> list[Partition]:
        """Split the range between two positions into partitions of about equal size in bytes."""
        return list(self._partitions(starts, ends))

    def _partitions(self, starts: Offsets, ends: Offsets) -> Iterator[Partition]:
        wanted = {source: self._spans(source, starts, ends) for source in self._followed}
        options = self._options
        size = 0
        for source, spans in wanted.items():
            size += sum(
                _span_bytes(self._followed[source].reader, name, span) for name, span in spans.items()
            )
        for source, spans in wanted.items():
            if spans:
                yield from arrow.plan(
                    self._followed[source].reader,
                    max_partition_bytes=partition_bytes(size, options),
                    max_partition_records=options.max_records_per_partition,
                    queues=list(spans),
                    starting_offsets={name: start for name, (start, _) in spans.items()},
                    ending_offsets={name: end for name, (_, end) in spans.items()},
                    tags=options.tags,
                )

    def _spans(self, source: str, starts: Offsets, ends: Offsets) -> Spans:
        return {
            (topic, queue_id): (starts.get((topic, of, queue_id), 0), end)
            for (topic, of, queue_id), end in ends.items()
            if of == source and starts.get((topic, of, queue_id), 0) < end
        }

    def close(self) -> None:
        """Close all folders."""
        for one in self._followed.values():
            one.reader.close()
        self._followed = {}


def limit_spans(
    reader: StoreReader, spans: Spans, rows: int | None, size_bytes: int | None
) -> dict[Queue, int]:
    """Return the queue offsets at which the first `rows` or `size_bytes` of some spans end, in log order.

    A queue that does not have one unit per offset (batches, compacted records) is taken whole.

    Cost: a binary search in a window of each queue's units. The window starts at the queue's share of the
    rows and grows fourfold until it is large enough. With a limit in bytes, the window's sizes are summed.
    """
    window = _first_window(reader, spans, rows, size_bytes)
    while True:
        found, enough = _limit_in_window(reader, spans, rows, size_bytes, window)
        if enough:
            return found
        window *= 4


def _first_window(reader: StoreReader, spans: Spans, rows: int | None, size_bytes: int | None) -> int:
    """Return how many units suffice if all queues grow at one rate and all records have one size."""
    if size_bytes is not None:
        name, (start, _end) = next(iter(spans.items()))
        rows_of_size = size_bytes // max(64, _span_bytes(reader, name, (start, start + 1)))
        rows = rows_of_size if rows is None else min(rows, rows_of_size)
    return (rows or 0) // max(1, len(spans)) + FIRST_WINDOW_UNITS


def _limit_in_window(
    reader: StoreReader, spans: Spans, rows: int | None, size_bytes: int | None, window: int
) -> tuple[dict[Queue, int], bool]:
    """Return the end of each queue from its first `window` units, and whether these were enough."""
    ends: dict[Queue, int] = {}
    units: dict[Queue, Units] = {}
    horizon = None
    for (topic, queue_id), (start, end) in spans.items():
        seen = min(end, start + window)
        part = reader.units(topic, queue_id, start, seen)
        if len(part) != seen - start:
            ends[topic, queue_id] = end
            continue
        units[topic, queue_id] = part
        if seen < end:
            last = part[-1].physical_offset
            horizon = last if horizon is None else min(horizon, last)
    if not units:
        return ends, True
    counts, limited = _take(list(units.values()), horizon, rows, size_bytes)
    if horizon is not None and not limited:
        return ends, False
    ends |= {name: spans[name][0] + count for name, count in zip(units, counts, strict=True)}
    return ends, True


def _take(
    parts: list[Units], horizon: int | None, rows: int | None, size_bytes: int | None
) -> tuple[list[int], bool]:
    """Return how many units of each queue are taken, in log order, and whether a limit was reached.

    A binary search finds the physical offset up to which units are taken, and each queue's unit with it.
    """
    offsets = [part.physical_offsets for part in parts]
    sizes = [] if size_bytes is None else [list(accumulate(part.sizes)) for part in parts]

    def fits(counts: list[int]) -> bool:
        if rows is not None and sum(counts) > rows:
            return False
        taken = sum(one[count - 1] for one, count in zip(sizes, counts, strict=False) if count)
        return size_bytes is None or taken <= size_bytes

    def count_to(offset: int, low: list[int], high: list[int]) -> list[int]:
        return [bisect_right(one, offset, *span) for one, *span in zip(offsets, low, high, strict=True)]

    first = min(one[0] for one in offsets)
    last = max(one[-1] for one in offsets) if horizon is None else horizon
    low = count_to(first, [0] * len(offsets), [len(one) for one in offsets])
    high = count_to(last, low, [len(one) for one in offsets])
    if fits(high):
        return high, sum(high) == rows
    while last - first > 1 and sum(low) + 1 < sum(high):
        middle = (first + last) // 2
        counts = count_to(middle, low, high)
        if fits(counts):
            first, low = middle, counts
        else:
            last, high = middle, counts
    return low, True


def _span_bytes(reader: StoreReader, name: Queue, span: tuple[int, int]) -> int:
    """Estimate the log bytes of a span from the size of its first record."""
    units = reader.units(*name, span[0], span[0] + 1)
    return sum(units.sizes) * (span[1] - span[0])


def _record_at(reader: StoreReader, physical_offset: int) -> tuple[object, ...]:
    """Return what identifies a record, in case another one is written at its offset later."""
    found = reader.message_at(physical_offset)
    return (
        physical_offset,
        found.topic,
        found.queue_id,
        found.queue_offset,
        found.store_timestamp,
        found.body_crc,
    )


def _still_holds(reader: StoreReader, record: tuple[object, ...]) -> bool:
    """Return whether a record is unchanged; one that retention has deleted counts as unchanged."""
    physical_offset = record[0]
    assert isinstance(physical_offset, int), "the first field is the physical offset"
    if physical_offset < reader.min_offset:
        return True
    try:
        return _record_at(reader, physical_offset) == record
    except PyLedgerError:
        return False
