"""Servers and clients of RocketMQ as peers: builds the kit on first use, runs its programs.

Where Java or Maven is missing the tests are skipped; see `java.py`.
"""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.interop.java import BUILD_TIMEOUT_S, Line, refuse, require_java

KIT = Path(__file__).parent / "rocketmq"
PEER_VERSIONS = ("5.3.3", "4.9.7")
CLIENT_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60


@dataclass(frozen=True)
class RocketMQ:
    """The programs of one version."""

    version: str

    def command(self, program: str, *arguments: object) -> list[str]:
        """How a program is called."""
        return [str(KIT / "run.sh"), self.version, program, *map(str, arguments)]

    @contextmanager
    def serving(self, program: str, *arguments: object, log: Path) -> Iterator[None]:
        """A server from the moment that it is ready to the end of the block."""
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                self.command(program, *arguments), stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            assert process.stdout is not None
            try:
                while not (line := process.stdout.readline()).startswith("READY"):
                    assert line, f"{program} {self.version} did not start: {log.read_text()[-2000:]}"
                yield
            finally:
                process.terminate()
                try:
                    process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    process.kill()

    def run(self, program: str, *arguments: object) -> list[Line]:
        """Run a client to its end, and require that it is satisfied; returns what it printed."""
        done = self.finish(program, *arguments)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert done.returncode == 0, f"{program} exits {done.returncode}: {lines[-3:]} {done.stderr[-1000:]}"
        return lines

    def admin(self, *words: object) -> str:
        """What `mqadmin` prints."""
        return self.finish("Admin", *words).stdout

    def finish(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            self.command(program, *arguments),
            capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False,
        )  # fmt: skip


@contextmanager
def cluster(peers: RocketMQ, folder: Path, *settings: str) -> Iterator[str]:
    """A name server and a broker of one version; yields the address of the name server."""
    namesrv_port, broker_port = free_ports(2)
    namesrv = f"127.0.0.1:{namesrv_port}"
    where = ("--port", broker_port, "--namesrv", namesrv, "--store", folder / "store", "--small")
    with (
        peers.serving("NameServer", "--port", namesrv_port, log=folder / "namesrv.log"),
        peers.serving("Broker", *where, *settings, log=folder / "broker.log"),
    ):
        yield namesrv


@cache
def built_peer(version: str) -> RocketMQ:
    """Build the kit for a version, once a session. Skips the test when that cannot be done here."""
    require_java()
    probe = subprocess.run(
        [str(KIT / "run.sh"), version, "Build"],
        capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
    )  # fmt: skip
    if probe.returncode:
        refuse(f"Maven cannot build the kit: {probe.stderr[-300:]}")
    return RocketMQ(version)


def free_ports(count: int) -> list[int]:
    """Ports whose neighbours are free too: a broker also listens on the second below and on the next one."""
    found: list[int] = []
    candidate = 21_000 + os.getpid() * 37 % 8_000
    while len(found) < count:
        candidate += 5
        if all(is_free(port) for port in range(candidate - 2, candidate + 3)):
            found.append(candidate)
    return found


def is_free(port: int) -> bool:
    """Whether a port of loopback can be had now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
