"""Ledgers whose entries are spread over Java's bookies and ours: both clients, whoever fails or fences."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from pyledger.bookkeeper import AsyncLedgerClient, DigestType
from pyledger.errors import LedgerFencedError
from tests.interop.bookie_machines import Machines, machines_of
from tests.interop.bookkeeper_peers import payload
from tests.servers.bookkeeper.bookie_peer import PATIENT

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

ALL_FOUR = ("--e", 4, "--qw", 3, "--qa", 2, "--password", "pw")
COUNT, SIZES = 60, (100, 0, 3000)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines_of(tmp_path_factory.mktemp("mixed")) as found:
        found.fill(java=2, of_ours=2)
        yield found


def run(machines: Machines, scenario: Callable[[AsyncLedgerClient], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with AsyncLedgerClient(machines.address, config=PATIENT) as client:
            await scenario(client)

    asyncio.run(whole())


def sound(machines: Machines, ledger_id: int, last: int) -> None:
    """Every copy is there, as Java's client and our check see it, and copies are equal; Java reads all."""
    *_, summary = machines.java.run("Replicas", "--ledger", ledger_id, "--to", last)
    assert summary["missing"] == 0
    *_, read = machines.java.run("Read", "--ledger", ledger_id, "--password", "pw")
    assert (read["read"], read["lac"]) == (last + 1, last)

    async def look(client: AsyncLedgerClient) -> None:
        assert not (await client.repairs().examine(ledger_id, every_entry=True)).missing_replicas
        reader = await client.open(ledger_id, b"pw")
        assert [one.entry_id async for one in reader.read()] == list(range(last + 1))

    run(machines, look)


def mixed(ensemble: tuple[str, ...]) -> bool:
    return {name.partition("-")[0] for name in ensemble} == {"java", "ours"}


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_java_writes(machines: Machines, version: str) -> None:
    how = ("--count", COUNT, "--size", ",".join(map(str, SIZES)), *(("--v2",) if version == "v2" else ()))
    ledger_id = int(machines.java.run("Write", *ALL_FOUR, *how)[0]["ledger"])
    sound(machines, ledger_id, COUNT - 1)

    async def read(client: AsyncLedgerClient) -> None:
        reader = await client.open(ledger_id, b"pw")
        assert mixed(reader.metadata.segments[0].ensemble)
        found = [entry.payload async for entry in reader.read()]
        assert found == [payload(at, SIZES[at % len(SIZES)]) for at in range(COUNT)]

    run(machines, read)


@pytest.mark.parametrize("digest", [DigestType.CRC32C, DigestType.HMAC])
def test_we_write(machines: Machines, digest: DigestType) -> None:
    ledgers = []

    async def write(client: AsyncLedgerClient) -> None:
        async with await client.create(
            ensemble_size=4, write_quorum_size=3, ack_quorum_size=2, digest=digest, password=b"pw"
        ) as writer:
            assert mixed(writer.metadata.segments[0].ensemble)
            await writer.add_many(payload(at, 500) for at in range(COUNT))
        ledgers.append(writer.ledger_id)

    run(machines, write)
    sound(machines, ledgers[0], COUNT - 1)


def test_we_fence_and_recover_a_java_writer(machines: Machines) -> None:
    with machines.java.writer(*ALL_FOUR, "--count", 0) as writer:
        assert writer.send("add 20 100")["lac"] == 19
        ledger_id = int(writer.first["ledger"])

        async def recover(client: AsyncLedgerClient) -> None:
            reader = await client.open(ledger_id, b"pw")
            assert reader.last_add_confirmed == 19
            assert [one.payload async for one in reader.read()] == [payload(at, 100) for at in range(20)]

        run(machines, recover)
        assert writer.send("add 1")["code"] == -101
    sound(machines, ledger_id, 19)


def test_java_fences_and_recovers_our_writer(machines: Machines) -> None:
    async def scenario(client: AsyncLedgerClient) -> None:
        writer = await client.create(ensemble_size=4, write_quorum_size=3, ack_quorum_size=2, password=b"pw")
        await writer.add_many([b"x"] * 20)
        found = ("--ledger", writer.ledger_id, "--password", "pw")
        ended = await asyncio.to_thread(machines.java.run, "Recover", *found)
        assert ended[-1]["lac"] == 19
        with pytest.raises(LedgerFencedError):
            await writer.add(b"late")
        await writer.close()
        ledgers.append(writer.ledger_id)

    ledgers: list[int] = []
    run(machines, scenario)
    sound(machines, ledgers[0], 19)


@pytest.mark.parametrize("kind", ["java", "ours"])
@pytest.mark.parametrize("writer", ["java", "ours"])
def test_a_bookie_that_is_killed_is_replaced(machines: Machines, kind: str, writer: str) -> None:
    """One of either kind, under a writer of either kind; the ensemble goes on mixed."""
    machines.fill(java=3, of_ours=3)
    whole = tuple(machines.running)
    ledgers: list[int] = []

    def kill() -> str:
        name = next(one for one in machines.running if one.startswith(kind))
        machines.running[name].kill()
        machines.end(name)
        return name

    if writer == "java":
        how = ("--e", 5, "--qw", 3, "--qa", 2, "--password", "pw", "--count", 0)
        with machines.java.writer(*how) as java:
            ledgers.append(int(java.first["ledger"]))
            assert java.send("add 20 100")["lac"] == 19
            killed = kill()
            for _ in range(10):
                assert java.send("add 3 100").get("error") is None
            assert java.send("close").get("error") is None
    else:

        async def write(client: AsyncLedgerClient) -> None:
            nonlocal killed
            made = await client.create(
                ensemble_size=5, write_quorum_size=3, ack_quorum_size=2, password=b"pw"
            )
            ledgers.append(made.ledger_id)
            await made.add_many([bytes(100)] * 20)
            killed = await asyncio.to_thread(kill)
            await made.add_many([bytes(100)] * 30)
            await made.close()

        killed = ""
        run(machines, write)

    async def look(client: AsyncLedgerClient) -> None:
        metadata = await client.metadata(ledgers[0])
        assert metadata.last_entry_id == 49
        first, last = metadata.segments[0].ensemble, metadata.segments[-1].ensemble
        assert mixed(first)
        assert mixed(last)
        if killed in first:
            assert killed not in last
        reader = await client.open(ledgers[0], b"pw")
        assert [one.entry_id async for one in reader.read()] == list(range(50))
        assert set(first) < set(whole)

    run(machines, look)
    *_, read = machines.java.run("Read", "--ledger", ledgers[0], "--password", "pw")
    assert (read["read"], read["lac"]) == (50, 49)
