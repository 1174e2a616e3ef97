"""A bookie is killed: how long until every entry that it had is on another one?

Four bookies, each a process, with their cluster in a file; a fifth process is auditor and worker. The ledger
has 20,000 entries of 1 KiB, three copies each. With ZooKeeper the time of its session is added: a file tells
at once that a process is gone. How fast copies are made is measured by itself: without what finds the loss.
"""

import asyncio
import statistics
import subprocess
import time
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.peers.bookie_clusters import Cluster, for_both_clients, our_bookies, serving
from pyledger.bookkeeper import AsyncLedgerClient

ENTRY_BYTES = 1024
BOOKIES = 4


async def lose_a_bookie(address: str, bookies: dict[str, subprocess.Popen[str]], entries: int) -> float:
    """Seconds from the kill until the metadata names another bookie, which has all copies then."""
    async with AsyncLedgerClient(address) as client:
        while await client.cluster.election.auditor() is None:
            await asyncio.sleep(0.01)
        async with await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2) as writer:
            await writer.add_many([bytes(ENTRY_BYTES)] * entries)
        lost = writer.metadata.segments[0].ensemble[0]
        begin = time.perf_counter()
        bookies[lost].kill()
        states = client.cluster.ledgers.watch(writer.ledger_id)
        async for stored in states:
            if lost not in stored.metadata.segments[0].ensemble:
                break
        taken = time.perf_counter() - begin
        await states.aclose()
        found = await client.repairs().examine(writer.ledger_id, every_entry=True)
        assert not found.missing_replicas
    return taken


def measure(rounds: Rounds, cluster: Cluster) -> None:
    entries = 20_000 if rounds.full else 200
    with serving("autorecovery", "serve", "-m", cluster.address):
        taken = rounds.benchmark.pedantic(
            lambda: asyncio.run(lose_a_bookie(cluster.address, cluster.processes, entries)), rounds=1
        )
    rounds.note(seconds=taken)


@pytest.mark.benchmark(group="autorecovery: a bookie is killed until its copies are on another one")
def bench_lost_bookie(rounds: Rounds, tmp_path: Path) -> None:
    with our_bookies(tmp_path, BOOKIES) as cluster:
        measure(rounds, cluster)


@pytest.mark.java
@pytest.mark.benchmark(group="autorecovery: a bookie is killed until its copies are on another one")
def bench_lost_bookie_of_zookeeper(rounds: Rounds, tmp_path: Path) -> None:
    with for_both_clients(tmp_path / "all", "ours", BOOKIES) as (cluster, _):
        measure(rounds, cluster)


async def copy_ledgers(cluster: Cluster, entries: int, ledgers: int) -> list[float]:
    """MB/s of a worker that makes a lost bookie's copies, ledger by ledger; each copy is on disk."""
    async with AsyncLedgerClient(cluster.address) as client:
        writers = []
        for _ in range(ledgers):
            async with await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2) as writer:
                await writer.add_many([bytes(ENTRY_BYTES)] * entries)
            writers.append(writer)
        ensembles = [writer.metadata.segments[0].ensemble for writer in writers]
        ((lost, _),) = Counter(chain.from_iterable(ensembles)).most_common(1)
        cluster.processes[lost].kill()
        while lost in (await client.bookies()).writable:
            await asyncio.sleep(0.01)
        repairs, rates = client.repairs(), []
        for writer, ensemble in zip(writers, ensembles, strict=True):
            if lost in ensemble:
                found = await repairs.examine(writer.ledger_id)
                begin = time.perf_counter()
                copied = await repairs.copy(found)
                rates.append(copied / 1e6 / (time.perf_counter() - begin))
                assert copied > entries * ENTRY_BYTES
                again = await repairs.examine(writer.ledger_id, every_entry=True)
                assert not again.missing_replicas
    return rates


@pytest.mark.benchmark(group="autorecovery: copies of a lost bookie's entries, 1 KiB")
def bench_copies(rounds: Rounds, tmp_path: Path) -> None:
    entries, ledgers = (20_000, 6) if rounds.full else (200, 2)
    with our_bookies(tmp_path, BOOKIES) as cluster:
        rates = rounds.benchmark.pedantic(
            lambda: asyncio.run(copy_ledgers(cluster, entries, ledgers)), rounds=1
        )
    rounds.note(mb_per_second=statistics.median(rates), mb_per_second_of_rounds=rates)
