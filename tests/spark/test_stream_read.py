"""`spark.readStream.format("pyledger")` in a Classic session: triggers, restarts, a writer beside it."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyledger.model.message import Message
from pyledger.spark import rows_behind
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import golden_cases
from tests.spark.queries import start_query
from tests.spark.steady_writer import WriterProcess
from tests.spark.test_offsets import FILE_BYTES, cut_log, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESTARTS = int(os.environ.get("PYLEDGER_STREAM_RESTARTS", "3"))
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600 + 60 * RESTARTS)]

CASES = {case.name: case for case in golden_cases()}
PLACE = ["topic", "queueId", "queueOffset"]


class Copy:
    """A query that copies a store into parquet files, which it can do exactly once."""

    def __init__(self, session: "SparkSession", store: Path, home: Path, **options: str) -> None:
        self.session, self.out = session, home / "out"
        stream = session.readStream.format("pyledger").options(**options).load(str(store))
        self._writer = (
            stream.writeStream.format("parquet")
            .option("path", str(self.out))
            .option("checkpointLocation", str(home / "checkpoint"))
        )

    def run_available(self) -> Any:
        """One run to the end of what is there."""
        query = start_query(self._writer.trigger(availableNow=True))
        query.awaitTermination()
        return query

    @contextmanager
    def running(self) -> Iterator[Any]:
        query = start_query(self._writer.trigger(processingTime="0 seconds"))
        try:
            yield query
        finally:
            query.stop()

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.session.read.parquet(str(self.out)).select(*PLACE).collect())


def places(count: int, queues: int = 2) -> list[tuple[str, int, int]]:
    return sorted(("orders", number % queues, number // queues) for number in range(count))


def test_restart_goes_on_behind_the_checkpoint(session: "SparkSession", tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(store, 60)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "25"}
    first = Copy(session, store, tmp_path, **options)
    query = first.run_available()
    assert [report["numInputRows"] for report in query.recentProgress] == [25, 25, 10]
    assert rows_behind(query.recentProgress[0]) == 35
    assert rows_behind(query.lastProgress) == 0
    assert first.rows() == places(60)
    write(store, 10)
    again = Copy(session, store, tmp_path, **options)
    query = again.run_available()
    assert sum(report["numInputRows"] for report in query.recentProgress) == 10
    assert len(again.rows()) == 70 == len(set(again.rows()))


def test_a_limit_of_bytes_holds_beside_one_of_rows(session: "SparkSession", tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(store, 40)
    with StoreReader.open(store) as reader:
        [row_bytes] = {message.store_size for message in reader.messages()}
    for round_, more in enumerate(({}, {"maxOffsetsPerTrigger": "25"})):
        options = {"startingTimestamp": "0", "maxBytesPerTrigger": str(15 * row_bytes), **more}
        query = Copy(session, store, tmp_path / str(round_), **options).run_available()
        assert [report["numInputRows"] for report in query.recentProgress] == [15, 15, 10]


def test_rows_of_a_stream_are_those_of_a_batch_read(session: "SparkSession", tmp_path: Path) -> None:
    folder = CASES["clean-5"].unpack(tmp_path)
    copy = Copy(
        session, folder, tmp_path, startingOffsets="earliest", columns="body,topic,queueId,queueOffset"
    )
    copy.run_available()
    wanted = session.read.format("pyledger").load(str(folder)).select("body", *PLACE)
    found = session.read.parquet(str(copy.out)).select("body", *PLACE)
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, wanted.collect()))


class SteadyWriter(threading.Thread):
    """Writes on until it is told to stop; rolls files, and closes the store in good order now and then."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.count, self.ending = folder, 0, threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            with MessageStore.open(
                self.folder, mapped_file_size_bytes=FILE_BYTES, index_enabled=False
            ) as store:
                for _ in range(300):
                    store.put(Message("orders", b"x" * 200, queue_id=self.count % 2))
                    self.count += 1
                    self.ending.wait(0.001)


def test_restarts_beside_a_writer_copy_every_row_once(session: "SparkSession", tmp_path: Path) -> None:
    """Stopped wherever it happens to be; `PYLEDGER_STREAM_RESTARTS=50` for more than the ordinary few."""
    store = tmp_path / "store"
    write(store, 2)
    chance = random.Random(7)
    writer = SteadyWriter(store)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    writer.start()
    try:
        for _ in range(RESTARTS):
            copy = Copy(session, store, tmp_path, **options)
            with copy.running() as query:
                wanted = chance.randint(1, 3)
                while (
                    query.exception() is None and (query.lastProgress or {"batchId": 0})["batchId"] < wanted
                ):
                    assert writer.is_alive()
                    query.awaitTermination(0.05)
                assert query.exception() is None
    finally:
        writer.ending.set()
        writer.join()
    last = Copy(session, store, tmp_path, startingOffsets="earliest")
    last.run_available()
    assert last.rows() == places(writer.count + 2)


def test_writers_that_are_killed_leave_every_row_once(session: "SparkSession", tmp_path: Path) -> None:
    """The writer dies by SIGKILL while a query follows it, and queries are stopped while writers write."""
    store = tmp_path / "store"
    write(store, 2)
    chance = random.Random(11)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}
    writer = WriterProcess(store)
    try:
        writer.start()
        for _ in range(RESTARTS):
            with Copy(session, store, tmp_path, **options).running() as query:
                for _ in range(chance.randint(1, 2)):
                    wait_for_rows(query)
                    if chance.random() < 0.8:
                        writer.kill()
                        writer.start()
                wait_for_rows(query)
    finally:
        writer.kill()
    with MessageStore.open(store, mapped_file_size_bytes=FILE_BYTES, index_enabled=False) as recovered:
        count = sum(queue.max_offset for queue in recovered.queues().values())
    assert count >= writer.acknowledged
    last = Copy(session, store, tmp_path, startingOffsets="earliest")
    last.run_available()
    assert last.rows() == places(count)


def wait_for_rows(query: Any) -> None:
    """Until a trigger that ends after now has brought rows."""
    seen = query.lastProgress
    while True:
        query.awaitTermination(0.05)
        assert query.exception() is None
        now = query.lastProgress
        if now and now["numInputRows"] and (not seen or now["batchId"] > seen["batchId"]):
            return


def test_a_cut_log_ends_the_query_with_the_place(session: "SparkSession", tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(store, 40, queues=1)
    Copy(session, store, tmp_path, startingOffsets="earliest").run_available()
    cut_log(store, 10)
    with pytest.raises(Exception, match="orders/0: ends at 10, below 40"):
        Copy(session, store, tmp_path, startingOffsets="earliest").run_available()
