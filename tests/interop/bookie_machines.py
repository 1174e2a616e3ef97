"""Bookies of one cluster in ZooKeeper, Java's and ours side by side."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from pyledger.metadata.cluster import locate
from tests.interop.bookkeeper_peers import JavaCluster, free_port, our_bookie, ours, serving, zookeeper


class Machines:
    """Bookies of one cluster, Java's and ours, by their ids."""

    def __init__(self, folder: Path, java: JavaCluster, stack: ExitStack) -> None:
        self.folder, self.java, self._stack = folder, java, stack
        self.running: dict[str, subprocess.Popen[str]] = {}
        self._numbers = count()

    @property
    def address(self) -> str:
        return self.java.address

    def start_java(self, *options: object) -> str:
        name = f"java-{next(self._numbers)}"
        home = self.folder / name
        where = ("--journal", home / "journal", "--ledgers", home / "ledgers", "--zk", self.java.hosts)
        quick = ("--id", name, "--set", "journalFlushWhenQueueEmpty=true")
        log = self.folder / f"{name}.log"
        started = serving("Bookie", "--port", free_port(), *where, *quick, *options, log=log)
        self.running[name] = self._stack.enter_context(started)
        return name

    def start_ours(self, settings: str = "") -> str:
        """A bookie of ours, with some tables of settings more."""
        name = f"ours-{next(self._numbers)}"
        config = self.folder / f"{name}.toml"
        config.write_text(f"[bookie]\nauto_recovery_daemon_enabled = false\n{settings}")
        how = ("--id", name, "-c", config)
        started = our_bookie(self.folder / name, self.java.hosts, free_port(), *how)
        self.running[name] = self._stack.enter_context(started)
        return name

    def fill(self, java: int, of_ours: int) -> None:
        """Have at least so many bookies of both kinds, and none that is registered but dead."""
        for start, kind, wanted in ((self.start_java, "java", java), (self.start_ours, "ours", of_ours)):
            for _ in range(wanted - sum(name.startswith(kind) for name in self.running)):
                start()
        asyncio.run(self._until_only_they_are_there())

    async def _until_only_they_are_there(self) -> None:
        # One that was killed stays registered until its session ends.
        async with locate(self.address) as cluster:
            async for found in cluster.bookies.watch():
                if found.writable.keys() == self.running.keys():
                    return

    def end(self, bookie: str) -> None:
        process = self.running.pop(bookie)
        process.terminate()
        process.wait()

    @contextmanager
    def our_recovery(self, name: str) -> Iterator[subprocess.Popen[str]]:
        words = ("autorecovery", "serve", "-m", self.address, "--id", name)
        with ours(*words, log=self.folder / f"{name}.log") as process:
            yield process

    @contextmanager
    def java_recovery(self, port: int) -> Iterator[None]:
        where = ("--zk", self.java.hosts, "--port", port)
        with serving("AutoRecovery", *where, log=self.folder / "autorecovery.log"):
            yield


@contextmanager
def machines_of(folder: Path) -> Iterator[Machines]:
    """A cluster without a bookie."""
    with ExitStack() as stack:
        java = JavaCluster(stack.enter_context(zookeeper(folder)), [])
        java.run("Format")
        yield Machines(folder, java, stack)
