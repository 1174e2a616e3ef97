"""How fast does a stream follow a store, and a frame become messages?

A stream goes over a store with a million rows a trigger, into the `noop` sink. The rate of a trigger counts
from its beginning to its end, as its report says. In turns with it, in the same session, a Python source that
has nothing to do streams as many rows a trigger: one prebuilt batch of ours, again and again. That is the
ceiling of any Python source. The first stream of either warms Spark up. Writes take the rows of a
prebuilt Python source, so that only the sink differs: ours, which stages, appends, and flushes twice; one
that writes the rows to files and flushes those; one that discards what it gets. How fast the disk takes
bytes is measured with it; in memory, in a file system that has no disk, the same writes show what is left of
the difference without one.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark_pyledger.schema import schema_of

from benchmarks.load.rounds import Rounds
from benchmarks.spark.conftest import TASKS
from benchmarks.spark.discarding_sink import DiscardingSink, KeepingSink
from benchmarks.spark.prebuilt_source import write_batch
from benchmarks.spark.stores import FULL_LOG_BYTES, SHAPES, SMOKE_LOG_BYTES, Stored, fixed_body, make_store
from pyledger import arrow
from pyledger.store.files.writeback_file import WritebackFile

pytestmark = pytest.mark.spark
ROWS_PER_TRIGGER = 1_000_000
BATCH_ROWS = 8192
MEMORY = Path("/dev/shm")
COLUMNS = {"default": arrow.DEFAULT_COLUMNS, "no-properties": arrow.DEFAULT_COLUMNS[:-1]}
BODIES = {"body": ("body",), "body-keys-tags": ("body", "keys", "tags")}


@pytest.fixture(scope="module")
def stored(scale: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """Long enough for several triggers in one stream."""
    folder = tmp_path_factory.mktemp("stream") / "store"
    sizes = (FULL_LOG_BYTES, 1 << 30) if scale == "full" else (SMOKE_LOG_BYTES, 1 << 20)
    yield make_store(folder, replace(SHAPES["fixed"], sizes=4), *sizes)
    shutil.rmtree(folder)


def trigger_rates(
    rows: DataFrame, checkpoint: Path, rows_expected: int, rows_per_trigger: int
) -> list[float]:
    """Rows a second of each full trigger of a stream, into a sink that drops them."""
    sink = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    reports = query.recentProgress
    assert sum(report["numInputRows"] for report in reports) == rows_expected
    return [
        1000 * report["numInputRows"] / max(1, report["durationMs"]["triggerExecution"])
        for report in reports
        if report["numInputRows"] == rows_per_trigger
    ]


@pytest.mark.benchmark(group="Spark stream")
@pytest.mark.parametrize("columns", COLUMNS, ids="columns={}".format)
def bench_stream(rounds: Rounds, session: SparkSession, stored: Stored, tmp_path: Path, columns: str) -> None:
    rows_per_trigger = ROWS_PER_TRIGGER if rounds.full else max(1, stored.rows // 4)
    names = COLUMNS[columns]
    batch = next(iter(arrow.scan(stored.path, columns=names)))
    schema = to_arrow_schema(schema_of(names), timezone="UTC")
    write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema), tmp_path / "rows.arrow")

    def ours() -> DataFrame:
        stream = session.readStream.format("pyledger").option("startingOffsets", "earliest")
        stream = stream.option("columns", ",".join(names))
        return stream.option("maxOffsetsPerTrigger", rows_per_trigger).load(str(stored.path))

    def ceiling() -> DataFrame:
        stream = session.readStream.format("prebuilt").option("path", str(tmp_path / "rows.arrow"))
        stream = stream.option("rows", stored.rows).option("perTrigger", rows_per_trigger)
        return stream.option("partitions", TASKS).load()

    def act() -> list[list[float]]:
        rates: list[list[float]] = [[], []]
        for number in range(4 if rounds.full else 1):
            for source, make in enumerate((ours, ceiling)):
                checkpoint = tmp_path / f"{make.__name__}-{number}"
                measured = trigger_rates(make(), checkpoint, stored.rows, rows_per_trigger)
                rates[source] += measured if number or not rounds.full else []
        return rates

    found = rounds.benchmark.pedantic(act, rounds=1)
    best, ceiling_best = (max(rates) for rates in found)
    middle, ceiling_middle = (median(rates) for rates in found)
    rounds.note(
        per_second=best,
        middle_per_second=middle,
        ceiling_per_second=ceiling_best,
        ceiling_middle_per_second=ceiling_middle,
        ratio_to_ceiling=middle / ceiling_middle,
    )


def disk_rate(path: Path, size_bytes: int) -> float:
    """Bytes a second that reach the disk, in one file, written as ours are."""
    block = os.urandom(1 << 20)
    begin = time.perf_counter()
    with WritebackFile(path) as file:
        for _ in range(size_bytes >> 20):
            file.sink.write(block)
            file.start_writeback()
        file.flush()
    taken_s = time.perf_counter() - begin
    path.unlink()
    return size_bytes / taken_s


@pytest.fixture(params=["disk", "memory"], ids="on={}".format)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Where stores are written."""
    if request.param == "disk":
        yield tmp_path
        return
    if not MEMORY.is_dir():
        pytest.skip(f"there is no {MEMORY}")
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.mark.benchmark(group="Spark write")
@pytest.mark.parametrize("columns", BODIES, ids="columns={}".format)
def bench_write(rounds: Rounds, session: SparkSession, tmp_path: Path, home: Path, columns: str) -> None:
    for source in (DiscardingSink, KeepingSink):
        session.dataSource.register(source)
    count = 2_000_000 if rounds.full else 2_000
    prebuilt = tmp_path / "rows.arrow"
    found = {
        "body": pa.array([fixed_body(number) for number in range(BATCH_ROWS)]),
        "keys": pa.array([f"order-{number}" for number in range(BATCH_ROWS)]),
        "tags": pa.array(["TagA"] * BATCH_ROWS),
    }
    write_batch(pa.RecordBatch.from_pydict({name: found[name] for name in BODIES[columns]}), prebuilt)
    best = dict.fromkeys(("pyledger", "keep", "discard"), float("inf"))
    disk_per_second = max(disk_rate(home / "probe", (256 if rounds.full else 1) << 20) for _ in range(3))

    def frame() -> DataFrame:
        reader = session.read.format("prebuilt").option("path", str(prebuilt))
        return reader.option("rows", count).option("partitions", 2).load()

    def act() -> int:
        for number in range(4 if rounds.full else 1):
            for sink in best:
                target = home / f"{sink}-{number}"
                begin = time.perf_counter()
                frame().write.format(sink).mode("append").option("topic", "orders").save(str(target))
                best[sink] = min(best[sink], time.perf_counter() - begin)
                if sink == "pyledger":
                    assert sum(b.num_rows for b in arrow.scan(target, columns=["queueId"])) == count
                shutil.rmtree(target, ignore_errors=True)
        return len(best)

    assert rounds.benchmark.pedantic(act, rounds=1) == len(best)
    rounds.note(
        per_second=count / best["pyledger"],
        keep_per_second=count / best["keep"],
        discard_per_second=count / best["discard"],
        ratio_to_keep=best["keep"] / best["pyledger"],
        ratio_to_discard=best["discard"] / best["pyledger"],
        disk_per_second=disk_per_second,
    )
