"""ConsumeQueue against a list, on good files, cut files and files with flipped bytes."""

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyledger._core import ConsumeQueue, LogView, MappedFile, search_units_by_time
from pyledger.errors import (
    IllegalMessageError,
    OffsetOutOfRangeError,
    ReadOnlyStoreError,
    StoreClosedError,
    StoreFormatError,
)
from tests.core.log.log_files import RecordFields, write_log
from tests.models.consume_queue import UNIT, QueueModel, first_at_or_after, last_at

FILE_BYTES = 100
FILE_UNITS = FILE_BYTES // 20
# (bytes between records, record size, tags code, jump of the queue offset)
STEPS = st.lists(
    st.tuples(
        st.integers(0, 500), st.integers(91, 300), st.integers(-(2**31), 2**31 - 1), st.integers(-1, 7)
    ),
    max_size=30,
)


@pytest.fixture
def folder() -> Iterator[str]:
    path = tempfile.mkdtemp()
    yield path
    shutil.rmtree(path)


def fill(
    queue: ConsumeQueue, model: QueueModel, steps: list[tuple[int, int, int, int]], start: int = 0
) -> None:
    physical, offset = 0, start
    for distance, size, code, jump in steps:
        physical += distance
        offset += jump if jump <= 3 else 1
        offset = max(offset, 0)
        assert queue.put(physical, size, code, offset) == model.put(physical, size, code, offset)
        physical += size


def units_of(queue: ConsumeQueue, start: int) -> bytes:
    found = b""
    while part := queue.units(start + len(found) // 20, 1 << 30):
        found += bytes(part)
    return found


def same(queue: ConsumeQueue, model: QueueModel) -> None:
    assert queue.max_offset == model.next_offset
    assert units_of(queue, model.first) == model.encode()
    assert queue.max_physical_offset == model.end_physical


@given(steps=STEPS, start=st.integers(0, 23), cut=st.integers(0, 12000), low=st.integers(0, 12000))
@example(steps=[(0, 100, 5, 0)], start=7, cut=0, low=0)
@example(steps=[(1, 91, 0, 2), (0, 91, 0, 2)], start=1, cut=0, low=1)
@settings(deadline=None, max_examples=25)
def test_queue_equals_a_list(steps: list[tuple[int, int, int, int]], start: int, cut: int, low: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        queue, model = ConsumeQueue(folder, "t", 0, FILE_BYTES), QueueModel(FILE_UNITS)
        fill(queue, model, steps, start)
        same(queue, model)
        assert queue.min_offset == model.min_offset

        reopened = ConsumeQueue(folder, "t", 0, FILE_BYTES)
        reopened.recover(files=0)
        same(reopened, model)
        reopened.correct_min_offset(low)
        model.correct_min(low)
        assert reopened.min_offset == model.min_offset
        removed = reopened.delete_head(low)
        for path in removed:
            assert int(Path(path).name) // 20 + FILE_UNITS <= model.min_offset
        if removed:
            model.units = model.units[len(removed) * FILE_UNITS :]
            model.first += len(removed) * FILE_UNITS
        assert reopened.min_offset == model.min_offset
        same(reopened, model)

        reopened.truncate_to_physical(cut)
        model.truncate(cut)
        same(reopened, model)
        for last in sorted(Path(folder).glob("t/0/*"))[-1:]:
            used = model.next_offset * 20 - int(last.name)
            assert not any(last.read_bytes()[max(used, 0) :]), "nothing that could pass for a unit is left"


@given(steps=STEPS, end=st.integers(0, 12000))
@settings(deadline=None, max_examples=25)
def test_recovery_truncates_units_beyond_the_log(steps: list[tuple[int, int, int, int]], end: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        queue, model = ConsumeQueue(folder, "t", 0, FILE_BYTES), QueueModel(FILE_UNITS)
        fill(queue, model, [(d, s, c, 1) for d, s, c, _ in steps], -1)
        empty = LogView([], end)
        dropped = queue.recover(empty, files=0)
        before = len(model.units)
        model.recover(end)
        same(queue, model)
        assert dropped == before - len(model.units)


@given(
    steps=STEPS,
    flips=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99), st.integers(1, 255)), max_size=6),
    cut=st.none() | st.integers(0, 99),
    stray=st.sampled_from(["", "notes.txt", "99999999999999999999", "00000000000000000013"]),
)
@settings(deadline=None, max_examples=25)
def test_reading_damaged_files_changes_and_breaks_nothing(
    steps: list[tuple[int, int, int, int]],
    flips: list[tuple[int, int, int]],
    cut: int | None,
    stray: str,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fill(ConsumeQueue(folder, "t", 0, FILE_BYTES), QueueModel(FILE_UNITS), steps)
        place = Path(folder) / "t" / "0"
        place.mkdir(parents=True, exist_ok=True)
        files = sorted(place.iterdir())
        for number, at, bits in flips:
            if number < len(files):
                data = bytearray(files[number].read_bytes())
                data[at] ^= bits
                files[number].write_bytes(data)
        if cut is not None and files:
            os.truncate(files[-1], cut)
        if stray:
            (place / stray).write_bytes(b"x" * 33)
        before = {path.name: path.read_bytes() for path in place.iterdir()}
        queue = ConsumeQueue(folder, "t", 0, readonly=True)
        view = LogView([], 6000)
        queue.recover(view, files=0)
        queue.correct_min_offset(100)
        assert 0 <= queue.min_offset <= queue.max_offset
        highest = 0
        for offset in range(queue.min_offset, queue.max_offset):
            physical, size, _ = queue.get(offset)
            if (physical, size) != (0, 0x7FFFFFFF):
                assert highest <= physical <= 6000 - size
                highest = physical
        queue.offset_by_time(view, 5)
        assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_read_only_queue_rejects_writes(folder: str) -> None:
    ConsumeQueue(folder, "t", 0, FILE_BYTES).put(0, 100, 0, 0)
    queue = ConsumeQueue(folder, "t", 0, readonly=True)
    with pytest.raises(ReadOnlyStoreError):
        queue.put(100, 100, 0, 1)
    with pytest.raises(ReadOnlyStoreError):
        queue.truncate_to_physical(0)
    with pytest.raises(ReadOnlyStoreError):
        queue.delete_head(1)
    assert queue.flush() is False


def test_closed_queue_rejects_writes_and_views_stay_valid(folder: str) -> None:
    queue = ConsumeQueue(folder, "t", 0, FILE_BYTES)
    queue.put(7, 100, 3, 0)
    units = queue.units(0, 1)
    queue.close()
    with pytest.raises(StoreClosedError):
        queue.put(200, 100, 0, 1)
    assert UNIT.unpack(units) == (7, 100, 3)


@pytest.mark.parametrize("topic", ["", ".", "..", "../../outside", "a/b", "a\0b", "x" * 256])
def test_topic_that_leads_elsewhere_is_rejected(folder: str, topic: str) -> None:
    with pytest.raises(IllegalMessageError):
        ConsumeQueue(folder, topic, 0, FILE_BYTES)
    assert not any(Path(folder).iterdir())


def test_file_of_another_size_is_rejected_for_writing(folder: str) -> None:
    ConsumeQueue(folder, "t", 0, FILE_BYTES).put(0, 100, 0, 0)
    with pytest.raises(StoreFormatError, match="rebuild"):
        ConsumeQueue(folder, "t", 0, 200)
    assert ConsumeQueue(folder, "t", 0, readonly=True).file_size_bytes == FILE_BYTES


def test_gap_larger_than_lost_records_explain_is_rejected(folder: str) -> None:
    queue = ConsumeQueue(folder, "t", 0, FILE_BYTES)
    queue.put(0, 100, 0, 0)
    with pytest.raises(StoreFormatError, match="50000"):
        queue.put(200, 100, 0, 50_000)
    assert queue.max_offset == 1
    assert queue.put(200, 100, 0, 1)


def test_get_outside_the_queue_names_its_range(folder: str) -> None:
    queue = ConsumeQueue(folder, "t", 0, FILE_BYTES)
    queue.put(0, 100, 0, 3)
    assert queue.get(3) == (0, 100, 0)
    for offset in (-1, 2, 4, 2**62):
        with pytest.raises(OffsetOutOfRangeError, match=r"\[3, 4\)"):
            queue.get(offset)
    assert not queue.units(2**62, 1)


def test_more_queues_than_descriptors(folder: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        queues = [ConsumeQueue(folder, "t", n, FILE_BYTES) for n in range(120)]
        for queue in queues:
            for n in range(7):
                queue.put(n * 100, 100, n, n)
            queue.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert all(queue.get(6) == (600, 100, 6) for queue in queues)


def test_flush_waits_for_its_pages_or_a_full_file(folder: str) -> None:
    queue = ConsumeQueue(folder, "t", 0, 20_000)
    queue.put(0, 100, 0, 0)
    assert queue.flush(2) is False
    assert queue.flushed_where == 0
    for n in range(1, 500):
        queue.put(n * 100, 100, 0, n)
    assert queue.flush(2) is True
    assert queue.flushed_where == 500 * 20
    assert queue.flush(0) is False


@given(
    times=st.lists(st.integers(1, 40), min_size=1, max_size=40).map(sorted),
    file_units=st.integers(1, 50),
)
@settings(deadline=None, max_examples=25)
def test_search_by_time_finds_what_a_walk_finds(times: list[int], file_units: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        records = [RecordFields(queue_offset=n, store_timestamp=time) for n, time in enumerate(times)]
        log = write_log(Path(folder) / "log", records)
        view = LogView(log.view().files, log.end)
        queue = ConsumeQueue(folder, "t", 0, file_units * 20)
        for n, offset in enumerate(log.offsets):
            queue.put(offset, len(records[n].encode(offset)), 0, n)
        for time in range(times[-1] + 2):
            assert queue.offset_by_time(view, time) == first_at_or_after(times, time)
            if time in times:
                assert queue.offset_by_time(view, time, upper=True) == last_at(times, time)
            in_memory = search_units_by_time(units_of(queue, 0), view, time, file_size_bytes=file_units * 20)
            assert in_memory == queue.offset_by_time(view, time)


def test_recovery_drops_units_that_their_record_disowns(folder: str) -> None:
    records = [RecordFields(queue_offset=n, properties={"TAGS": "a"}) for n in range(4)]
    log = write_log(Path(folder) / "log", records)
    view = LogView(log.view().files, log.end)
    size = len(records[0].encode(0))
    queue = ConsumeQueue(folder, "t", 0, FILE_BYTES)
    for n in range(3):
        queue.put(log.offsets[n], size, 97, n)
    queue.put(log.offsets[3], size, 98, 3)
    assert queue.recover(view) == 1
    assert queue.max_offset == 3
    assert queue.put(log.offsets[3], size, 97, 3)


def test_files_after_a_missing_one_are_left_out(folder: str) -> None:
    queue = ConsumeQueue(folder, "t", 0, FILE_BYTES)
    for n in range(18):
        queue.put(n * 100, 100, 0, n)
    (Path(folder) / "t" / "0" / f"{FILE_BYTES:020d}").unlink()
    assert ConsumeQueue(folder, "t", 0, readonly=True).max_offset == FILE_UNITS
    assert len(list((Path(folder) / "t" / "0").iterdir())) == 3
    again = ConsumeQueue(folder, "t", 0, FILE_BYTES)
    again.recover(files=0)
    assert again.max_offset == FILE_UNITS
    assert [MappedFile.open(str(p)).start_offset for p in sorted((Path(folder) / "t" / "0").iterdir())] == [0]
