"""Our client of ledgers on Java's bookies: each side reads, fences and recovers the other's ledgers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from pyledger.bookkeeper import AsyncLedgerClient, BookkeeperConfig, DigestType
from pyledger.errors import LedgerFencedError, LedgerPasswordError, NoSuchEntryError, NoSuchLedgerError
from tests.interop.bookkeeper_peers import JavaCluster, java_cluster, payload

pytestmark = [pytest.mark.java, pytest.mark.slow]

PATIENT = BookkeeperConfig(add_timeout_ms=60_000, read_timeout_ms=60_000, long_poll_ms=500)
JAVA_DIGESTS = {
    DigestType.CRC32: "CRC32",
    DigestType.CRC32C: "CRC32C",
    DigestType.HMAC: "MAC",
    DigestType.DUMMY: "DUMMY",
}


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    with java_cluster(tmp_path_factory.mktemp("bookies"), bookies=4) as cluster:
        yield cluster


def run(
    java: JavaCluster,
    scenario: Callable[[AsyncLedgerClient], Awaitable[None]],
    config: BookkeeperConfig = PATIENT,
) -> None:
    async def whole() -> None:
        async with AsyncLedgerClient(java.address, config=config) as client:
            await scenario(client)

    asyncio.run(whole())


def entries_in(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    return [line for line in lines if "entryId" in line]


@pytest.mark.parametrize("digest", DigestType)
def test_java_reads_ours(java: JavaCluster, digest: DigestType) -> None:
    async def scenario(client: AsyncLedgerClient) -> None:
        async with await client.create(
            ensemble_size=4,
            write_quorum_size=3,
            ack_quorum_size=2,
            digest=digest,
            password=b"pw",
            custom={"application": b"tests"},
        ) as writer:
            assert await writer.add_many(payload(at, 10 + at) for at in range(30)) == 29
        made = await asyncio.to_thread(java.run, "Read", "--ledger", writer.ledger_id, "--password", "pw")
        found = entries_in(made)
        assert [line["entryId"] for line in found] == list(range(30))
        assert [line["size"] for line in found] == [10 + at for at in range(30)]
        assert found[-1]["length"] == writer.length
        meta = (await asyncio.to_thread(java.run, "Meta", "--ledger", writer.ledger_id))[-1]
        assert (meta["state"], meta["lastEntryId"], meta["length"]) == ("CLOSED", 29, writer.length)
        await asyncio.to_thread(java.run, "Replicas", "--ledger", writer.ledger_id, "--to", 29)

    run(java, scenario)


@pytest.mark.parametrize("batches", [True, False])
@pytest.mark.parametrize("digest", DigestType)
def test_ours_reads_java(java: JavaCluster, digest: DigestType, batches: bool) -> None:
    sizes = (3, 3, 2) if batches else (4, 2, 2)
    quorum = [
        word for name, size in zip(("--e", "--qw", "--qa"), sizes, strict=True) for word in (name, size)
    ]
    guard = ("--digest", JAVA_DIGESTS[digest], "--password", "pw")
    written = java.run("Write", *quorum, *guard, "--count", 150, "--size", "5,1000", "--seed", 3)
    ledger_id = int(written[0]["ledger"])

    async def scenario(client: AsyncLedgerClient) -> None:
        with pytest.raises(LedgerPasswordError):
            await client.open(ledger_id, b"other")
        reader = await client.open(ledger_id, b"pw")
        found = [entry async for entry in reader.read()]
        assert [entry.payload for entry in found] == [payload(at, (5, 1000)[at % 2], 3) for at in range(150)]
        assert found[-1].length == reader.length
        assert (await reader.entry(77)).payload == found[77].payload
        with pytest.raises(NoSuchEntryError):
            await reader.entry(150)

    run(java, scenario)


def test_we_fence_a_java_writer(java: JavaCluster) -> None:
    with java.writer("--e", 3, "--qw", 3, "--qa", 2, "--password", "pw", "--count", 0) as writer:
        assert writer.send("add 20 100")["lac"] == 19
        ledger_id = int(writer.first["ledger"])

        async def scenario(client: AsyncLedgerClient) -> None:
            reader = await client.open(ledger_id, b"pw")
            assert reader.closed
            assert reader.last_add_confirmed == 19
            assert [entry.payload async for entry in reader.read()] == [payload(at, 100) for at in range(20)]

        run(java, scenario)
        assert writer.send("add 1")["code"] == -101
    java.run("Read", "--ledger", ledger_id, "--password", "pw")


def test_java_fences_our_writer(java: JavaCluster) -> None:
    async def scenario(client: AsyncLedgerClient) -> None:
        writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=b"pw")
        await writer.add_many([b"x"] * 20)
        ended = await asyncio.to_thread(java.run, "Recover", "--ledger", writer.ledger_id, "--password", "pw")
        assert ended[-1]["lac"] == 19
        with pytest.raises(LedgerFencedError):
            await writer.add(b"late")
        await writer.close()  # it ends where we would have ended it

    run(java, scenario)


def test_we_follow_a_java_writer(java: JavaCluster) -> None:
    with java.writer("--e", 3, "--qw", 2, "--qa", 2, "--password", "pw", "--count", 0) as writer:
        ledger_id = int(writer.first["ledger"])
        for _ in range(10):
            writer.send("add 1 50")  # each carries that the one before is confirmed

        async def scenario(client: AsyncLedgerClient) -> None:
            reader = await client.open(ledger_id, b"pw", recover=False)
            assert reader.last_add_confirmed == 8
            seen = []
            async for entry in reader.tail():
                seen.append(entry.payload)
                if len(seen) == 9:
                    await asyncio.to_thread(writer.send, "add 5 50")
                if len(seen) == 10:
                    await asyncio.to_thread(writer.send, "close")
            assert seen == [payload(at, 50) for at in range(15)]
            assert reader.closed

        run(java, scenario)


def test_java_follows_our_explicit_lac(java: JavaCluster) -> None:
    async def scenario(client: AsyncLedgerClient) -> None:
        writer = await client.create(
            ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, digest=DigestType.CRC32, password=b"pw"
        )
        await writer.add_many([b"x"] * 3)
        reader = await client.open(writer.ledger_id, b"pw", recover=False)
        assert await reader.wait_beyond(1) == 2
        found = await asyncio.to_thread(java.run, "ReadLac", "--ledger", writer.ledger_id, "--password", "pw")
        assert 2 in [value for line in found for value in line.values()], found
        await writer.close()

    run(java, scenario, BookkeeperConfig(explicit_lac_interval_ms=50, long_poll_ms=500))


def test_entries_of_chosen_ids(java: JavaCluster) -> None:
    async def scenario(client: AsyncLedgerClient) -> None:
        writer = await client.create_advanced(
            ensemble_size=3,
            write_quorum_size=3,
            ack_quorum_size=2,
            digest=DigestType.CRC32,
            password=b"pw",
            ledger_id=2**33,
        )
        added = [writer.submit_add_at(at, b"%d" % at) for at in (2, 0, 1, 3)]
        assert await asyncio.gather(*added) == [2, 0, 1, 3]
        await writer.close()
        found = await asyncio.to_thread(java.run, "Read", "--ledger", 2**33, "--password", "pw")
        assert [line["entryId"] for line in entries_in(found)] == [0, 1, 2, 3]
        assert 2**33 in [ledger_id async for ledger_id in client.ledgers()]
        await client.delete(2**33)
        with pytest.raises(NoSuchLedgerError):
            await client.open(2**33)

    run(java, scenario)


def test_deferred_sync(java: JavaCluster) -> None:
    async def scenario(client: AsyncLedgerClient) -> None:
        writer = await client.create(
            ensemble_size=3,
            write_quorum_size=3,
            ack_quorum_size=2,
            digest=DigestType.CRC32,
            password=b"pw",
            deferred_sync=True,
        )
        await writer.add_many([b"x"] * 5)
        assert writer.last_add_confirmed == -1
        assert await writer.force() == 4
        await writer.add(b"y")
        await writer.close()
        found = await asyncio.to_thread(java.run, "Read", "--ledger", writer.ledger_id, "--password", "pw")
        assert len(entries_in(found)) == 6

    run(java, scenario)


def test_a_bookie_is_replaced(java: JavaCluster) -> None:
    """Last, as it takes a bookie away."""

    async def scenario(client: AsyncLedgerClient) -> None:
        writer = await client.create(
            ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, digest=DigestType.CRC32, password=b"pw"
        )
        added = [writer.submit_add(payload(at, 100)) for at in range(100)]
        await added[50]
        killed = java.bookies[0]
        killed.kill()
        for at in range(100, 200):
            added.append(writer.submit_add(payload(at, 100)))
            await asyncio.sleep(0)
        assert await asyncio.gather(*added) == list(range(200))
        await writer.close()
        reader = await client.open(writer.ledger_id, b"pw")
        assert [entry.payload async for entry in reader.read()] == [payload(at, 100) for at in range(200)]
        found = await asyncio.to_thread(java.run, "Read", "--ledger", writer.ledger_id, "--password", "pw")
        assert len(entries_in(found)) == 200

    run(java, scenario)
