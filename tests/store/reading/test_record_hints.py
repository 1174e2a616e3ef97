"""What queue files tell about places of records: taken when true, passed over when not."""

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from pyledger.arrow.scan_plan import LogRange, RowSelection, plan_partitions
from pyledger.store.files import checkpoint
from pyledger.store.files.folder import read_folder
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from pyledger.store.reading.record_hints import RecordHints

FILE_BYTES = 1 << 20
MESSAGES = 3000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Records of many sizes in two queues, over several files of log and queues, closed in good order."""
    sizes = random.Random(7)
    options = {"mapped_file_size_bytes": FILE_BYTES, "consume_queue_file_size_bytes": 20_000}
    with MessageStore.open(tmp_path / "store", **options) as store:
        puts = [store.appender("t", queue_id).put for queue_id in range(2)]
        for _ in range(MESSAGES):
            puts[sizes.random() < 0.3](bytes(sizes.randrange(1, 2000)))
    return tmp_path / "store"


def offsets_of(reader: StoreReader) -> list[int]:
    return [message.physical_offset for message in reader.messages()]


def last_queue_file(folder: Path, queue_id: int) -> Path:
    return max((folder / "consumequeue" / "t" / str(queue_id)).iterdir())


def damage_last_units(folder: Path, place: int) -> None:
    """Let the last unit of both queues name another place."""
    for queue_id in range(2):
        path = last_queue_file(folder, queue_id)
        data = bytearray(path.read_bytes())
        end = len(data.rstrip(b"\0")) + 19
        start = end - end % 20 - 20
        data[start : start + 8] = place.to_bytes(8, "big")
        path.write_bytes(data)


def test_hints_name_records_near_each_offset(folder: Path) -> None:
    with StoreReader.open(folder) as reader:
        offsets = offsets_of(reader)
        hints = RecordHints(read_folder(folder), reader.view)
        assert hints.last() == offsets[-1]
        for place in range(0, offsets[-1] - 40_000, 9973):
            found = hints.first_from(place)
            assert found in offsets
            assert place <= found < place + 40_000


def test_hint_after_the_last_record_is_none(folder: Path) -> None:
    with StoreReader.open(folder) as reader:
        assert RecordHints(read_folder(folder), reader.view).first_from(reader.max_offset) is None


def test_end_of_the_log_is_that_of_a_walk_with_and_without_hints(folder: Path) -> None:
    with StoreReader.open(folder) as reader:
        hinted = reader.max_offset
        assert reader.stop.start_offset == reader.stop.last_record_offset
    damage_last_units(folder, place=12345)
    with StoreReader.open(folder) as reader:
        assert reader.stop.start_offset % FILE_BYTES == 0
        assert reader.max_offset == hinted


def test_end_is_found_after_queues_that_lag(folder: Path) -> None:
    with StoreReader.open(folder) as reader:
        end = reader.max_offset
    for queue_id in range(2):
        path = last_queue_file(folder, queue_id)
        path.write_bytes(bytes(path.stat().st_size))
    with StoreReader.open(folder) as reader:
        assert reader.stop.start_offset < reader.stop.last_record_offset
        assert reader.max_offset == end


@pytest.mark.parametrize("queues", ["sound", "missing", "lying"])
def test_partitions_begin_at_records_and_cover_the_log(folder: Path, queues: str) -> None:
    if queues == "missing":
        for queue_id in range(2):
            last_queue_file(folder, queue_id).unlink()
    elif queues == "lying":
        damage_last_units(folder, place=12345)
    with StoreReader.open(folder) as reader:
        offsets = set(offsets_of(reader))
        parts = plan_partitions(reader, RowSelection(), max_partition_bytes=200_000)
        ranges = [part for part in parts if isinstance(part, LogRange)]
        assert len(ranges) == len(parts) >= reader.max_offset // 250_000
        assert ranges[0].start_offset == reader.min_offset
        assert ranges[-1].end_offset == reader.max_offset
        assert all(before.end_offset == after.start_offset for before, after in pairwise(ranges))
        assert all(part.start_offset in offsets for part in ranges)
        assert max(part.size_bytes for part in ranges) < 260_000


def test_a_record_that_the_checkpoint_does_not_know_is_no_end(folder: Path) -> None:
    """Upstream leaves what it cut off in the log and in the queues, where it looks sound."""
    path = folder / "checkpoint"
    known = checkpoint.read(str(path))
    assert known is not None
    checkpoint.write(str(path), replace(known, physic_msg_timestamp=known.physic_msg_timestamp + 1))
    with StoreReader.open(folder) as reader:
        assert reader.stop.start_offset < reader.stop.last_record_offset
