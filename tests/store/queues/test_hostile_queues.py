"""Queues with gaps, strange names and places far out: nothing is repeated, lost, or read out of bounds."""

import shutil
import struct
from pathlib import Path

import pytest

from pyledger._core import BatchConsumeQueue, LogView, search_batch_units_by_time, search_units_by_time
from pyledger.store.queues.queue_units import QueueUnits
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import golden_case

BATCH_UNIT = struct.Struct(">qiqqqhii")
TIME_MS = 1_700_000_000_000


@pytest.fixture
def gap(tmp_path: Path) -> QueueUnits:
    """A batch queue of two files with one message each, at queue offsets 0 and 100."""
    folder = tmp_path / "batchconsumequeue" / "t" / "0"
    folder.mkdir(parents=True)
    for number, base in enumerate((0, 100)):
        unit = BATCH_UNIT.pack(number * 200, 200, 7, TIME_MS + number, base, 1, -1, 0)
        (folder / f"{number * BATCH_UNIT.size:020d}").write_bytes(unit)
    return QueueUnits(str(tmp_path), "t", 0, batch=True, stored_end=101, max_offset=101)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return golden_case("rolled-5").unpack(tmp_path)


def physical_offsets(queue: QueueUnits, start: int, end: int) -> list[int]:
    return queue.array(start, end).physical_offsets


@pytest.mark.parametrize(
    ("start", "end", "wanted"), [(0, 101, [0, 200]), (1, 101, [200]), (50, 60, []), (0, 100, [0])]
)
def test_units_beside_a_gap_come_once(gap: QueueUnits, start: int, end: int, wanted: list[int]) -> None:
    assert physical_offsets(gap, start, end) == wanted


def test_search_over_a_gap(gap: QueueUnits) -> None:
    gap.stored_end, gap.derived_first, gap.max_offset = 101, 101, 102
    gap._derived += BATCH_UNIT.pack(400, 200, 7, TIME_MS + 2, 101, 1, -1, 0)
    view = LogView([], 0)
    found = [gap.offset_by_time(view, TIME_MS + passed, upper=False) for passed in range(3)]
    assert found == [0, 100, 101]


@pytest.mark.parametrize(("cut", "wanted"), [(0, 0), (1, 1), (200, 1), (201, 101)])
def test_files_are_truncated_within_a_gap(gap: QueueUnits, cut: int, wanted: int) -> None:
    gap.truncate_stored(cut)
    assert gap.stored_end == gap.max_offset == wanted


def test_units_of_batches_that_do_not_ascend_end(tmp_path: Path) -> None:
    folder = tmp_path / "t" / "0"
    folder.mkdir(parents=True)
    for number, base in enumerate((0, 1 << 40, 5, 3, 7, 1 << 50)):
        unit = BATCH_UNIT.pack(number * 200, 200, 7, TIME_MS, base, 1, -1, 0)
        (folder / f"{number * BATCH_UNIT.size:020d}").write_bytes(unit)
    queue = BatchConsumeQueue(str(tmp_path), "t", 0, readonly=True)
    queue.recover()
    start, seen = 0, 0
    while raw := bytes(queue.units(start, 9)):
        base, count = struct.unpack_from(">qh", raw, 28)
        assert base + count > start
        start, seen = base + count, seen + 1
    assert seen <= 6


def test_min_offset_over_a_missing_file(tmp_path: Path) -> None:
    queue = BatchConsumeQueue(str(tmp_path), "t", 0, 2 * BATCH_UNIT.size)
    for number in range(6):
        assert queue.put(number * 200, 200, 7, TIME_MS, number)
    for path in sorted((tmp_path / "t" / "0").iterdir())[1:]:
        path.write_bytes(path.read_bytes()[:10])
    cut = BatchConsumeQueue(str(tmp_path), "t", 0, readonly=True)
    cut.correct_min_offset(1 << 40)
    assert cut.min_offset >= 0


def test_units_arrive_while_messages_are_read(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    (store / "abort").touch()
    files = sorted((store / "commitlog").iterdir())
    late = {path: path.read_bytes() for path in files[1:]}
    for path in late:
        path.unlink()
    with StoreReader.open(store) as reader:
        before = reader.queues()
        suspended = reader.messages(order="queue")
        next(suspended)
        for path, data in late.items():
            path.write_bytes(data)
        assert reader.refresh()
        assert len(list(suspended)) > 0
        assert reader.queues() != before
        with StoreReader.open(store) as fresh:
            assert reader.queues() == fresh.queues()
            found = [m.physical_offset for m in reader.messages(order="queue")]
            assert found == [m.physical_offset for m in fresh.messages(order="queue")]


def test_short_lone_file_is_mapped_again_when_the_next_shows_the_size(store: Path) -> None:
    (store / "abort").touch()
    first, *rest = sorted((store / "commitlog").iterdir())
    late = {path: path.read_bytes() for path in rest}
    for path in late:
        path.unlink()
    first.write_bytes(first.read_bytes()[:20_000])
    with StoreReader.open(store) as reader:
        for path, data in late.items():
            path.write_bytes(data)
        reader.refresh()
        assert {file.size_bytes for file in reader.view.files} == {32768}


@pytest.mark.parametrize("far", [-1, (1 << 58) // 20 + 1, 1 << 60, (1 << 63) - 1, -(1 << 63)])
def test_search_far_out_stays_in_bounds(far: int) -> None:
    view = LogView([], 0)
    assert search_units_by_time(bytes(60), view, 1, first_queue_offset=far, file_size_bytes=40) == max(far, 0)


@pytest.mark.parametrize("where", [-46, 1, 45, 47, 1 << 60, (1 << 63) - 1])
def test_search_of_batches_between_units_stays_in_bounds(where: int) -> None:
    units = BATCH_UNIT.pack(0, 200, 7, TIME_MS, 5, 1, -1, 0) * 3
    found = search_batch_units_by_time(
        units, TIME_MS, first_where=where, min_queue_offset=4, file_size_bytes=2 * BATCH_UNIT.size
    )
    assert found == 4


def test_queue_that_cannot_name_a_folder_is_searched_by_time(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    (store / "abort").touch()
    with StoreReader.open(store) as reader:
        message = next(reader.messages())
    path = store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, message.physical_offset + 12, -1)
    path.write_bytes(data)
    with StoreReader.open(store) as reader:
        assert (message.topic, -1) in reader.queues()
        found = [m.physical_offset for m in reader.messages(order="queue", since=0)]
        assert message.physical_offset in found
