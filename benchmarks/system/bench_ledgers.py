"""Ledgers from a client's side: adds and reads by our client and Java's, a lost bookie, recoveries, starts,
digests.

Bookies are processes, each with its own journal on the one disk; every add is on disk before its answer.
"""

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.peers.bookie_clusters import Cluster, for_both_clients, java_client, our_bookies, serving
from benchmarks.peers.processor_time import cpu_seconds
from pyledger.bookkeeper import AsyncLedgerClient, AsyncLedgerWriter, BookkeeperConfig
from pyledger.net.loop import run
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.wire.bookkeeper.entry import EntryDigest, count_whole, pack_entry

PAYLOAD = bytes(range(256))
ROUNDS = 3
IN_FLIGHT = 64


async def measure_adds(client: AsyncLedgerClient, shape: tuple[int, int, int], count: int) -> dict[str, Any]:
    """Adds a second, 1,000 in flight, and reads of the closed ledger; the best of some rounds."""
    found = {"adds_per_second": 0.0, "reads_per_second": 0.0}
    for _ in range(ROUNDS):
        writer = await client.create(
            ensemble_size=shape[0], write_quorum_size=shape[1], ack_quorum_size=shape[2]
        )
        begin = time.perf_counter()
        await writer.add_many([PAYLOAD] * count)
        adds = count / (time.perf_counter() - begin)
        await writer.close()
        reader = await client.open(writer.ledger_id)
        begin, entries = time.perf_counter(), 0
        async for entry in reader.read():
            entries += len(entry.payload) == len(PAYLOAD)
        reads = count / (time.perf_counter() - begin)
        assert entries == count
        found = {
            "adds_per_second": max(adds, found["adds_per_second"]),
            "reads_per_second": max(reads, found["reads_per_second"]),
        }
    return found


async def measure_lone_adds(client: AsyncLedgerClient, shape: tuple[int, int, int], count: int) -> float:
    """Median of an add with nothing else in flight (microseconds)."""
    taken = []
    async with await client.create(
        ensemble_size=shape[0], write_quorum_size=shape[1], ack_quorum_size=shape[2]
    ) as writer:
        for _ in range(count):
            begin = time.perf_counter_ns()
            await writer.add(PAYLOAD)
            taken.append((time.perf_counter_ns() - begin) / 1000)
    return statistics.median(taken)


async def our_client(cluster: Cluster, shape: tuple[int, int, int], count: int, lone: int) -> dict[str, Any]:
    async with AsyncLedgerClient(cluster.address) as client:
        found = await measure_adds(client, shape, count)
        return found | {"p50_us": await measure_lone_adds(client, shape, lone)}


@pytest.mark.java
@pytest.mark.parametrize("bookies", [1, 3], ids=lambda count: f"bookies={count}")
@pytest.mark.benchmark(group="ledgers: 256 B, 1,000 in flight, then read; our client and Java's, synced")
def bench_clients(rounds: Rounds, tmp_path: Path, bookies: int) -> None:
    shape = (bookies, bookies, min(bookies, 2))
    count, lone = (100_000, 2000) if rounds.full else (300, 10)
    words = ("--count", count, "--lone", lone, *zip_words(("--e", "--qw", "--qa"), shape))

    def compare() -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for impl in ("java", "ours"):
            with for_both_clients(tmp_path / impl, impl, bookies) as (cluster, hosts):
                cpu = sum(cpu_seconds(one.pid) for one in cluster.processes.values())
                found[f"java_on_{impl}"] = java_client(hosts, *words)
                taken = sum(cpu_seconds(one.pid) for one in cluster.processes.values()) - cpu
                found[f"java_on_{impl}"]["bookies_cpu_s"] = taken
                found[f"ours_on_{impl}"] = run(our_client(cluster, shape, count, lone))
        return found

    found = rounds.benchmark.pedantic(compare, rounds=1)
    java, ours = found["java_on_java"], found["ours_on_ours"]
    java_reads = max(java["readsPerSecond"], java["batchReadsPerSecond"])
    rounds.note(
        **found,
        ratio_adds=ours["adds_per_second"] / java["addsPerSecond"],
        ratio_java_client=found["java_on_ours"]["addsPerSecond"] / java["addsPerSecond"],
        ratio_reads=ours["reads_per_second"] / java_reads,
        ratio_p50=ours["p50_us"] / max(java["p50Us"], 1),
    )


def zip_words(names: tuple[str, ...], values: tuple[int, ...]) -> list[object]:
    """Options of a command."""
    return [word for pair in zip(names, values, strict=True) for word in pair]


@asynccontextmanager
async def under_load(writer: AsyncLedgerWriter) -> AsyncIterator[list[float]]:
    """Times at which adds were confirmed, of which some are always in flight; none may fail."""
    confirmed: list[float] = []

    async def add() -> None:
        while not over:
            await writer.add(PAYLOAD)
            confirmed.append(time.perf_counter())

    over = False
    tasks = [asyncio.create_task(add()) for _ in range(IN_FLIGHT)]
    try:
        yield confirmed
    finally:
        over = True
        await asyncio.gather(*tasks)


async def kill_one(cluster: Cluster, calm_s: float) -> tuple[float, float, float]:
    """Milliseconds from the kill until adds succeed that were sent after it; longest pauses since and before.

    Cluster pause without a kill, too, when the disk does.
    """
    async with AsyncLedgerClient(cluster.address) as client:
        writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        async with under_load(writer) as confirmed:
            await asyncio.sleep(calm_s)
            victim = cluster.processes[writer.metadata.segments[0].ensemble[0]]
            killed = time.perf_counter()
            victim.kill()
            sent_before = len(confirmed) + IN_FLIGHT
            while len(confirmed) <= sent_before:
                await asyncio.sleep(0.001)
            again = confirmed[sent_before] - killed
            await asyncio.sleep(calm_s)
        since = max(after - before for before, after in pairwise(confirmed) if after > killed)
        calm = max(after - before for before, after in pairwise(confirmed) if after <= killed)
        assert len(writer.metadata.segments) == 2
        found = await writer.close()
        assert found.last_entry_id == len(confirmed) - 1
        return again * 1000, since * 1000, calm * 1000


@pytest.mark.benchmark(group="ledgers: a bookie is killed under load")
def bench_kill(rounds: Rounds, tmp_path: Path) -> None:
    count, calm_s = (5, 2.0) if rounds.full else (1, 0.05)

    def measure() -> list[tuple[float, float, float]]:
        found = []
        for number in range(count):
            with our_bookies(tmp_path / str(number), 4) as cluster:
                found.append(run(kill_one(cluster, calm_s)))
        return found

    found = rounds.benchmark.pedantic(measure, rounds=1)
    again_ms, pause_ms, calm_ms = map(statistics.median, zip(*found, strict=True))
    rounds.note(again_ms=again_ms, pause_ms=pause_ms, calm_pause_ms=calm_ms, rounds=found)


async def recover(cluster: Cluster, entries: int, unconfirmed: int) -> float:
    """Milliseconds that opening a ledger takes that its writer has left."""
    async with AsyncLedgerClient(cluster.address, config=BookkeeperConfig(adds_pending_max=4096)) as client:
        writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        await writer.add_many([b"entry"] * entries)
        for _ in range(unconfirmed):
            writer.submit_add(b"entry").cancel()  # it was sent; nobody waits for it
        await writer.abandon()
        async with AsyncLedgerClient(cluster.address) as other:
            await other.bookies()
            begin = time.perf_counter()
            reader = await other.open(writer.ledger_id)
            taken = time.perf_counter() - begin
        assert reader.closed
        assert entries <= reader.last_add_confirmed + 1 <= entries + unconfirmed
        return taken * 1000


@pytest.mark.benchmark(group="ledgers: opened with recovery")
def bench_recovery(rounds: Rounds, tmp_path: Path) -> None:
    entries = 1_000_000 if rounds.full else 1000

    def measure() -> tuple[float, float]:
        with our_bookies(tmp_path / "bookies", 4) as cluster:
            few = min(run(recover(cluster, 100, 5)) for _ in range(5 if rounds.full else 1))
            return run(recover(cluster, entries, 0)), few

    many_ms, few_ms = rounds.benchmark.pedantic(measure, rounds=1)
    rounds.note(entries=entries, many_ms=many_ms, unconfirmed_ms=few_ms)


@pytest.mark.parametrize("kind", ["CRC32C", "CRC32"], ids="digest={}".format)
@pytest.mark.benchmark(group="ledgers: digests of entries of 1 KiB are checked, 256 at once")
def bench_digest(rounds: Rounds, kind: str) -> None:
    digest = EntryDigest(DigestType[kind])
    payloads = [random.Random(at).randbytes(1024) for at in range(256)]
    entries = [pack_entry(digest, 7, at, at - 1, 0, payload) for at, payload in enumerate(payloads)]
    times = 200 if rounds.full else 1

    def check(_state: None) -> int:
        return sum(count_whole(digest, 7, 0, entries) for _ in range(times))

    rounds.run(
        lambda: None, check, units=times * sum(map(len, entries)), expected=times * len(entries), rounds=20
    )


@pytest.mark.benchmark(group="ledgers: a bookie begins, and has nothing to do")
def bench_start(rounds: Rounds, tmp_path: Path) -> None:
    def measure() -> tuple[list[float], float]:
        taken = []
        for number in range(5 if rounds.full else 1):
            begin = time.perf_counter()
            with serving("bookie", "serve", tmp_path / str(number), "--dev", 1) as process:
                taken.append(time.perf_counter() - begin)
                rss_mib = resident_mib(process.pid)
        return taken, rss_mib

    taken, rss_mib = rounds.benchmark.pedantic(measure, rounds=1)
    rounds.note(ready_s=min(taken), rss_mib=rss_mib)


def resident_mib(pid: int) -> float:
    """Memory of a process that is in use."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (one for one in lines if one.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
