"""Java's autorecovery and ours in one cluster, over Java's bookies and ours, with ZooKeeper."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from pyledger.bookkeeper import AsyncLedgerClient, LedgerClient
from pyledger.wire.bookkeeper.underreplication import EVERY_ENTRY
from tests.interop.bookie_machines import Machines, machines_of
from tests.interop.bookkeeper_peers import free_port, payload
from tests.servers.bookkeeper.bookie_peer import PATIENT

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

ENTRIES = 40
SIZES = (100, 0, 5000)
LOOK_AGAIN_S = 0.1


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines_of(tmp_path_factory.mktemp("autorecovery")) as found:
        yield found


def wait_until_without(machines: Machines, bookie: str, ledger_id: int) -> None:
    """Wait until a ledger no longer names a bookie, and no mark is left."""

    async def wait() -> None:
        async with AsyncLedgerClient(machines.address, config=PATIENT) as client:
            states = client.cluster.ledgers.watch(ledger_id)
            async for stored in states:
                if not any(bookie in one.ensemble for one in stored.metadata.segments):
                    break
            await states.aclose()
            while [one async for one in client.cluster.marks.ids()]:
                await asyncio.sleep(LOOK_AGAIN_S)

    asyncio.run(wait())


def auditor(machines: Machines) -> str | None:
    async def ask() -> str | None:
        async with AsyncLedgerClient(machines.address, config=PATIENT) as client:
            return await client.cluster.election.auditor()

    return asyncio.run(ask())


def mark_for_every_entry(machines: Machines, ledger_id: int, bookie: str) -> None:
    async def mark() -> None:
        async with AsyncLedgerClient(machines.address, config=PATIENT) as client:
            await client.cluster.marks.prepare()
            await client.cluster.marks.mark(ledger_id, [bookie, EVERY_ENTRY], 0)

    asyncio.run(mark())


def bookies_of(machines: Machines, ledger_id: int) -> list[str]:
    with LedgerClient(machines.address, config=PATIENT) as client:
        return sorted({one for seg in client.metadata(ledger_id).segments for one in seg.ensemble})


def under_replicated(machines: Machines, ledger_ids: list[int]) -> list[int]:
    """Ledgers with a missing replica of any entry, by our check."""

    async def check() -> list[int]:
        async with AsyncLedgerClient(machines.address, config=PATIENT) as client:
            repairs = client.repairs()
            return [
                one for one in ledger_ids if (await repairs.examine(one, every_entry=True)).missing_replicas
            ]

    return asyncio.run(check())


def copies(machines: Machines, ledger_id: int) -> dict[int, set[str]]:
    """CRCs of all copies of each entry, as Java's client gets them from each bookie; none is missing."""
    found = defaultdict(set)
    *lines, summary = machines.java.run("Replicas", "--ledger", ledger_id)
    assert summary["missing"] == 0
    for line in lines:
        found[line["entryId"]].add(line["crc32"])
    return found


def test_our_worker_re_replicates_a_ledger_of_java(machines: Machines) -> None:
    """Java wrote it on bookies of its own and of ours; a bookie of its own ends."""
    javas = [machines.start_java(), machines.start_java()]
    machines.start_ours()
    sizes = ",".join(map(str, SIZES))
    how = ("--e", 3, "--qw", 3, "--qa", 2, "--count", ENTRIES, "--size", sizes, "--password", "pw")
    ledger_id = machines.java.run("Write", *how)[0]["ledger"]
    before = copies(machines, ledger_id)
    machines.start_ours()
    machines.end(javas[0])
    with machines.our_recovery("mender"):
        wait_until_without(machines, javas[0], ledger_id)
    assert copies(machines, ledger_id) == before, "they are equal byte by byte"
    assert all(len(crcs) == 1 for crcs in before.values())
    *_, read = machines.java.run("Read", "--ledger", ledger_id, "--password", "pw")
    assert (read["read"], read["lac"]) == (ENTRIES, ENTRIES - 1)


def test_javas_worker_re_replicates_a_ledger_of_ours(machines: Machines) -> None:
    """Ours wrote it; a bookie of ours ends. Java's auditor finds it, Java's worker copies.

    There is a mark of ours before, which asks for every entry: Java's take it as any other.
    """
    machines.fill(java=1, of_ours=3)
    payloads = [payload(at, SIZES[at % 3]) for at in range(ENTRIES)]
    with LedgerClient(machines.address, config=PATIENT) as client:
        with client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=b"pw") as writer:
            writer.add_many(payloads)
        lost = next(one for one in writer.metadata.segments[0].ensemble if one.startswith("ours"))
        mark_for_every_entry(machines, writer.ledger_id, lost)
        port = free_port()
        with machines.java_recovery(port):
            while auditor(machines) != f"127.0.0.1:{port}":
                time.sleep(LOOK_AGAIN_S)
            machines.end(lost)
            wait_until_without(machines, lost, writer.ledger_id)
        copies(machines, writer.ledger_id)
        reader = client.open(writer.ledger_id, b"pw")
        assert [entry.payload for entry in reader.read()] == payloads


def test_both_side_by_side(machines: Machines) -> None:
    """Java's auditor marks, the first worker re-replicates; when Java's process ends, ours is the auditor."""
    machines.fill(java=1, of_ours=3)
    with LedgerClient(machines.address, config=PATIENT) as client:
        ledgers = []
        for _ in range(6):
            with client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2) as writer:
                writer.add_many([b"%d" % at for at in range(ENTRIES)])
            ledgers.append(writer.ledger_id)
        lost = max(machines.running, key=lambda one: sum(one in bookies_of(machines, led) for led in ledgers))
        port = free_port()
        with machines.our_recovery("ours"):
            with machines.java_recovery(port):
                machines.end(lost)
                for ledger_id in ledgers:
                    wait_until_without(machines, lost, ledger_id)
            while auditor(machines) != "ours":
                time.sleep(LOOK_AGAIN_S)
    assert under_replicated(machines, ledgers) == []
