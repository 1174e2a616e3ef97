"""A bookie is killed: how long until every entry that it had is on another one?

Four bookies, each a process, with their cluster in a file; a fifth process is auditor and worker. The ledger
has 20,000 entries of 1 KiB, three copies each. With ZooKeeper the time of its session is added: a file tells
at once that a process is gone.
"""

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.ledger_clusters import our_bookies, serving
from benchmarks.rounds import Rounds
from pyledger.client.ledger import AsyncLedgerClient

ENTRY_BYTES = 1024
BOOKIES = 4


async def lose_a_bookie(address: str, bookies: dict[str, subprocess.Popen[str]], entries: int) -> float:
    """Seconds from the kill until the metadata names another bookie, which has all copies then."""
    async with AsyncLedgerClient(address) as client:
        while await client.cluster.election.auditor() is None:
            await asyncio.sleep(0.01)
        async with await client.create(3, 3, 2) as writer:
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
        assert not found.lacking
    return taken


@pytest.mark.benchmark(group="autorecovery: a bookie is killed until its copies are on another one")
def bench_lost_bookie(rounds: Rounds, tmp_path: Path) -> None:
    entries = 20_000 if rounds.full else 200
    with our_bookies(tmp_path, BOOKIES) as cluster, serving("autorecovery", "serve", "-m", cluster.address):
        taken = rounds.benchmark.pedantic(
            lambda: asyncio.run(lose_a_bookie(cluster.address, cluster.processes, entries)), rounds=1
        )
    rounds.note(seconds=taken, mb_per_second=entries * ENTRY_BYTES / 1e6 / taken)
