"""A store as Arrow record batches, for pandas, polars, DuckDB and Spark.

`scan` returns exactly the messages that consumers can reach, one row each, and on request the prepared and
rollback records too. A batch that is stored as one record is one row. Columns are named as in RocketMQ. Their
buffers are filled natively, so a column that is not selected costs nothing.

Two plans give the same rows. `log`: in the order of the log. `queue`: by topic, queue id and queue offset.
`plan="auto"` uses the one that reads fewer bytes.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Unpack, get_args

from pyledger._core import ColumnBuilder, LogView, find_next_record
from pyledger.arrow.arguments import Offsets, RowKeywords, queue_offsets
from pyledger.arrow.partition_view import map_partition
from pyledger.arrow.scan_plan import (
    LogRange,
    Partition,
    QueueSource,
    RowSelection,
    plan_partitions,
    resolve_queues,
)
from pyledger.config.fields import (
    checked_choice,
    checked_function,
    checked_limit,
    checked_type,
    checked_values,
)
from pyledger.errors import ConfigError, CorruptRecordError, MissingExtraError
from pyledger.model.tags import parse_tags
from pyledger.model.times import Time, time_ms
from pyledger.store.reading.log_end import Damage
from pyledger.store.reading.reader import OnCorrupt, StoreReader
from pyledger.store.reading.wanted_ranges import wanted_ranges

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingExtraError("pyledger.arrow", "pyarrow", "arrow") from error

log = logging.getLogger("pyledger.arrow")

Plan = Literal["auto", "log", "queue"]

BATCH_ROWS = 8192
BATCH_BYTES = 8 << 20

_TIME = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, Any] = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "storeTimestamp": _TIME,
    "bornTimestamp": _TIME,
    "tags": pa.string(),
    "keys": pa.string(),
    "body": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "physicalOffset": pa.int64(),
    "storeSize": pa.int32(),
    "layout": pa.int32(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "msgId": pa.string(),
    "bodyCRC": pa.int32(),
    "bodyLength": pa.int32(),
    "tagsCode": pa.int64(),
    "preparedTransactionOffset": pa.int64(),
}
_NULLABLE = {"tags", "keys"}

COLUMNS: tuple[str, ...] = tuple(_TYPES)
"""All columns."""
DEFAULT_COLUMNS: tuple[str, ...] = COLUMNS[:9]
"""The columns of a scan by default."""


def schema_for(columns: Iterable[str] | None = None, *, nullable: bool = False) -> Any:
    """Return the Arrow schema of some columns.

    Args:
        columns: Names, in order; None means `DEFAULT_COLUMNS`.
        nullable: Declare every column nullable; otherwise only tags and keys are.

    Raises:
        ConfigError: an unknown column, one named twice, or none.
    """
    given = checked_values("columns", columns, str)
    names = DEFAULT_COLUMNS if given is None else given
    for name in names:
        if name not in _TYPES:
            near = [known for known in COLUMNS if known.lower() == name.lower().replace("_", "")]
            raise ConfigError(
                "columns", f"there is no column {name!r}", f"use {near[0] if near else ', '.join(COLUMNS)}"
            )
    if not names or len(set(names)) < len(names):
        raise ConfigError("columns", f"{list(names)} is empty or names a column twice", "name each one once")
    return pa.schema([pa.field(name, _TYPES[name], nullable or name in _NULLABLE) for name in names])


SCHEMA = schema_for()
"""The schema of a scan by default."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Damaged bytes of the log that `on_corrupt="skip"` has skipped."""

    physical_offset: int
    """Bytes from the start of the commit log."""
    size_bytes: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """How records become rows."""

    columns: tuple[str, ...]
    schema: Any
    batch_rows: int
    batch_bytes: int
    decompress: bool
    on_corrupt: OnCorrupt
    on_skip: Callable[[Skipped], None] | None
    check_crcs: bool


class Scan:
    """Rows of a store up to a pinned end. Each iteration reads the same rows again.

    It is an Arrow stream (`__arrow_c_stream__`), so DuckDB, polars, pandas and others accept it directly.
    Nothing is mapped or open between two reads, unless the scan is of an open `StoreReader`.
    """

    def __init__(self, parts: Sequence[Partition], reading: _Reading, source: StoreReader | None) -> None:
        self.schema: Any = reading.schema
        self._parts, self._reading, self._source = parts, reading, source

    def __iter__(self) -> Iterator[Any]:
        for part in self._parts:
            if self._source is None:
                yield from _read_mapped(part, self._reading)
            else:
                yield from _read(self._source.view, part, self._reading)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> Any:
        """Return a `pyarrow.RecordBatchReader`, which can be read once."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def read_all(self) -> Any:
        """Read all rows into a `pyarrow.Table`."""
        return self.to_reader().read_all()

    def read_pandas(self) -> Any:
        """Read all rows into a `pandas.DataFrame`; for options: `read_all().to_pandas(...)`."""
        return self.to_reader().read_pandas()


def scan(  # noqa: PLR0913  each argument narrows or shapes the rows by itself
    path: str | os.PathLike[str] | StoreReader,
    *,
    topics: str | Iterable[str] | None = None,
    topics_pattern: str | None = None,
    queues: Iterable[int | tuple[str, int]] | None = None,
    columns: Iterable[str] | None = None,
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets | None = None,
    since: Time | None = None,
    until: Time | None = None,
    tags: str | None = None,
    key: str | None = None,
    include_unindexed: bool = False,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    decompress: bool = False,
    on_corrupt: OnCorrupt = "error",
    on_skip: Callable[[Skipped], None] | None = None,
    check_crcs: bool = True,
    plan: Plan = "auto",
) -> Scan:
    """Read messages as columns; the result can be read more than once.

    Args:
        path: The store folder, or an open `StoreReader`, which stays open.
        topics: One topic or several; None reads all.
        topics_pattern: Regular expression that a whole topic must match.
        queues: Queue ids, or `(topic, queue id)` pairs.
        columns: Names of columns, in order; `COLUMNS` lists them all.
        starting_offsets: First queue offset: "earliest", a number for every queue, or
            `{topic: {queue id: offset}}`, where -2 is earliest and -1 latest.
        ending_offsets: The queue offset after the last, in the same forms; "latest" is the pinned end.
        since: Stored at or after: ms since the epoch, or a datetime with a time zone.
        until: Stored before.
        tags: Tag expression, `TagA || TagB` or `*`.
        key: Only messages that carry this key, or have it as their unique key.
        include_unindexed: Include prepared and rollback records.
        batch_rows: Maximum of rows in a batch.
        batch_bytes: Approximate maximum of bytes in a batch; a larger row is a batch by itself.
        decompress: Decompress bodies; `bodyLength` and `bodyCRC` stay those of the stored bytes. A body that
            cannot be decompressed is damage.
        on_corrupt: What to do at damage in the middle of the log: raise an error, or skip it.
        on_skip: Called for each damaged range that `on_corrupt="skip"` skips.
        check_crcs: Check the CRC of each row's body even if `body` is not selected, so that damage affects
            the same rows whatever the columns. Lengths and stored offsets are always checked.
        plan: "log", "queue" or "auto".

    Raises:
        ConfigError: an argument is unknown or contradicts another one.
        StoreNotFoundError: there is no store at `path`.
        CorruptRecordError: a record is damaged; raised by the read that reaches it. Raised by the call itself
            if the end of the log is missing.
        DataLostError: retention deleted part of the range since the call; raised by the read.

    Cost: about 0.2 µs a row with all default columns; the end is pinned at the call.
    """
    reading = _reading(
        schema_for(columns), batch_rows, batch_bytes, decompress, on_corrupt, on_skip, check_crcs
    )
    with _opened(path, on_corrupt) as source:
        selection = select_rows(
            source, topics=topics, topics_pattern=topics_pattern, queues=queues, tags=tags, key=key,
            starting_offsets=starting_offsets, ending_offsets=ending_offsets, since=since, until=until,
            include_unindexed=include_unindexed,
        )  # fmt: skip
        parts = plan_partitions(source, selection, plan=checked_choice("plan", plan, get_args(Plan)))
        _report_lost_end(source, on_corrupt, on_skip)
    return Scan(parts, reading, path if isinstance(path, StoreReader) else None)


@contextmanager
def _opened(path: str | os.PathLike[str] | StoreReader, on_corrupt: OnCorrupt) -> Iterator[StoreReader]:
    """Open a store for the duration of a call, or use the caller's reader, which stays open."""
    if isinstance(path, StoreReader):
        yield path
    else:
        with StoreReader.open(path, on_corrupt=on_corrupt) as source:
            yield source


def plan(
    path: str | os.PathLike[str] | StoreReader,
    *,
    min_partitions: int = 1,
    spread: int = 1,
    max_partition_bytes: int | None = None,
    max_partition_records: int | None = None,
    plan: Plan = "auto",
    on_corrupt: OnCorrupt = "error",
    **selection: Unpack[RowKeywords],
) -> list[Partition]:
    """Split a scan into partitions, which other threads or processes read with `read_partition`.

    The end is pinned by this call: later appends are in no partition. A partition is small, can be pickled or
    written as JSON, and maps only the files it needs.

    Args:
        path: The store folder, or an open `StoreReader`.
        min_partitions: Approximate minimum of partitions; fewer if the data cannot be split further.
        spread: Number of partitions over which index lookups are spread, if there are enough of them.
        max_partition_bytes: Approximate maximum of log bytes in a partition: a file that is up to an eighth
            longer is not split.
        max_partition_records: Maximum of records in a partition, selected or not.
        plan: "log", "queue" or "auto".
        on_corrupt: As for `scan`.
        selection: What is wanted, as for `scan`: topics, topics_pattern, queues, starting_offsets,
            ending_offsets, since, until, tags, key, include_unindexed.

    Raises:
        CorruptRecordError: the end of the log is missing.
    """
    checked_limit("max_partition_bytes", max_partition_bytes, 1)
    checked_limit("max_partition_records", max_partition_records, 1)
    with _opened(path, checked_choice("on_corrupt", on_corrupt, get_args(OnCorrupt))) as source:
        parts = plan_partitions(
            source,
            select_rows(source, **selection),
            plan=checked_choice("plan", plan, get_args(Plan)),
            min_partitions=min_partitions,
            spread=spread,
            max_partition_bytes=max_partition_bytes,
            max_partition_records=max_partition_records,
        )
        _report_lost_end(source, on_corrupt)
    return parts


def _report_lost_end(
    source: StoreReader, on_corrupt: OnCorrupt, on_skip: Callable[[Skipped], None] | None = None
) -> None:
    """Report that the end of the log is missing: no partition would reach it."""
    if source.lost_end is None:
        return
    if on_corrupt == "error":
        raise source.lost_end.error()
    _report_skipped(source.lost_end.damage, on_skip)


def _report_skipped(damage: Damage, on_skip: Callable[[Skipped], None] | None) -> None:
    offset, size_bytes = damage.physical_offset, damage.size_bytes
    log.warning("damaged bytes skipped", extra={"physical_offset": offset, "size_bytes": size_bytes})
    if on_skip is not None:
        on_skip(Skipped(offset, size_bytes, damage.problem))


def read_partition(
    partition: Partition,
    *,
    columns: Iterable[str] | None = None,
    schema: Any = None,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    decompress: bool = False,
    on_corrupt: OnCorrupt = "error",
    on_skip: Callable[[Skipped], None] | None = None,
    check_crcs: bool = True,
) -> Iterator[Any]:
    """Read one partition of a plan as `pyarrow.RecordBatch`es.

    Args:
        partition: From `plan`.
        columns: Names of columns, in order.
        schema: The schema of the batches, instead of `columns`: the names and types of `schema_for`, with the
            caller's nullability.
        batch_rows: As for `scan`, like the following ones.
        batch_bytes: Approximate maximum of bytes in a batch.
        decompress: Decompress bodies.
        on_corrupt: At damage: raise an error, or skip it.
        on_skip: Called for each skipped range.
        check_crcs: Check the CRC of each row's body.

    Raises:
        DataLostError: retention deleted part of the range since the plan was made; `left_of` gives the rest.
        StoreNotFoundError: the store no longer exists.
        CorruptRecordError: a record is damaged.
    """
    wanted = schema_for(columns) if schema is None else schema
    reading = _reading(wanted, batch_rows, batch_bytes, decompress, on_corrupt, on_skip, check_crcs)
    yield from _read_mapped(partition, reading)


def select_rows(
    source: QueueSource,
    *,
    topics: str | Iterable[str] | None = None,
    topics_pattern: str | None = None,
    queues: Iterable[int | tuple[str, int]] | None = None,
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets | None = None,
    since: Time | None = None,
    until: Time | None = None,
    tags: str | None = None,
    key: str | None = None,
    include_unindexed: bool = False,
) -> RowSelection:
    """Resolve the arguments of `scan` that select rows against an open store."""
    if topics is not None and topics_pattern is not None:
        raise ConfigError("topics_pattern", "topics are given as well", "give one of them")
    checked_type("topics_pattern", topics_pattern, str | None)
    checked_type("key", key, str | None)
    matches = None
    if topics_pattern is not None:
        try:
            matches = re.compile(topics_pattern).fullmatch
        except re.error as error:
            raise ConfigError(
                "topics_pattern", f"{topics_pattern!r} is not a regular expression: {error}"
            ) from error
    filters = resolve_queues(
        source,
        topics=checked_values("topics", topics, str),
        matches=matches,
        queues=checked_values("queues", queues, int | tuple),
        starts=queue_offsets("starting_offsets", starting_offsets, source),
        ends=queue_offsets("ending_offsets", ending_offsets, source),
    )
    return RowSelection(
        queues=filters,
        since_ms=time_ms("since", since),
        until_ms=time_ms("until", until),
        tags=parse_tags(tags),
        key=key,
        include_unindexed=include_unindexed,
    )


def _reading(
    schema: Any, rows: int, size: int, decompress: bool, on_corrupt: OnCorrupt,
    on_skip: Callable[[Skipped], None] | None, check_crcs: bool,
) -> _Reading:  # fmt: skip
    schema_for(schema.names)
    checked_function("on_skip", on_skip)
    checked_limit("batch_rows", rows, 1)
    checked_limit("batch_bytes", size, 1)
    return _Reading(
        columns=tuple(schema.names), schema=schema, batch_rows=rows, batch_bytes=size, decompress=decompress,
        on_corrupt=checked_choice("on_corrupt", on_corrupt, get_args(OnCorrupt)), on_skip=on_skip,
        check_crcs=check_crcs,
    )  # fmt: skip


def _read_mapped(part: Partition, reading: _Reading) -> Iterator[Any]:
    view = map_partition(part)
    try:
        yield from _read(view, part, reading)
    finally:
        for file in view.files:
            file.close()


def _read(view: LogView, part: Partition, reading: _Reading) -> Iterator[Any]:
    builder = ColumnBuilder(
        reading.columns,
        part.selection.row_filter(),
        batch_rows=reading.batch_rows,
        batch_bytes=reading.batch_bytes,
        check_crcs=reading.check_crcs,
        decompress=reading.decompress,
    )
    # A position is a physical offset in a range, or the index of a unit in a list.
    for start, end in _wanted(view, part) if isinstance(part, LogRange) else [(0, 0)]:
        position, more = start, True
        while more:
            if isinstance(part, LogRange):
                more = builder.scan(view, position, end)
                position = builder.next_offset
            else:
                more = builder.gather(view, part.units, position)
                position = builder.next_index
            if builder.fault is not None:
                after = _skip_damage(view, part, builder, reading)
                position, more = after if isinstance(part, LogRange) else position + 1, True
            elif more:
                yield _batch(builder.row_count, builder.finish(), reading.schema)
    if builder.row_count:
        yield _batch(builder.row_count, builder.finish(), reading.schema)


def _wanted(view: LogView, part: LogRange) -> Iterator[tuple[int, int]]:
    """Yield a range without the blocks of cold segments that have no selected record."""
    selection, start, end = part.selection, part.start_offset, part.end_offset
    times = {"since_ms": selection.since_ms, "until_ms": selection.until_ms}
    return wanted_ranges(view, start, end, topics=selection.topics, **times)


def _skip_damage(view: LogView, part: Partition, builder: ColumnBuilder, reading: _Reading) -> int:
    """Raise an error for damage, or report it and return the physical offset of the next record."""
    offset, problem = builder.fault_offset, builder.fault or ""
    if reading.on_corrupt == "error":
        paths = [file.path for file in view.files if file.start_offset <= offset]
        raise CorruptRecordError(paths[-1] if paths else part.path, offset, problem)
    after = offset
    if isinstance(part, LogRange):
        found = find_next_record(view, offset + 1, part.end_offset)
        after = part.end_offset if found is None else found
    _report_skipped(Damage(offset, after - offset, problem), reading.on_skip)
    return after


def _batch(row_count: int, filled: Sequence[tuple[int, Sequence[Any]]], schema: Any) -> Any:
    """Build Arrow arrays over the native buffers without copying."""
    arrays = []
    for field, (null_count, raw) in zip(schema, filled, strict=True):
        buffers: list[Any] = [None if b is None else pa.py_buffer(b) for b in raw]
        if not pa.types.is_map(field.type):
            arrays.append(pa.Array.from_buffers(field.type, row_count, buffers, null_count))
            continue
        offsets, name_offsets, names, value_offsets, values = buffers
        assert name_offsets is not None, "a map column always has offsets"
        count = name_offsets.size // 4 - 1
        entries = pa.StructArray.from_arrays(
            [
                pa.StringArray.from_buffers(count, name_offsets, names),
                pa.StringArray.from_buffers(count, value_offsets, values),
            ],
            fields=[field.type.key_field, field.type.item_field],
        )
        arrays.append(pa.Array.from_buffers(field.type, row_count, [None, offsets], 0, children=[entries]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
