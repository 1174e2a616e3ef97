"""Servers and clients of RocketMQ as peers: builds the kit on first use, runs its programs.

Where Java or Maven is missing the tests are skipped; see `java.py`. Client programs in Java run in one
process for each version, the host: a start of Java for each would take longer than what they do.
"""

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO

from tests.interop.java import BUILD_TIMEOUT_S, Line, refuse, require_java
from tests.support.ports import free_ports

KIT = Path(__file__).parent / "rocketmq"
PEER_VERSIONS = ("5.3.3", "4.9.7")
RUN_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60


@dataclass
class Run:
    """One run of a client program, under way or at its end."""

    name: str
    output: IO[str]
    finish: Callable[[], int | None]
    """Waits for the end; returns the exit status, or None: the last line tells it."""
    said: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[Line]:
        """What it has printed, as far as that was JSON."""
        return [json.loads(line) for line in self.said if line.startswith("{")]

    def until(self, event: str) -> Line:
        """Wait for the first line of a kind that was not waited for yet."""
        for text in self.output:
            self.said.append(text)
            if text.startswith("{") and (line := json.loads(text))["event"] == event:
                found: Line = line
                return found
        raise AssertionError(f"{self.name} ended before it said {event}: {self.said[-5:]}")

    def end(self) -> list[Line]:
        """Wait for the end, and require that the program was satisfied."""
        self.wait()
        return self.lines

    def wait(self) -> str:
        """The same; returns the text that it has printed."""
        with self.output:
            self.said.extend(self.output)
        status = self.finish()
        if status is None:
            status = int(json.loads(self.said.pop())["status"]) if self.said else -1
        assert status == 0, f"{self.name} ends with {status}: {self.said[-5:]}"
        return "".join(self.said)


@dataclass(frozen=True)
class RocketMQ:
    """The programs of one version."""

    version: str
    host_port: int

    def start(self, program: str, *arguments: object) -> Run:
        """Start a client program in the host."""
        connection = socket.create_connection(("127.0.0.1", self.host_port), timeout=RUN_TIMEOUT_S)
        connection.sendall(("\t".join([program, *map(str, arguments)]) + "\n").encode())
        output = connection.makefile(encoding="utf-8")
        connection.close()  # the file keeps it open
        return Run(f"{program} {self.version} {arguments}", output, lambda: None)

    def run(self, program: str, *arguments: object) -> list[Line]:
        """Run a client to its end, and require that it is satisfied; returns what it printed."""
        return self.start(program, *arguments).end()

    def admin(self, *words: object) -> str:
        """What `mqadmin` says, a complaint or not."""
        return self.start("Admin", *words).wait()


def command(version: str, program: str, *arguments: object) -> list[str]:
    """How a program is called as a process of its own."""
    return [str(KIT / "run.sh"), version, program, *map(str, arguments)]


def run_alone(version: str, program: str, *arguments: object) -> list[Line]:
    """Run a program as a process of its own, and require that it is satisfied."""
    build(version)
    with subprocess.Popen(
        command(version, program, *arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        return Run(f"{program} {version} {arguments}", process.stdout, process.wait).end()


def stop(process: subprocess.Popen[str]) -> None:
    """Ask a server to end; kill it when it does not."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()


@contextmanager
def serving(version: str, program: str, *arguments: object, log: Path) -> Iterator[list[str]]:
    """A server from the moment that it is ready to the end of the block; yields what it said then."""
    home = log.parent / "home"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command(version, program, *arguments),
            stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | {"RMQ_HOME": str(home)},
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        try:
            while not (line := process.stdout.readline()).startswith("READY"):
                assert line, f"{program} {version} did not start: {log.read_text()[-2000:]}"
            yield line.split()
        finally:
            stop(process)


@contextmanager
def cluster(version: str, folder: Path, settings: Sequence[str] = ()) -> Iterator[str]:
    """A name server and a broker of one version; yields the address of the name server."""
    namesrv_port, broker_port = free_ports(2)
    namesrv = f"127.0.0.1:{namesrv_port}"
    where = ("--port", broker_port, "--namesrv", namesrv, "--store", folder / "store", "--small")
    with (
        serving(version, "NameServer", "--port", namesrv_port, "--home", folder, log=folder / "namesrv.log"),
        serving(version, "Broker", *where, *settings, log=folder / "broker.log"),
    ):
        yield namesrv


class Peers:
    """RocketMQ by version, each with a host that starts on first use and stays to the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._hosts: dict[str, RocketMQ] = {}

    def __call__(self, version: str) -> RocketMQ:
        """One version."""
        if version not in self._hosts:
            build(version)
            host = serving(version, "Host", log=self._folder / f"host-{version}.log")
            _, port = self._stack.enter_context(host)
            self._hosts[version] = RocketMQ(version, int(port))
        return self._hosts[version]

    def close(self) -> None:
        """Stop the hosts."""
        self._stack.close()


@cache
def build(version: str) -> None:
    """Build the kit for a version, once a session. Skips the test when that cannot be done here."""
    require_java()
    probe = subprocess.run(
        command(version, "Build"), capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    if probe.returncode:
        refuse(f"Maven cannot build the kit: {probe.stderr[-300:]}")
