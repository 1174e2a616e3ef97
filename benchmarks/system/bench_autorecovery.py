"""A bookie is killed: how long until every entry that it had is on another one?

Four bookies, each a process, with their cluster in a file; a fifth process is auditor and worker. The ledger
has 20,000 entries of 1 KiB, three copies each. With ZooKeeper the time of its session is added: a file tells
at once that a process is gone.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from benchmarks.rounds import Rounds
from pyledger.client.ledger import AsyncLedgerClient
from pyledger.metadata.cluster import locate

ENTRY_BYTES = 1024
BOOKIES = ("a", "b", "c", "d")


@contextmanager
def process(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A command that serves, killed at the end."""
    command = [sys.executable, "-m", "pyledger", *map(str, words), "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        try:
            assert made.stdout.readline().startswith("READY")
            yield made
        finally:
            made.kill()


async def format_cluster(address: str) -> None:
    async with locate(address) as cluster:
        await cluster.format()


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
    address = f"sqlite:{tmp_path / 'metadata'}"
    asyncio.run(format_cluster(address))
    off = tmp_path / "off.toml"
    off.write_text("[bookie]\nauto_recovery_daemon_enabled = false\n")
    where = ("--metadata", address, "--listen", "127.0.0.1:0", "-c", off)
    with ExitStack() as stack:
        bookies = {
            name: stack.enter_context(process("bookie", "serve", tmp_path / name, *where, "--id", name))
            for name in BOOKIES
        }
        stack.enter_context(process("autorecovery", "serve", "-m", address))
        taken = rounds.benchmark.pedantic(
            lambda: asyncio.run(lose_a_bookie(address, bookies, entries)), rounds=1
        )
    rounds.note(seconds=taken, mb_per_second=entries * ENTRY_BYTES / 1e6 / taken)
