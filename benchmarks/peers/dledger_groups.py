"""DLedger groups in processes of their own: ours, and Java's; and clients that load them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.brokers import CLI, serving
from benchmarks.peers.links import links_to
from benchmarks.peers.processor_time import cpu_seconds
from pyledger.client.dledger import DLedgerClient
from tests.interop.dledger_peers import JavaNode
from tests.interop.dledger_peers import run as run_java
from tests.servers.dledger.group import append_surely, free_ports

PATIENT = {"max_heart_beat_leak": 1000, "max_wait_ack_time_ms": 60_000}
"""A busy machine shall depose nobody."""
TIMEOUT_MS = 60_000


@dataclass
class RunningGroup:
    """The members of a group, by id, and how clients reach them."""

    peers: str
    pids: Mapping[str, int]
    kill: Callable[[str], None]

    def cpu_seconds(self) -> float:
        """Processor time that all members have used, user and system."""
        return sum(map(cpu_seconds, self.pids.values()))

    def resident_kib(self) -> list[int]:
        """Memory of each member."""
        return [
            int(line.split()[1])
            for pid in self.pids.values()
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        ]

    def append(self, body: bytes) -> str:
        """Append one entry; returns who leads."""

        async def work() -> str:
            async with DLedgerClient("g", self.peers, timeout_ms=TIMEOUT_MS) as client:
                await append_surely(client, body)
                return str(client.leader)

        return asyncio.run(work())

    def load(self, seconds: float, *, per: int = 1, in_flight: int = 1024) -> dict[str, Any]:
        """Our client in a process of its own; what it measured, and the members' time for one entry."""
        words = ["dledger", "bench", "--group", "g", "--peers", self.peers, "--timeout-ms", str(TIMEOUT_MS)]
        words += ["--seconds", str(seconds), "--per", str(per), "--in-flight", str(in_flight), "--json"]
        before = self.cpu_seconds()
        done = subprocess.run(
            [sys.executable, "-c", CLI, *words],
            check=True,
            capture_output=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        found: dict[str, Any] = json.loads(done.stdout)
        used_us = (self.cpu_seconds() - before) / found["entries"] * 1e6
        return {"per_second": found["entriesPerSecond"], "p50_ms": found["p50Ms"], "nodes_cpu_us": used_us}

    def java_load(self, seconds: int, *, in_flight: int = 1024) -> dict[str, Any]:
        """Java's client; the first quarter of its time counts for the members' processor time alone."""
        words = [
            "--mode",
            "async",
            "--min",
            "256",
            "--inflight",
            str(in_flight),
            "--timeout",
            str(TIMEOUT_MS),
        ]
        before = self.cpu_seconds()
        code, lines = run_java(
            "Append", "--group", "g", "--peers", self.peers, *words, "--bench", str(seconds)
        )
        found = lines[-1]
        assert (code, found["failed"]) == (0, 0)
        used_us = (self.cpu_seconds() - before) / (found["entries"] / 0.75) * 1e6
        return {"per_second": found["tps"], "p50_ms": found["p50_ms"], "nodes_cpu_us": used_us}


@contextmanager
def our_group(
    folder: Path, size: int = 3, *, delay_ms: float | None = None, **settings: object
) -> Iterator[RunningGroup]:
    """Members of ours until the end of the block; `settings` are those of `DLedgerConfig`.

    With `delay_ms` they reach one another through links that delay all bytes by so much, each way.
    """
    folder.mkdir(parents=True, exist_ok=True)
    addresses = {f"n{n}": f"127.0.0.1:{port}" for n, port in enumerate(free_ports(size))}
    peers = peers_text(addresses)
    config = folder / "dledger.toml"
    lines = (f"{name} = {json.dumps(value)}" for name, value in settings.items())
    config.write_text("\n".join(("[dledger]", *lines)))
    with ExitStack() as stack:
        processes = {}
        reached = addresses
        if delay_ms is not None:
            links = stack.enter_context(links_to([*addresses.values()], delay_ms))
            reached = dict(zip(addresses, links, strict=True))
        for name, own in addresses.items():
            known = peers_text({**reached, name: own})
            words = ("dledger", "node", "--group", "g", "--id", name, "--peers", known)
            member = serving(*words, "--store", folder, "--config", config)
            processes[name] = stack.enter_context(member)[0]

        def kill(name: str) -> None:
            processes[name].kill()
            processes[name].wait()

        yield RunningGroup(peers, {name: process.pid for name, process in processes.items()}, kill)


def peers_text(addresses: Mapping[str, str]) -> str:
    """Members as commands take them."""
    return ";".join(f"{name}-{address}" for name, address in addresses.items())


@contextmanager
def java_group(folder: Path, size: int = 3, *, batch: bool = False) -> Iterator[RunningGroup]:
    """Members of Java's until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"n{n}" for n in range(size)]
    ports = free_ports(size)
    peers = ";".join(f"{name}-127.0.0.1:{port}" for name, port in zip(names, ports, strict=True))
    settings = [f"enableBatchPush={str(batch).lower()}"]
    nodes = {name: JavaNode(name, peers, folder, settings) for name in names}
    try:
        for node in nodes.values():
            node.wait_ready()
        yield RunningGroup(
            peers, {name: node.process.pid for name, node in nodes.items()}, lambda name: nodes[name].kill()
        )
    finally:
        for node in nodes.values():
            if node.process.poll() is None:
                node.stop()
