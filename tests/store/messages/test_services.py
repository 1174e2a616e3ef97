"""The services of a store beside each other: who may flush, who stops whom, what is seen under the lock."""

import threading
from pathlib import Path

import pytest

from pyledger.clock import SystemClock
from pyledger.config.store import StoreConfig
from pyledger.model.message import Message
from pyledger.store.files import lock
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.lock import StoreLock
from pyledger.store.messages.flush_thread import LogFlusher, QueueFlusher
from pyledger.store.messages.store_engine import StoreEngine
from tests.fault_injection.shim import compiler
from tests.store.messages.test_failures import child

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the shim")

NEVER = """
    options = SMALL | {"flush_interval_ms": 3_600_000, "flush_thorough_interval_ms": 3_600_000,
                       "consume_queue_flush_interval_ms": 3_600_000}
"""


def test_queues_are_flushed_by_one_thread_at_a_time(tmp_path: Path) -> None:
    """The service and callers of `flush` meet: the checkpoint must not say what the other is still doing."""
    both_inside = threading.Barrier(2)
    met = []

    with StoreEngine.open(tmp_path) as store:
        store.put(Message("t", b"x"))
        store.flush()
        components = store._components

        class Queues:
            """The queues of the store; whoever flushes them waits a moment for another."""

            def flush(self, least_pages: int) -> None:
                try:
                    both_inside.wait(timeout=0.3)
                    met.append(least_pages)
                except threading.BrokenBarrierError:
                    components.queues.flush(least_pages)

        flusher = LogFlusher(
            components.commit_log,
            components.group,
            components.config,
            SystemClock(),
            components.dispatch_notifier,
        )
        config = StoreConfig(consume_queue_flush_interval_ms=1)
        known, clock = StoreCheckpoint(), SystemClock()
        queue_flusher = QueueFlusher(
            str(tmp_path),
            Queues(),  # type: ignore[arg-type]
            None,
            components.dispatcher,
            flusher,
            known,
            config,
            clock,
        )
        threads = [threading.Thread(target=call) for call in (queue_flusher.flush_all, queue_flusher.work)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert both_inside.broken
    assert not met


@needs_compiler
def test_close_stops_all_threads_also_when_its_flush_fails(tmp_path: Path) -> None:
    """A thread that went on would work on files that are unmapped."""
    printed = child(
        NEVER
        + """
    import logging, threading
    logging.disable(logging.CRITICAL)
    store = StoreEngine.open(sys.argv[1], **options)
    store.put(Message("t", b"x"))
    assert any(t.name.startswith("pyledger-") for t in threading.enumerate())
    faults.fail(Call.MSYNC, errno.EIO)
    faults.fail(Call.FDATASYNC, errno.EIO)
    store.close()
    assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
    refused(StoreClosedError, lambda: store.put(Message("t", b"x")))
    print("ok")
    """,
        tmp_path,
    )
    assert printed == "ok\n"
    assert (tmp_path / "store" / "abort").exists()
    with StoreEngine.open(tmp_path / "store") as store:
        assert not store.recovery.clean


@needs_compiler
def test_files_are_not_deleted_before_the_units_that_keep_their_numbers_are_on_disk(tmp_path: Path) -> None:
    printed = child(
        NEVER
        + """
    import logging
    logging.disable(logging.CRITICAL)
    store = StoreEngine.open(sys.argv[1], retention_hours=0, **options)
    store.put(Message("idle", b"x"))
    while store.max_offset < 3 * 65536:
        store.put(Message("t", bytes(1000)))
    store.flush_log()
    store.dispatch()
    log_files = sorted(os.listdir(sys.argv[1] + "/commitlog"))
    faults.fail(Call.MSYNC, errno.EIO)
    refused(StoreError, lambda: store.delete_expired(immediate=True))
    assert set(log_files) <= set(os.listdir(sys.argv[1] + "/commitlog")), "deleted"
    faults.heal(Call.MSYNC)
    store.close()
    print("ok")
    """,
        tmp_path,
    )
    assert printed == "ok\n"
    with StoreEngine.open(tmp_path / "store") as store:
        assert store.put(Message("idle", b"y")).queue_offset == 1


def test_the_folder_is_read_again_once_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer may make the store, or end, between the first look and the lock."""

    class LateLock(StoreLock):
        def acquire(self) -> "LateLock":
            monkeypatch.setattr(lock, "StoreLock", StoreLock)
            with StoreEngine.open(tmp_path, mapped_file_size_bytes=65536) as other:
                other.put(Message("t", b"of the other"))
            (tmp_path / "abort").touch()
            super().acquire()
            return self

    monkeypatch.setattr(lock, "StoreLock", LateLock)
    with StoreEngine.open(tmp_path) as store:
        assert store.config.mapped_file_size_bytes == 65536
        assert not store.recovery.clean
        assert [m.body for m in store.messages()] == [b"of the other"]


def test_close_of_a_store_ends_dispatch(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path) as store:
        store.put(Message("t", b"x"))
        dispatcher = store._components.dispatcher
    assert dispatcher.closed


@needs_compiler
def test_a_name_that_could_not_be_synced_fails_every_later_flush(tmp_path: Path) -> None:
    """The flush service failed and has not said so yet: who flushes next must not believe a clean file."""
    printed = child(
        """
        import threading
        from pyledger._core import CommitLog, GroupCommit, MappedFileQueue
        queue = MappedFileQueue(sys.argv[1], 65536)
        queue.load()
        CommitLog(queue).appender("t", 0).put(b"x")
        group = GroupCommit(sys.argv[1])
        faults.fail(Call.FSYNC, errno.EIO)
        seen = faults.seen(Call.FSYNC)

        def ignoring(call):
            try:
                call()
            except StoreError:
                pass

        server = threading.Thread(target=ignoring, args=(lambda: group.serve(queue, 10_000),))
        waiter = threading.Thread(target=ignoring, args=(lambda: group.wait(queue.wrote_where, 10_000),))
        server.start()
        faults.delay(Call.FSYNC, 300)
        waiter.start()
        while faults.seen(Call.FSYNC) == seen:
            time.sleep(0.001)
        # The server cannot run Python after its system call: what it has not noted by then, nobody knows.
        sys.setswitchinterval(20)
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            pass
        assert faults.failed(Call.FSYNC) == 1
        refused(StoreFailedError, lambda: queue.flush(0))
        assert queue.flushed_where == 0
        sys.setswitchinterval(0.005)
        server.join()
        waiter.join()
        print("ok")
        """,
        tmp_path,
    )
    assert printed == "ok\n"
