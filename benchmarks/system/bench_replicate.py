"""What does waiting for a slave cost, and how fast does an empty slave catch up?

A master and its slave in processes of their own, on loopback; the load is native and has its frames encoded
already. `sync_over_async` is the rate of a SYNC_MASTER over that of an ASYNC_MASTER that has a slave, too,
with the same number of senders.
"""

import asyncio
import os
import shutil
import signal
import statistics
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from benchmarks.load.broker_load import BrokerLoad
from benchmarks.load.frames import FrameSource
from benchmarks.load.rounds import Rounds
from benchmarks.peers.brokers import JAVA_VERSION, PATIENT, RunningBroker, pid_of_listener, serving
from pyledger._core import LogView, MappedFile, scan
from pyledger.client.admin.ha import BrokerHaState, ReplicationAdmin
from pyledger.config.client import ClientConfig
from tests.interop.peers import free_ports, run_alone
from tests.interop.peers import serving as java_serving

SENDERS = {"sync": 1, "senders": 64}
"""Requests in flight, by kind of load."""
ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
PATIENT_S = 60
LOOK_S = 0.0002
"""Pause between two looks at a log: they shall not take from the brokers what they measure."""
pytestmark = pytest.mark.usefixtures("native_load")
PAIR_HEAP = "-Xms1g -Xmx1g -XX:MaxDirectMemorySize=1g"


def status(address: str) -> BrokerHaState:
    """How a broker stands."""

    async def ask() -> BrokerHaState:
        async with ReplicationAdmin(client=ClientConfig(name_servers=address)) as tool:
            return await tool.status(address)

    return asyncio.run(ask())


@contextmanager
def member(
    folder: Path, names: str, role: str, number: int, more: Mapping[str, object] | None = None
) -> Iterator[RunningBroker]:
    """A broker of a pair."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "broker.conf"
    settings = {
        "autoCreateTopicEnable": "true",
        "brokerRole": role,
        "brokerId": number,
        "slaveReadEnable": "true",
        **(more or {}),
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    words = ("broker", "--config", config, "--namesrv", names, "--store", folder / "store")
    with serving(*words, "--listen", "127.0.0.1:0") as (process, address, _):
        host, _, port = address.rpartition(":")
        yield RunningBroker("pyledger", process.pid, host, int(port), names)


@contextmanager
def pair(folder: Path, role: str) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    """A master and a slave that follows it."""
    with (
        serving("namesrv", "--listen", "127.0.0.1:0") as (_, names, _),
        member(folder / "master", names, role, 0) as master,
        member(folder / "slave", names, "SLAVE", 1) as slave,
    ):
        until_followed(master, slave)
        yield master, slave


def address_of(broker: RunningBroker) -> str:
    """`host:port`."""
    return f"{broker.host}:{broker.port}"


def until_followed(master: RunningBroker, slave: RunningBroker) -> None:
    """Wait until a slave has all that its master has."""
    deadline = time.monotonic() + PATIENT_S
    addresses = [address_of(one) for one in (master, slave)]
    while True:
        first, second = map(status, addresses)
        own = second.status.ha_client_info
        if own.activated and own.max_offset == first.status.master_commit_log_max_offset:
            return
        assert time.monotonic() < deadline, (first, second)
        time.sleep(0.01)


@pytest.mark.benchmark(group="replication: sends with and without waiting for the slave, 256 B")
def bench_sync_over_async(rounds: Rounds, tmp_path: Path) -> None:
    seconds = 2.0 if rounds.full else 0.1
    rates: dict[tuple[str, str], float] = {}
    cpu_us: dict[tuple[str, str], float] = {}

    def measure_round(role: str, kind: str, number: int, master: RunningBroker, slave: RunningBroker) -> None:
        source = FrameSource(f"load_{kind}_{number}")
        load = BrokerLoad(master.host, master.port, master.pid, source)
        before = slave.cpu_seconds()
        found = load.run(kind, warm_up_s=seconds / 4, seconds=seconds)
        until_followed(master, slave)
        slave_us = (slave.cpu_seconds() - before) / found["messages"] * 1e6
        place = kind, role
        rates[place] = max(rates.get(place, 0.0), found["per_second"])
        cpu_us[place] = min(cpu_us.get(place, 1e9), found["broker_cpu_us"] + slave_us)

    def compare() -> dict[str, Any]:
        with pair(tmp_path / "a", ROLES[0]) as first, pair(tmp_path / "s", ROLES[1]) as second:
            for number in range(3 if rounds.full else 1):
                for kind in SENDERS:
                    for role, (master, slave) in zip(ROLES, (first, second), strict=True):
                        measure_round(role, kind, number, master, slave)
        found: dict[str, Any] = {}
        for kind, senders in SENDERS.items():
            asynchronous, synchronous = (rates[kind, role] for role in ROLES)
            found[f"sync_over_async_{senders}"] = synchronous / asynchronous
            found |= {f"{role}_{senders}_per_second": rates[kind, role] for role in ROLES}
            found |= {f"{role}_{senders}_pair_cpu_us": cpu_us[kind, role] for role in ROLES}
        return found

    rounds.note(**rounds.benchmark.pedantic(compare, rounds=1))


@pytest.mark.benchmark(group="replication: an empty slave catches up")
def bench_catch_up(rounds: Rounds, tmp_path: Path) -> None:
    size = 700 << 20 if rounds.full else 4 << 20
    seconds = 1.0 if rounds.full else 0.1
    # One file: an empty slave begins at the last.
    settings = {"mappedFileSizeCommitLog": 2 * size + (64 << 20) - 4096}

    def catch_up() -> dict[str, Any]:
        with (
            serving("namesrv", "--listen", "127.0.0.1:0") as (_, names, _),
            member(tmp_path / "master", names, "ASYNC_MASTER", 0, settings) as master,
        ):
            fill(master, size * 3 // 4)
            results = [one_round(master, names) for _ in range(3 if rounds.full else 1)]
        best = max(results, key=lambda one: one["gb_per_second"])
        alone, meanwhile = (
            statistics.median(one[name] for one in results) for name in ("alone", "meanwhile")
        )
        return best | {"alone": alone, "meanwhile": meanwhile, "meanwhile_over_alone": meanwhile / alone}

    def one_round(master: RunningBroker, names: str) -> dict[str, float]:
        """A slave that has the master to itself, then one beside sends."""
        load = BrokerLoad(master.host, master.port, master.pid, FrameSource("meanwhile"))
        os.sync()
        with late_slave(tmp_path / "slave", names, master, settings) as slave:
            before = master.cpu_seconds() + slave.cpu_seconds()
            with let_follow(master):
                found = asyncio.run(follow(master, slave))
            used = master.cpu_seconds() + slave.cpu_seconds() - before
        shutil.rmtree(tmp_path / "slave")
        os.sync()
        alone = load.run("senders", warm_up_s=seconds / 2, seconds=seconds)["per_second"]
        with late_slave(tmp_path / "slave", names, master, settings) as slave, let_follow(master):
            meanwhile = load.run("senders", warm_up_s=0, seconds=seconds)["per_second"]
            behind = status(address_of(master)).status.master_commit_log_max_offset - slave_end(slave)
        shutil.rmtree(tmp_path / "slave")
        more = {"alone": alone, "meanwhile": meanwhile, "still_behind_bytes": behind}
        return found | more | {"cpu_s_per_gb": used / found["bytes"] * 1e9}

    rounds.note(**rounds.benchmark.pedantic(catch_up, rounds=1))


def fill(master: RunningBroker, size_bytes: int) -> None:
    """Give a master a log of this length."""
    load = BrokerLoad(master.host, master.port, master.pid, FrameSource("filling", body=bytes(16_384)))
    while status(address_of(master)).status.master_commit_log_max_offset < size_bytes:
        load.run("async", warm_up_s=0, seconds=0.2)


@contextmanager
def late_slave(
    folder: Path, names: str, master: RunningBroker, settings: Mapping[str, object]
) -> Iterator[RunningBroker]:
    """A slave that has started and got nothing yet: its master stands still."""
    os.kill(master.pid, signal.SIGSTOP)
    try:
        with member(folder, names, "SLAVE", 1, settings) as slave:
            # The slave's connection waits in the master's backlog.
            time.sleep(0.5)
            yield slave
    finally:
        os.kill(master.pid, signal.SIGCONT)


@contextmanager
def let_follow(master: RunningBroker) -> Iterator[None]:
    """The master goes on."""
    os.kill(master.pid, signal.SIGCONT)
    yield


def slave_end(slave: RunningBroker) -> int:
    """Physical offset (bytes) where a slave's log ends."""
    return status(address_of(slave)).status.ha_client_info.max_offset


async def follow(master: RunningBroker, slave: RunningBroker) -> dict[str, float]:
    """How fast a slave comes to its master's end, from the first bytes that it has on."""
    names = ClientConfig(name_servers=address_of(master))
    async with ReplicationAdmin(client=names) as tool:
        end = (await tool.status(address_of(master))).status.master_commit_log_max_offset
        first = 0, 0.0
        while True:
            at = (await tool.status(address_of(slave))).status.ha_client_info.max_offset
            now = time.perf_counter()
            if not first[0] and at:
                first = at, now
            if at >= end:
                seconds = max(now - first[1], 1e-9)
                return {"bytes": end, "gb_per_second": (end - first[0]) / seconds / 1e9}
            await asyncio.sleep(0.005)


class SeenLog:
    """A broker's log as others see it: its first file is mapped here, too.

    To look must not slow down what is looked at: were anything read ahead behind the end, the kernel would
    fill megabytes of pages with zeros there, and the slave would wait for that before it can write.
    """

    def __init__(self, folder: Path) -> None:
        self._file = MappedFile.open(str(folder / "store" / "commitlog" / f"{0:020d}"))
        LogView((self._file,), 0).await_growth()
        self._view = LogView((self._file,), self._file.size_bytes)
        self.end = 0

    def look(self) -> int:
        """Where the last record ends now."""
        self.end = scan(self._view, self.end, check=False).next_offset
        return self.end


@pytest.mark.benchmark(group="replication: lag of a slave under load")
def bench_lag(rounds: Rounds, tmp_path: Path) -> None:
    seconds = 4.0 if rounds.full else 0.2

    def sample(load: "Future[dict[str, Any]]") -> list[float]:
        """Time until a slave has what its master has at a moment, again and again, in ms."""
        master, slave = SeenLog(tmp_path / "master"), SeenLog(tmp_path / "slave")
        found = []
        while not load.done():
            end, begin = master.look(), time.perf_counter()
            while slave.look() < end:
                time.sleep(LOOK_S)
            found.append((time.perf_counter() - begin) * 1000)
            time.sleep(LOOK_S)
        return found

    def lag() -> dict[str, Any]:
        with pair(tmp_path, ROLES[0]) as (master, slave), ThreadPoolExecutor() as threads:
            load = BrokerLoad(master.host, master.port, master.pid, FrameSource("lag"))
            load.run("async", warm_up_s=0, seconds=0.1)
            until_followed(master, slave)
            running = threads.submit(load.run, "async", warm_up_s=0, seconds=seconds)
            found = sorted(sample(running))
            return {
                "per_second": running.result()["per_second"],
                "samples": len(found),
                **{f"lag_p{p}_ms": found[min(len(found) - 1, len(found) * p // 100)] for p in (50, 99, 100)},
            }

    rounds.note(**rounds.benchmark.pedantic(lag, rounds=1))


@contextmanager
def java_pair(folder: Path, role: str) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    """A master of RocketMQ's, and its slave."""
    names_port, *ports = free_ports(3)
    names = f"127.0.0.1:{names_port}"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        start = ("NameServer", "--port", names_port)
        stack.enter_context(java_serving(JAVA_VERSION, *start, log=folder / "namesrv.log"))
        members = []
        for number, (port, what) in enumerate(zip(ports, (role, "SLAVE"), strict=True)):
            where = ("--port", port, "--namesrv", names, "--store", folder / f"store{number}")
            rest = ("--role", what, "--broker-id", number, "--set", PATIENT, "--set", "inSyncReplicas=2")
            log = folder / f"broker{number}.log"
            with patch.dict(os.environ, {"JAVA_OPTS": PAIR_HEAP}):
                stack.enter_context(java_serving(JAVA_VERSION, "Broker", *where, *rest, log=log))
            members.append(
                RunningBroker(f"java-{JAVA_VERSION}", pid_of_listener(port), "127.0.0.1", port, names)
            )
        yield members[0], members[1]


@pytest.mark.java
@pytest.mark.benchmark(group="replication: RocketMQ's Java client with our pair and with Java's")
@pytest.mark.parametrize("role", ROLES, ids="role={}".format)
def bench_java_client(rounds: Rounds, tmp_path: Path, role: str) -> None:
    length = ("--warmup", 2, "--seconds", 3) if rounds.full else ("--warmup", 0, "--seconds", 1)

    def act() -> dict[str, Any]:
        found: dict[str, Any] = {}
        with pair(tmp_path / "ours", role) as ours, java_pair(tmp_path / "java", role) as java:
            pairs = {"pyledger": ours, "java": java}
            for mode in ("sync", "async"):
                rates, cpu_us = dict.fromkeys(pairs, 0.0), dict.fromkeys(pairs, 1e9)
                for _ in range(2 if rounds.full else 1):
                    for name, members in pairs.items():
                        before = sum(one.cpu_seconds() for one in members)
                        where = ("--namesrv", members[0].name_server, "--mode", mode, "--topic", mode)
                        *_, summary = run_alone(JAVA_VERSION, "Bench", *where, *length)
                        used = sum(one.cpu_seconds() for one in members) - before
                        rates[name] = max(rates[name], summary["perSecond"])
                        cpu_us[name] = min(cpu_us[name], used / summary["stored"] * 1e6)
                found[f"{mode}_over_java"] = rates["pyledger"] / rates["java"]
                found[f"{mode}_cpu_over_java"] = cpu_us["pyledger"] / cpu_us["java"]
                found |= {f"{mode}_{name}_per_second": one for name, one in rates.items()}
                found |= {f"{mode}_{name}_pair_cpu_us": one for name, one in cpu_us.items()}
        return found

    rounds.note(**rounds.benchmark.pedantic(act, rounds=1))
