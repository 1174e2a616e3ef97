"""What keeps a mapping alive: buffers, log views, closing, fork, and many threads at once."""

import gc
import mmap
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from pyledger import errors
from pyledger._core import CommitLog, LogView, MappedFile, MappedFileQueue

SIZE_BYTES = 1 << 16
NAME = "00000000000000000000"


@pytest.fixture
def file(tmp_path: Path) -> MappedFile:
    (tmp_path / NAME).write_bytes(bytes(range(256)) * (SIZE_BYTES // 256))
    return MappedFile.open(str(tmp_path / NAME))


def is_mapped(path: str) -> bool:
    return any(line.rstrip().endswith(path) for line in Path("/proc/self/maps").read_text().splitlines())


def test_close_with_a_buffer_alive_raises_until_it_is_released(file: MappedFile) -> None:
    whole, part = memoryview(file), file.view(10, 4)
    array = np.frombuffer(part, dtype=np.uint8)
    del part
    whole.release()
    with pytest.raises(BufferError, match="1 views"):
        file.close()
    assert bytes(array) == bytes([10, 11, 12, 13])
    del array
    file.close()
    assert file.closed
    assert not is_mapped(file.path)


def test_close_with_a_log_view_alive_unmaps_with_the_view(file: MappedFile) -> None:
    view = LogView([file], SIZE_BYTES)
    file.close()
    assert file.closed
    assert view.read(255, 2) == bytes([255, 0])
    with pytest.raises(errors.StoreClosedError):
        memoryview(file)
    assert is_mapped(file.path)
    del view
    assert not is_mapped(file.path)


def test_mapping_goes_with_the_last_reference_without_close(tmp_path: Path) -> None:
    path = str(tmp_path / NAME)
    (tmp_path / NAME).write_bytes(bytes(SIZE_BYTES))
    view = MappedFile.open(path).view(0, 1)
    assert view[0] == 0
    assert is_mapped(path)
    del view
    gc.collect()
    assert not is_mapped(path)


def test_closed_file_rejects_every_use(file: MappedFile) -> None:
    file.close()
    file.close()
    for use in (lambda: file.read(0, 1), lambda: file.view(0, 1), file.flush, lambda: memoryview(file)):
        with pytest.raises(errors.StoreClosedError, match=NAME):
            use()


def test_buffer_is_readonly_and_ends_at_the_committed_position(tmp_path: Path) -> None:
    queue = MappedFileQueue(str(tmp_path), SIZE_BYTES)
    queue.load()
    log = CommitLog(queue)
    log.append("t", 0, b"one")
    before = memoryview(queue.files[0])
    log.append("t", 0, b"two")
    assert before.readonly
    assert len(before) * 2 == len(memoryview(queue.files[0])) == queue.max_offset
    before.release()
    queue.close()


def test_queue_closed_with_views_alive_keeps_their_bytes(tmp_path: Path) -> None:
    queue = MappedFileQueue(str(tmp_path), SIZE_BYTES)
    queue.load()
    CommitLog(queue).append("t", 0, b"one")
    path = queue.files[0].path
    view, part = queue.view(), queue.files[0].view(0, 8)
    queue.close()
    assert view.read(0, 8) == bytes(part)
    del view
    assert is_mapped(path)
    part.release()
    assert not is_mapped(path)


def test_view_in_a_garbage_cycle_is_collected(file: MappedFile) -> None:
    class Holder:
        pass

    path = file.path
    holder = Holder()
    holder.view, holder.me = LogView([file], SIZE_BYTES), holder  # type: ignore[attr-defined]
    gone = weakref.ref(holder)
    file.close()
    del file, holder
    gc.collect()
    assert gone() is None
    assert not is_mapped(path)


def run_in_child(use: object) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            use()  # type: ignore[operator]
        except errors.StoreClosedError:
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_objects_made_before_a_fork_do_nothing_in_the_child(tmp_path: Path) -> None:
    queue = MappedFileQueue(str(tmp_path), SIZE_BYTES, pooled=True)
    queue.load()
    thread = threading.Thread(target=queue.run_allocator)
    thread.start()
    log = CommitLog(queue)
    log.append("t", 0, b"one")
    file = queue.files[0]

    def close_and_drop() -> None:
        queue.close()
        file.close()
        raise errors.StoreClosedError("")

    uses = [queue.flush, queue.commit, queue.view, file.flush, lambda: queue.truncate(0), close_and_drop]
    assert [run_in_child(use) for use in uses] == [0] * len(uses)
    queue.stop_allocator()
    thread.join(10)
    log.append("t", 0, b"two")
    assert queue.commit(0)
    assert queue.flush(0)
    assert sorted(os.listdir(tmp_path)) == [NAME]
    queue.close()


def test_caller_may_change_its_buffer_after_the_put(tmp_path: Path) -> None:
    queue = MappedFileQueue(str(tmp_path), SIZE_BYTES)
    queue.load()
    body = bytearray(b"stored")
    at = CommitLog(queue).appender("t", 0).put(body)
    body[:] = b"change"
    body.extend(b"resized: no export is left")
    assert b"stored" in queue.view().read(at, queue.max_offset)
    shared = mmap.mmap(-1, 4096)
    CommitLog(queue).appender("t", 0).put(shared)
    shared.close()
    queue.close()
