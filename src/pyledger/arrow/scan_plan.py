"""Choose the plan of a scan and split it into partitions.

Two plans give the same rows. `log` walks a range of the commit log and filters it: best for many queues or
most of the data, and the only plan that works without consume queues. `queue` reads only the selected
records, by their consume queue units: best for few messages. `auto` takes the plan that reads fewer bytes.

A partition is self-contained: it names its range and its selection, and its reader needs only the files that
it maps. Its end is pinned when the plan is made.
"""

import base64
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any, Protocol

from pyledger._core import LogView, RowFilter, read_message, split_log
from pyledger.errors import PyLedgerError
from pyledger.model.message import QueueRange
from pyledger.store.queues.units import Units

MIN_OFFSET, MAX_OFFSET = -(1 << 63), (1 << 63) - 1
UNIT_BYTES = 20
RANDOM_READ_FACTOR = 4
"""A byte reached through a queue costs about as much as this many read in order."""
UNITS_IN_PARTITION_MAX = 200_000
UNIT_WORK_BYTES = 4096
"""Reading a record by its unit takes as long as walking this many bytes of the log."""
WORK_BYTES_MIN = 32 << 20
"""Smaller partitions are made only if the caller requires them: a task has a fixed cost."""

QueueFilter = tuple[str, int | None, int, int]
"""Topic, queue id or None for all, and queue offsets [start, end) in units."""


class QueueSource(Protocol):
    """The parts of an open store that a plan needs; `StoreReader` has them."""

    @property
    def path(self) -> str:
        """The store folder."""

    @property
    def view(self) -> LogView:
        """The log up to its pinned end."""

    def queues(self) -> Mapping[tuple[str, int], QueueRange]:
        """Queue offsets that each queue holds."""

    def units(self, topic: str, queue_id: int, start: int | None = None, end: int | None = None) -> Units:
        """Units of a queue."""

    def first_record_from(self, physical_offset: int) -> int | None:
        """Physical offset (bytes) of a record at or soon after an offset; None if that needs a walk."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which records become rows. All conditions must hold; None means no condition."""

    queues: tuple[QueueFilter, ...] | None = None
    since_ms: int | None = None
    """Stored at or after."""
    until_ms: int | None = None
    """Stored before."""
    tags: tuple[str, ...] | None = None
    key: str | None = None
    include_unindexed: bool = False
    """Include prepared and rollback records, which no consumer can reach."""

    def row_filter(self) -> RowFilter:
        """The native form."""
        since = MIN_OFFSET if self.since_ms is None else self.since_ms
        until = MAX_OFFSET if self.until_ms is None else self.until_ms
        return RowFilter(
            queues=self.queues,
            store_range=(since, until),
            tags=self.tags,
            key=self.key,
            include_unindexed=self.include_unindexed,
        )

    @property
    def topics(self) -> tuple[str, ...] | None:
        """Selected topics; None selects all."""
        return None if self.queues is None else tuple(dict.fromkeys(topic for topic, *_ in self.queues))

    def offsets_for(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Selected queue offsets of one queue, half open; None if none are selected."""
        if self.queues is None:
            return MIN_OFFSET, MAX_OFFSET
        found = None
        for name, number, start, end in self.queues:
            if name == topic and number == queue_id:
                return start, end
            if name == topic and number is None:
                found = start, end
        return found


@dataclass(frozen=True, slots=True)
class LogRange:
    """Records that start in [start_offset, end_offset) of the log (physical offsets, bytes)."""

    path: str
    start_offset: int
    end_offset: int
    selection: RowSelection

    @property
    def size_bytes(self) -> int:
        """Bytes of the log to walk."""
        return self.end_offset - self.start_offset

    def to_json(self) -> str:
        """The partition as text; `partition_from_json` reads it back."""
        return json.dumps({"kind": "log", **asdict(self)})


@dataclass(frozen=True, slots=True)
class UnitList:
    """Records named by consume queue units, by topic, queue id and queue offset."""

    path: str
    units: bytes
    """20 raw bytes each."""
    end_offset: int
    """Pinned end of the log (bytes)."""
    size_bytes: int
    """Bytes of the records."""
    selection: RowSelection

    def to_json(self) -> str:
        """The partition as text; `partition_from_json` reads it back."""
        facts = asdict(replace(self, units=b""))
        return json.dumps({"kind": "units", **facts, "units": base64.b64encode(self.units).decode()})


Partition = LogRange | UnitList


def partition_from_json(text: str) -> Partition:
    """Read back what `to_json` of a partition gave."""
    facts = json.loads(text)
    kind, fields = facts.pop("kind"), facts["selection"]
    for name in ("queues", "tags"):
        if fields[name] is not None:
            fields[name] = tuple(tuple(x) if isinstance(x, list) else x for x in fields[name])
    facts["selection"] = RowSelection(**fields)
    if kind == "log":
        return LogRange(**facts)
    return UnitList(**{**facts, "units": base64.b64decode(facts["units"])})


def plan_partitions(
    source: QueueSource,
    selection: RowSelection,
    *,
    plan: str = "auto",
    min_partitions: int = 1,
    spread: int = 1,
    max_partition_bytes: int | None = None,
    max_partition_records: int | None = None,
) -> list[Partition]:
    """Split a scan into partitions.

    Args:
        source: The open store.
        selection: Selected rows.
        plan: `log`, `queue`, or `auto` to choose by bytes.
        min_partitions: Approximate minimum of partitions; fewer if the data cannot be split further.
        spread: Number of partitions over which index lookups are spread, if there are enough of them.
        max_partition_bytes: Approximate maximum of log bytes in a partition: a file that is up to an eighth
            longer is not split. None: only `min_partitions` counts.
        max_partition_records: Maximum of records in a partition, selected or not.

    Returns:
        Partitions in the plan's order; none for an empty log.
    """
    view = source.view
    low, high = (view.start_offset, view.end_offset) if plan == "queue" else _log_span(source, selection)
    if high <= low:
        return []
    if plan == "queue" or (plan == "auto" and _prefers_queues(source, selection, high - low)):
        limits = max_partition_bytes, max_partition_records
        return list(_split_units(source, selection, min_partitions, spread, *limits))
    limit = _step_bytes(high - low, min_partitions, max_partition_bytes)
    starts = _split_log(view, low, high, limit, max_partition_records, source.first_record_from)
    ends = [*starts[1:], high]
    return [LogRange(source.path, start, end, selection) for start, end in zip(starts, ends, strict=True)]


def _step_bytes(size_bytes: int, min_partitions: int, limit_bytes: int | None) -> int:
    """Return the bytes of one partition: within the limit, and small enough for `min_partitions`."""
    even = max(1, size_bytes // max(1, min_partitions))
    return even if limit_bytes is None else min(even, limit_bytes)


def _log_span(source: QueueSource, selection: RowSelection) -> tuple[int, int]:
    """Return the physical offsets (bytes) between which all selected records are, or else the whole log.

    For ranges of queue offsets, the units give the span and the records they point to confirm it.
    """
    view = source.view
    whole = view.start_offset, view.end_offset
    if selection.include_unindexed or not selection.queues:
        return whole
    if any((start, end) == (MIN_OFFSET, MAX_OFFSET) for _topic, _queue_id, start, end in selection.queues):
        return whole
    low, high = view.end_offset, view.start_offset
    for (topic, queue_id), held in source.queues().items():
        selected = selection.offsets_for(topic, queue_id)
        if selected is None:
            continue
        start, end = max(selected[0], held.min_offset), min(selected[1], held.max_offset)
        if start >= end:
            continue
        first = _record_span(source, topic, queue_id, start)
        last = _record_span(source, topic, queue_id, end - 1)
        if first is None or last is None:
            return whole
        low, high = min(low, first[0]), max(high, last[1])
    return low, high


def _record_span(source: QueueSource, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
    """Return where the record of a queue offset begins and ends; None if its unit points elsewhere."""
    units = source.units(topic, queue_id, queue_offset, queue_offset + 1)
    if len(units) != 1:
        return None
    start = units[0].physical_offset
    try:
        found = read_message(source.view, start, check=False)
    except PyLedgerError:
        return None
    if (found.topic, found.queue_id) != (topic, queue_id) or found.queue_offset > queue_offset:
        return None
    return start, start + found.store_size


def _split_log(
    view: LogView,
    low: int,
    high: int,
    limit_bytes: int,
    limit_records: int | None,
    first_record_from: Callable[[int], int | None],
) -> list[int]:
    """Return where ranges begin: at the start of a file if the limit allows it, else at a record within one.

    Within a file the consume queues show where records start. Without them, the record heads are walked.
    """
    starts: list[int] = []
    for file in view.files:
        start = max(file.start_offset, low)
        end = min(file.start_offset + view.file_size_bytes, high)
        if end <= start:
            continue
        if limit_records is None and end - start <= limit_bytes + limit_bytes // 8:
            # A small rest at the end is added to the last partition.
            over = limit_bytes // 8 if end == high else 0
            if not starts or end - starts[-1] > limit_bytes + over:
                starts.append(start)
            continue
        parts = -(-(end - start) // limit_bytes)
        step = -(-(end - start) // parts)
        found = None if limit_records else _split_by_hints(start, end, step, first_record_from)
        starts += found or split_log(view, start, end, step_bytes=step, step_records=limit_records)
    return starts


def _split_by_hints(
    start: int, end: int, step: int, first_record_from: Callable[[int], int | None]
) -> list[int] | None:
    """Return record offsets about `step` bytes apart; None if a hint is missing or too far off."""
    starts = [start]
    for wanted in range(start + step, end, step):
        found = first_record_from(wanted)
        if found is None or found >= min(wanted + step // 4, end):
            return None
        starts.append(found)
    return starts


def _prefers_queues(source: QueueSource, selection: RowSelection, log_bytes: int) -> bool:
    """Return whether reading each record by its unit costs less than walking `log_bytes` of the log."""
    if selection.include_unindexed or selection.queues is None:
        return False
    total = wanted = 0
    for (topic, queue_id), held in source.queues().items():
        total += held.max_offset - held.min_offset
        selected = selection.offsets_for(topic, queue_id)
        if selected is not None:
            wanted += max(0, min(held.max_offset, selected[1]) - max(held.min_offset, selected[0]))
    if wanted * RANDOM_READ_FACTOR > total:
        return False
    size_bytes = count = 0
    for units in _wanted_units(source, selection):
        size_bytes += sum(units.sizes)
        count += len(units)
    return RANDOM_READ_FACTOR * (size_bytes + UNIT_BYTES * count) <= log_bytes


def _wanted_units(source: QueueSource, selection: RowSelection) -> Iterator[Units]:
    """Yield the units of the selected queues, by topic, queue id and queue offset."""
    for (topic, queue_id), held in sorted(source.queues().items()):
        selected = selection.offsets_for(topic, queue_id)
        if selected is None:
            continue
        start, end = max(selected[0], held.min_offset), min(selected[1], held.max_offset)
        if start < end:
            yield source.units(topic, queue_id, start, end)


def _split_units(
    source: QueueSource,
    selection: RowSelection,
    min_partitions: int,
    spread: int,
    limit_bytes: int | None,
    limit_records: int | None,
) -> Iterator[UnitList]:
    """Split the selected units into lists of about equal bytes."""
    end_offset = source.view.end_offset
    parts = [units for units in _wanted_units(source, selection) if len(units)]
    total = sum(sum(units.sizes) for units in parts)
    step_bytes = _step_bytes(total, min_partitions, limit_bytes)
    work_bytes = total + UNIT_WORK_BYTES * sum(len(units) for units in parts)
    share = -(-total // max(1, min(spread, work_bytes // WORK_BYTES_MIN)))
    # Queues are rarely of exactly the same length: without this, each could leave a small rest.
    step_bytes = min(step_bytes, share + share // 8)
    step_units = min(limit_records or UNITS_IN_PARTITION_MAX, UNITS_IN_PARTITION_MAX)
    held: list[bytes] = []
    held_bytes = held_units = 0
    for units in parts:
        for raw, size_bytes in _slices(units, step_bytes, step_units):
            if held and (
                held_bytes + size_bytes > step_bytes or held_units + len(raw) // UNIT_BYTES > step_units
            ):
                yield UnitList(source.path, b"".join(held), end_offset, held_bytes, selection)
                held, held_bytes, held_units = [], 0, 0
            held.append(raw)
            held_bytes += size_bytes
            held_units += len(raw) // UNIT_BYTES
    if held:
        yield UnitList(source.path, b"".join(held), end_offset, held_bytes, selection)


def _slices(units: Units, step_bytes: int, step_units: int) -> Iterator[tuple[bytes, int]]:
    """Yield raw units and the bytes of their records; a slice exceeds a limit only if one record does."""
    sums = list(accumulate(units.sizes))
    start, before = 0, 0
    while start < len(units):
        stop = bisect_right(sums, before + step_bytes)
        stop = min(max(stop, start + 1), start + step_units)
        yield units[start:stop].raw, sums[stop - 1] - before
        start, before = stop, sums[stop - 1]


def resolve_queues(
    source: QueueSource,
    *,
    topics: Sequence[str] | None,
    matches: Any = None,
    queues: Sequence[int | tuple[str, int]] | None = None,
    starts: Mapping[tuple[str, int], int] | int | None = None,
    ends: Mapping[tuple[str, int], int] | int | None = None,
) -> tuple[QueueFilter, ...] | None:
    """Convert names, a pattern, queue ids and offsets to queue filters; None selects everything.

    Args:
        source: The open store. Its queues are listed only if names alone do not suffice.
        topics: Selected topics.
        matches: `re.Pattern.fullmatch` of a pattern over topics.
        queues: Queue ids of all selected topics, or `(topic, queue id)` pairs.
        starts: First selected queue offset of each queue, or of all.
        ends: Queue offset after the last selected one of each queue, or of all.
    """
    narrowed = starts not in (None, MIN_OFFSET) or ends not in (None, MAX_OFFSET)
    if queues is None and matches is None and not narrowed:
        return (
            None if topics is None else tuple((t, None, MIN_OFFSET, MAX_OFFSET) for t in sorted(set(topics)))
        )
    ids = None if queues is None else {q for q in queues if isinstance(q, int)}
    pairs = None if queues is None else {q for q in queues if not isinstance(q, int)}
    filters: list[QueueFilter] = []
    for topic, queue_id in sorted(source.queues()):
        if topics is not None and topic not in topics:
            continue
        if matches is not None and not matches(topic):
            continue
        if ids is not None and pairs is not None and queue_id not in ids and (topic, queue_id) not in pairs:
            continue
        start = _limit(starts, topic, queue_id, MIN_OFFSET)
        filters.append((topic, queue_id, start, _limit(ends, topic, queue_id, MAX_OFFSET)))
    return tuple(filters)


def _limit(
    limits: Mapping[tuple[str, int], int] | int | None, topic: str, queue_id: int, default: int
) -> int:
    if limits is None or isinstance(limits, int):
        return default if limits is None else limits
    return limits.get((topic, queue_id), default)
