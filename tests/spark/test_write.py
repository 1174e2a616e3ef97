"""`df.write` and `df.writeStream` with `format("pyledger")` in a Classic session."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyledger import arrow
from pyledger.store.maintenance.verify import verify
from tests.spark.queries import start_query
from tests.spark.test_offsets import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LOG_BYTES = str(1 << 20)


def numbers(session: "SparkSession", count: int) -> "DataFrame":
    return session.range(0, count, 1, 3).selectExpr(
        "concat('body ', id) AS body", "concat('k', id) AS keys", "if(id % 2 = 0, 'even', null) AS tags"
    )


def bodies(store: Path) -> list[str]:
    return [
        body.decode() for body in arrow.scan(store, columns=["body"]).read_all().column("body").to_pylist()
    ]


def test_rows_are_appended_once_and_verify_finds_nothing(session: "SparkSession", tmp_path: Path) -> None:
    store = tmp_path / "store"
    for round_ in (1, 2):
        frame = numbers(session, 1000).selectExpr("*", "map('round_', '1') AS properties")
        writer = frame.write.format("pyledger").mode("append")
        writer.options(topic="orders", mappedFileSizeCommitLog=LOG_BYTES).save(str(store))
        assert len(bodies(store)) == 1000 * round_
    assert sorted(set(bodies(store))) == sorted(f"body {number}" for number in range(1000))
    assert not list(verify(store))
    assert not list((store / "spark").iterdir())


def test_the_driver_owns_what_a_job_has_staged(session: "SparkSession", tmp_path: Path) -> None:
    """Each row tells what its task found in the staging folder."""
    from pyspark.sql.functions import udf

    store = tmp_path / "store"

    def process_name() -> str:
        [file] = (store / "spark").glob("job-*/owner")
        pid = json.loads(file.read_text())["pid"]
        return f"{pid} {Path(f'/proc/{pid}/comm').read_text().strip()}"

    owner = udf(lambda _row: process_name(), "string")
    frame = session.range(4).select(owner("id").alias("body"))
    frame.write.format("pyledger").mode("append").options(topic="t", mappedFileSizeCommitLog=LOG_BYTES).save(
        str(store)
    )
    [found] = set(bodies(store))
    gateway: Any = session.sparkContext._jvm
    assert found == f"{gateway.java.lang.ProcessHandle.current().pid()} java"


def test_a_failed_task_leaves_nothing(session: "SparkSession", tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(store, 4)
    failing = session.range(0, 90, 1, 3).selectExpr("if(id = 80, null, concat('body ', id)) AS body")
    with pytest.raises(Exception, match="body: is null in a row"):
        failing.write.format("pyledger").mode("append").option("topic", "orders").save(str(store))
    assert len(bodies(store)) == 4
    assert not list((store / "spark").glob("*"))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["id AS body"], {"topic": "t"}, "body: is bigint, not binary or string"),
        (["'x' AS text"], {"topic": "t"}, "text: is not a column that can be written"),
        (["'x' AS keys"], {"topic": "t"}, "body: there is no such column"),
        (["'x' AS body"], {}, "topic: there is neither the option nor a column"),
        (["'x' AS body"], {"topic": "t", "queues": "3"}, "queues: is not an option of a write"),
        (["'x' AS body", "'1' AS queueId"], {"topic": "t"}, "queueId: is string, not tinyint"),
    ],
)
def test_a_frame_that_is_not_of_messages_is_refused_by_column(
    session: "SparkSession", tmp_path: Path, columns: list[str], options: dict[str, Any], message: str
) -> None:
    frame = session.range(1).selectExpr(*columns)
    with pytest.raises(Exception, match=message):
        frame.write.format("pyledger").mode("append").options(**options).save(str(tmp_path / "store"))
    with pytest.raises(Exception, match="a log cannot be overwritten"):
        frame.write.format("pyledger").mode("overwrite").options(**options).save(str(tmp_path / "store"))


def test_a_stream_copies_a_topic_once_over_restarts(session: "SparkSession", tmp_path: Path) -> None:
    source, sink = tmp_path / "source", tmp_path / "sink"
    for count in (40, 25):
        write(source, count)
        stream = session.readStream.format("pyledger").option("startingOffsets", "earliest")
        rows = stream.option("maxOffsetsPerTrigger", "30").load(str(source)).select("body", "queueId")
        sending = rows.writeStream.format("pyledger").option("topic", "copied")
        sending = sending.option("mappedFileSizeCommitLog", LOG_BYTES)
        sending = sending.option("checkpointLocation", str(tmp_path / "checkpoint"))
        start_query(sending.trigger(availableNow=True), str(sink)).awaitTermination()
    # The commit of the last batch is lost: Spark sends that batch again.
    last = max((tmp_path / "checkpoint/commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    start_query(sending.trigger(availableNow=True), str(sink)).awaitTermination()
    assert sorted(bodies(sink)) == sorted(bodies(source))
