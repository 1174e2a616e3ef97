"""What does waiting for a slave cost, and how fast does an empty slave catch up?

A master and its slave in processes of their own, on loopback; the load is native and has its frames encoded
already. `sync_over_async` is the rate of a SYNC_MASTER over that of an ASYNC_MASTER that has a slave, too,
with the same number of senders.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker_load import BrokerLoad
from benchmarks.brokers import RunningBroker, serving
from benchmarks.load_frames import FrameSource
from benchmarks.rounds import Rounds
from pyledger.client.replication import ReplicationAdmin, Standing
from pyledger.config.client import ClientConfig

SENDERS = {"sync": 1, "senders": 64}
"""Requests in flight, by kind of load."""
ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
PATIENT_S = 60
pytestmark = pytest.mark.usefixtures("native_load")


def status(address: str) -> Standing:
    """How a broker stands."""

    async def ask() -> Standing:
        async with ReplicationAdmin(client=ClientConfig(name_servers=address)) as tool:
            return await tool.status(address)

    return asyncio.run(ask())


@contextmanager
def member(folder: Path, names: str, role: str, number: int) -> Iterator[RunningBroker]:
    """A broker of a pair."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "broker.conf"
    settings = {
        "autoCreateTopicEnable": "true",
        "brokerRole": role,
        "brokerId": number,
        "slaveReadEnable": "true",
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


def until_followed(master: RunningBroker, slave: RunningBroker) -> None:
    """Wait until a slave has all that its master has."""
    deadline = time.monotonic() + PATIENT_S
    addresses = [f"{one.host}:{one.port}" for one in (master, slave)]
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

    def turn(role: str, kind: str, number: int, master: RunningBroker, slave: RunningBroker) -> None:
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
                        turn(role, kind, number, master, slave)
        return {
            f"{kind}_{SENDERS[kind]}": {
                "sync_over_async": rates[kind, ROLES[1]] / rates[kind, ROLES[0]],
                "per_second": {role: rates[kind, role] for role in ROLES},
                "pair_cpu_us": {role: cpu_us[kind, role] for role in ROLES},
            }
            for kind in SENDERS
        }

    rounds.note(**rounds.benchmark.pedantic(compare, rounds=1))


@pytest.mark.benchmark(group="replication: an empty slave catches up")
def bench_catch_up(rounds: Rounds, tmp_path: Path) -> None:
    size = 700 << 20 if rounds.full else 4 << 20

    def catch_up() -> dict[str, Any]:
        with (
            serving("namesrv", "--listen", "127.0.0.1:0") as (_, names, _),
            member(tmp_path / "master", names, "ASYNC_MASTER", 0) as master,
        ):
            load = BrokerLoad(
                master.host, master.port, master.pid, FrameSource("filling", body=bytes(16_384))
            )
            while (end := status(f"{master.host}:{master.port}").status.master_commit_log_max_offset) < size:
                load.run("async", warm_up_s=0, seconds=0.2)
            cpu = master.cpu_seconds()
            with member(tmp_path / "slave", names, "SLAVE", 1) as slave:
                begin = time.perf_counter()
                until_followed(master, slave)
                seconds = time.perf_counter() - begin
                return {
                    "bytes": end,
                    "gb_per_second": end / seconds / 1e9,
                    "cpu_s_per_gb": (master.cpu_seconds() - cpu + slave.cpu_seconds()) / end * 1e9,
                }

    rounds.note(**rounds.benchmark.pedantic(catch_up, rounds=1))
