"""BookKeeper's own servers and clients, and ZooKeeper, as peers: the kit in `bookkeeper/`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.interop.java import BUILD_TIMEOUT_S, Line, refuse, require_java
from tests.interop.peers import stop
from tests.support.ports import free_ports

KIT = Path(__file__).parent / "bookkeeper"
VERSION = "4.17.3"
RUN_TIMEOUT_S = 180


@cache
def require_kit() -> None:
    """Build the kit, once a session. Skips the test where that cannot be done."""
    require_java()
    done = subprocess.run(
        command("build"), capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    if not (KIT / "target" / VERSION / "built").exists():
        refuse(f"Maven cannot build the kit: {done.stderr[-300:]}")


def command(program: str, *arguments: object) -> list[str]:
    return [str(KIT / "run.sh"), program, *map(str, arguments)]


@contextmanager
def serving(program: str, *arguments: object, log: Path) -> Iterator[subprocess.Popen[str]]:
    """A server, from the moment that it is ready to the end of the block."""
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            command(program, *arguments), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("READY"), f"{program} did not start: {line}{log.read_text()[-2000:]}"
            yield process
        finally:
            stop(process)


def free_port() -> int:
    return free_ports(1)[0]


@contextmanager
def zookeeper(folder: Path, port: int = 0, tick_ms: int = 2000) -> Iterator[str]:
    """A ZooKeeper server; its address. A session lasts 20 ticks at most."""
    require_kit()
    port = port or free_port()
    where = ("--port", port, "--data", folder / "zookeeper", "--tick", tick_ms)
    with serving("ZooKeeper", *where, log=folder / "zookeeper.log"):
        yield f"127.0.0.1:{port}"


@dataclass
class JavaCluster:
    """A formatted cluster with bookies, and the programs of the kit that are its clients."""

    hosts: str
    bookies: list[subprocess.Popen[str]]

    @property
    def address(self) -> str:
        return f"zk://{self.hosts}/ledgers"

    def run(self, program: str, *arguments: object, fails: bool = False) -> list[Line]:
        """Run a client to its end; the JSON lines that it printed."""
        done = subprocess.run(
            command(program, "--zk", self.hosts, *arguments),
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        lines: list[dict[str, Any]] = [
            json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
        ]
        assert (done.returncode != 0) == fails, (program, arguments, lines[-3:], done.stderr[-1500:])
        return lines

    @contextmanager
    def writer(self, *arguments: object) -> Iterator["JavaWriter"]:
        """A writer that stays open."""
        with subprocess.Popen(
            command("Write", "--zk", self.hosts, "--keep-open", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield JavaWriter(process)
            finally:
                process.kill()


class JavaWriter:
    """A Java program that writes what it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.first = self._line()
        self._line()  # what the entries came to that it wrote of itself

    def send(self, words: str) -> Line:
        """One command, and its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self) -> Line:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if text.startswith("{"):
                line: Line = json.loads(text)
                return line
        raise AssertionError("the writer has ended")


@contextmanager
def java_cluster(folder: Path, bookies: int = 3) -> Iterator[JavaCluster]:
    """ZooKeeper, formatted, and bookies."""
    with ExitStack() as stack:
        hosts = stack.enter_context(zookeeper(folder))
        cluster = JavaCluster(hosts, [])
        cluster.run("Format")
        for at in range(bookies):
            home = folder / f"bookie{at}"
            where = ("--journal", home / "journal", "--ledgers", home / "ledgers", "--zk", hosts)
            quick = ("--set", "journalFlushWhenQueueEmpty=true")
            started = serving("Bookie", "--port", free_port(), *where, *quick, log=folder / f"bookie{at}.log")
            cluster.bookies.append(stack.enter_context(started))
        yield cluster


@contextmanager
def our_bookie(folder: Path, hosts: str, port: int, *options: object) -> Iterator[subprocess.Popen[str]]:
    """A bookie of ours; `options` are those of `pyledger bookie serve`."""
    where = ("--listen", f"127.0.0.1:{port}", "--metadata", f"zk://{hosts}/ledgers")
    with ours("bookie", "serve", folder, *where, *options, log=folder.parent / f"{folder.name}.log") as made:
        yield made


@contextmanager
def ours(*words: object, log: Path) -> Iterator[subprocess.Popen[str]]:
    """A command of ours that serves, from the moment that it is ready to the end of the block."""
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "pyledger", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith(f"READY {words[0]}"), log.read_text()[-2000:]
            yield process
        finally:
            process.terminate()
            process.wait()


def payload(entry_id: int, size: int, seed: int = 0) -> bytes:
    """What the kit's writer puts into an entry of `size` bytes."""
    return bytes((seed + 31 * entry_id + 7 * at + 13 * (at // 256)) % 256 for at in range(size))
