"""Waking and group commit: nobody is told too early, nobody is forgotten, failures and forks are final."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyledger import errors
from pyledger._core import CommitLog, EventNotifier, GroupCommit, MappedFileQueue

LONG_MS = 60_000


@pytest.fixture
def spawn() -> Iterator[Callable[[Callable[[], object]], threading.Thread]]:
    """Start threads; their errors are the test's, and all must end."""
    threads: list[threading.Thread] = []
    failures: list[BaseException] = []

    def start(target: Callable[[], object]) -> threading.Thread:
        def guarded() -> None:
            try:
                target()
            except BaseException as error:  # noqa: BLE001 -- reported below
                failures.append(error)

        threads.append(threading.Thread(target=guarded))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)


Spawn = Callable[[Callable[[], object]], threading.Thread]


def await_requests(commit: GroupCommit, offset: int) -> None:
    """Return once somebody waits for `offset`."""
    while commit.requested_where < offset:
        assert commit.wait_for_request(LONG_MS)


# --- EventNotifier


def test_notifier_keeps_one_notice_for_the_next_wait() -> None:
    notifier = EventNotifier()
    assert not notifier.wait(0)
    notifier.notify()
    notifier.notify()
    assert notifier.wait(-1)
    assert not notifier.wait(1)


def test_notifier_between_two_threads_loses_no_notice(spawn: Spawn) -> None:
    """Two threads hand a token to and fro; a lost notice would stop them for a minute."""
    there, back = EventNotifier(), EventNotifier()
    rounds = 5_000

    def answer() -> None:
        for _ in range(rounds):
            assert there.wait(LONG_MS)
            back.notify()

    spawn(answer)
    for _ in range(rounds):
        there.notify()
        assert back.wait(LONG_MS)
    assert not there.wait(0)
    assert not back.wait(0)


def test_notifier_under_a_storm_sees_the_last_work(spawn: Spawn) -> None:
    """Producers publish without pause; once they stop, the sleeper must have seen everything."""
    notifier, seen, produced, producers = EventNotifier(), 0, [0] * 4, 4

    def produce(index: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(20_000):
                produced[index] += 1
                notifier.notify()

        return run

    for index in range(producers):
        spawn(produce(index))
    while seen < producers * 20_000:
        assert notifier.wait(LONG_MS), f"asleep at {seen} of {sum(produced)}"
        seen = sum(produced)


def test_notifier_interrupted_by_a_signal_raises_and_works_on() -> None:
    def interrupt(*_: object) -> None:
        raise InterruptedError

    notifier = EventNotifier()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(InterruptedError):
            notifier.wait(LONG_MS)
    finally:
        signal.signal(signal.SIGALRM, before)
    notifier.notify()
    assert notifier.wait(0)


def in_child(check: Callable[[], object]) -> bool:
    """Whether `check` raised StoreClosedError in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            check()
        except errors.StoreClosedError:
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_objects_of_the_parent_are_closed_after_a_fork() -> None:
    notifier, commit = EventNotifier(), GroupCommit("log", flushed_where=10)
    assert in_child(lambda: notifier.wait(0))
    assert in_child(lambda: commit.wait(10, 0))
    assert in_child(lambda: commit.wait_for_request(0))
    assert commit.wait(10, 0)


# --- GroupCommit with threads


def test_wait_for_what_is_flushed_returns_at_once() -> None:
    commit = GroupCommit("log", flushed_where=100)
    assert commit.wait(100, 0)
    assert commit.requested_where == commit.flushed_where == 100
    assert not commit.wait_for_request(0)


def test_wait_too_long_is_false_and_leaves_no_trace() -> None:
    commit = GroupCommit("log")
    assert not commit.wait(5, 1)
    assert commit.requested_where == 5
    commit.publish(5)
    assert commit.wait(5, 0)


def test_publish_answers_those_it_reached_and_no_others(spawn: Spawn) -> None:
    commit = GroupCommit("log")
    answered: dict[int, int] = {}
    offsets = [70, 10, 50, 30, 90, 20, 80, 60, 40, 100]

    def caller(offset: int) -> Callable[[], None]:
        def run() -> None:
            assert commit.wait(offset, LONG_MS)
            answered[offset] = commit.flushed_where

        return run

    threads = {offset: spawn(caller(offset)) for offset in offsets}
    await_requests(commit, 100)
    for flushed in (9, 45, 45, 30, 99, 100):
        commit.publish(flushed)
        for offset, thread in threads.items():
            if offset <= flushed:
                thread.join(30)
        reached = {offset for offset in offsets if offset <= commit.flushed_where}
        assert set(answered) == reached
    assert all(flushed >= offset for offset, flushed in answered.items())


@pytest.mark.parametrize("callers", [1, 3, 64])
def test_many_callers_are_notified_only_of_what_was_flushed(spawn: Spawn, callers: int) -> None:
    commit = GroupCommit("log")
    lock = threading.Lock()
    end, durable, rounds = [0], [0], 200

    def caller() -> None:
        for _ in range(rounds):
            with lock:
                end[0] += 10
                mine = end[0]
            assert commit.wait(mine, LONG_MS)
            assert durable[0] >= mine

    for _ in range(callers):
        spawn(caller)
    flushes = 0
    while commit.flushed_where < callers * rounds * 10:
        assert commit.wait_for_request(LONG_MS)
        durable[0] = end[0]
        commit.publish(durable[0])
        flushes += 1
    assert commit.requested_where == end[0] == callers * rounds * 10
    assert flushes <= callers * rounds


def test_callers_that_give_up_do_not_hold_up_the_others(spawn: Spawn) -> None:
    """Short timeouts and long waits mixed: whoever has a turn passes it on, whatever comes of it."""
    commit = GroupCommit("log")
    done = threading.Event()

    def impatient() -> None:
        while not done.is_set():
            commit.wait(commit.flushed_where + 1, 0)
            commit.wait(commit.flushed_where + 1, 1)

    def patient() -> None:
        for _ in range(300):
            assert commit.wait(commit.flushed_where + 1, LONG_MS)

    for _ in range(4):
        spawn(impatient)
    patients = [spawn(patient) for _ in range(4)]
    while any(thread.is_alive() for thread in patients):
        if commit.wait_for_request(1):
            commit.publish(commit.requested_where)
    done.set()
    commit.publish(commit.requested_where)


def test_failed_flush_reaches_everybody_and_is_final(spawn: Spawn) -> None:
    commit = GroupCommit("/store/commitlog", flushed_where=10)
    cause = OSError(5, "Input/output error")
    raised: list[errors.StoreFailedError] = []

    def caller() -> None:
        with pytest.raises(errors.StoreFailedError, match="/store/commitlog") as caught:
            commit.wait(20, LONG_MS)
        raised.append(caught.value)

    threads = [spawn(caller) for _ in range(5)]
    await_requests(commit, 20)
    commit.fail(cause)
    commit.fail(OSError("a later one"))
    commit.publish(20)  # what the kernel says after a failed flush is worth nothing
    for thread in threads:
        thread.join(30)
    assert [error.__cause__ for error in raised] == [cause] * 5
    assert commit.failed
    assert commit.flushed_where == 10
    assert commit.wait(10, 0), "what was durable before stays so"
    with pytest.raises(errors.StoreFailedError):
        commit.wait(11, 0)
    with pytest.raises(errors.StoreFailedError):
        commit.wait_for_request(0)


def test_close_ends_all_waits(spawn: Spawn) -> None:
    commit = GroupCommit("log")

    def caller() -> None:
        with pytest.raises(errors.StoreClosedError):
            commit.wait(1, LONG_MS)

    spawn(caller)
    await_requests(commit, 1)
    commit.publish(0)
    flusher = spawn(lambda: commit.wait(2, 1) if commit.flushed_where else None)
    commit.close()
    flusher.join(30)
    assert not commit.failed


def test_close_wakes_the_flush_thread(spawn: Spawn) -> None:
    commit, started = GroupCommit("log"), threading.Event()

    def flusher() -> None:
        started.set()
        with contextlib.suppress(errors.StoreClosedError):  # closed before it fell asleep
            assert not commit.wait_for_request(LONG_MS)

    thread = spawn(flusher)
    started.wait()
    commit.close()
    thread.join(30)
    assert not thread.is_alive()


def test_wait_interrupted_by_a_signal_leaves_the_others_in_order(spawn: Spawn) -> None:
    def interrupt(*_: object) -> None:
        raise InterruptedError

    commit = GroupCommit("log")
    other = spawn(lambda: commit.wait(2, LONG_MS))
    await_requests(commit, 2)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(InterruptedError):
            commit.wait(1, LONG_MS)
    finally:
        signal.signal(signal.SIGALRM, before)
    commit.publish(2)
    other.join(30)
    assert not other.is_alive()


# --- event loops


def test_register_many_tasks_are_answered_by_one_flush_each(spawn: Spawn) -> None:
    commit = GroupCommit("log")
    tasks, rounds, end = 64, 50, [0]
    flushes = [0]

    def flusher() -> None:
        while commit.wait_for_request(LONG_MS):
            commit.publish(end[0])
            flushes[0] += 1
            if commit.flushed_where == tasks * rounds:
                return

    async def caller(loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(rounds):
            end[0] += 1
            mine = end[0]
            assert await commit.register(mine, loop, LONG_MS)
            assert commit.flushed_where >= mine

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*[caller(loop) for _ in range(tasks)])

    spawn(flusher)
    asyncio.run(asyncio.wait_for(main(), 60))
    assert commit.flushed_where == tasks * rounds
    assert flushes[0] == rounds


def test_register_out_of_order_cancelled_and_done(spawn: Spawn) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        commit = GroupCommit("log", flushed_where=1)
        assert commit.register(1, loop).done()
        late, early, gone = (commit.register(offset, loop) for offset in (30, 10, 20))
        gone.cancel()
        commit.publish(10)
        await asyncio.wait_for(early, 30)
        assert not late.done()
        commit.publish(29)
        await asyncio.sleep(0)
        assert not late.done()
        threading.Thread(target=commit.publish, args=(30,)).start()
        await asyncio.wait_for(late, 30)

    asyncio.run(main())


def test_register_too_long_is_false_for_those_whose_time_passed_and_no_others() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        commit = GroupCommit("log")
        endless, late, soon = (commit.register(o, loop, ms) for o, ms in ((1, -1), (2, LONG_MS), (3, 20)))
        later = commit.register(4, loop, 40)
        assert not await asyncio.wait_for(soon, 30)
        assert not endless.done()
        assert not late.done()
        assert not await asyncio.wait_for(later, 30)
        commit.publish(2)
        assert await asyncio.gather(endless, late) == [True, True]
        again = commit.register(5, loop, 20)
        commit.publish(5)
        assert await asyncio.wait_for(again, 30), "the flush came first"
        assert not await asyncio.wait_for(commit.register(6, loop, 20), 30)

    asyncio.run(main())


def test_register_whose_flush_and_time_have_both_passed_is_true() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        commit = GroupCommit("log")
        future = commit.register(1, loop, 0)
        commit.publish(1)
        assert await asyncio.wait_for(future, 30)

    asyncio.run(main())


def test_register_after_failure_and_close_raises_in_the_task() -> None:
    async def main(end: Callable[[GroupCommit], None], expected: type[Exception]) -> None:
        loop = asyncio.get_running_loop()
        commit = GroupCommit("log")
        futures = [commit.register(offset, loop) for offset in (1, 2, 3)]
        commit.publish(1)
        end(commit)
        assert await asyncio.gather(futures[0]) == [True]
        for future in futures[1:]:
            with pytest.raises(expected):
                await asyncio.wait_for(future, 30)
        with pytest.raises(expected):
            commit.register(4, loop)

    asyncio.run(main(lambda commit: commit.fail(OSError("flush")), errors.StoreFailedError))
    asyncio.run(main(GroupCommit.close, errors.StoreClosedError))


def test_register_from_one_loop_after_another_closes_no_foreign_file(tmp_path: Path) -> None:
    """Loops come and go; each leaves no descriptor behind once the next one registers."""
    commit = GroupCommit("log")

    async def once(offset: int) -> None:
        future = commit.register(offset, asyncio.get_running_loop())
        commit.publish(offset)
        await asyncio.wait_for(future, 30)

    asyncio.run(once(1))
    before = len(os.listdir("/proc/self/fd"))
    for offset in range(2, 20):
        asyncio.run(once(offset))
    assert len(os.listdir("/proc/self/fd")) <= before


# --- serving a queue


@pytest.mark.parametrize("led", [False, True])
@pytest.mark.parametrize("callers", [1, 2, 8])
def test_serve_flushes_every_file_for_all_callers(
    spawn: Spawn, tmp_path: Path, callers: int, led: bool
) -> None:
    """Callers put and wait while files roll; what they are told is durable in the queue's eyes too."""
    queue = MappedFileQueue(str(tmp_path / "commitlog"), 65536)
    queue.load()
    log, commit = CommitLog(queue), GroupCommit(queue.folder)
    if led:
        commit.let_callers_flush(queue)
    appender = log.appender("topic", 0)
    rounds = 480 // callers

    def caller() -> None:
        for _ in range(rounds):
            appender.put(b"x" * 500)
            end = queue.max_offset
            assert commit.wait(end, LONG_MS)
            assert queue.flushed_where >= end

    def flusher() -> None:
        while not commit.closed:
            commit.serve(queue, 20)

    def stop() -> None:
        for thread in threads:
            thread.join()
        commit.close()

    threads = [spawn(caller) for _ in range(callers)]
    spawn(flusher)
    spawn(stop).join(60)
    assert len(queue.files) > 3
    assert commit.flushed_where == queue.flushed_where == queue.max_offset


def test_serve_without_requests_returns_after_the_timeout(tmp_path: Path) -> None:
    queue = MappedFileQueue(str(tmp_path / "commitlog"), 65536)
    queue.load()
    commit = GroupCommit(queue.folder)
    assert commit.serve(queue, 1) == 0
    CommitLog(queue).appender("topic", 0).put(b"body")
    assert commit.serve(queue, 1) == queue.flushed_where == 0, "nobody asked"
    assert not commit.wait(queue.max_offset + 1, 0)
    assert commit.serve(queue, 5) == queue.max_offset, "nobody is told of bytes that nobody wrote"
    assert not commit.wait(queue.max_offset + 1, 0)
    queue.close()
    with pytest.raises(errors.StoreClosedError):
        commit.serve(queue, 1)


def test_a_caller_alone_flushes_itself(tmp_path: Path) -> None:
    """There is no flush thread here: nobody else could."""
    queue = MappedFileQueue(str(tmp_path / "commitlog"), 65536)
    queue.load()
    appender, commit, notifier = CommitLog(queue).appender("t", 0), GroupCommit(queue.folder), EventNotifier()
    commit.let_callers_flush(queue, notifier)
    for count in range(1, 11):
        appender.put(b"body")
        assert commit.wait(queue.max_offset, LONG_MS)
        assert commit.flushed_where == queue.flushed_where == queue.max_offset
        assert queue.flush_count == count
        assert notifier.wait(0)
    assert not commit.wait_for_request(0), "nothing is left to the flush thread"
    appender.put(b"body")
    assert not commit.wait(queue.max_offset, 0), "who has no time does not lead"
    assert not commit.wait(queue.max_offset + 1, 1), "nobody is told of bytes that nobody wrote"
    assert commit.flushed_where == queue.max_offset
    assert commit.wait_for_request(0), "the flush thread goes on where the leader stopped"
    queue.close()
    commit.close()
    with pytest.raises(errors.StoreClosedError):
        commit.wait(commit.flushed_where + 1, LONG_MS)
