"""Folders that change between a plan and its tasks, and logs that a DLedger group keeps: without a JVM."""

import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from pyspark_pyledger.options import ReadOptions, parse_read_options
from pyspark_pyledger.partitions import AnyPartition

from pyledger import arrow
from pyledger.errors import DataLostError, StoreIOError, StoreNotFoundError
from pyledger.store.cold.archive import archive
from pyledger.store.files.folder import StoreFolder, read_with_retries
from tests.core.log.log_files import RecordFields
from tests.spark.test_offsets import FILE_BYTES, write
from tests.spark.ways import batch_table, read_parts, stream_table
from tests.store.cold.archived import TIME_MAX_MS
from tests.store.messages.test_dledger_message_store import write_entries

COUNT = 400


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path / "store", COUNT)
    return tmp_path / "store"


def plan_of(kind: str, store: Path) -> list[AnyPartition]:
    """Partitions of either kind, of all rows."""
    assert kind in ("log", "queue")
    parts: list[AnyPartition] = list(
        arrow.plan(store, plan="log" if kind == "log" else "queue", max_partition_bytes=20_000)
    )
    assert len(parts) > 2
    return parts


def places(parts: list[AnyPartition], options: ReadOptions) -> list[int]:
    """Physical offsets of the rows that tasks give."""
    return sorted(chain.from_iterable(b["physicalOffset"].to_pylist() for b in read_parts(parts, options)))


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_what_retention_took_after_the_plan_is_told_or_left_out(store: Path, kind: str) -> None:
    given = {"path": str(store), "columns": "physicalOffset"}
    careful, careless = (parse_read_options(given | {"failOnDataLoss": word}) for word in ("true", "false"))
    parts = plan_of(kind, store)
    before = places(parts, careful)
    min((store / "commitlog").iterdir()).unlink()
    with pytest.raises(DataLostError, match=f"bytes 0 to {FILE_BYTES} of the log were deleted since"):
        list(read_parts(parts, careful))
    left = places(parts, careless)
    assert left == [place for place in before if place >= FILE_BYTES]
    assert 0 < len(left) < len(before)
    for file in (store / "commitlog").iterdir():
        file.unlink()
    assert not list(read_parts(parts, careless))
    shutil.rmtree(store)
    with pytest.raises(StoreNotFoundError, match="no such folder"):
        list(read_parts(parts, careless))


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_what_is_archived_after_the_plan_is_read_all_the_same(store: Path, kind: str) -> None:
    options = parse_read_options({"path": str(store)})
    parts = plan_of(kind, store)
    before = list(read_parts(parts, options))
    assert list(archive(store, older_than_ms=TIME_MAX_MS))
    assert list(read_parts(parts, options)) == before


def test_a_file_that_vanishes_between_a_look_and_its_use_is_looked_for_again(store: Path) -> None:
    looks: list[StoreFolder] = []

    def act(gone: Callable[[int], bool]) -> Callable[[StoreFolder], str]:
        def use(folder: StoreFolder) -> str:
            looks.append(folder)
            if gone(len(looks)):
                raise StoreIOError(f"{store}/gone", "open", "No such file") from FileNotFoundError()
            return folder.log_files[0].path

        return use

    assert read_with_retries(str(store), act(lambda look: look < 3)) == min(
        map(str, (store / "commitlog").iterdir())
    )
    assert len(looks) == 3
    with pytest.raises(StoreIOError):
        read_with_retries(str(store), act(bool))
    looks.clear()
    there = min((store / "commitlog").iterdir())

    def refuse(folder: StoreFolder) -> str:
        looks.append(folder)
        raise StoreIOError(str(there), "open", "Permission denied") from PermissionError()

    with pytest.raises(StoreIOError):
        read_with_retries(str(store), refuse)
    assert len(looks) == 1


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside commitlog"])
def test_a_log_that_a_group_keeps_is_read_and_followed(tmp_path: Path, beside: bool) -> None:
    """Java's brokers make an empty `commitlog` too."""
    brokers = tmp_path / "brokers"
    store = brokers / "n0"
    records = [RecordFields(queue_id=number % 2, queue_offset=number // 2) for number in range(60)]
    write_entries(store, records, [1] * 60)
    if beside:
        (store / "commitlog").mkdir()
    for path in (store, brokers):
        table = batch_table(path=str(path), maxBytesPerPartition="1000")
        assert table.num_rows == 60
        assert stream_table(path=str(path), maxOffsetsPerTrigger="7").equals(table)
    with pytest.raises(StoreNotFoundError, match=f"did you mean {store}"):
        batch_table(path=str(store / "dledger-n0"))


def test_a_folder_inside_a_store_is_not_the_store(store: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=f"did you mean {store}"):
        batch_table(path=str(store / "commitlog"))
