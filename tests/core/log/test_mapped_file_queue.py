"""The run of mapped files: loading, rolling, both ends, commit and flush."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger import errors
from pyledger._core import CommitLog, MappedFileQueue

FILE_SIZE_BYTES = 16384
PAGE_BYTES = 4096


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "commitlog"


@pytest.fixture
def make(folder: Path) -> Iterator[Callable[..., MappedFileQueue]]:
    """Opens queues over one folder and closes them at the end."""
    opened: list[MappedFileQueue] = []

    def open_queue(
        *, load: bool = True, size_bytes: int = FILE_SIZE_BYTES, **options: bool
    ) -> MappedFileQueue:
        queue = MappedFileQueue(str(folder), size_bytes, **options)
        opened.append(queue)
        if load:
            queue.load()
        return queue

    yield open_queue
    for queue in opened:
        queue.close()


def fill(queue: MappedFileQueue, records: int, body_bytes: int = 900) -> list[int]:
    appender = CommitLog(queue).appender("t", 0)
    return [appender.put(b"x" * body_bytes) for _ in range(records)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def file_name(number: int) -> str:
    return f"{number * FILE_SIZE_BYTES:020d}"


# -- loading


def test_load_creates_a_missing_folder_and_starts_empty(
    folder: Path, make: Callable[..., MappedFileQueue]
) -> None:
    queue = make()
    assert folder.is_dir()
    assert (queue.files, queue.min_offset, queue.max_offset, queue.next_file_offset) == ((), -1, 0, 0)
    assert (queue.flushed_where, queue.committed_where, queue.wrote_where) == (0, 0, 0)
    assert queue.view().end_offset == 0
    assert queue.find_file(0) is None


def test_load_readonly_leaves_a_missing_folder_missing(
    folder: Path, make: Callable[..., MappedFileQueue]
) -> None:
    with pytest.raises(errors.StoreIOError):
        make(readonly=True)
    assert not folder.exists()


def test_load_finds_all_files_in_order_with_positions_at_their_ends(
    folder: Path, make: Callable[..., MappedFileQueue]
) -> None:
    fill(make(), 40)
    queue = make()
    assert [Path(file.path).name for file in queue.files] == [file_name(n) for n in range(3)]
    assert [file.start_offset for file in queue.files] == [n * FILE_SIZE_BYTES for n in range(3)]
    assert queue.max_offset == queue.flushed_where == 3 * FILE_SIZE_BYTES
    for offset, number in (
        (0, 0),
        (FILE_SIZE_BYTES - 1, 0),
        (FILE_SIZE_BYTES, 1),
        (3 * FILE_SIZE_BYTES - 1, 2),
    ):
        assert queue.find_file(offset) is queue.files[number]
    assert queue.find_file(3 * FILE_SIZE_BYTES) is queue.find_file(-1) is None


def test_load_last_file_of_zero_bytes_is_removed_by_a_writer_only(
    folder: Path, make: Callable[..., MappedFileQueue]
) -> None:
    fill(make(), 1)
    (folder / file_name(1)).touch()
    reader = make(readonly=True)
    assert names(folder) == [file_name(0), file_name(1)]
    assert reader.max_offset == FILE_SIZE_BYTES
    assert len(make().files) == 1
    assert names(folder) == [file_name(0)]


@pytest.mark.parametrize("size_bytes", [0, 1, FILE_SIZE_BYTES - 1, FILE_SIZE_BYTES + 1])
def test_load_file_of_another_size_is_rejected_by_a_writer(
    folder: Path, make: Callable[..., MappedFileQueue], size_bytes: int
) -> None:
    fill(make(), 20)
    os.truncate(folder / file_name(0), size_bytes)
    with pytest.raises(errors.StoreFormatError) as raised:
        make()
    assert raised.value.path == str(folder / file_name(0))
    assert "pyledger repair" in str(raised.value)
    assert names(folder) == [file_name(0), file_name(1)]


def test_load_readonly_accepts_a_truncated_file(folder: Path, make: Callable[..., MappedFileQueue]) -> None:
    fill(make(), 1)
    before = (folder / file_name(0)).read_bytes()
    os.truncate(folder / file_name(0), 700)
    queue = make(readonly=True)
    assert queue.max_offset == 700
    assert queue.view().read(0, 700) == before[:700]


@pytest.mark.parametrize("name", [".DS_Store", "00000000000000000000.bak", "0", "commitlog.tar", "٠" * 20])
def test_load_foreign_file_stops_a_writer_and_not_a_reader(
    folder: Path, make: Callable[..., MappedFileQueue], name: str
) -> None:
    fill(make(), 1)
    (folder / name).write_text("foreign")
    (folder / "sub").mkdir()
    with pytest.raises(errors.StoreFormatError, match="move it elsewhere") as raised:
        make()
    assert raised.value.path == str(folder / name)
    assert len(make(readonly=True).files) == 1


def test_new_with_impossible_size_is_rejected(folder: Path) -> None:
    for size_bytes in (0, -1, 1 << 31):
        with pytest.raises(errors.ConfigError):
            MappedFileQueue(str(folder), size_bytes)


# -- rolling


def test_last_file_of_an_empty_folder_holds_the_start_offset(make: Callable[..., MappedFileQueue]) -> None:
    queue = make()
    file = queue.last_file(5 * FILE_SIZE_BYTES + 77)
    assert file.start_offset == queue.min_offset == queue.flushed_where == 5 * FILE_SIZE_BYTES
    assert queue.last_file(0) is file
    assert fill(queue, 1) == [5 * FILE_SIZE_BYTES]


def test_new_file_has_its_blocks(folder: Path, make: Callable[..., MappedFileQueue]) -> None:
    fill(make(), 1)
    facts = (folder / file_name(0)).stat()
    assert facts.st_size == FILE_SIZE_BYTES
    assert facts.st_blocks * 512 >= FILE_SIZE_BYTES


def test_appending_to_a_sparse_file_allocates_it(folder: Path, make: Callable[..., MappedFileQueue]) -> None:
    folder.mkdir(parents=True)
    with (folder / file_name(0)).open("wb") as file:
        file.truncate(FILE_SIZE_BYTES)
    assert (folder / file_name(0)).stat().st_blocks == 0
    queue = make()
    queue.set_end(0)
    fill(queue, 1)
    assert (folder / file_name(0)).stat().st_blocks * 512 >= FILE_SIZE_BYTES


def test_file_that_cannot_be_made_is_an_error_and_leaves_no_trace(
    folder: Path, make: Callable[..., MappedFileQueue]
) -> None:
    queue = make()
    folder.rmdir()
    with pytest.raises(errors.StoreIOError):
        fill(queue, 1)
    folder.mkdir()
    assert fill(queue, 1) == [0]


# -- the allocator


@pytest.fixture
def allocator() -> Iterator[Callable[[MappedFileQueue, int], threading.Thread]]:
    """Starts allocator threads and sees them end."""
    started: list[tuple[MappedFileQueue, threading.Thread]] = []

    def start(queue: MappedFileQueue, depth: int = 2) -> threading.Thread:
        thread = threading.Thread(target=queue.run_allocator, args=(depth,))
        thread.start()
        started.append((queue, thread))
        return thread

    yield start
    for queue, thread in started:
        queue.stop_allocator()
        thread.join(10)
        assert not thread.is_alive()


def test_allocator_makes_files_ahead_and_removes_unused_ones(
    folder: Path,
    make: Callable[..., MappedFileQueue],
    allocator: Callable[[MappedFileQueue], threading.Thread],
) -> None:
    queue = make()
    thread = allocator(queue)
    offsets = fill(queue, 100)
    used = len(queue.files)
    assert offsets[-1] > 5 * FILE_SIZE_BYTES
    queue.stop_allocator()
    thread.join(10)
    assert queue.files_ahead == 0
    assert names(folder) == [file_name(n) for n in range(used)]
    fill(queue, 40)
    assert names(folder) == [file_name(n) for n in range(len(queue.files))]


def test_allocator_makes_large_files_too_while_somebody_waits(
    make: Callable[..., MappedFileQueue],
    allocator: Callable[[MappedFileQueue, int], threading.Thread],
) -> None:
    queue = make(size_bytes=256 << 20, allocate_chunk_bytes=1 << 20)
    allocator(queue, 1)
    assert fill(queue, 1) == [0]
    assert queue.files[0].allocated_position == 1 << 20


def test_allocator_error_reaches_the_append_and_the_next_one_tries_again(
    folder: Path,
    make: Callable[..., MappedFileQueue],
    allocator: Callable[[MappedFileQueue], threading.Thread],
) -> None:
    queue = make()
    folder.rmdir()
    allocator(queue)
    for _ in range(3):
        with pytest.raises(errors.StoreIOError, match=file_name(0)):
            fill(queue, 1)
    folder.mkdir()
    assert fill(queue, 1) == [0]


def test_truncate_with_an_allocator_starts_over_after_the_new_end(
    folder: Path,
    make: Callable[..., MappedFileQueue],
    allocator: Callable[[MappedFileQueue], threading.Thread],
) -> None:
    queue = make()
    allocator(queue)
    offsets = fill(queue, 100)
    queue.truncate(offsets[20])
    assert fill(queue, 100)[:80] == offsets[20:]
    starts = [file.start_offset for file in queue.files]
    assert starts == [n * FILE_SIZE_BYTES for n in range(len(starts))]


def test_allocator_that_began_elsewhere_follows_the_first_file(
    folder: Path,
    make: Callable[..., MappedFileQueue],
    allocator: Callable[[MappedFileQueue], threading.Thread],
) -> None:
    queue = make()
    allocator(queue)
    queue.last_file(7 * FILE_SIZE_BYTES)
    fill(queue, 40)
    assert [file.start_offset // FILE_SIZE_BYTES for file in queue.files] == [7, 8, 9]
    queue.stop_allocator()
    assert names(folder) == [file_name(n) for n in (7, 8, 9)]


def test_second_allocator_is_rejected(
    make: Callable[..., MappedFileQueue], allocator: Callable[[MappedFileQueue], threading.Thread]
) -> None:
    queue = make()
    allocator(queue)
    fill(queue, 1)
    with pytest.raises(errors.InvariantError):
        queue.run_allocator()


# -- the far end


def test_set_end_moves_positions_and_changes_no_byte(
    folder: Path, make: Callable[..., MappedFileQueue]
) -> None:
    offsets = fill(make(), 20)
    before = [(folder / name).read_bytes() for name in names(folder)]
    queue = make()
    queue.set_end(offsets[-1])
    assert (
        queue.max_offset == queue.flushed_where == queue.committed_where == queue.wrote_where == offsets[-1]
    )
    assert [(folder / name).read_bytes() for name in names(folder)] == before
    assert fill(queue, 1) == [offsets[-1]]
    for offset in (0, FILE_SIZE_BYTES - 1, 2 * FILE_SIZE_BYTES + 1):
        with pytest.raises(errors.OffsetOutOfRangeError):
            queue.set_end(offset)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("keep", [0, 1, 14, 15, 16, 30, 35])
def test_truncate_leaves_zeroes_after_the_new_end_on_disk(
    folder: Path, make: Callable[..., MappedFileQueue], keep: int, pooled: bool
) -> None:
    queue = make(pooled=pooled)
    offsets = fill(queue, 36)
    while queue.commit(0):
        pass
    end = offsets[keep]
    before = b"".join((folder / name).read_bytes() for name in names(folder))[:end]
    queue.truncate(end)
    after = b"".join((folder / name).read_bytes() for name in names(folder))
    assert after == before + bytes(len(after) - end)
    assert queue.max_offset == queue.wrote_where == queue.flushed_where == end
    assert len(queue.files) == end // FILE_SIZE_BYTES + 1
    assert fill(queue, 1) == [end]


def test_truncate_a_loaded_sparse_folder_keeps_its_holes(
    folder: Path, make: Callable[..., MappedFileQueue]
) -> None:
    folder.mkdir(parents=True)
    with (folder / file_name(0)).open("wb") as file:
        file.write(b"head")
        file.seek(9000)
        file.write(b"stale")
        file.truncate(FILE_SIZE_BYTES)
    blocks = (folder / file_name(0)).stat().st_blocks
    make().truncate(4)
    assert (folder / file_name(0)).read_bytes() == b"head" + bytes(FILE_SIZE_BYTES - 4)
    assert (folder / file_name(0)).stat().st_blocks <= blocks


def test_truncate_to_the_very_end_and_beyond(make: Callable[..., MappedFileQueue]) -> None:
    fill(make(), 20)
    queue = make()
    queue.truncate(2 * FILE_SIZE_BYTES)
    assert queue.max_offset == 2 * FILE_SIZE_BYTES
    for offset in (-1, 2 * FILE_SIZE_BYTES + 1):
        with pytest.raises(errors.OffsetOutOfRangeError):
            queue.truncate(offset)


# -- the near end


def test_delete_head_keeps_the_last_file_and_the_bytes_of_live_views(
    folder: Path, make: Callable[..., MappedFileQueue]
) -> None:
    queue = make()
    offsets = fill(queue, 60)
    view = queue.view()
    slice_ = queue.files[0].view(0, 100)
    old = view.read(0, 100)
    gone = queue.delete_head(2)
    assert gone == [str(folder / file_name(n)) for n in range(2)]
    assert queue.min_offset == queue.flushed_where == 2 * FILE_SIZE_BYTES
    assert view.read(0, 100) == bytes(slice_) == old
    with pytest.raises(errors.OffsetOutOfRangeError):
        queue.view().read(0, 100)
    count = len(queue.files)
    assert len(queue.delete_head(99)) == count - 1
    assert len(queue.files) == len(names(folder)) == 1
    assert fill(queue, 1)[0] > offsets[-1]


# -- views


def test_view_is_recreated_only_after_a_change(make: Callable[..., MappedFileQueue]) -> None:
    queue = make()
    fill(queue, 1)
    view = queue.view()
    assert queue.view() is view
    assert queue.view(10).end_offset == 10
    assert queue.view(1 << 60).end_offset == queue.max_offset
    end = queue.max_offset
    fill(queue, 1)
    assert queue.view().end_offset > end == view.end_offset


# -- commit and flush


class RuleModel:
    """Upstream's decision, from its words: a full file, or so many pages crossed, or anything dirty."""

    @staticmethod
    def due(done: int, ready: int, least_pages: int) -> bool:
        if ready == FILE_SIZE_BYTES:
            return done < ready
        if least_pages > 0:
            return ready // PAGE_BYTES - done // PAGE_BYTES >= least_pages
        return ready > done


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 5)), min_size=1, max_size=15),
    pooled=st.booleans(),
)
def test_flush_and_commit_follow_the_page_rule(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], pooled: bool
) -> None:
    queue = MappedFileQueue(str(tmp_path_factory.mktemp("flush")), FILE_SIZE_BYTES, pooled=pooled)
    queue.load()
    appender = CommitLog(queue).appender("t", 0)
    committed = flushed = 0
    for body_bytes, least_pages in steps:
        appender.put(b"x" * body_bytes)
        wrote = queue.wrote_where
        if pooled:
            start = committed // FILE_SIZE_BYTES * FILE_SIZE_BYTES
            ready = min(wrote, start + FILE_SIZE_BYTES)
            moved = RuleModel.due(committed - start, ready - start, least_pages)
            assert queue.commit(least_pages) == moved
            committed = ready if moved else committed
        else:
            assert queue.commit(least_pages) is False
            committed = wrote
        assert queue.max_offset == queue.committed_where == committed
        start = flushed // FILE_SIZE_BYTES * FILE_SIZE_BYTES
        ready = min(committed, start + FILE_SIZE_BYTES)
        moved = RuleModel.due(flushed - start, ready - start, least_pages)
        assert queue.flush(least_pages) == moved
        flushed = ready if moved else flushed
        assert queue.flushed_where == flushed
    queue.close()


@pytest.mark.parametrize(("dirty_bytes", "due"), [(12288, False), (12289, True), (16384, True)])
def test_flush_of_four_pages_counts_borders_not_bytes(
    make: Callable[..., MappedFileQueue], dirty_bytes: int, due: bool
) -> None:
    queue = make(size_bytes=1 << 20)
    appender = CommitLog(queue).appender("t", 0)
    fixed = 92  # a record of topic `t` without body
    appender.put(b"x" * (4095 - fixed))
    assert queue.flush(0)
    appender.put(b"x" * (dirty_bytes - fixed))
    assert queue.flush(4) is due
    assert queue.flushed_where == (4095 + dirty_bytes if due else 4095)


def test_flush_goes_through_the_files_in_order(make: Callable[..., MappedFileQueue]) -> None:
    queue = make()
    fill(queue, 60)
    seen = []
    while queue.flush(0):
        seen.append(queue.flushed_where)
    assert seen == [FILE_SIZE_BYTES, 2 * FILE_SIZE_BYTES, 3 * FILE_SIZE_BYTES, queue.max_offset]


def test_pooled_bytes_are_seen_only_after_a_commit(
    folder: Path, make: Callable[..., MappedFileQueue]
) -> None:
    queue = make(pooled=True)
    first, second = fill(queue, 2)
    assert queue.max_offset == 0
    assert queue.flush(0) is False
    assert (folder / file_name(0)).read_bytes() == bytes(FILE_SIZE_BYTES)
    assert queue.commit(0)
    assert queue.max_offset == queue.wrote_where == 2 * second
    assert queue.view().read(first, second) == (folder / file_name(0)).read_bytes()[:second]
    offsets = fill(queue, 50)
    while queue.commit(0):
        pass
    assert queue.view().read(offsets[-1], 8) == queue.view().read(0, 8)
    assert not queue.commit(0)


# -- the end of it


def test_close_is_final_and_may_be_repeated(make: Callable[..., MappedFileQueue]) -> None:
    queue = make()
    fill(queue, 1)
    view = queue.view()
    head = view.read(0, 8)
    queue.close()
    queue.close()
    assert queue.closed
    assert view.read(0, 8) == head
    for use in (queue.view, queue.flush, queue.load, lambda: queue.truncate(0), lambda: queue.delete_head(1)):
        with pytest.raises(errors.StoreClosedError):
            use()
