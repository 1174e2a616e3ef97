"""When a store makes messages durable, and what it answers meanwhile."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from pyledger.model.message import Message
from pyledger.store.files import checkpoint
from pyledger.store.messages.store_engine import StoreEngine
from tests.fault_injection.shim import compiler, run_child

SMALL = {"mapped_file_size_bytes": 1 << 20, "consume_queue_file_size_bytes": 2000}
NEVER = {
    "flush_interval_ms": 3_600_000, "flush_thorough_interval_ms": 3_600_000,
    "consume_queue_flush_interval_ms": 3_600_000,
}  # fmt: skip


def wait_until(store: StoreEngine, offset: int) -> None:
    """Wait until the flush service reports the offset as flushed; it wakes the waiters itself."""
    assert store.wait_flushed(offset, timeout_ms=20_000), f"flushed {store.flushed_where} of {offset}"


def test_async_put_returns_before_the_flush(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL, **NEVER) as store:
        result = store.put(Message("t", b"x"))
        assert store.flushed_where == 0
        assert store.get("t", 0, 0).messages[0].body == b"x", "async: readable before it is durable"
        assert store.flush() == result.physical_offset + result.size_bytes == store.flushed_where


def test_async_flush_service_flushes_four_pages_by_itself(tmp_path: Path) -> None:
    with StoreEngine.open(
        tmp_path, flush_interval_ms=10, flush_thorough_interval_ms=3_600_000, **SMALL
    ) as store:
        result = store.put(Message("t", bytes(5 * 4096)))
        wait_until(store, result.physical_offset + result.size_bytes)


def test_thorough_flush_takes_less_than_four_pages_too(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, flush_interval_ms=10, flush_thorough_interval_ms=50, **SMALL) as store:
        result = store.put(Message("t", b"small"))
        wait_until(store, result.physical_offset + result.size_bytes)


def test_bounded_policy_does_not_wait_for_the_interval_once_enough_is_dirty(tmp_path: Path) -> None:
    options = NEVER | {"flush_policy": "bounded", "flush_bound_bytes": 16384}
    with StoreEngine.open(tmp_path, **SMALL, **options) as store:
        store.put(Message("t", bytes(1000)))
        assert store.flushed_where == 0
        result = store.put(Message("t", bytes(16384)))
        wait_until(store, result.physical_offset + result.size_bytes)


def test_sync_put_returns_with_the_message_on_disk(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, flush_disk_type="sync", **SMALL) as store:
        for number in range(20):
            result = store.put(Message("t", b"%d" % number))
            assert store.flushed_where >= result.physical_offset + result.size_bytes
        results = store.put_batch([Message("t", b"batch") for _ in range(5)])
        assert store.flushed_where >= results[-1].physical_offset + results[-1].size_bytes


def test_sync_appender_returns_with_the_message_on_disk(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, flush_disk_type="sync", **SMALL) as store:
        appender = store.appender("t", 0)
        for _ in range(10):
            appender.put(b"x")
            assert store.flushed_where == store.max_offset
        appender.put_many([b"a", b"b"])
        assert store.flushed_where == store.max_offset


def test_sync_store_shows_only_what_is_on_disk(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, flush_disk_type="sync", **SMALL) as store:
        store.put(Message("t", b"x"))
        assert store.confirmed_where == store.flushed_where == store.max_offset


def test_sync_store_flushes_puts_without_waiting_callers(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, flush_disk_type="sync", **SMALL) as store:
        result = store.put(Message("t", b"x", properties={"WAIT": "false"}))
        end = result.physical_offset + result.size_bytes
        deadline = time.monotonic() + 100
        while store.flushed_where < end:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert store.get("t", 0, 0).messages[0].body == b"x"


def test_flush_on_demand_does_not_wait_for_the_service(tmp_path: Path) -> None:
    """The service sleeps while no caller waits for it; what it sleeps on is not the lock of the files."""
    with StoreEngine.open(tmp_path, flush_disk_type="sync", flush_interval_ms=20_000, **SMALL) as store:
        store.put(Message("t", b"x"))
        begin = time.monotonic()
        for _ in range(20):
            store.put(Message("t", b"y", properties={"WAIT": "false"}))
            store.flush_log()
        assert time.monotonic() - begin < 200, "twenty rounds of the service would be 400 seconds"


def test_what_a_flush_on_demand_covers_can_be_read(tmp_path: Path) -> None:
    """Also when the service has flushed it and is about to say so."""
    with StoreEngine.open(tmp_path, flush_disk_type="sync", **SMALL) as store:
        for _ in range(20):
            result = store.put(Message("t", b"x", properties={"WAIT": "false"}))
            store._components.log.flush(0)
            store.flush_log()
            assert store.message_at(result.physical_offset).body == b"x"


def test_callers_share_flushes(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, flush_disk_type="sync", **SMALL) as store:

        def write() -> None:
            for _ in range(25):
                store.put(Message("t", bytes(100)))

        threads = [threading.Thread(target=write) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.queue_range("t", 0).max_offset == 400
        assert store.statistics().flush_count < 400


def test_asyncio_callers_share_flushes_without_threads(tmp_path: Path) -> None:
    async def run(store: StoreEngine) -> int:
        before = threading.active_count()
        results = await asyncio.gather(*(store.aput(Message("t", b"%d" % n)) for n in range(200)))
        assert store.flushed_where >= max(r.physical_offset + r.size_bytes for r in results)
        assert [r.queue_offset for r in results] == list(range(200))
        batch = await store.aput_batch([Message("t", b"x"), Message("t", b"y")])
        assert store.flushed_where >= batch[-1].physical_offset + batch[-1].size_bytes
        return threading.active_count() - before

    with StoreEngine.open(tmp_path, flush_disk_type="sync", **SMALL) as store:
        assert asyncio.run(run(store)) == 0
        assert store.statistics().flush_count < 150


def test_asyncio_put_of_an_async_store_does_not_wait(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL, **NEVER) as store:
        result = asyncio.run(store.aput(Message("t", b"x")))
        assert result.queue_offset == 0
        assert store.flushed_where == 0


def test_cancelled_asyncio_put_leaves_the_others_alone(tmp_path: Path) -> None:
    async def run(store: StoreEngine) -> None:
        tasks = [asyncio.create_task(store.aput(Message("t", b"%d" % n))) for n in range(50)]
        await asyncio.sleep(0)
        tasks[7].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(one, asyncio.CancelledError) for one in done) <= 1
        assert sum(not isinstance(one, BaseException) for one in done) >= 49

    with StoreEngine.open(tmp_path, flush_disk_type="sync", **SMALL) as store:
        asyncio.run(run(store))


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the shim")
def test_a_late_sync_flush_is_a_timeout_and_the_message_is_still_stored(tmp_path: Path) -> None:
    story = """
        import sys, threading
        from pyledger.errors import FlushTimeoutError
        from pyledger.model.message import Message
        from pyledger.store.messages.store_engine import StoreEngine
        from tests.fault_injection.shim import Call, IoFaults

        faults = IoFaults()
        store = StoreEngine.open(sys.argv[1], flush_disk_type="sync", sync_flush_timeout_ms=200,
                                  mapped_file_size_bytes=65536)
        store.put(Message("t", b"quick"))
        faults.delay(Call.MSYNC, 1000)
        faults.delay(Call.FDATASYNC, 1000)
        try:
            store.put(Message("t", b"late"))
        except FlushTimeoutError as error:
            print(error.timeout_ms, error.physical_offset)
        faults.delay(Call.MSYNC, 0)
        faults.delay(Call.FDATASYNC, 0)
        assert store.wait_flushed(store.max_offset, 20_000)
        store.put(Message("t", b"later"))
        print([m.body for m in store.get("t", 0, 0).messages])
        store.close()
    """
    printed = run_child(story, tmp_path, str(tmp_path / "s")).splitlines()
    assert printed[0].startswith("200 ")
    assert printed[1] == "[b'quick', b'late', b'later']"


LED = """
    import os, sys, threading, time
    from pyledger.errors import FlushTimeoutError, StoreClosedError, StoreFailedError
    from pyledger.model.message import Message
    from pyledger.store.messages.store_engine import StoreEngine
    from tests.fault_injection.shim import Call, IoFaults

    faults = IoFaults()
    store = StoreEngine.open(sys.argv[1], flush_disk_type="sync", sync_flush_timeout_ms=20_000,
                              mapped_file_size_bytes=65536)
    results = []

    def put(body):
        try:
            results.append(store.put(Message("t", body)).queue_offset)
        except (StoreClosedError, StoreFailedError) as error:
            results.append(type(error).__name__)

    def slow(call_ms):
        faults.delay(Call.MSYNC, call_ms)
        faults.delay(Call.FDATASYNC, call_ms)

    def lead(body):
        # A thread that flushes at this moment.
        thread = threading.Thread(target=put, args=(body,))
        before = faults.seen(Call.MSYNC) + faults.seen(Call.FDATASYNC)
        thread.start()
        while faults.seen(Call.MSYNC) + faults.seen(Call.FDATASYNC) == before:
            time.sleep(0.001)
        return thread

    put(b"0")
"""


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the shim")
def test_puts_during_the_flush_of_a_caller_share_the_next_flush(tmp_path: Path) -> None:
    story = (
        LED
        + """
    slow(300)
    leader = lead(b"1")
    others = [threading.Thread(target=put, args=(b"x",)) for _ in range(5)]
    for other in others:
        other.start()
    for thread in [leader, *others]:
        thread.join()
    assert sorted(results) == list(range(7)), results
    assert store.flushed_where == store.max_offset
    assert store.statistics().flush_count <= 4, "others share flushes"
    store.close()
    print("ok")
    """
    )
    assert run_child(story, tmp_path, str(tmp_path / "s")) == "ok\n"


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the shim")
@pytest.mark.parametrize("end", ["close", "fork", "fail"])
def test_a_store_may_end_while_a_caller_flushes(tmp_path: Path, end: str) -> None:
    """Close waits for the flush; a forked child has nothing to do with it; a failure reaches all who wait."""
    story = (
        LED
        + """
    slow(300)
    if sys.argv[2] == "fail":
        faults.fail(Call.MSYNC, 5)
        faults.fail(Call.FDATASYNC, 5)
    leader = lead(b"1")
    if sys.argv[2] == "fork":
        child = os.fork()
        if child == 0:
            put(b"of the child")
            os._exit(0 if results[1:] == ["StoreClosedError"] else 1)
        assert os.waitpid(child, 0)[1] == 0
    else:
        other = threading.Thread(target=put, args=(b"2",))
        other.start()
        if sys.argv[2] == "fail":
            other.join()
    if sys.argv[2] == "close":
        store.close()
        other.join()
    leader.join()
    slow(0)
    if sys.argv[2] == "fail":
        assert results == [0, "StoreFailedError", "StoreFailedError"], results
        while store.statistics().failure is None:
            time.sleep(0.001)
        put(b"rejected")
        assert results[3] == "StoreFailedError"
    store.close()
    print(*results[1:])
    """
    )
    results = run_child(story, tmp_path, str(tmp_path / "s"), end).split()
    if end == "fork":
        assert results == ["1"]
    with StoreEngine.open(tmp_path / "s", mapped_file_size_bytes=65536) as store:
        bodies = [m.body for m in store.messages()]
    assert bodies[0] == b"0"
    assert len(bodies) > max([int(t) for t in results if t.isdigit()], default=0), "confirmed puts"
    assert b"of the child" not in bodies


def test_transient_pool_shows_messages_after_the_commit(tmp_path: Path) -> None:
    options = NEVER | {
        "transient_store_pool": True,
        "commit_interval_ms": 3_600_000,
        "commit_least_pages": 1 << 20,
    }
    with StoreEngine.open(tmp_path, **SMALL, **options) as store:
        store.put(Message("t", b"pooled"))
        assert store.flush() > 0
        assert store.get("t", 0, 0).messages[0].body == b"pooled"
    with StoreEngine.open(tmp_path, **SMALL) as store:
        assert [m.body for m in store.messages()] == [b"pooled"]


def test_transient_pool_commits_by_itself(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, transient_store_pool=True, flush_interval_ms=10,
                           flush_thorough_interval_ms=10, **SMALL) as store:  # fmt: skip
        for number in range(300):
            result = store.put(Message("t", b"%d" % number + bytes(9000)))
        wait_until(store, result.physical_offset + result.size_bytes)
        assert store.queue_range("t", 0).max_offset == 300


def test_checkpoint_is_written_after_what_it_covers(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL, **NEVER) as store:
        result = store.put(Message("t", b"x"))
        before = checkpoint.read(str(tmp_path / "checkpoint"))
        assert before is None or before.physic_msg_timestamp < result.store_timestamp_ms
        store.flush()
        after = checkpoint.read(str(tmp_path / "checkpoint"))
        assert after is not None
        assert after.physic_msg_timestamp == after.logics_msg_timestamp == result.store_timestamp_ms
        store.put(Message("t", b"y"))
        again = checkpoint.read(str(tmp_path / "checkpoint"))
        assert again == after


def test_clean_close_leaves_a_complete_checkpoint_and_no_abort_file(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL) as store:
        result = store.put(Message("t", b"x", keys="k"))
    found = checkpoint.read(str(tmp_path / "checkpoint"))
    assert found is not None
    assert found.physic_msg_timestamp == result.store_timestamp_ms
    assert found.logics_msg_timestamp == result.store_timestamp_ms
    assert not (tmp_path / "abort").exists()
