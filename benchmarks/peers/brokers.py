"""Brokers in processes of their own: ours, and RocketMQ's, each with a name server."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from benchmarks.load.broker_load import FRAMES_BYTES, BrokerLoad
from benchmarks.load.frames import FrameSource
from benchmarks.peers.processor_time import cpu_seconds
from tests.interop import peers

JAVA_VERSION = "5.3.3"
HEAP = "-Xms2g -Xmx2g -XX:MaxDirectMemorySize=2g"
CLI = "import sys; from pyledger.cli.__main__ import main; sys.argv[0] = 'pyledger'; main()"
PATIENT = "waitTimeMillsInSendQueue=20000"
"""A busy machine shall not make it refuse sends."""
STOP_TIMEOUT_S = 60


@dataclass(frozen=True)
class RunningBroker:
    """A broker and where its name server is."""

    name: str
    pid: int
    host: str
    port: int
    name_server: str

    def load(self, source: FrameSource, *, full: bool) -> BrokerLoad:
        """Loads for it; small ones unless it is measured."""
        frames_bytes = FRAMES_BYTES if full else 100_000
        return BrokerLoad(self.host, self.port, self.pid, source, frames_bytes)

    def cpu_seconds(self) -> float:
        """Processor time that it has used, user and system."""
        return cpu_seconds(self.pid)

    def memory_kib(self) -> dict[str, int]:
        """What of it is resident: all, its own, and pages of files."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        values = {
            line.partition(":")[0]: line.split()[1] for line in lines if ":" in line and line.split()[1:]
        }
        return {name: int(values[name]) for name in ("VmRSS", "RssAnon", "RssFile")}


def program_environment() -> dict[str, str]:
    """Modules are those of this process, and may keep their bytecode: an installed package has it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path)}


@contextmanager
def serving(*words: object) -> Iterator[tuple["subprocess.Popen[str]", str, float]]:
    """A command of ours from READY to the end of the block; its process, its address, seconds until READY."""
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", CLI, *map(str, words), "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
        env=program_environment(),
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("READY"), f"{words} did not start: {line!r}"
            yield process, line.split()[-1], time.perf_counter() - begin
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
            process.kill()


@contextmanager
def our_broker(folder: Path, *settings: str) -> Iterator[RunningBroker]:
    """`pyledger broker` that makes topics on their first use."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "broker.conf"
    config.write_text("\n".join(["autoCreateTopicEnable=true", *settings]))
    with ExitStack() as stack:
        _, names, _ = stack.enter_context(serving("namesrv", "--listen", "127.0.0.1:0"))
        words = ("broker", "--config", config, "--namesrv", names, "--store", folder / "store")
        process, address, _ = stack.enter_context(serving(*words, "--listen", "127.0.0.1:0"))
        host, _, port = address.rpartition(":")
        yield RunningBroker("pyledger", process.pid, host, int(port), names)


@contextmanager
def java_broker(folder: Path) -> Iterator[RunningBroker]:
    """RocketMQ's broker with its defaults, and a heap that it does not fill."""
    peers.build(JAVA_VERSION)
    names_port, port = peers.free_ports(2)
    names = f"127.0.0.1:{names_port}"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        start = ("NameServer", "--port", names_port)
        stack.enter_context(peers.serving(JAVA_VERSION, *start, log=folder / "namesrv.log"))
        where = ("--port", port, "--namesrv", names, "--store", folder / "store", "--set", PATIENT)
        with patch.dict(os.environ, {"JAVA_OPTS": HEAP}):
            log = folder / "broker.log"
            stack.enter_context(peers.serving(JAVA_VERSION, "Broker", *where, log=log))
        yield RunningBroker(f"java-{JAVA_VERSION}", pid_of_listener(port), "127.0.0.1", port, names)


def pid_of_listener(port: int) -> int:
    """The child process that listens on a port of loopback."""
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    lines6 = (line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:])
    inodes = {f[9] for f in [*lines, *lines6] if f[3] == "0A" and int(f[1].rpartition(":")[2], 16) == port}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                if str(descriptor.readlink()) in {f"socket:[{inode}]" for inode in inodes}:
                    return int(process.name)
    raise ProcessLookupError(f"nobody listens on port {port}")
