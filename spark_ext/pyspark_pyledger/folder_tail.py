"""Store folders that a stream follows: what they hold by now, where a trigger ends, and its partitions."""

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyledger import arrow
from pyledger.arrow import Partition
from pyledger.errors import PyLedgerError, StoreIOError, StoreNotFoundError
from pyledger.model.message import QueueRange
from pyledger.store.files.folder import QUEUE_FOLDER
from pyledger.store.reading.reader import StoreReader
from pyspark_pyledger.offsets import Offsets, QueueKey
from pyspark_pyledger.options import ReadOptions, is_wanted
from pyspark_pyledger.planning import partition_bytes, placed_folders
from pyspark_pyledger.trigger_budget import shares

Queue = tuple[str, int]
Spans = dict[Queue, tuple[int, int]]
"""Queue offsets [start, end) by topic and queue id."""
FIRST_LOOK_UNITS = 1024


@dataclass(slots=True)
class _Followed:
    """One folder that is there."""

    reader: StoreReader
    last: tuple[object, ...] | None = None
    """The last record that was seen in it."""


class FolderTail:
    """The folders of a stream, kept open from one trigger to the next. Used by one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._followed: dict[str, _Followed] = {}
        self._ranges: dict[QueueKey, QueueRange] = {}
        self.replaced: set[str] = set()
        """Places whose log was cut: records that were seen there are gone."""
        self.unavailable: dict[str, PyLedgerError] = {}
        """Paths and places that could not be read at the last refresh, and why."""
        self._last_seen: dict[str, tuple[object, ...]] = {}
        """The last records of folders that are away."""

    def refresh(self) -> Mapping[QueueKey, QueueRange]:
        """Queue offsets that each wanted queue holds now.

        A folder that is away, has lost its log or cannot be read is left out, and noted as `unavailable`.

        Raises:
            StoreNotFoundError: no path holds a store, and none did before.
            StoreIOError: no store can be read, and none could before.

        Cost: a listing of each folder, and a pass over what was appended since.
        """
        missing: dict[str, PyLedgerError] = {}
        placed = dict(placed_folders(self._options.paths, missing))
        self.unavailable = dict(missing)
        changed = False
        for place in self._followed.keys() - placed.keys():
            path = self._followed[place].reader.path
            if path not in missing and os.path.dirname(path) not in missing:
                self.unavailable[place] = StoreNotFoundError(path, "holds no log any more")
            self._let_go(place)
            changed = True
        for place, path in placed.items():
            try:
                changed |= self._advance(place, path)
            except (StoreNotFoundError, StoreIOError) as error:
                self.unavailable[place] = error
                self._let_go(place)
                changed = True
        if self.unavailable and not self._followed and not self._last_seen:
            raise next(iter(self.unavailable.values()))
        if changed:
            self._ranges = {
                (topic, place, queue_id): held
                for place, one in self._followed.items()
                for (topic, queue_id), held in one.reader.queues().items()
                if is_wanted(self._options, topic, queue_id)
            }
        return self._ranges

    def is_authoritative(self, key: QueueKey) -> bool:
        """Whether a folder was read whole: log and queues are there, so that what it lacks is gone.

        An empty log or a missing folder of queues may be a file system that is not mounted.
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

    def _advance(self, place: str, path: str) -> bool:
        """Bring one folder up to date; whether it is another than before."""
        one = self._followed.get(place)
        last = self._last_seen.get(place) if one is None else one.last
        changed = True
        if one is not None:
            try:
                changed = one.reader.refresh()
                stands = last is None or _stands(one.reader, last)
            except PyLedgerError:
                # A log that was cut, or begun anew, while it was followed: look at all of it again.
                stands = False
            if not stands:
                self._let_go(place)
                one = None
        if one is None:
            changed = True
            one = _Followed(self._open(path), last)
            self._followed[place] = one
            if last is not None and one.reader.max_offset == one.reader.min_offset:
                raise StoreNotFoundError(path, "its log was not empty before, and is now")
            if last is not None and not _stands(one.reader, last):
                self.replaced.add(place)
            self._last_seen.pop(place, None)
        stop = one.reader.stop
        if stop.last_record_offset >= 0:
            one.last = _record_at(one.reader, stop.last_record_offset)
        return changed

    def _let_go(self, place: str) -> None:
        """Close a folder, but keep in mind what was seen in it."""
        one = self._followed.pop(place, None)
        if one is not None:
            one.reader.close()
            if one.last is not None:
                self._last_seen[place] = one.last

    def offset_by_time(self, key: QueueKey, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at a time (ms) or later, or the queue's end."""
        topic, place, queue_id = key
        return self._followed[place].reader.offset_by_time(topic, queue_id, timestamp_ms)

    def cut(self, starts: Offsets, ends: Offsets, rows: int | None, size_bytes: int | None) -> Offsets:
        """Where a trigger ends that takes so many rows or bytes at most, and at least one row.

        Each folder is cut in the order of its log, so that its queues keep pace with one another. Folders
        share a limit by what waits in them; one of bytes is passed over by a folder's first row.
        """
        if rows is None and size_bytes is None:
            return ends
        waiting = {place: self._spans(place, starts, ends) for place in self._followed}
        counts = {
            place: sum(end - start for start, end in spans.values()) for place, spans in waiting.items()
        }
        total = sum(counts.values())
        taken = counts if rows is None else shares(counts, rows)
        cut = dict(starts)
        for place, spans in waiting.items():
            if not taken[place]:
                continue
            found = cut_spans(
                self._followed[place].reader,
                spans,
                None if rows is None else taken[place],
                None if size_bytes is None else max(1, size_bytes * counts[place] // total),
            )
            cut |= {(topic, place, queue_id): end for (topic, queue_id), end in found.items()}
        return cut

    def plan(self, starts: Offsets, ends: Offsets) -> list[Partition]:
        """Cut what stands between into partitions of about equal bytes."""
        return list(self._partitions(starts, ends))

    def _partitions(self, starts: Offsets, ends: Offsets) -> Iterator[Partition]:
        wanted = {place: self._spans(place, starts, ends) for place in self._followed}
        options = self._options
        size = 0
        for place, spans in wanted.items():
            size += sum(_span_bytes(self._followed[place].reader, name, span) for name, span in spans.items())
        for place, spans in wanted.items():
            if spans:
                yield from arrow.plan(
                    self._followed[place].reader,
                    max_partition_bytes=partition_bytes(size, options),
                    max_partition_records=options.max_records_per_partition,
                    queues=list(spans),
                    starting_offsets={name: start for name, (start, _) in spans.items()},
                    ending_offsets={name: end for name, (_, end) in spans.items()},
                    tags=options.tags,
                )

    def _spans(self, place: str, starts: Offsets, ends: Offsets) -> Spans:
        return {
            (topic, queue_id): (starts.get((topic, of, queue_id), 0), end)
            for (topic, of, queue_id), end in ends.items()
            if of == place and starts.get((topic, of, queue_id), 0) < end
        }

    def close(self) -> None:
        """Let go of the folders."""
        for one in self._followed.values():
            one.reader.close()
        self._followed = {}


def cut_spans(
    reader: StoreReader, spans: Spans, rows: int | None, size_bytes: int | None
) -> dict[Queue, int]:
    """Queue offsets that the first rows, or bytes, of some spans end at, in the order of the log.

    A queue whose units are not one for each offset (batches, records that a cleaning took) is taken whole.

    Cost: looks at as many units of each queue as its share of the rows is, and at four times as many while
    that is too few; a search in them, no pass over them, unless bytes are limited.
    """
    look = _first_look(reader, spans, rows, size_bytes)
    while True:
        found, enough = _cut(reader, spans, rows, size_bytes, look)
        if enough:
            return found
        look *= 4


def _first_look(reader: StoreReader, spans: Spans, rows: int | None, size_bytes: int | None) -> int:
    """Units of each queue that are enough when queues are filled evenly, with records of one size."""
    if size_bytes is not None:
        name, (start, _end) = next(iter(spans.items()))
        rows_of_size = size_bytes // max(64, _span_bytes(reader, name, (start, start + 1)))
        rows = rows_of_size if rows is None else min(rows, rows_of_size)
    return (rows or 0) // max(1, len(spans)) + FIRST_LOOK_UNITS


def _cut(
    reader: StoreReader, spans: Spans, rows: int | None, size_bytes: int | None, look: int
) -> tuple[dict[Queue, int], bool]:
    """Cut with the first `look` units of each queue; whether they reach that far."""
    ends: dict[Queue, int] = {}
    units: dict[Queue, Any] = {}
    horizon = None
    for (topic, queue_id), (start, end) in spans.items():
        seen = min(end, start + look)
        part = reader.units(topic, queue_id, start, seen)
        if len(part) != seen - start:
            ends[topic, queue_id] = end
            continue
        units[topic, queue_id] = part
        if seen < end:
            last = int(part["physical_offset"][-1])
            horizon = last if horizon is None else min(horizon, last)
    if not units:
        return ends, True
    counts, limited = _take(list(units.values()), horizon, rows, size_bytes)
    if horizon is not None and not limited:
        return ends, False
    ends |= {name: spans[name][0] + count for name, count in zip(units, counts, strict=True)}
    return ends, True


def _take(
    parts: list[Any], horizon: int | None, rows: int | None, size_bytes: int | None
) -> tuple[list[int], bool]:
    """How many units of each queue are taken, in the order of the log; whether a limit says so.

    The place in the log up to which they are taken is searched by halves, and with it each queue's unit.
    """
    places = [part["physical_offset"] for part in parts]
    sizes = [] if size_bytes is None else [part["size_bytes"].cumsum(dtype="i8") for part in parts]

    def fits(counts: list[int]) -> bool:
        if rows is not None and sum(counts) > rows:
            return False
        taken = sum(int(one[count - 1]) for one, count in zip(sizes, counts, strict=False) if count)
        return size_bytes is None or taken <= size_bytes

    def count_to(place: int, low: list[int], high: list[int]) -> list[int]:
        return [bisect_right(one, place, *span) for one, *span in zip(places, low, high, strict=True)]

    first = min(int(one[0]) for one in places)
    last = max(int(one[-1]) for one in places) if horizon is None else horizon
    low = count_to(first, [0] * len(places), [len(one) for one in places])
    high = count_to(last, low, [len(one) for one in places])
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
    """About how many bytes of the log a span takes, by the size of its first record."""
    units = reader.units(*name, span[0], span[0] + 1)
    return int(units["size_bytes"].sum()) * (span[1] - span[0])


def _record_at(reader: StoreReader, physical_offset: int) -> tuple[object, ...]:
    """What tells a record at its place from any other that may stand there later."""
    found = reader.message_at(physical_offset)
    return (
        physical_offset,
        found.topic,
        found.queue_id,
        found.queue_offset,
        found.store_timestamp,
        found.body_crc,
    )


def _stands(reader: StoreReader, record: tuple[object, ...]) -> bool:
    place = record[0]
    assert isinstance(place, int), "a record begins with its place"
    if place < reader.min_offset:
        return True
    try:
        return _record_at(reader, place) == record
    except PyLedgerError:
        return False
