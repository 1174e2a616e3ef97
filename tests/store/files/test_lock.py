"""The store lock: one writer, across processes and within one, forks included."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pyledger.errors import StoreIOError, StoreLockedError
from pyledger.store.files.lock import StoreLock

TRY = (
    "import fcntl, sys; file = open(sys.argv[1], 'r+b'); "
    "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
)


def other_process_can_lock(path: Path) -> bool:
    run = subprocess.run([sys.executable, "-c", TRY, str(path)], capture_output=True, check=False, timeout=60)
    return run.returncode == 0


def test_lock_keeps_other_processes_out_until_released(tmp_path: Path) -> None:
    with StoreLock(str(tmp_path)) as lock:
        assert lock.held
        assert not other_process_can_lock(tmp_path / "lock")
    assert not lock.held
    assert other_process_can_lock(tmp_path / "lock")
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_lock_taken_by_another_process_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    script = TRY + "; print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StoreLockedError, match=str(tmp_path)):
            StoreLock(str(tmp_path)).acquire()
        other.stdin.close()
    StoreLock(str(tmp_path)).acquire().release()


def test_second_lock_in_one_process_is_an_error_and_does_not_drop_the_first(tmp_path: Path) -> None:
    with StoreLock(str(tmp_path)):
        with pytest.raises(StoreLockedError):
            StoreLock(str(tmp_path)).acquire()
        assert not other_process_can_lock(tmp_path / "lock")


def test_lock_of_the_parent_is_not_the_childs(tmp_path: Path) -> None:
    with StoreLock(str(tmp_path)) as lock:
        child = os.fork()
        if child == 0:
            refused = False
            try:
                StoreLock(str(tmp_path)).acquire()
            except StoreLockedError:
                refused = True
            lock.release()
            os._exit(0 if refused and not lock.held else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert lock.held
        assert not other_process_can_lock(tmp_path / "lock")


def test_lock_uses_the_first_byte_as_upstream_does(tmp_path: Path) -> None:
    with StoreLock(str(tmp_path)):
        script = TRY.replace("1, 0)", "1, 1)")
        run = subprocess.run([sys.executable, "-c", script, str(tmp_path / "lock")], check=False, timeout=60)
        assert run.returncode == 0, "only byte 0 is locked"


def test_lock_in_missing_folder_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(StoreIOError, match="absent"):
        StoreLock(str(tmp_path / "absent")).acquire()


def race_for(path: Path, count: int) -> list[StoreLock]:
    """Let threads take one lock at the same moment; those that got it."""
    start = threading.Barrier(count)
    holders: list[StoreLock] = []

    def race() -> None:
        lock = StoreLock(str(path))
        start.wait()
        with contextlib.suppress(StoreLockedError):
            holders.append(lock.acquire())

    threads = [threading.Thread(target=race) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return holders


def test_of_threads_that_race_for_a_lock_one_gets_it_and_keeps_it(tmp_path: Path) -> None:
    """A thread that fails must not close the file meanwhile: that would give up the lock of the process."""
    for round_number in range(20):
        (tmp_path / str(round_number)).mkdir()
        holders = race_for(tmp_path / str(round_number), 8)
        assert len(holders) == 1
        if round_number % 5 == 0:
            assert not other_process_can_lock(tmp_path / str(round_number) / "lock")
        holders[0].release()


def test_a_child_forked_while_threads_take_locks_can_take_its_own(tmp_path: Path) -> None:
    """The guard of the table of locks must not come into the child as held."""
    stop = threading.Event()

    def take_and_give(path: str) -> None:
        while not stop.is_set():
            StoreLock(path).acquire().release()

    for name in ("a", "b", "child"):
        (tmp_path / name).mkdir()
    threads = [threading.Thread(target=take_and_give, args=(str(tmp_path / name),)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                StoreLock(str(tmp_path / "child")).acquire().release()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
