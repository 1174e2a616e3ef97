"""Clusters of bookies for measurements, each bookie a process: ours, or Java's."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyledger.metadata.cluster import locate
from tests.interop.bookkeeper_peers import KIT, java_cluster

JAVA_OPTIONS = "-Xms256m -Xmx1g -XX:MaxDirectMemorySize=1g"
"""Of a client that runs for long enough that its code is compiled well."""
NO_RECOVERY = "[bookie]\nauto_recovery_daemon_enabled = false\n"


@dataclass
class Cluster:
    """A cluster that runs; processes by the names of bookies."""

    address: str
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)


@contextmanager
def serving(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A command of ours that serves, killed at the end."""
    command = [sys.executable, "-m", "pyledger", *map(str, words), "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        try:
            assert made.stdout.readline().startswith("READY")
            yield made
        finally:
            made.kill()


@contextmanager
def our_bookies(folder: Path, count: int, address: str = "") -> Iterator[Cluster]:
    """Our bookies without autorecovery, their cluster in a file unless it is somewhere else."""
    folder.mkdir(exist_ok=True)
    cluster = Cluster(address or f"sqlite:{folder / 'metadata'}")
    if not address:
        asyncio.run(format_cluster(cluster.address))
    off = folder / "off.toml"
    off.write_text(NO_RECOVERY)
    where = ("--metadata", cluster.address, "--listen", "127.0.0.1:0", "-c", off)
    with ExitStack() as stack:
        for name in "abcdefgh"[:count]:
            words = ("bookie", "serve", folder / name, *where, "--id", name)
            cluster.processes[name] = stack.enter_context(serving(*words))
        yield cluster


@contextmanager
def for_both_clients(folder: Path, impl: str, count: int) -> Iterator[tuple[Cluster, str]]:
    """Our bookies or Java's, and the ZooKeeper server of their cluster."""
    folder.mkdir()
    with ExitStack() as stack:
        java = stack.enter_context(java_cluster(folder, bookies=0 if impl == "ours" else count))
        if impl == "ours":
            yield stack.enter_context(our_bookies(folder / "ours", count, java.address)), java.hosts
        else:
            named = {str(at): process for at, process in enumerate(java.bookies)}
            yield Cluster(java.address, named), java.hosts


async def format_cluster(address: str) -> None:
    """Make a cluster's metadata."""
    async with locate(address) as cluster:
        await cluster.format()


def java_client(hosts: str, *words: object) -> dict[str, Any]:
    """What Java's client measures, see `Bench` of the kit."""
    done = subprocess.run(
        [str(KIT / "run.sh"), "Bench", "--zk", hosts, *map(str, words)],
        env=os.environ | {"JAVA_OPTS": JAVA_OPTIONS},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
