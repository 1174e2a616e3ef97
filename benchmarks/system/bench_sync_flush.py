"""How many messages a second reach the disk, when every caller waits for its own?

One caller: against the bare rate of the device, which is a write and `fdatasync` of as many bytes into an
allocated file, alternating with the store. 64 callers share flushes: 64 divided by the time of
one bare flush is what perfect sharing without any cost of its own would give when a flush serves each caller
once. `bare_callers` is what callers cost where nothing is stored: threads that hand a lock on, tasks whose
futures the loop answers, with a bare flush for every 64. The device decides every figure: compare the ratios.
"""

import asyncio
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.peers.java_bench import JavaBench
from pyledger.model.message import Message
from pyledger.store.messages.message_store import MessageStore

BODY = bytes(range(256))
CALLERS = 64
ROUNDS = 10
ONE = "sync flush, 1 caller"
MANY = f"sync flush, {CALLERS} callers"


class BareFile:
    """An allocated file that is written piece by piece, each flushed."""

    def __init__(self, path: Path, piece_bytes: int, pieces: int) -> None:
        self.piece, self.at = bytes(piece_bytes), 0
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)
        # Written once, as the store's files are allocated: no block is new to the file system afterwards.
        os.pwrite(self.file, bytes(piece_bytes * pieces), 0)
        os.fsync(self.file)

    def flush_next(self) -> None:
        os.pwrite(self.file, self.piece, self.at)
        os.fdatasync(self.file)
        self.at += len(self.piece)

    def seconds_per_flush(self, pieces: int) -> float:
        begin = time.perf_counter()
        for _ in range(pieces):
            self.flush_next()
        return (time.perf_counter() - begin) / pieces

    def close(self) -> None:
        os.close(self.file)


@contextmanager
def bare_file(folder: Path, pieces: int) -> Iterator[BareFile]:
    bare = BareFile(folder / "bare", 352, pieces)
    try:
        yield bare
    finally:
        bare.close()


@pytest.fixture
def store(tmp_path: Path, store_options: Mapping[str, int]) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", flush_disk_type="sync", **store_options) as opened:
        opened.put(Message("bench", BODY))
        yield opened


@pytest.mark.benchmark(group=ONE)
def bench_one_caller(rounds: Rounds, store: MessageStore, tmp_path: Path) -> None:
    """The store and the bare file alternate; `ratio` is the median of their neighbours."""
    count = 100 if rounds.full else 2
    put = store.appender("bench", 0).put
    ours: list[float] = []
    bare_s: list[float] = []

    def act() -> int:
        for _ in range(ROUNDS):
            bare_s.append(bare.seconds_per_flush(count))
            begin = time.perf_counter()
            for _ in range(count):
                put(BODY)
            ours.append((time.perf_counter() - begin) / count)
        return store.queue_range("bench", 0).max_offset

    with bare_file(tmp_path, ROUNDS * count) as bare:
        assert rounds.benchmark.pedantic(act, rounds=1) == ROUNDS * count + 1
    assert store.flushed_where == store.max_offset
    ratios = sorted(b / o for b, o in zip(bare_s, ours, strict=True))
    rounds.note(
        ratio=ratios[ROUNDS // 2],
        per_second=1 / sorted(ours)[ROUNDS // 2],
        bare_per_second=1 / sorted(bare_s)[ROUNDS // 2],
    )


def with_threads(store: MessageStore, count: int) -> None:
    """Each caller is a thread that puts and waits, again and again."""
    put = store.appender("bench", 0).put
    start = threading.Barrier(CALLERS)

    def call() -> None:
        start.wait()
        for _ in range(count):
            put(BODY)

    callers = [threading.Thread(target=call) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()


def with_tasks(store: MessageStore, count: int) -> None:
    """Each caller is a task of one event loop."""
    message = Message("bench", BODY)

    async def call() -> None:
        for _ in range(count):
            await store.aput(message)

    async def call_all() -> None:
        await asyncio.gather(*(call() for _ in range(CALLERS)))

    asyncio.run(call_all())


CALLS = {"threads": with_threads, "tasks": with_tasks}


@pytest.mark.benchmark(group=MANY)
@pytest.mark.parametrize("callers", CALLS, ids="callers={}".format)
def bench_many_callers(rounds: Rounds, store: MessageStore, callers: str, tmp_path: Path) -> None:
    """`ratio_to_64_flushes` is the rate by 64 times the rate of bare flushes just before and after."""
    count = 2_000 if rounds.full else 3
    bare_count = 300 if rounds.full else 3

    def act(before: int) -> int:
        CALLS[callers](store, count)
        return store.queue_range("bench", 0).max_offset - before

    with bare_file(tmp_path, 2 * bare_count) as bare:
        flush_s = bare.seconds_per_flush(bare_count)
        rounds.run(
            lambda: store.queue_range("bench", 0).max_offset,
            act,
            units=CALLERS * count,
            expected=CALLERS * count,
            rounds=3,
        )
        flush_s = (flush_s + bare.seconds_per_flush(bare_count)) / 2
    assert store.flushed_where == store.max_offset
    messages = store.queue_range("bench", 0).max_offset
    rounds.note(bare_per_second=1 / flush_s, messages_per_flush=messages / store.statistics().flush_count)
    if rounds.benchmark.stats:
        best = CALLERS * count / rounds.benchmark.stats.stats.min
        rounds.note(ratio_to_64_flushes=best * flush_s / CALLERS)


def hand_on(bare: BareFile, count: int) -> None:
    """Threads wake one another one by one, and one of them flushes in every round."""
    locks = [threading.Lock() for _ in range(CALLERS)]

    def call(number: int) -> None:
        for _ in range(count):
            locks[number].acquire()
            if number == 0:
                bare.flush_next()
            locks[(number + 1) % CALLERS].release()

    for lock in locks:
        lock.acquire()
    callers = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    for caller in callers:
        caller.start()
    locks[0].release()
    for caller in callers:
        caller.join()


def answer(bare: BareFile, count: int) -> None:
    """Tasks wait for futures, and the loop answers all of them after a flush."""
    waiting: list[asyncio.Future[None]] = []

    async def call() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            waiting.append(future := loop.create_future())
            await future

    async def call_all() -> None:
        callers = asyncio.gather(*(call() for _ in range(CALLERS)))
        for _ in range(count):
            await asyncio.sleep(0)
            bare.flush_next()
            for future in waiting:
                future.set_result(None)
            waiting.clear()
        await callers

    asyncio.run(call_all())


BARE_CALLS = {"threads": hand_on, "tasks": answer}


@pytest.mark.benchmark(group=MANY)
@pytest.mark.parametrize("callers", BARE_CALLS, ids="callers={}".format)
def bench_bare_callers(rounds: Rounds, callers: str, tmp_path: Path) -> None:
    count = 2_000 if rounds.full else 3

    def act(before: int) -> int:
        BARE_CALLS[callers](bare, count)
        return bare.at - before

    with bare_file(tmp_path, 4 * count) as bare:
        rounds.run(lambda: bare.at, act, units=CALLERS * count, expected=len(bare.piece) * count, rounds=3)


@pytest.mark.java
@pytest.mark.parametrize("callers", [1, CALLERS], ids="callers={}".format)
def bench_java(java_bench: JavaBench, callers: int, tmp_path: Path) -> None:
    """RocketMQ's own store with synchronous flush, callers as threads."""
    java_bench.rounds.benchmark.group = ONE if callers == 1 else MANY
    options = ("--body", "256", "--plain", "--sync", "--threads", str(callers))
    java_bench.rate(tmp_path / "store", "put", *options, *java_bench.duration)
