"""What a Spark job gets from a store folder, from parquet, and from Kafka.

The same messages, bodies of 256 bytes, are read in three places by one session on one machine: a store folder
by our source, parquet files by Spark's own, and a Kafka broker by Spark's Kafka source. All are in the page
cache.
Each query loads afresh and says of our source both ways: as it stands, when Spark asks it for all columns,
and with the option `columns` of what the query needs.

Kafka's broker runs beside Spark on the same cores, as a store's folder needs no broker; its source keeps a
consumer in each task, decodes records one by one in the JVM, and turns them into rows there.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.load.filling import QUEUES
from benchmarks.load.rounds import Rounds
from benchmarks.spark.bench_batch_read import QUERIES
from benchmarks.spark.conftest import TASKS
from benchmarks.spark.kafka_broker import KafkaBroker, connector_jars
from benchmarks.spark.stores import FULL_LOG_BYTES, SMOKE_LOG_BYTES, Shape, Stored, make_store
from pyledger import arrow

pytestmark = [pytest.mark.spark, pytest.mark.java]
ROUNDS = 4
PLAIN = arrow.DEFAULT_COLUMNS[:-1]
"""Without the map of properties, for which neither of the others has a like."""
NEEDED = {"count": ("queueId",), "sum": ("queueOffset",), "length": ("body",), "noop": PLAIN}
"""Columns that a query needs."""


@dataclass(frozen=True)
class Places:
    """The same messages in three places."""

    session: SparkSession
    stored: Stored
    parquet: Path
    kafka: str

    def load(self, source: str, query: str) -> DataFrame:
        read = self.session.read
        if source == "parquet":
            return read.parquet(str(self.parquet))
        if source == "kafka":
            read = read.format("kafka").option("kafka.bootstrap.servers", self.kafka)
            found = read.option("subscribe", "bench").load()
            return found.withColumnsRenamed({"offset": "queueOffset", "value": "body"})
        columns = NEEDED[query] if source == "pyledger-columns" else PLAIN
        return read.format("pyledger").option("columns", ",".join(columns)).load(str(self.stored.path))


SOURCES = ("pyledger", "pyledger-columns", "parquet", "kafka")


@pytest.fixture(scope="module")
def places(session: SparkSession, scale: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    for jar in connector_jars():
        session.sql(f"ADD JAR '{jar}'")
    folder = tmp_path_factory.mktemp("sources")
    sizes = (FULL_LOG_BYTES, 1 << 30) if scale == "full" else (SMOKE_LOG_BYTES, 1 << 20)
    stored = make_store(folder / "store", Shape(), *sizes)
    frame = session.read.format("pyledger").option("columns", ",".join(PLAIN)).load(str(stored.path))
    with KafkaBroker(folder / "kafka", QUEUES) as broker:
        frame.repartition(TASKS).write.option("compression", "none").parquet(str(folder / "parquet"))
        rows = frame.selectExpr("topic", "queueId AS partition", "keys AS key", "body AS value")
        rows.write.format("kafka").option("kafka.bootstrap.servers", broker.address).save()
        yield Places(session, stored, folder / "parquet", broker.address)
    shutil.rmtree(folder)


@pytest.mark.benchmark(group="Spark sources")
@pytest.mark.parametrize("query", QUERIES, ids="query={}".format)
def bench_sources(rounds: Rounds, places: Places, query: str) -> None:
    stored = places.stored
    wanted = {"count": stored.rows, "sum": stored.offset_sum, "length": stored.body_bytes, "noop": None}[
        query
    ]
    best = dict.fromkeys(SOURCES, float("inf"))

    def act() -> int:
        for _ in range(ROUNDS if rounds.full else 1):
            for source in best:
                begin = time.perf_counter()
                found = QUERIES[query](places.load(source, query))
                best[source] = min(best[source], time.perf_counter() - begin)
                assert found == wanted, source
        return len(best)

    assert rounds.benchmark.pedantic(act, rounds=1) == len(best)
    rounds.note(**{f"{source}_per_second": stored.rows / taken_s for source, taken_s in best.items()})
    rounds.note(rows=stored.rows)
