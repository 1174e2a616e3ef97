"""Filling Arrow columns from the log, and whole record batches out of a scan.

Pages are resident; the search for the log's end is not included. Baselines: a copy of the same bytes, and
rows made of message objects in Python over far fewer records, so compare nanoseconds per row.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.micro.typical_log import QUEUES, typical_log
from pyledger import arrow
from pyledger._core import ColumnBuilder, LogView, MessageScan, RowFilter
from pyledger.store.reading.reader import StoreReader

ROUNDS = 7
MODEL_ROWS = 2_000
COLUMN_SETS = {
    "default": arrow.DEFAULT_COLUMNS,
    "all": arrow.COLUMNS,
    "no body": tuple(name for name in arrow.DEFAULT_COLUMNS if name != "body"),
    "queueOffset": ("queueOffset",),
    "storeTimestamp": ("storeTimestamp",),
    "body": ("body",),
    "tags": ("tags",),
    "properties": ("properties",),
}


@pytest.fixture(scope="module")
def messages(request: pytest.FixtureRequest) -> int:
    return 500_000 if request.config.getoption("--scale", "smoke") == "full" else 2_000


@pytest.fixture(scope="module")
def reader(messages: int, tmp_path_factory: pytest.TempPathFactory) -> StoreReader:
    folder = tmp_path_factory.mktemp("store")
    (folder / "commitlog").mkdir()
    typical_log(folder / "commitlog", messages)
    return StoreReader.open(folder)


@pytest.fixture(scope="module")
def log(reader: StoreReader) -> LogView:
    return reader.view


def measure(benchmark: Any, act: Callable[[], int], rows: int, size_bytes: int) -> None:
    """Run a case, check the rows it gave, note the rates."""
    assert benchmark.pedantic(act, rounds=ROUNDS, warmup_rounds=1) == rows
    benchmark.extra_info["rows"] = rows
    if benchmark.stats:
        best = benchmark.stats.stats.min
        benchmark.extra_info["ns_per_row"] = best / rows * 1e9
        benchmark.extra_info["m_rows_per_s"] = rows / best / 1e6
        benchmark.extra_info["gb_per_s"] = size_bytes / best / 1e9


def fill(log: LogView, builder: ColumnBuilder) -> int:
    """All rows of the log; the buffers are let go of."""
    offset, rows, more = 0, 0, True
    while more:
        more = builder.scan(log, offset)
        offset, rows = builder.next_offset, rows + builder.row_count
        builder.finish()
    return rows


@pytest.mark.benchmark(group="columns")
@pytest.mark.parametrize("name", COLUMN_SETS)
def test_columns(benchmark: Any, log: LogView, messages: int, name: str) -> None:
    builder = ColumnBuilder(COLUMN_SETS[name])
    measure(benchmark, lambda: fill(log, builder), messages, log.end_offset)


@pytest.mark.benchmark(group="columns")
def test_columns_of_one_queue(benchmark: Any, log: LogView, messages: int) -> None:
    """A filter that takes one record of eight; the rate counts the rows it takes."""
    builder = ColumnBuilder(arrow.DEFAULT_COLUMNS, RowFilter(queues=[("orders", 3, 0, 1 << 62)]))
    measure(benchmark, lambda: fill(log, builder), messages // QUEUES, log.end_offset)


@pytest.mark.benchmark(group="record batches")
@pytest.mark.parametrize("plan", ["log", "queue"])
@pytest.mark.parametrize("name", ["default", "queueOffset"])
def test_scan(benchmark: Any, reader: StoreReader, messages: int, name: str, plan: Any) -> None:
    def act() -> int:
        batches = arrow.scan(reader, columns=COLUMN_SETS[name], plan=plan)
        return sum(batch.num_rows for batch in batches)

    measure(benchmark, act, messages, reader.max_offset)


@pytest.mark.benchmark(group="record batches")
def test_baseline_copy_of_all_bytes(benchmark: Any, log: LogView, messages: int) -> None:
    whole, target = log.view(0, log.end_offset), bytearray(log.end_offset)

    def act() -> int:
        memoryview(target)[:] = whole
        return messages

    measure(benchmark, act, messages, log.end_offset)


@pytest.mark.benchmark(group="record batches")
def test_baseline_rows_in_python(benchmark: Any, log: LogView, messages: int) -> None:
    count = min(messages, MODEL_ROWS)
    end = log.end_offset // messages * count

    def act() -> int:
        rows = [
            {
                "topic": m.topic, "queueId": m.queue_id, "queueOffset": m.queue_offset,
                "storeTimestamp": m.store_timestamp * 1000, "bornTimestamp": m.born_timestamp * 1000,
                "tags": m.tags, "keys": m.keys, "body": m.body, "properties": list(m.properties.items()),
            }
            for m in MessageScan(log, 0, end)
        ]  # fmt: skip
        return int(pa.RecordBatch.from_pylist(rows, schema=arrow.SCHEMA).num_rows)

    measure(benchmark, act, count, end)
