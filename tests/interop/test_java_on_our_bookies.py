"""BookKeeper's own clients on bookies of ours, in a cluster in ZooKeeper."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyledger.store.bookkeeper.verify import BookieCheck
from tests.interop.bookkeeper_peers import JavaCluster, free_port, our_bookie, zookeeper

pytestmark = [pytest.mark.java, pytest.mark.slow]

BOOKIES = 3
FIRST = 10
"""Entries that the kit's writer adds before it listens."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bookies")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[JavaCluster]:
    """Our bookies, Java's clients."""
    with ExitStack() as stack:
        hosts = stack.enter_context(zookeeper(folder))
        found = JavaCluster(hosts, [])
        found.run("Format")
        for number in range(BOOKIES):
            home = folder / f"bookie-{number}"
            found.bookies.append(stack.enter_context(our_bookie(home, hosts, free_port())))
        yield found


@pytest.mark.parametrize("digest", ["CRC32", "CRC32C", "MAC", "DUMMY"])
@pytest.mark.parametrize("version", ["v2", "v3"])
def test_it_reads_what_it_wrote(cluster: JavaCluster, digest: str, version: str) -> None:
    how = ("--digest", digest, "--password", "pw", *(("--v2",) if version == "v2" else ()))
    *_, closed = cluster.run("Write", "--count", 30, "--size", "100,0,5000", *how)
    ledger = closed["closed"]
    *_, read = cluster.run("Read", "--ledger", ledger, *how)
    assert (read["read"], read["lac"], read["length"]) == (30, 29, 51_000)
    *_, copies = cluster.run("Replicas", "--ledger", ledger, "--all", "--password", "pw", "--digest", digest)
    assert (copies["copies"], copies["missing"]) == (90, 0)


def test_a_fenced_writer_gets_an_error(cluster: JavaCluster) -> None:
    lines = cluster.run("Fence")
    assert any(line.get("add", {}).get("error") == "BKLedgerFencedException" for line in lines)


def test_an_explicit_lac_and_a_long_poll(cluster: JavaCluster) -> None:
    with cluster.writer("--e", 3, "--qw", 3, "--qa", 2, "--explicit-lac", 50) as writer:
        ledger = writer.first["ledger"]
        for _ in range(5):
            writer.send("add 1 100")
        lines = cluster.run("ReadLac", "--ledger", ledger)
        assert lines[-1]["readLastConfirmed"] >= 3
        writer.send("close")


def test_its_recovery_closes_what_a_killed_writer_left(cluster: JavaCluster) -> None:
    lines = cluster.run("Write", "--count", 7, "--size", 10, "--no-close")
    *_, recovered = cluster.run("Recover", "--ledger", lines[0]["ledger"])
    assert (recovered["lac"], recovered["closed"]) == (6, True)


def test_a_bookie_that_is_killed_is_replaced(cluster: JavaCluster, folder: Path) -> None:
    """The ensemble changes; what it acknowledged is there when it is back."""
    home = folder / "bookie-spare"
    with our_bookie(home, cluster.hosts, free_port()):
        with cluster.writer("--e", 3, "--qw", 3, "--qa", 2) as writer:
            ledger = writer.first["ledger"]
            for at in range(40):
                if at == 20:
                    cluster.bookies[0].kill()
                    cluster.bookies[0].wait()
                assert writer.send("add 1 100").get("error") is None
            writer.send("close")
        *_, read = cluster.run("Read", "--ledger", ledger)
        assert (read["read"], read["lac"]) == (FIRST + 40, FIRST + 39)


def test_zz_the_folders_are_valid(cluster: JavaCluster, folder: Path) -> None:
    for number in range(1, BOOKIES):
        cluster.bookies[number].terminate()
        cluster.bookies[number].wait()
    for number in range(BOOKIES):
        check = BookieCheck(str(folder / f"bookie-{number}"))
        assert [one for one in check.findings() if one.severity != "note"] == []
        assert check.entries
