"""Readers that map files when they first read them: the same answers, and few mappings."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyledger import arrow
from pyledger._core import LogView, MappedFile, mapped_file_count, scan
from pyledger.arrow import OnCorrupt
from pyledger.arrow.scan_plan import LogRange
from pyledger.errors import CorruptRecordError, OffsetOutOfRangeError, StoreIOError
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader

FILE_BYTES = 16 << 10
MESSAGES = 600


@pytest.fixture(params=["closed", "killed"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Some twenty files of log."""
    with MessageStore.open(tmp_path / "store", mapped_file_size_bytes=FILE_BYTES) as store:
        for number in range(MESSAGES):
            store.appender("even" if number % 2 else "odd", number % 3).put(bytes(number % 900))
    if request.param == "killed":
        (tmp_path / "store" / "abort").touch()
    return tmp_path / "store"


def answers(reader: StoreReader) -> tuple[object, ...]:
    return (
        reader.min_offset,
        reader.max_offset,
        reader.queues(),
        [(m.physical_offset, m.body) for m in reader.messages()],
        reader.offset_by_time("even", 0, 0),
        reader.view.read(FILE_BYTES, 100),
        bytes(reader.view.view(2 * FILE_BYTES, 100)),
        arrow.plan(reader, max_partition_bytes=FILE_BYTES // 3),
        arrow.plan(reader, topics="even", starting_offsets={"even": {0: 7}}),
        arrow.scan(reader, columns=["physicalOffset", "body"]).read_all(),
        arrow.scan(reader, columns=["physicalOffset", "body"], plan="queue").read_all(),
    )


def test_late_mapping_changes_no_answer(folder: Path) -> None:
    with StoreReader.open(folder) as early, StoreReader.open(folder, map_lazily=True) as late:
        assert len(early.layout.log_files) > 10
        assert answers(late) == answers(early)
        assert not late.refresh()
        assert answers(late) == answers(early)


@pytest.mark.parametrize("folder", ["closed"], indirect=True)
def test_a_plan_of_whole_files_maps_none_but_the_last(folder: Path) -> None:
    before = mapped_file_count()
    with StoreReader.open(folder, map_lazily=True) as reader:
        plan = arrow.plan(reader, max_partition_bytes=3 * FILE_BYTES)
        assert mapped_file_count() == before
        assert len(plan) > 3
        assert all(isinstance(part, LogRange) for part in plan)
    with StoreReader.open(folder) as reader:
        assert mapped_file_count() == before + len(reader.layout.log_files)


@pytest.mark.parametrize("folder", ["closed"], indirect=True)
def test_a_file_that_went_away_is_missed_and_not_passed_over(folder: Path) -> None:
    with StoreReader.open(folder, map_lazily=True) as reader:
        gone = reader.layout.log_files[3]
        Path(gone.path).unlink()
        with pytest.raises(CorruptRecordError, match="the bytes end before the record does"):
            list(reader.messages())
        with pytest.raises(OffsetOutOfRangeError):
            reader.view.view(gone.start_offset, 10)


@pytest.mark.parametrize("folder", ["closed"], indirect=True)
@pytest.mark.parametrize("left_bytes", [0, 100, 4096])
def test_a_file_that_was_truncated_meanwhile_ends_at_its_new_end(folder: Path, left_bytes: int) -> None:
    with StoreReader.open(folder, map_lazily=True) as reader:
        cut = reader.layout.log_files[3]
        os.truncate(cut.path, left_bytes)
        with pytest.raises(OffsetOutOfRangeError):
            reader.view.read(cut.start_offset + FILE_BYTES // 2, 10)
        with pytest.raises(CorruptRecordError):
            list(reader.messages())
        if left_bytes:
            assert len(reader.view.read(cut.start_offset, left_bytes)) == left_bytes


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """No file can be opened in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("folder", ["closed"], indirect=True)
@pytest.mark.parametrize("on_corrupt", ["error", "skip"])
def test_a_file_that_cannot_be_mapped_now_is_an_error_and_no_damage(
    folder: Path, on_corrupt: OnCorrupt
) -> None:
    with StoreReader.open(folder, map_lazily=True, on_corrupt=on_corrupt) as reader:
        with no_more_descriptors(), pytest.raises(StoreIOError, match=r"cannot map .*: Too many open files"):
            list(reader.messages())
        assert len(list(reader.messages())) == MESSAGES
    with StoreReader.open(folder, map_lazily=True, on_corrupt=on_corrupt) as reader:
        with no_more_descriptors(), pytest.raises(StoreIOError, match=r"cannot map .*: Too many open files"):
            arrow.scan(reader).read_all()
        assert arrow.scan(reader).read_all().num_rows == MESSAGES


def test_what_a_view_mapped_itself_goes_with_it(tmp_path: Path, folder: Path) -> None:
    path = str(next(iter(sorted((folder / "commitlog").iterdir()))))
    file = MappedFile.open_unmapped(path, FILE_BYTES, readonly=True)
    for _ in range(3):
        view = LogView([file], FILE_BYTES)
        assert scan(view, 0, FILE_BYTES).record_count > 5
        assert path in Path("/proc/self/maps").read_text()
        del view
        assert path not in Path("/proc/self/maps").read_text()
    assert bytes(memoryview(file)[:100]) == file.read(0, 100)
    file.close()
