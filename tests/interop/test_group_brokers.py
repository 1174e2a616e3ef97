"""Brokers in a DLedger group with RocketMQ's: folders go to and fro, a mixed group has one log.

And its producer sends through a kill of our leader.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from pyledger.client.producer.producer import AsyncProducer
from pyledger.config.client import ClientConfig
from pyledger.model.message import Message
from pyledger.net.loop import run
from pyledger.store.maintenance.verify import verify
from tests.interop.peers import PEER_VERSIONS, Peers, build, serving
from tests.servers.broker.group_process import NAME, GroupProcesses, group_of_brokers
from tests.servers.broker.test_group import bodies, caught_up, consume
from tests.support.ports import free_ports

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

SIZES = {"mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 120_000}
VERSIONS = [pytest.param(one, marks=[] if one == "5.3.3" else [pytest.mark.slow]) for one in PEER_VERSIONS]
QUICK = ClientConfig(poll_name_server_interval_ms=100)


@asynccontextmanager
async def java_member(version: str, folder: Path, group: GroupProcesses, one: str) -> AsyncIterator[str]:
    """RocketMQ's broker as a member of the group, on the folder that ours would have; its address."""
    build(version)
    (port,) = free_ports(1)
    settings = {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": NAME,
        "dLegerPeers": group.peers,
        "dLegerSelfId": one,
        "autoCreateTopicEnable": "true",
    }
    options = [word for item in settings.items() for word in ("--set", "=".join(item))]
    where = ("--port", port, "--namesrv", group.name_server.address, "--store", folder / one)
    # The kit reports a broker before its member has a role: not as a master.
    names = ("--name", NAME, "--cluster", "DLedgerCluster", "--small", "--broker-id", int(one[1:]) + 1)
    server = serving(version, "Broker", *where, *names, *options, log=folder / f"java-{one}.log")
    await asyncio.to_thread(server.__enter__)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


async def master(group: GroupProcesses, besides: str | None = None) -> str:
    """Address of whom the name server knows as the master, when there is one other than `besides`."""
    while True:
        route = group.name_server.routes.clusters().brokers.get(NAME)
        address = None if route is None else route.broker_addrs.get(0)
        if address not in (None, besides):
            return str(address)
        await asyncio.sleep(0.05)


async def send(group: GroupProcesses, prefix: bytes, count: int) -> set[bytes]:
    """Messages of several sizes, more than a file holds when they are many; what was acknowledged."""
    sent = [
        b"%s %d" % (prefix, number) + Random(number).randbytes(60_000 * (number % 2))
        for number in range(count)
    ]
    async with AsyncProducer("P", group.name_server.address, client=QUICK) as producer:
        for body in sent:
            await producer.send(Message("T", body, keys="k", tags="A"))
        batch = [Message("T", b"%s batch %d" % (prefix, number)) for number in range(10)]
        await producer.send(batch)
    return {*sent, *(bytes(one.body) for one in batch)}


def is_sound(folder: Path) -> bool:
    """Whether all in a folder that was left in good order agrees."""
    return not [problem for problem in verify(folder) if problem.severity != "note"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_folder_goes_to_java_and_back(tmp_path: Path, version: str) -> None:
    async def main() -> None:
        async with group_of_brokers(tmp_path, 1, **SIZES) as group:
            name_server = group.name_server.address
            await group.start("n0")
            await group.lead()
            wanted = await send(group, b"ours", 100)
            await group.end("n0", signal.SIGTERM)
            assert is_sound(tmp_path / "n0")
            async with java_member(version, tmp_path, group, "n0") as address:
                assert await master(group) == address
                await consume(name_server, wanted)
                wanted |= await send(group, b"java's", 100)
                await consume(name_server, wanted)
            assert wanted <= bodies(tmp_path / "n0")
            assert is_sound(tmp_path / "n0")
            await group.start("n0")
            await group.lead()
            wanted |= await send(group, b"ours again", 10)
            await consume(name_server, wanted)
            await group.end("n0", signal.SIGTERM)
            assert is_sound(tmp_path / "n0")

    run(main())


@pytest.mark.slow
@pytest.mark.parametrize("version", PEER_VERSIONS)
def test_a_mixed_group_has_one_log(tmp_path: Path, version: str) -> None:
    """A Java broker and two of ours: whoever leads, all have what was acknowledged."""
    upstream = {"heartBeatTimeIntervalMs": 2000, "minVoteIntervalMs": 300, "maxVoteIntervalMs": 1000}

    async def main() -> None:
        async with group_of_brokers(tmp_path, 3, **SIZES, **upstream, heart_beat_jitter_ms=1000) as group:
            await group.start("n0")
            await group.start("n1")
            await master(group)
            wanted = await send(group, b"two", 30)
            async with java_member(version, tmp_path, group, "n2"):
                wanted |= await send(group, b"three", 30)
                await caught_up(tmp_path / "n2", wanted)
                await group.end("n0", signal.SIGKILL)
                await master(group, besides=group.addresses["n0"])
                wanted |= await send(group, b"Java and one", 30)
                await caught_up(tmp_path / "n1", wanted)
                await caught_up(tmp_path / "n2", wanted)
                await group.start("n0")
                await caught_up(tmp_path / "n0", wanted)
                await consume(group.name_server.address, wanted)

    run(main())


def test_a_java_producer_sends_through_a_kill_of_the_leader(tmp_path: Path, peers: Peers) -> None:
    count = 200

    async def main() -> None:
        async with group_of_brokers(tmp_path, 3, **SIZES) as group:
            await asyncio.gather(*(group.start(one) for one in group.ids))
            leader = await group.lead()
            options = (
                "--namesrv",
                group.name_server.address,
                "--topic",
                "T",
                "--count",
                count,
                "--poll",
                100,
            )
            # A send is tried again until there is a leader.
            patience = ("--retries", 1_000_000, "--send-timeout", 120_000)
            sending = await asyncio.to_thread(peers("5.3.3").start, "Produce", *options, *patience)
            for _ in range(50):
                await asyncio.to_thread(sending.until, "sent")
            await group.end(leader, signal.SIGKILL)
            await asyncio.to_thread(sending.end)
            await consume(group.name_server.address, {b"m-%d" % number for number in range(count)})

    run(main())
