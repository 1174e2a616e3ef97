"""One mapped file: opening, allocation, positions, flush."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from pyledger import errors
from pyledger._core import CommitLog, MappedFile, MappedFileQueue, MessageScan

SIZE_BYTES = 65536
NAME = "00000000000000131072"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / NAME


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """The kernel refuses to make any file longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_create_allocates_and_zeroes_the_whole_file(path: Path) -> None:
    file = MappedFile.create(str(path), SIZE_BYTES)
    assert path.read_bytes() == bytes(SIZE_BYTES)
    assert path.stat().st_blocks * 512 >= SIZE_BYTES
    assert (file.start_offset, file.size_bytes, file.mapped_bytes) == (131072, SIZE_BYTES, SIZE_BYTES)
    assert (file.wrote_position, file.committed_position, file.flushed_position) == (0, 0, 0)
    assert not file.readonly
    assert file.read(0, 0) == b""


def test_create_in_chunks_allocates_as_positions_are_reserved(path: Path) -> None:
    chunk, size = 1 << 18, 1 << 20  # whole pages, however large they are
    file = MappedFile.create(str(path), size, allocate_chunk_bytes=chunk)
    blocks = path.stat().st_blocks * 512
    assert chunk <= blocks < size
    file.reserve(chunk)
    assert path.stat().st_blocks * 512 == blocks
    file.reserve(chunk + 1)
    assert blocks < path.stat().st_blocks * 512 < size
    file.reserve(size)
    assert path.stat().st_blocks * 512 >= size
    assert path.stat().st_size == size


@pytest.mark.parametrize("options", [{"warm": True}, {"pooled": True}, {"warm": True, "pooled": True}])
def test_create_warm_or_pooled_still_reads_as_zeroes(path: Path, options: dict[str, bool]) -> None:
    MappedFile.create(str(path), SIZE_BYTES, **options).close()
    assert path.read_bytes() == bytes(SIZE_BYTES)


def test_pages_are_made_far_beyond_what_was_written(path: Path) -> None:
    file = MappedFile.create(str(path), 32 << 20, allocate_chunk_bytes=1 << 20)
    file.populate(20 << 20)
    assert file.allocated_position == 20 << 20
    assert path.read_bytes() == bytes(32 << 20)


def test_threads_may_reserve_the_same_file_at_once(path: Path) -> None:
    """The one that appends and the one that makes files ready meet in the same file."""
    size_bytes = 1 << 20
    for _ in range(20):
        file = MappedFile.create(str(path), size_bytes, allocate_chunk_bytes=4096)
        start = Barrier(4)

        def reserve(file: MappedFile = file, start: Barrier = start) -> None:
            start.wait()
            for position in range(4096, size_bytes + 1, 4096):
                file.reserve(position)

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(reserve) for _ in range(4)]:
                done.result()
        assert path.stat().st_blocks * 512 >= size_bytes
        file.close()
        path.unlink()


def test_create_over_an_existing_file_raises_and_keeps_it(path: Path) -> None:
    path.write_bytes(b"precious")
    with pytest.raises(errors.StoreIOError, match="exists"):
        MappedFile.create(str(path), SIZE_BYTES)
    assert path.read_bytes() == b"precious"


def test_create_that_fails_leaves_no_file(path: Path) -> None:
    with file_size_limit(SIZE_BYTES - 1), pytest.raises(errors.StoreIOError, match=NAME):
        MappedFile.create(str(path), SIZE_BYTES)
    assert not path.exists()
    MappedFile.create(str(path), SIZE_BYTES)


def test_who_is_killed_while_making_a_file_leaves_none(path: Path) -> None:
    """A file of another size than its like: RocketMQ 4.9 loads no store that has one."""
    code = f"""
import resource, signal
from pyledger._core import MappedFile
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # ends the process where the file gets its size
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
MappedFile.create({str(path)!r}, {SIZE_BYTES})
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGXFSZ
    assert not path.exists()


def test_open_maps_what_is_there_and_keeps_no_descriptor(path: Path) -> None:
    path.write_bytes(b"abc" * 100)
    before = len(os.listdir("/proc/self/fd"))
    files = [MappedFile.open(str(path), size_bytes=SIZE_BYTES) for _ in range(5)]
    writable = MappedFile.open_writable(str(path))
    created = MappedFile.create(str(path.with_name("0" * 20)), SIZE_BYTES)
    assert len(os.listdir("/proc/self/fd")) == before
    for file in files:
        assert (file.size_bytes, file.mapped_bytes, file.committed_position) == (SIZE_BYTES, 300, 300)
        assert file.read(297, 3) == b"abc"
        assert file.readonly
    assert writable.size_bytes == 300
    assert created.start_offset == 0


def test_open_a_file_of_zero_bytes_reads_nothing(path: Path) -> None:
    path.touch()
    file = MappedFile.open(str(path))
    assert file.read(0, 0) == b""
    assert bytes(file) == b""
    assert not file.closed


@pytest.mark.parametrize("opener", [MappedFile.open, MappedFile.open_writable])
def test_open_a_missing_file_names_it(path: Path, opener: object) -> None:
    with pytest.raises(errors.StoreIOError, match=NAME) as raised:
        opener(str(path))  # type: ignore[operator]
    assert isinstance(raised.value.__cause__, OSError)


@pytest.mark.parametrize("name", ["1", "0" * 19, "0" * 21, "٣" * 20, "0000000000000000000x"])
def test_open_another_name_than_twenty_digits_starts_at_zero(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    assert MappedFile.open(str(tmp_path / name)).start_offset == 0


def test_path_that_is_not_utf8_is_opened(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    path = os.fsdecode(folder) + "/" + NAME
    MappedFile.create(path, SIZE_BYTES)
    assert MappedFile.open(path).start_offset == 131072


@pytest.mark.parametrize(
    ("position", "length"), [(-1, 1), (0, -1), (0, 301), (300, 1), (301, 0), (1, 1 << 62)]
)
def test_read_beyond_the_committed_position_is_rejected(path: Path, position: int, length: int) -> None:
    path.write_bytes(b"abc" * 100)
    file = MappedFile.open(str(path))
    for read in (file.read, file.view):
        with pytest.raises(errors.OffsetOutOfRangeError):
            read(position, length)


def test_readonly_file_is_not_written(path: Path) -> None:
    path.write_bytes(bytes(100))
    file = MappedFile.open(str(path))
    for write in (lambda: file.reserve(1), file.populate):
        with pytest.raises(errors.ReadOnlyStoreError):
            write()
    with pytest.raises(TypeError):
        memoryview(file)[0] = 1  # type: ignore[index]


def resident_bytes(path: Path) -> int:
    """Bytes of a file that this process has page-table entries for."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))
    raise AssertionError(f"{path} is not mapped")


def test_flush_drops_the_page_table_entries_of_full_pages(tmp_path: Path) -> None:
    """Left to the kernel, each page is write-protected by itself, with an interrupt of all processors."""
    queue = MappedFileQueue(str(tmp_path), 1 << 20, allocate_chunk_bytes=4096)
    log = CommitLog(queue)
    bodies = [bytes([number]) * 1000 for number in range(250)]
    for body in bodies[:200]:
        log.append("t", 0, body)
    (file,) = queue.files
    path = Path(file.path)
    assert resident_bytes(path) > 200_000
    assert file.flush() == file.wrote_position
    # The kernel maps the pages around the one that is read, so nothing is read before this.
    assert resident_bytes(path) <= 8 << 12
    for body in bodies[200:]:
        log.append("t", 0, body)
    assert [message.body for message in MessageScan(queue.view(), 0)] == bodies
    queue.close()


def test_flush_moves_the_flushed_position_to_the_committed_one(tmp_path: Path) -> None:
    queue = MappedFileQueue(str(tmp_path), SIZE_BYTES)
    queue.load()
    CommitLog(queue).append("t", 0, b"body")
    file = queue.files[0]
    assert file.flushed_position == 0
    assert file.flush() == file.flushed_position == file.committed_position == file.wrote_position > 0
    queue.close()
