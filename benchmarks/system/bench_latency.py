"""How long does the slowest of a thousand appends take, while files roll?

Each append of 1 GiB over 16 MiB files is timed by itself; background threads allocate, populate, dispatch
and flush meanwhile. `loop=closed` appends as fast as it can, as RocketMQ's StoreBench does. `loop=open`
offers a fixed rate and counts from the moment an append was due: a stall then delays all that come behind
it, and is counted for each. The scheduler's share shows in `involuntary_switches`, and in the closed loop
in what is left of the longest appends without the time that the calling thread was ready to run and had no
core. While another thread of the store has no core and the caller waits for it, that stays in.
"""

import os
import resource
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.peers.java_bench import JavaBench
from pyledger.store.messages.message_store import MessageStore

BODY = bytes(range(256))
GROUP = "latency of single appends while files roll"
OFFERED_PER_SECOND = 500_000
LONG_NS = 500_000
APPENDS_PER_LOOK = 64

Put = Callable[[bytes], int]
Waited = Callable[[], int]
"""How long this thread has waited for a core (ns), by the kernel's count."""
Waits = dict[int, int]
"""How long (ns) an append that took long waited for a core, by its number."""


@contextmanager
def core_waits() -> Iterator[Waited]:
    file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    try:
        yield lambda: int(os.pread(file, 64, 0).split()[1])
    finally:
        os.close(file)


def closed_loop(put: Put, taken_ns: "array[int]", waited: Waited) -> tuple[int, Waits]:
    """The count is read between appends, so often that a long one is hardly charged with waits before it."""
    clock = time.perf_counter_ns
    waits: Waits = {}
    for first in range(0, len(taken_ns), APPENDS_PER_LOOK):
        before = waited()
        for i in range(first, min(first + APPENDS_PER_LOOK, len(taken_ns))):
            begin = clock()
            last = put(BODY)
            taken = clock() - begin
            taken_ns[i] = taken
            if taken > LONG_NS:
                now = waited()
                waits[i] = min(taken, now - before)
                before = now
    return last, waits


def open_loop(put: Put, taken_ns: "array[int]", waited: Waited) -> tuple[int, Waits]:
    clock = time.perf_counter_ns
    begin = clock()
    pause_ns = 1_000_000_000 // OFFERED_PER_SECOND
    for i in range(len(taken_ns)):
        due = begin + i * pause_ns
        while clock() < due:
            pass
        last = put(BODY)
        taken_ns[i] = clock() - due
    return last, {}


LOOPS = {"closed": closed_loop, "open": open_loop}


@pytest.mark.benchmark(group=GROUP)
@pytest.mark.parametrize("loop", LOOPS, ids="loop={}".format)
def bench_pyledger(rounds: Rounds, loop: str, tmp_path: Path) -> None:
    file_bytes, log_bytes = (16 << 20, 1 << 30) if rounds.full else (1 << 18, 1 << 21)
    with MessageStore.open(tmp_path / "store", mapped_file_size_bytes=file_bytes) as store:
        put = store.appender("bench", 0).put
        first = put(BODY)
        size = store.max_offset
        taken_ns = array("q", bytes(8 * (log_bytes // size)))
        count = len(taken_ns)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        with core_waits() as waited:
            last, waits = rounds.benchmark.pedantic(LOOPS[loop], (put, taken_ns, waited), rounds=1)
        switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - before
        assert last > first + (count - 1) * size
        assert store.queue_range("bench", 0).max_offset == count + 1
        assert store.statistics().log_files >= log_bytes // file_bytes
    ordered = sorted(taken_ns)
    on_core = [taken - waits.get(i, 0) for i, taken in enumerate(taken_ns)]
    rounds.note(
        max_with_core_us=max(on_core) / 1e3,
        over_2_ms_with_core=sum(taken > 2_000_000 for taken in on_core),
        p50_us=ordered[count // 2] / 1e3,
        p99_us=ordered[count * 99 // 100] / 1e3,
        p999_us=ordered[count * 999 // 1000] / 1e3,
        p9999_us=ordered[count * 9999 // 10000] / 1e3,
        max_us=ordered[-1] / 1e3,
        over_3_us=sum(taken > 3_000 for taken in ordered),
        over_2_ms=sum(taken > 2_000_000 for taken in ordered),
        involuntary_switches=switches,
        messages=count,
    )


@pytest.mark.benchmark(group=GROUP)
def bench_timer(rounds: Rounds) -> None:
    """The same loop around nothing: what clock and scheduler alone give on this machine."""
    taken_ns = array("q", bytes(8 * (2_000_000 if rounds.full else 1_000)))
    count = len(taken_ns)
    with core_waits() as waited:
        last, _ = rounds.benchmark.pedantic(closed_loop, (len, taken_ns, waited), rounds=1)
    assert last == len(BODY)
    ordered = sorted(taken_ns)
    rounds.note(
        p50_us=ordered[count // 2] / 1e3,
        p99_us=ordered[count * 99 // 100] / 1e3,
        p999_us=ordered[count * 999 // 1000] / 1e3,
        max_us=ordered[-1] / 1e3,
    )


@pytest.mark.java
@pytest.mark.benchmark(group=GROUP)
def bench_java(java_bench: JavaBench, tmp_path: Path) -> None:
    """RocketMQ's store with its defaults: files of 1 GiB, at its own rate."""
    java_bench.rate(tmp_path / "store", "put", "--body", "256", "--plain", *java_bench.duration)
