"""How fast does a stream follow a store, and a frame become messages?

A stream goes over a store with a million rows a trigger, into the `noop` sink. The rate of a trigger counts
from its beginning to its end, as its report says; the first ones warm Spark up. Writes take the rows of a
prebuilt Python source, so that only the sink differs: ours, which stages, appends, and flushes twice, or one
that discards what it gets. How fast the disk takes bytes is measured with it; in memory, in a file system
that has no disk, the same writes show what is left of the difference without one.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.filling import Filled
from benchmarks.rounds import Rounds
from benchmarks.spark.discarding_sink import DiscardingSink
from benchmarks.spark.prebuilt_source import write_batch
from pyledger import arrow

pytestmark = pytest.mark.spark
ROWS_PER_TRIGGER = 1_000_000
WARM_TRIGGERS = 2
MEMORY = Path("/dev/shm")
COLUMNS = {"default": arrow.DEFAULT_COLUMNS, "no-properties": arrow.DEFAULT_COLUMNS[:-1]}
BODIES = {"body": ("body",), "body-keys-tags": ("body", "keys", "tags")}


@pytest.mark.benchmark(group="Spark stream")
@pytest.mark.parametrize("columns", COLUMNS, ids="columns={}".format)
def bench_stream(rounds: Rounds, session: SparkSession, filled: Filled, tmp_path: Path, columns: str) -> None:
    rows_per_trigger = ROWS_PER_TRIGGER if rounds.full else max(1, filled.messages // 4)

    def act() -> list[float]:
        rates: list[float] = []
        for turn in range(3 if rounds.full else 1):
            stream = session.readStream.format("pyledger").option("startingOffsets", "earliest")
            stream = stream.option("columns", ",".join(COLUMNS[columns]))
            rows = stream.option("maxOffsetsPerTrigger", rows_per_trigger).load(str(filled.path))
            sink = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / str(turn)))
            query = sink.trigger(availableNow=True).start()
            query.awaitTermination()
            reports = query.recentProgress
            assert sum(report["numInputRows"] for report in reports) == filled.messages
            rates += [
                1000 * report["numInputRows"] / report["durationMs"]["triggerExecution"]
                for report in reports
                if report["numInputRows"] == rows_per_trigger
            ]
        return rates[WARM_TRIGGERS:] or rates

    rates = rounds.benchmark.pedantic(act, rounds=1)
    rounds.note(per_second=max(rates), middle_per_second=sorted(rates)[len(rates) // 2])


def disk_rate(path: Path, size_bytes: int) -> float:
    """Bytes a second that are written and flushed, in one file."""
    block = os.urandom(1 << 20)
    begin = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(size_bytes >> 20):
            file.write(block)
        os.fsync(file.fileno())
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
def bench_write(
    rounds: Rounds, session: SparkSession, filled: Filled, tmp_path: Path, home: Path, columns: str
) -> None:
    session.dataSource.register(DiscardingSink)
    count = 2_000_000 if rounds.full else 2_000
    prebuilt = tmp_path / "rows.arrow"
    body = arrow.scan(filled.path, columns=["body"], batch_rows=8192).read_next_batch().column(0)
    keys = pa.array([f"order-{number}" for number in range(len(body))])
    tags = pa.array(["TagA"] * len(body))
    found = {"body": body, "keys": keys, "tags": tags}
    write_batch(pa.RecordBatch.from_pydict({name: found[name] for name in BODIES[columns]}), prebuilt)
    best = dict.fromkeys(("pyledger", "discard"), float("inf"))
    disk_per_second = disk_rate(home / "probe", (256 if rounds.full else 1) << 20)

    def frame() -> DataFrame:
        reader = session.read.format("prebuilt").option("path", str(prebuilt))
        return reader.option("rows", count).option("partitions", 2).load()

    def act() -> int:
        for turn in range(4 if rounds.full else 1):
            for sink in best:
                target = home / f"{sink}-{turn}"
                begin = time.perf_counter()
                frame().write.format(sink).mode("append").option("topic", "orders").save(str(target))
                best[sink] = min(best[sink], time.perf_counter() - begin)
                if sink == "pyledger":
                    assert sum(b.num_rows for b in arrow.scan(target, columns=["queueId"])) == count
                    shutil.rmtree(target)
        return len(best)

    assert rounds.benchmark.pedantic(act, rounds=1) == len(best)
    rounds.note(
        per_second=count / best["pyledger"],
        discard_per_second=count / best["discard"],
        ratio_to_discard=best["discard"] / best["pyledger"],
        disk_per_second=disk_per_second,
    )
