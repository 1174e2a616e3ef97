"""Bookies as processes that are killed and started again at random, while writers add to ledgers of 3/3/2.

    python -m tests.chaos.bookies --seconds 300 --seed 1

At the end every acknowledged entry has to be readable, byte for byte, and every folder sound.
"""

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyledger.bookkeeper import AsyncLedgerClient, BookkeeperConfig
from pyledger.errors import LedgerOperationError, NotEnoughBookiesError
from pyledger.metadata.cluster import locate
from pyledger.store.bookkeeper.verify import BookieCheck
from tests.cli.command_line import COMMAND, ENVIRONMENT

BOOKIES = 5
DOWN_MAX = 2
WRITERS = 3
PENDING_MAX = 50
ENTRIES_MAX = 600
PAUSE_S = 0.02
# A bookie that was killed refuses connections at once; one that is only slow has all the time it needs.
PATIENT = BookkeeperConfig(
    add_timeout_ms=120_000,
    read_timeout_ms=120_000,
    speculative_read_timeout_ms=0,
    bookie_failure_history_ms=100,
)
SETTINGS = """
[bookie]
flush_interval_ms = 200
write_cache_bytes = 65536
log_size_limit_bytes = 262144
journal_max_size_bytes = 262144
auto_recovery_daemon_enabled = {autorecovery}
"""


@dataclass
class Written:
    """One ledger: the entries passed to its writer, and how many were acknowledged."""

    payloads: list[bytes] = field(default_factory=list)
    acknowledged: int = 0


class ChaosBookies:
    """Processes, their metadata in a file, and the entries of writers."""

    def __init__(self, folder: Path, seed: int, *, autorecovery: bool) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.names = [f"b{number}" for number in range(BOOKIES)]
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ledgers: dict[int, Written] = {}
        self.kills = self.failed_adds = 0
        self.over = False
        self.settings = folder / "settings.toml"
        self.settings.write_text(SETTINGS.format(autorecovery=str(autorecovery).lower()))

    @property
    def metadata(self) -> str:
        return f"sqlite:{self.folder / 'metadata.db'}"

    @property
    def acknowledged(self) -> int:
        return sum(one.acknowledged for one in self.ledgers.values())

    # --- processes

    async def start(self, name: str) -> None:
        words = ["bookie", "serve", str(self.folder / name), "--metadata", self.metadata, "--id", name]
        words += ["--listen", "127.0.0.1:0", "--config", str(self.settings), "--log-level", "warning"]
        with (self.folder / f"{name}.log").open("ab") as errors:
            process = subprocess.Popen(
                [*COMMAND, *words], stdout=subprocess.PIPE, stderr=errors, env=ENVIRONMENT
            )
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        assert line.startswith(b"READY"), (name, (self.folder / f"{name}.log").read_text())
        self.running[name] = process

    def kill(self, name: str) -> None:
        self.kills += 1
        self._end(name, signal.SIGKILL)

    def _end(self, name: str, number: signal.Signals) -> int:
        process = self.running.pop(name)
        process.send_signal(number)
        process.communicate()
        return process.returncode

    async def inject_fault(self) -> str:
        """Kill a bookie, or restart one."""
        down = [name for name in self.names if name not in self.running]
        if down and (len(down) == DOWN_MAX or self.random.random() < 0.5):
            name = self.random.choice(down)
            await self.start(name)
            return f"start {name}"
        name = self.random.choice(sorted(self.running))
        self.kill(name)
        return f"kill {name}"

    # --- writers

    async def write(self, client: AsyncLedgerClient, number: int) -> None:
        """Write one ledger after the other; close or abandon each."""
        chance = random.Random(number)
        while not self.over:
            try:
                writer = await client.create(
                    ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=b"chaos"
                )
            except NotEnoughBookiesError:
                await asyncio.sleep(PAUSE_S)
                continue
            written = self.ledgers[writer.ledger_id] = Written()
            adds: list[asyncio.Future[int]] = []
            try:
                for entry_id in range(chance.randrange(1, ENTRIES_MAX)):
                    payload = b"%d:%d:" % (writer.ledger_id, entry_id) + chance.randbytes(
                        chance.randrange(600)
                    )
                    written.payloads.append(payload)
                    adds.append(writer.submit_add(payload))
                    if self.over:
                        break
                    if len(adds) - written.acknowledged >= PENDING_MAX:
                        await adds[written.acknowledged]
                    while written.acknowledged < len(adds) and (first := adds[written.acknowledged]).done():
                        first.result()
                        written.acknowledged += 1
                for future in adds[written.acknowledged :]:
                    await future
                    written.acknowledged += 1
                if chance.random() < 0.5:
                    await writer.close()
            except LedgerOperationError:
                # Whatever was acknowledged before stays so; of the others nobody knows.
                self.failed_adds += 1
                while written.acknowledged < len(adds) and good(adds[written.acknowledged]):
                    written.acknowledged += 1
            await writer.abandon()
            await asyncio.gather(*adds, return_exceptions=True)

    # --- the whole run

    async def run(self, next_fault: Callable[[], Awaitable[bool]]) -> list[str]:
        """Run, restart all bookies, and check; return the violations."""
        async with locate(self.metadata) as cluster:
            await cluster.format()
        try:
            for name in self.names:
                await self.start(name)
            async with AsyncLedgerClient(self.metadata, config=PATIENT) as client:
                writers = [asyncio.create_task(self.write(client, number)) for number in range(WRITERS)]
                try:
                    while await next_fault():
                        assert not any(one.done() for one in writers), [one for one in writers if one.done()]
                finally:
                    self.over = True
                    for name in self.names:
                        if name not in self.running:
                            await self.start(name)
                    await asyncio.gather(*writers)
            print("the ledgers are opened and read", flush=True)
            found = await self.judge()
            codes = {name: self._end(name, signal.SIGTERM) for name in self.names}
            found += [f"{name} ended with {code}" for name, code in codes.items() if code]
        finally:
            for process in self.running.values():
                process.kill()
                process.communicate()
        for name in self.names:
            problems = BookieCheck(str(self.folder / name)).findings()
            found += [f"{name}: {one}" for one in problems if one.severity != "note"]
        return found

    async def judge(self) -> list[str]:
        """Open every ledger, and compare it with what was written."""
        found = []
        async with AsyncLedgerClient(self.metadata, config=PATIENT) as client:
            for ledger_id, written in self.ledgers.items():
                reader = await client.open(ledger_id, b"chaos")
                entries = [entry.payload async for entry in reader.read()]
                if len(entries) < written.acknowledged:
                    found.append(f"ledger {ledger_id}: {len(entries)} of {written.acknowledged} are left")
                if entries != written.payloads[: len(entries)]:
                    found.append(f"ledger {ledger_id} reads otherwise than it was written")
        return found


def good(future: asyncio.Future[int]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def main() -> int:
    """Run once and print the result; return 1 for a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    async def work(folder: Path) -> tuple[ChaosBookies, list[str]]:
        bookies = ChaosBookies(folder, options.seed, autorecovery=True)
        end = time.monotonic() + options.seconds

        async def next_fault() -> bool:
            await bookies.inject_fault()
            await asyncio.sleep(bookies.random.uniform(0, 2))
            return time.monotonic() < end

        return bookies, await bookies.run(next_fault)

    with tempfile.TemporaryDirectory() as folder:
        bookies, found = asyncio.run(work(Path(folder)))
        print(
            f"{bookies.kills} kills, {len(bookies.ledgers)} ledgers",
            f"{bookies.acknowledged} entries confirmed",
            f"{bookies.failed_adds} writers failed; {len(found)} violations",
            *found,
            sep="\n",
            flush=True,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
