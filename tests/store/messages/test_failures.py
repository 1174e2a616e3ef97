"""Flushes and allocations that fail, under a preloaded C library: the store says so, and never lies later."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pyledger.errors import StoreError, StoreFormatError, StoreIOError
from pyledger.model.message import Message
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from tests.fault_injection.shim import ROOT, compiler, run_child

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the shim")

PREAMBLE = """
    import errno, os, sys, time
    from pyledger.errors import *
    from pyledger.model.message import Message
    from pyledger.store.messages.store_engine import StoreEngine
    from tests.support.column_rows import plain_rows
    from tests.fault_injection.shim import Call, IoFaults

    faults = IoFaults()
    SMALL = dict(mapped_file_size_bytes=65536, consume_queue_file_size_bytes=2000, index_slots=50,
    index_entries=500)

    def refused(kind, call):
        try:
            call()
        except kind as error:
            return error
        raise SystemExit(f"{kind.__name__} was not raised")
"""


def child(story: str, folder: Path, *arguments: str) -> str:
    """Run a story against the store in `folder`; its path is the first argument."""
    source = textwrap.dedent(PREAMBLE) + textwrap.dedent(story)
    return run_child(source, folder, str(folder / "store"), *arguments)


@needs_compiler
def test_a_failed_sync_flush_is_never_acknowledged_nor_tried_again(tmp_path: Path) -> None:
    printed = child(
        """
        store = StoreEngine.open(sys.argv[1], flush_disk_type="sync", **SMALL)
        store.put(Message("t", b"durable"))
        faults.fail(Call.MSYNC, errno.EIO)
        faults.fail(Call.FDATASYNC, errno.EIO)
        error = refused(StoreFailedError, lambda: store.put(Message("t", b"lost")))
        assert error.__cause__.errno == errno.EIO, repr(error.__cause__)
        faults.heal(Call.MSYNC)
        faults.heal(Call.FDATASYNC)
        error = refused(StoreFailedError, lambda: store.put(Message("t", b"refused")))
        assert error.__cause__ is not None
        refused(StoreFailedError, store.flush)
        error = refused(StoreFailedError, store.replica().truncate_partial)
        assert "a flush failed" in str(error), "what a slave says each time that it connects"
        assert [m.body for m in store.get("t", 0, 0).messages] == [b"durable"], "readers go on"
        store.close()
        print("ok")
        """,
        tmp_path,
    )
    assert printed == "ok\n"
    assert (tmp_path / "store" / "abort").exists(), "a failed store must be recovered"
    with StoreEngine.open(tmp_path / "store") as store:
        assert not store.recovery.clean
        bodies = [m.body for m in store.messages()]
        assert bodies in ([b"durable"], [b"durable", b"lost"]), (
            "nobody promised the second, nobody excluded it"
        )
        assert store.put(Message("t", b"again")).queue_offset == len(bodies)


@needs_compiler
def test_the_put_after_a_failed_background_flush_raises_its_cause(tmp_path: Path) -> None:
    printed = child(
        """
        store = StoreEngine.open(sys.argv[1], flush_interval_ms=10, flush_thorough_interval_ms=0, **SMALL)
        faults.fail(Call.MSYNC, errno.EIO)
        faults.fail(Call.FDATASYNC, errno.EIO)
        appender = store.appender("t", 0)
        deadline = time.monotonic() + 100
        error = None
        while error is None and time.monotonic() < deadline:
            try:
                appender.put(b"x")
                time.sleep(0.001)
            except StoreFailedError as failure:
                error = failure
        assert error is not None and isinstance(error.__cause__, OSError)
        refused(StoreFailedError, lambda: store.put(Message("t", b"x")))
        assert "EIO" in repr(store.statistics().failure) or "Input/output" in str(store.statistics().failure)
        assert store.get("t", 0, 0).messages
        store.close()
        print("ok")
        """,
        tmp_path,
    )
    assert printed == "ok\n"


@needs_compiler
def test_puts_resume_once_a_full_disk_has_space_for_allocation(tmp_path: Path) -> None:
    printed = child(
        """
        store = StoreEngine.open(sys.argv[1], **SMALL)
        store.put(Message("t", b"first"))
        faults.fail(Call.FALLOCATE, errno.ENOSPC)
        count = 1
        while True:
            try:
                store.put(Message("t", bytes(3000)))
                count += 1
            except StoreFullError as error:
                break
        refused(StoreFullError, lambda: store.put(Message("t", bytes(3000))))
        assert len([m for m in store.messages()]) == count, "nothing acknowledged is lost"
        faults.heal(Call.FALLOCATE)
        assert store.put(Message("t", b"again")).queue_offset == count
        assert store.get("t", 0, count).messages[0].body == b"again"
        assert store.queue_range("t", 0).max_offset == count + 1
        store.close()
        print(count)
        """,
        tmp_path,
    )
    count = int(printed)
    assert not (tmp_path / "store" / "abort").exists()
    with StoreEngine.open(tmp_path / "store") as store:
        assert store.recovery.clean
        assert store.queue_range("t", 0).max_offset == count + 1


@needs_compiler
def test_rows_without_space_leave_nothing_and_others_take_their_offsets(tmp_path: Path) -> None:
    printed = child(
        """
        store = StoreEngine.open(sys.argv[1], **{**SMALL, "mapped_file_size_bytes": 1 << 20})
        store.append_rows("t", *plain_rows([b"%d" % n + bytes(1000) for n in range(100)]))
        faults.fail(Call.PWRITE, errno.ENOSPC)
        lost = plain_rows([b"lost" + bytes(1000) for n in range(100)])
        refused(StoreFullError, lambda: store.append_rows("t", *lost))
        faults.heal(Call.PWRITE)
        assert store.put(Message("t", b"100")).queue_offset == 100
        store.append_rows("t", *plain_rows([b"%d" % n + bytes(1000) for n in range(101, 200)]))
        assert [m.body.rstrip(bytes(1)) for m in store.messages()] == [b"%d" % n for n in range(200)]
        store.close()
        print("ok")
        """,
        tmp_path,
    )
    assert printed == "ok\n"
    with StoreEngine.open(tmp_path / "store") as store:
        assert store.recovery.clean
        assert store.queue_range("t", 0).max_offset == 200


@needs_compiler
def test_rows_that_the_disk_does_not_write_fail_the_store(tmp_path: Path) -> None:
    printed = child(
        """
        store = StoreEngine.open(sys.argv[1], **{**SMALL, "mapped_file_size_bytes": 1 << 20})
        store.append_rows("t", *plain_rows([bytes(1000)] * 100))
        faults.fail(Call.PWRITE, errno.EIO)
        rows = plain_rows([bytes(1000)] * 100)
        error = refused(StoreFailedError, lambda: store.append_rows("t", *rows))
        assert error.__cause__.errno == errno.EIO
        faults.heal(Call.PWRITE)
        refused(StoreFailedError, lambda: store.append_rows("t", *rows))
        refused(StoreFailedError, store.flush)
        assert len(list(store.messages())) == 100, "readers go on"
        store.close()
        print("ok")
        """,
        tmp_path,
    )
    assert printed == "ok\n"


@needs_compiler
@pytest.mark.parametrize("number", ["EMFILE", "EIO"])
def test_a_new_file_that_cannot_be_opened_leaves_no_name(tmp_path: Path, number: str) -> None:
    printed = child(
        """
        store = StoreEngine.open(sys.argv[1], **SMALL)
        store.put(Message("t", bytes(9000)))
        stored = 1
        number = getattr(errno, sys.argv[2])
        # What was made ahead is used up first; then each try finds no name that an earlier one left.
        for _ in range(3):
            faults.fail(Call.OPEN, number)
            try:
                while True:
                    store.put(Message("t", bytes(9000)))
                    stored += 1
            except StoreIOError as error:
                assert os.strerror(number) in str(error), error
            faults.heal(Call.OPEN)
        store.put(Message("t", b"again"))
        store.close()
        print(stored)
        """,
        tmp_path,
        number,
    )
    with StoreEngine.open(tmp_path / "store") as store:
        assert store.recovery.clean
        assert store.queue_range("t", 0).max_offset == int(printed) + 1


@needs_compiler
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_files_ahead_that_stay_leave_no_gap_in_the_log(tmp_path: Path, kept: int) -> None:
    """Which of them cannot be removed, or was not yet when the process was killed, does not matter."""
    child(
        """
        store = StoreEngine.open(sys.argv[1], **SMALL)
        store.put(Message("t", b"first"))
        while len(os.listdir(sys.argv[1] + "/commitlog")) < 5:
            time.sleep(0.01)
        faults.fail(Call.UNLINK, errno.EIO, after=int(sys.argv[2]))
        store.close()
        """,
        tmp_path,
        str(kept),
    )
    assert len(os.listdir(tmp_path / "store" / "commitlog")) > 1
    with StoreEngine.open(tmp_path / "store") as store:
        assert store.put(Message("t", b"second")).queue_offset == 1


@needs_compiler
def test_a_full_disk_in_dispatch_loses_nothing(tmp_path: Path) -> None:
    """The log has room, the queue files do not: messages wait in the log and appear when there is room."""
    printed = child(
        """
        store = StoreEngine.open(sys.argv[1], **SMALL)
        store.put(Message("t", b"0"))
        store.get("t", 0, 0)
        faults.fail(Call.FALLOCATE, errno.ENOSPC)
        store.put(Message("new-topic", b"1"))
        assert store.get("new-topic", 0, 0).status.name == "NO_MESSAGE_IN_QUEUE", "nothing to read it by yet"
        assert store.get("t", 0, 0).messages[0].body == b"0", "readers of other queues go on"
        assert store.statistics().dispatch_lag_bytes > 0
        faults.heal(Call.FALLOCATE)
        assert store.get("new-topic", 0, 0).messages[0].body == b"1"
        store.close()
        print("ok")
        """,
        tmp_path,
    )
    assert printed == "ok\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_clear_error(tmp_path: Path) -> None:
    StoreEngine.open(tmp_path / "s").close()
    for path in (tmp_path / "s").rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    (tmp_path / "s").chmod(0o500)
    try:
        with pytest.raises(StoreError, match="s"):
            StoreEngine.open(tmp_path / "s")
    finally:
        (tmp_path / "s").chmod(0o700)


def test_a_queue_folder_that_cannot_be_read_is_an_error_of_opening(tmp_path: Path) -> None:
    """Taken for no folder, its queue would give out its offsets a second time."""
    folder = tmp_path / "store"
    with StoreEngine.open(folder) as store:
        store.put(Message("t", b"first"))
    for name in ("consumequeue/t", "consumequeue", "commitlog", "index"):
        home, aside = folder / name, tmp_path / "aside"
        home.rename(aside)
        home.symlink_to(home)  # a loop: the system cannot say what it is
        with pytest.raises(StoreIOError, match=home.name):
            StoreEngine.open(folder)
        home.unlink()
        aside.rename(home)
    with StoreEngine.open(folder) as store:
        assert store.put(Message("t", b"second")).queue_offset == 1


@pytest.mark.parametrize("name", ["00000000000000000000", "00000000000000004096"])
def test_a_log_file_that_cannot_be_read_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Taken for gone, its messages would be missing without a word."""
    with StoreEngine.open(tmp_path / "store", mapped_file_size_bytes=4096) as store:
        for _ in range(5):
            store.put(Message("t", bytes(1500)))
    stat = os.stat

    def fails(path: str, **more: Any) -> os.stat_result:
        if str(path).endswith(f"commitlog/{name}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", fails)
    with pytest.raises(StoreIOError, match=rf"stat .*{name}"):
        StoreReader.open(tmp_path / "store")


@needs_compiler
def test_an_open_or_close_that_fails_raises_and_releases_the_folder(tmp_path: Path) -> None:
    printed = child(
        """
        path = sys.argv[1]
        with StoreEngine.open(path, **SMALL) as store:
            store.put(Message("t", b"first"))
        tried = 0
        for after in range(100):
            before = faults.failed(Call.FSYNC)
            faults.fail(Call.FSYNC, errno.EIO, after=after)
            try:
                store = StoreEngine.open(path)
                store.close()
            except StoreError:
                tried += 1
            faults.heal(Call.FSYNC)
            if faults.failed(Call.FSYNC) == before:
                break
        assert tried > 1
        with StoreEngine.open(path) as store:
            assert store.put(Message("t", b"second")).queue_offset == 1
        print("ok")
        """,
        tmp_path,
    )
    assert printed == "ok\n"


def test_a_file_instead_of_the_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        StoreEngine.open(tmp_path / "file")


def test_a_short_log_file_is_an_error_and_left_alone(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, mapped_file_size_bytes=65536) as store:
        for _ in range(200):
            store.put(Message("t", bytes(500)))
    first = tmp_path / "commitlog" / f"{0:020d}"
    os.truncate(first, 1000)
    with pytest.raises(StoreFormatError, match="1000"):
        StoreEngine.open(tmp_path)
    assert first.stat().st_size == 1000


def test_queues_without_a_log_are_an_error(tmp_path: Path) -> None:
    """A log folder that was not mounted must not restart the queue offsets at 0."""
    with StoreEngine.open(tmp_path) as store:
        store.put(Message("t", b"x"))
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(StoreFormatError, match="no commit log"):
        StoreEngine.open(tmp_path)
    assert (tmp_path / "consumequeue" / "t" / "0").exists()


def test_a_forked_child_cannot_use_the_store(tmp_path: Path) -> None:
    story = """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        from pyledger.errors import StoreClosedError
        from pyledger.model.message import Message
        from pyledger.store.messages.store_engine import StoreEngine

        store = StoreEngine.open(sys.argv[1], mapped_file_size_bytes=65536)
        appender = store.appender("t", 0)
        store.put(Message("t", b"parent"))
        child = os.fork()
        if child == 0:
            failed = 0
            for call in (lambda: store.put(Message("t", b"child")), lambda: appender.put(b"child"),
            store.flush,
                         lambda: store.get("t", 0, 0)):
                try:
                    call()
                except StoreClosedError:
                    failed += 1
            store.close()
            os._exit(failed)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        store.put(Message("t", b"parent again"))
        assert [m.body for m in store.get("t", 0, 0).messages] == [b"parent", b"parent again"]
        store.close()
        print("ok")
    """
    assert run_python(story, tmp_path / "s").stdout == "ok\n"
    assert not (tmp_path / "s" / "abort").exists()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_interpreter_that_ends_with_an_open_store_neither_hangs_nor_crashes(
    tmp_path: Path, mode: str
) -> None:
    story = """
        import sys
        from pyledger.model.message import Message
        from pyledger.store.messages.store_engine import StoreEngine

        store = StoreEngine.open(sys.argv[1], flush_disk_type=sys.argv[2], mapped_file_size_bytes=65536)
        for _ in range(100):
            store.put(Message("t", bytes(1000)))
    """
    done = run_python(story, tmp_path / "s", mode)
    assert done.returncode == 0
    assert (tmp_path / "s" / "abort").exists()
    with StoreEngine.open(tmp_path / "s") as store:
        assert not store.recovery.clean
        assert store.queue_range("t", 0).max_offset == 100


def test_a_forgotten_store_gives_its_folder_back(tmp_path: Path) -> None:
    store = StoreEngine.open(tmp_path)
    store.put(Message("t", b"x"))
    with pytest.warns(ResourceWarning, match="was not closed"):
        del store
    with StoreEngine.open(tmp_path) as again:
        assert not again.recovery.clean
        assert again.queue_range("t", 0).max_offset == 1


def run_python(story: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(story), str(folder), *arguments],
        env=dict(os.environ, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}"),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done


@pytest.mark.slow
def test_an_idle_store_does_not_spin(tmp_path: Path) -> None:
    story = """
        import resource, sys, time
        from pyledger.model.message import Message
        from pyledger.store.messages.store_engine import StoreEngine

        store = StoreEngine.open(sys.argv[1], mapped_file_size_bytes=65536)
        store.put(Message("t", b"x"))
        time.sleep(1.0)
        before = resource.getrusage(resource.RUSAGE_SELF)
        time.sleep(3.0)
        after = resource.getrusage(resource.RUSAGE_SELF)
        print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        store.close()
    """
    assert float(run_python(story, tmp_path / "s").stdout) < 0.03, "an idle store used over 1 % of a core"
