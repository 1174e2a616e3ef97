"""A bookie's folders change hands: what one of either kind has acknowledged, the other one serves."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from pyledger.bookkeeper import LedgerClient
from pyledger.metadata.zookeeper import ZooKeeperStore
from pyledger.store.bookkeeper.verify import BookieCheck
from tests.interop.bookkeeper_peers import JavaCluster, free_port, our_bookie, payload, serving, zookeeper
from tests.servers.bookkeeper.bookie_peer import PATIENT

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

ONE = ("--e", 1, "--qw", 1, "--qa", 1, "--password", "pw")
COUNT, SIZE = 40, 700


def places(home: Path) -> tuple[object, ...]:
    ledgers = home / "ledgers"
    return ("--journal", home / "journal", "--ledgers", ledgers, "--index", ledgers)


async def session_ended(hosts: str, bookie: str) -> None:
    """Return when ZooKeeper has forgotten a bookie that was killed: 12 s at most. Java's waits for 10 s."""
    async with contextlib.AsyncExitStack() as closing:
        store = ZooKeeperStore(hosts)
        closing.push_async_callback(store.close)
        await store.start()
        async with contextlib.aclosing(store.watch(f"/ledgers/available/{bookie}")) as seen:
            async for node in seen:
                if node is None:
                    return


def test_folders_change_hands(tmp_path: Path) -> None:
    """Ours is killed, Java's goes on with its journal; that one is killed, and ours goes on with its own."""
    home = tmp_path / "b1"
    off = tmp_path / "off.toml"
    off.write_text("[bookie]\nauto_recovery_daemon_enabled = false\n")
    ours = ("--id", "b1", "-c", off)
    with zookeeper(tmp_path) as hosts:
        cluster = JavaCluster(hosts, [])
        cluster.run("Format")
        with our_bookie(home, hosts, free_port(), *ours) as bookie:
            with (
                LedgerClient(cluster.address, config=PATIENT) as client,
                client.create(
                    ensemble_size=1, write_quorum_size=1, ack_quorum_size=1, password=b"pw"
                ) as writer,
            ):
                writer.add_many(payload(at, SIZE) for at in range(COUNT))
            bookie.kill()
        asyncio.run(session_ended(hosts, "b1"))
        first = writer.ledger_id
        assert list((home / "ledgers/current").glob("*.log")) == [], "all of it is in the journal alone"
        java = ("--port", free_port(), *places(home), "--zk", hosts, "--id", "b1", "--storage", "interleaved")
        with serving("Bookie", *java, log=tmp_path / "java.log") as process:
            *_, read = cluster.run("Read", "--ledger", first, "--password", "pw")
            assert (read["read"], read["length"]) == (COUNT, COUNT * SIZE)
            *_, closed = cluster.run("Write", *ONE, "--count", COUNT, "--size", SIZE)
            process.kill()
        second = int(closed["closed"])
        with (
            our_bookie(home, hosts, free_port(), *ours),
            LedgerClient(cluster.address, config=PATIENT) as client,
        ):
            for ledger_id in (first, second):
                found = [entry.payload for entry in client.open(ledger_id, b"pw").read()]
                assert found == [payload(at, SIZE) for at in range(COUNT)], ledger_id
    assert not [one for one in BookieCheck(str(home)).findings() if one.severity == "error"]
