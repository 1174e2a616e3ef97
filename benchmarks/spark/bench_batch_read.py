"""How close does Spark's read of a store come to what Spark allows any Python source, and to parquet?

Three sources of the same rows in one session: ours; the ceiling, a Python source that hands over one prebuilt
batch of ours again and again; and uncompressed parquet of the same rows, which the JVM reads by itself. Each
query loads afresh and writes all asked columns to Spark's `noop` sink. Rounds run all sources in turns, and
the best round of each counts: the first ones warm Spark up.
"""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from benchmarks.filling import QUEUES, Filled
from benchmarks.rounds import Rounds
from benchmarks.spark.conftest import TASKS
from benchmarks.spark.prebuilt_source import write_batch
from pyledger import arrow

pytestmark = pytest.mark.spark
COLUMNS = {
    "default": arrow.DEFAULT_COLUMNS,
    "no-properties": arrow.DEFAULT_COLUMNS[:-1],
    "queueOffset": ("queueOffset",),
}


class Sources:
    """The three ways to the same rows."""

    def __init__(self, session: SparkSession, filled: Filled, folder: Path) -> None:
        self.session, self.filled, self.folder = session, filled, folder
        self._write_parquet(folder / "parquet")

    def _write_parquet(self, path: Path) -> None:
        """One file for each task, dictionaries off: plain columns, as ours are."""
        path.mkdir()
        reader = arrow.scan(self.filled.path)
        writers = [
            parquet.ParquetWriter(
                path / f"{n}.parquet", reader.schema, compression="none", use_dictionary=False
            )
            for n in range(TASKS)
        ]
        for n, batch in enumerate(reader):
            writers[n % TASKS].write_batch(batch)
        for writer in writers:
            writer.close()

    def prepare_ceiling(self, columns: tuple[str, ...]) -> Path:
        first = arrow.scan(self.filled.path, columns=columns).read_next_batch()
        batch = pa.RecordBatch.from_arrays(first.columns, schema=arrow.schema_for(columns, nullable=True))
        path = self.folder / f"{len(columns)}.arrow"
        write_batch(batch, path)
        return path

    def load(self, source: str, columns: tuple[str, ...]) -> DataFrame:
        read = self.session.read
        if source == "parquet":
            return read.parquet(str(self.folder / "parquet")).select(*columns)
        if source == "ceiling":
            reader = read.format("prebuilt").option("path", str(self.folder / f"{len(columns)}.arrow"))
            return reader.option("rows", self.filled.messages).option("partitions", TASKS).load()
        return read.format("pyledger").option("columns", ",".join(columns)).load(str(self.filled.path))


@pytest.fixture(scope="module")
def sources(session: SparkSession, filled: Filled, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return Sources(session, filled, tmp_path_factory.mktemp("spark"))


@pytest.mark.benchmark(group="Spark batch read")
@pytest.mark.parametrize("columns", COLUMNS, ids="columns={}".format)
def bench_read(rounds: Rounds, sources: Sources, columns: str) -> None:
    names, rows = COLUMNS[columns], sources.filled.messages
    sources.prepare_ceiling(names)
    best = dict.fromkeys(("pyledger", "ceiling", "parquet"), float("inf"))

    def act() -> int:
        for _ in range(8 if rounds.full else 1):
            for source in best:
                begin = time.perf_counter()
                sources.load(source, names).write.format("noop").mode("overwrite").save()
                best[source] = min(best[source], time.perf_counter() - begin)
        return len(best)

    assert rounds.benchmark.pedantic(act, rounds=1) == len(best)
    for source in best:
        check_rows(sources.load(source, names), rows, same=source != "ceiling")
    for source, taken_s in best.items():
        rounds.note(**{f"{source}_per_second": rows / taken_s})
    rounds.note(
        per_second=rows / best["pyledger"],
        ratio_to_ceiling=best["ceiling"] / best["pyledger"],
        ratio_to_parquet=best["parquet"] / best["pyledger"],
        rows=rows,
        partitions=sources.load("pyledger", names).rdd.getNumPartitions(),
    )


def check_rows(frame: DataFrame, rows: int, *, same: bool) -> None:
    """The rows are there; those of the ceiling repeat, so that only their number can be told."""
    row = frame.selectExpr("count(queueOffset)", "sum(queueOffset)").first()
    assert row is not None
    each = [len(range(queue, rows, QUEUES)) for queue in range(QUEUES)]
    assert row[0] == rows
    assert not same or row[1] == sum(count * (count - 1) // 2 for count in each)
