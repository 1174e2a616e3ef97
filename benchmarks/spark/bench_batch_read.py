"""How close does Spark's read of a store come to what Spark allows any Python source, and to parquet?

Four sources of the same rows in one session: ours; the ceiling, a Python source that hands over one prebuilt
batch of ours again and again, from cache, without a look at any other row; one that copies ready-made batches
of all rows from an Arrow file; and uncompressed parquet of the same rows, which the JVM reads by itself. What
is in Python has batches and tasks alike. Each query loads afresh; Spark asks a Python source for all columns
of the frame, whatever the query needs. Rounds run all sources in turns, and the best round of each counts:
the first ones warm Spark up.

Stores: bodies of 256 bytes; bodies of varying length; files of 1 MiB in place of 1 GiB; one topic in a
hundred, of which alone the query asks. Of the last three the copy and parquet are not measured.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark_pyledger.schema import schema_of

from benchmarks.load.rounds import Rounds
from benchmarks.spark.conftest import TASKS
from benchmarks.spark.prebuilt_source import write_batches
from benchmarks.spark.stores import FULL_LOG_BYTES, SHAPES, SMOKE_LOG_BYTES, Stored, make_store
from pyledger import arrow

pytestmark = pytest.mark.spark
COLUMNS = {
    "default": arrow.DEFAULT_COLUMNS,
    "no-properties": arrow.DEFAULT_COLUMNS[:-1],
    "queueOffset": ("queueOffset",),
}
ROUNDS = 4


def write_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def first_value(expression: str) -> Callable[[DataFrame], int]:
    return lambda frame: int(frame.selectExpr(expression).collect()[0][0])


QUERIES: dict[str, Callable[[DataFrame], int | None]] = {
    "count": DataFrame.count,
    "sum": first_value("sum(queueOffset)"),
    "length": first_value("sum(length(body))"),
    "noop": write_noop,
}
CASES = [(columns, "noop") for columns in COLUMNS] + [("default", query) for query in list(QUERIES)[:-1]]


class Sources:
    """The ways to the same rows."""

    def __init__(self, session: SparkSession, stored: Stored, folder: Path) -> None:
        self.session, self.stored, self.folder = session, stored, folder
        self.names = ["pyledger", "ceiling"]
        if stored.path.name == "fixed":
            self._write_parquet(folder / "parquet")
            self.names += ["copying", "parquet"]

    def _write_parquet(self, path: Path) -> None:
        """One file for each task, dictionaries off: plain columns, as ours are."""
        path.mkdir()
        reader = arrow.scan(self.stored.path)
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

    def prepare_ceiling(self, columns: tuple[str, ...]) -> None:
        """One batch of ours, with the very schema that ours has; for the copying source all."""
        scan = partial(arrow.scan, self.stored.path, columns=columns, topics=self.stored.topic)
        schema = to_arrow_schema(schema_of(columns), timezone="UTC")
        write_batches([next(iter(scan()))], schema, self.folder / f"{len(columns)}.arrow")
        whole = self.folder / f"{len(columns)}.all.arrow"
        if "copying" in self.names and not whole.exists():
            for other in self.folder.glob("*.all.arrow"):
                other.unlink()
            write_batches(scan(), schema, whole)

    def load(self, source: str, columns: tuple[str, ...]) -> DataFrame:
        read: DataFrameReader = self.session.read
        if source == "parquet":
            return read.parquet(str(self.folder / "parquet")).select(*columns)
        if source == "ceiling":
            read = read.format("prebuilt").option("path", str(self.folder / f"{len(columns)}.arrow"))
            return read.option("rows", self.stored.rows).option("partitions", TASKS).load()
        if source == "copying":
            read = read.format("prebuilt").option("path", str(self.folder / f"{len(columns)}.all.arrow"))
            return read.option("copied", "true").option("partitions", TASKS).load()
        read = read.format("pyledger").option("columns", ",".join(columns))
        if self.stored.topic is not None:
            read = read.option("topic", self.stored.topic)
        return read.load(str(self.stored.path))

    def expected(self, source: str, query: str) -> int | None:
        """What a query must give; of the ceiling, whose rows repeat, only their number is known."""
        if query == "count":
            return self.stored.rows
        if source == "ceiling" or query == "noop":
            return None
        return {"sum": self.stored.offset_sum, "length": self.stored.body_bytes}[query]


@pytest.fixture(scope="module", params=SHAPES, ids="store={}".format)
def sources(
    request: pytest.FixtureRequest,
    session: SparkSession,
    scale: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Sources]:
    folder = tmp_path_factory.mktemp("spark")
    name = request.param
    sizes = (FULL_LOG_BYTES, 1 << 30) if scale == "full" else (SMOKE_LOG_BYTES, 1 << 20)
    yield Sources(session, make_store(folder / name, SHAPES[name], *sizes), folder)
    shutil.rmtree(folder)


@pytest.mark.benchmark(group="Spark batch read")
@pytest.mark.parametrize(("columns", "query"), CASES, ids=[f"columns={c}-query={q}" for c, q in CASES])
def bench_read(rounds: Rounds, sources: Sources, columns: str, query: str) -> None:
    names, run = COLUMNS[columns], QUERIES[query]
    sources.prepare_ceiling(names)
    best = dict.fromkeys(sources.names, float("inf"))

    def act() -> int:
        for _ in range(ROUNDS if rounds.full else 1):
            for source in best:
                begin = time.perf_counter()
                found: Any = run(sources.load(source, names))
                best[source] = min(best[source], time.perf_counter() - begin)
                wanted = sources.expected(source, query)
                assert wanted is None or found == wanted
        return len(best)

    assert rounds.benchmark.pedantic(act, rounds=1) == len(best)
    rows = sources.stored.rows
    for source, taken_s in best.items():
        rounds.note(**{f"{source}_per_second": rows / taken_s})
        rounds.note(**{f"ratio_to_{source}": taken_s / best["pyledger"]})
    rounds.note(per_second=rows / best["pyledger"], rows=rows)
