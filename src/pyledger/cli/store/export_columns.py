"""Arrow and Parquet files of an export: batches of `pyledger.arrow`, narrowed and written."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from pyledger.cli.output import Advance
from pyledger.cli.parameters import require_topics


def write_columns(
    reader: Any,
    draft: str,
    kind: str,
    columns: list[str] | None,
    order: str,
    selection: dict[str, Any],
    *,
    decompress: bool,
    advance: Advance,
) -> int:
    """Write an Arrow IPC file or a Parquet file; return the number of messages."""
    from pyledger import arrow

    names = list(arrow.DEFAULT_COLUMNS if columns is None else columns)
    schema = arrow.schema_for(names)
    count = 0
    with _writer(draft, kind, schema) as target:
        for batch in _batches(arrow, reader, names, order, selection, decompress=decompress):
            target.write_batch(batch.select(names))
            count += batch.num_rows
            advance(count)
    if not count:
        require_topics(reader, set(selection["topics"]))
    return count


def _writer(draft: str, kind: str, schema: Any) -> Any:
    if kind == "parquet":
        from pyarrow import parquet

        return parquet.ParquetWriter(draft, schema, compression="zstd")
    from pyarrow import ipc

    return ipc.new_file(draft, schema)


def _batches(
    arrow: Any, reader: Any, columns: list[str], order: str, selection: dict[str, Any], *, decompress: bool
) -> Iterator[Any]:
    """Record batches of the selected messages, in log or queue order."""
    start, end = selection["start_offset"], selection["end_offset"]
    in_queues = order == "queue"
    filtered = not in_queues and (start is not None or end is not None)
    wanted = [*columns, "physicalOffset"] if filtered and "physicalOffset" not in columns else columns
    found: Iterable[Any] = arrow.scan(
        reader,
        topics=selection["topics"] or None,
        queues=selection["queues"] or None,
        columns=wanted,
        starting_offsets=start if in_queues else None,
        ending_offsets=end if in_queues else None,
        since=selection["since"],
        until=selection["until"],
        tags=selection["tags"],
        key=selection["key"],
        include_unindexed=not in_queues,
        decompress=decompress,
        on_corrupt=reader.on_corrupt,
        plan=order,
    )
    if filtered:
        found = _within(found, start, end)
    if selection["tail"] is not None:
        found = _last(found, selection["tail"])
    return iter(found) if selection["limit"] is None else _first(found, selection["limit"])


def _within(batches: Iterable[Any], start: int | None, end: int | None) -> Iterator[Any]:
    """Rows with physical offsets (bytes) in [start, end)."""
    import pyarrow.compute as pc

    for batch in batches:
        offsets = batch.column(batch.schema.get_field_index("physicalOffset"))
        kept = batch
        if start is not None:
            kept = kept.filter(pc.greater_equal(offsets, start))
            offsets = kept.column(kept.schema.get_field_index("physicalOffset"))
        if end is not None:
            kept = kept.filter(pc.less(offsets, end))
        if kept.num_rows:
            yield kept


def _first(batches: Iterable[Any], count: int) -> Iterator[Any]:
    left = count
    for batch in batches:
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


def _last(batches: Iterable[Any], count: int) -> Iterator[Any]:
    """The last rows; only the batches that hold them are kept in memory."""
    kept: deque[Any] = deque()
    rows = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        while kept and rows - kept[0].num_rows >= count:
            rows -= kept.popleft().num_rows
    if kept and rows > count:
        kept[0] = kept[0].slice(rows - count)
    return iter(kept)
