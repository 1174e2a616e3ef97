"""A group of processes that are killed, stopped, disconnected and given wrong clocks, while clients use it.

python -m tests.chaos.group --seconds 300 --seed 1
"""

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from pyledger.client.dledger import DLedgerClient
from pyledger.errors import DLedgerRejectedError, NoLeaderError, OutcomeUnknownError, PyLedgerError
from pyledger.store.dledger.reader import DLedgerReader
from pyledger.store.dledger.verify import verify_dledger
from tests.chaos.links import Link
from tests.chaos.log_history import Append, Outcome, Read, violations
from tests.cli.command_line import ENVIRONMENT
from tests.support.ports import free_ports
from tests.support.source_tree import ROOT

CLIENTS = 4
CALL_TIMEOUT_MS = 4000
PATIENCE_S = 1000
RATES = (0.9, 1.0, 1.1)


class ChaosGroup:
    """Members as processes; each reaches the others through its own links."""

    def __init__(self, folder: Path, seed: int, size: int = 3, *, heart_beat_ms: int = 150) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.names = [f"n{number}" for number in range(size)]
        ports = dict(zip(self.names, free_ports(size), strict=True))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        self.links = {(a, b): Link(self.addresses[b]) for a in self.names for b in self.names if a != b}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped: set[str] = set()
        self.appends: list[Append] = []
        self.reads: list[Read] = []
        self.heart_beat_ms = heart_beat_ms
        self.over = False

    @property
    def peers(self) -> str:
        """The members as clients reach them."""
        return ";".join(f"{name}-{address}" for name, address in self.addresses.items())

    # --- faults

    async def start(self, *names: str) -> None:
        for name in names:
            peers = ";".join(
                f"{other}-{self.addresses[name] if other == name else self.links[name, other].address}"
                for other in self.names
            )
            with (self.folder / f"{name}.log").open("ab") as errors:
                self.running[name] = subprocess.Popen(
                    self.command(name, peers),
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=ROOT,
                    env={**ENVIRONMENT, "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{ROOT}"},
                )
        for name in names:
            output = self.running[name].stdout
            assert output is not None
            while not (line := await asyncio.to_thread(output.readline)).startswith(b"READY"):
                assert line, f"{name} did not start"

    def command(self, name: str, peers: str) -> list[str]:
        """Return the command line of a member that reaches the others by `peers`."""
        words = [name, peers, str(self.folder), str(self.random.choice(RATES)), str(self.heart_beat_ms)]
        return [sys.executable, "-m", "tests.chaos.member", *words]

    def kill(self, name: str) -> None:
        self._end(name, signal.SIGKILL)

    def stop(self, name: str) -> None:
        self.running[name].send_signal(signal.SIGSTOP)
        self.stopped.add(name)

    def jump(self, name: str) -> None:
        """Set a member's clock."""
        self.running[name].send_signal(signal.SIGUSR1)

    def go_on(self) -> None:
        for name in self.stopped:
            self.running[name].send_signal(signal.SIGCONT)
        self.stopped.clear()

    def disconnect(self, name: str, *, ways: int) -> None:
        """Disconnect what a member sends (1), receives (2), or both (3)."""
        for (a, b), link in self.links.items():
            if (ways & 1 and a == name) or (ways & 2 and b == name):
                link.disconnect()

    def reconnect(self) -> None:
        for link in self.links.values():
            link.reconnect()

    async def heal(self) -> None:
        """Let all members run and reach one another."""
        self.go_on()
        self.reconnect()
        await self.start(*(name for name in self.names if name not in self.running))

    async def inject_fault(self) -> str:
        """Inject a fault that lasts until `heal`."""
        rng, name = self.random, self.random.choice(self.names)
        kind = rng.choice(("kill", "kill all", "stop", "disconnect", "disconnect", "jump", "break"))
        if name in self.stopped or name not in self.running:
            kind = "disconnect"
        match kind:
            case "kill":
                self.kill(name)
            case "kill all":
                for one in list(self.running):
                    self.kill(one)
            case "stop":
                self.stop(name)
            case "disconnect":
                self.disconnect(name, ways=rng.randint(1, 3))
            case "jump":
                self.jump(name)
            case "break":
                for link in self.links.values():
                    link.reset()
        return f"{kind} {name}"

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self.running.pop(name)
        self.stopped.discard(name)
        process.send_signal(number)
        if number != signal.SIGKILL:
            process.send_signal(signal.SIGCONT)
        process.wait(120)
        if process.stdout is not None:
            process.stdout.close()

    # --- clients

    async def use(self, number: int) -> None:
        """Append and read until the end; never retry an operation whose outcome is unknown."""
        count, rng = 0, random.Random(number)
        async with DLedgerClient("g", self.peers, timeout_ms=CALL_TIMEOUT_MS) as client:
            while not self.over:
                count += 1
                if rng.random() < 0.3:
                    await self._read(client)
                else:
                    await self.append(client, b"%d.%d" % (number, count))

    async def append(self, client: DLedgerClient, body: bytes) -> bool:
        begin, index, outcome = time.monotonic(), -1, Outcome.DONE
        try:
            index = (await client.append(body)).index
        except OutcomeUnknownError:
            outcome = Outcome.UNKNOWN
        except (NoLeaderError, DLedgerRejectedError):
            outcome = Outcome.REFUSED
        self.appends.append(Append(body, begin, time.monotonic(), outcome, index))
        return outcome is Outcome.DONE

    async def _read(self, client: DLedgerClient) -> None:
        begin = time.monotonic()
        try:
            index = await client.read_index()
        except PyLedgerError:
            return
        self.reads.append(Read(begin, time.monotonic(), index))

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged appends so far."""
        return sum(one.outcome is Outcome.DONE for one in self.appends)

    # --- a whole run

    async def suffer(self, faults: Sequence[Callable[[], None]], more: int) -> list[str]:
        """Inject the faults in order; wait for `more` acknowledged appends before and after each."""
        left = list(faults)

        async def progress() -> None:
            wanted = self.acknowledged + more
            while self.acknowledged < wanted:
                await asyncio.sleep(0.02)

        async def next_fault() -> bool:
            await progress()
            left.pop(0)()
            await progress()
            await self.heal()
            await progress()
            return bool(left)

        return await self.run(next_fault)

    async def run(self, next_fault: Callable[[], Awaitable[bool]]) -> list[str]:
        """Start, call `next_fault` until it returns False, heal, and check."""
        for link in self.links.values():
            await link.start()
        try:
            await self.start(*self.names)
            users = [asyncio.ensure_future(self.use(number)) for number in range(CLIENTS)]
            while await next_fault():
                pass
            await self.heal()
            self.over = True
            await asyncio.gather(*users)
            async with asyncio.timeout(PATIENCE_S), DLedgerClient("g", self.peers) as client:
                last = 0
                while not await self.append(client, b"last %d" % last):
                    last += 1
                while not self._agree():
                    await asyncio.sleep(0.05)
            for name in self.names:
                self._end(name, signal.SIGTERM)
            return list(self._judge())
        finally:
            for name in list(self.running):
                self.kill(name)
            for link in self.links.values():
                await link.close()

    def _agree(self) -> bool:
        """Return whether all folders are equal; not while one is being truncated."""
        try:
            found = {tuple(entry[:7] for entry in self._entries(name)) for name in self.names}
        except PyLedgerError:
            return False
        return len(found) == 1

    def _entries(self, name: str) -> list[tuple[object, ...]]:
        with DLedgerReader.open(self.folder / f"dledger-{name}") as reader:
            return list(reader.entries())

    def _judge(self) -> list[str]:
        logs = []
        found: list[str] = []
        for name in self.names:
            with DLedgerReader.open(self.folder / f"dledger-{name}") as reader:
                found += [f"{name}: {one}" for one in verify_dledger(reader) if one.severity == "error"]
                logs.append({entry.index: entry.body for entry in reader.entries() if entry.body})
        found += ["the folders differ"] * any(log != logs[0] for log in logs)
        return [*found, *violations(self.appends, self.reads, logs[0])]


def main() -> int:
    """Run once and print the result; return 1 for a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()

    async def work(folder: Path) -> tuple[ChaosGroup, list[str]]:
        group = ChaosGroup(folder, options.seed, options.nodes)
        end = time.monotonic() + options.seconds

        async def next_fault() -> bool:
            print(await group.inject_fault(), flush=True)
            await asyncio.sleep(group.random.uniform(0.1, 3))
            if group.random.random() < 0.5:
                print("heal", flush=True)
                await group.heal()
                await asyncio.sleep(group.random.uniform(0.1, 3))
            return time.monotonic() < end

        return group, await group.run(next_fault)

    with tempfile.TemporaryDirectory() as folder:
        group, found = asyncio.run(work(Path(folder)))
    outcomes = {one.value: sum(a.outcome is one for a in group.appends) for one in Outcome}
    print(f"appends {outcomes}, {len(group.reads)} reads; {len(found)} violations", *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
