"""Our client of ledgers on our bookies: what was confirmed outlives bookies that end and come back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pyledger.bookkeeper import AsyncLedgerClient, DigestType
from pyledger.config.bookie import BookieConfig
from pyledger.errors import EntryReadError, LedgerFencedError, LedgerRecoveryError
from pyledger.metadata.cluster import Cluster, locate
from pyledger.protocol.bookkeeper.messages import AddRequest, Status
from pyledger.servers.autorecovery.recover_bookies import Outcome, replicate_ledgers_of
from pyledger.servers.bookkeeper.server import BookieServer
from pyledger.store.bookkeeper.folder import BookiePaths
from pyledger.wire.bookkeeper import version2
from pyledger.wire.bookkeeper.bookies import Endpoint, Registration
from pyledger.wire.bookkeeper.entry import master_key
from tests.servers.bookkeeper.bookie_peer import PATIENT, Peer, entry_of
from tests.support.ports import free_ports

PAYLOADS = [b"%d" % at * (at % 50) for at in range(400)]


class Machines:
    """Bookies that can be ended and started again, each on its own folders."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder, self.cluster = folder, cluster
        self.running: dict[str, BookieServer] = {}

    async def start(self, name: str) -> None:
        home = self.folder / name
        bookie = self.running[name] = BookieServer(BookiePaths.below(home))
        await bookie.start()
        host, _, port = bookie.address.rpartition(":")
        await self.cluster.bookies.register(name, Registration((Endpoint("bookie", int(port), host),)))

    async def end(self, name: str) -> None:
        await self.running.pop(name).close()
        await self.cluster.bookies.unregister(name)


@asynccontextmanager
async def cluster_of(folder: Path, count: int) -> AsyncIterator[tuple[Machines, AsyncLedgerClient]]:
    address = f"sqlite:{folder}/metadata"
    async with locate(address) as cluster:
        await cluster.format()
        machines = Machines(folder, cluster)
        try:
            for at in range(count):
                await machines.start(f"b{at}")
            async with AsyncLedgerClient(address, config=PATIENT) as client:
                yield machines, client
        finally:
            for name in list(machines.running):
                await machines.end(name)


@pytest.mark.parametrize("digest", DigestType)
def test_write_and_read(tmp_path: Path, digest: DigestType) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, 3) as (_machines, client):
            async with await client.create(
                ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, digest=digest, password=b"pw"
            ) as writer:
                await writer.add_many(PAYLOADS)
            reader = await client.open(writer.ledger_id, b"pw")
            assert [entry.payload async for entry in reader.read()] == PAYLOADS

    asyncio.run(scenario())


def test_a_bookie_ends_and_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, 4) as (machines, client):
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add_many(PAYLOADS[:200])
            lost = writer.metadata.segments[0].ensemble[0]
            await machines.end(lost)
            await writer.add_many(PAYLOADS[200:])
            # Two copies confirm an entry; the third one's failure is acted on with a later add.
            while lost in writer.metadata.segments[-1].ensemble:
                await writer.add(b"more")
            await writer.abandon()
            await machines.start(lost)
            await client.bookies()
            reader = await client.open(writer.ledger_id)
            found = [entry.payload async for entry in reader.read()]
            assert found[: len(PAYLOADS)] == PAYLOADS
            assert len(found) == writer.last_add_confirmed + 1

    asyncio.run(scenario())


def test_dead_spares_are_not_changed_for_each_other(tmp_path: Path) -> None:
    """After a crash they are registered until their sessions end."""

    async def scenario() -> None:
        async with cluster_of(tmp_path, 2) as (machines, client):
            for name, port in zip(("dead0", "dead1"), free_ports(2), strict=True):
                await machines.cluster.bookies.register(
                    name, Registration((Endpoint("bookie", port, "127.0.0.1"),))
                )
            await client.bookies()
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            for payload in PAYLOADS:
                await writer.add(payload)
            assert len(writer.metadata.segments) <= 2
            await machines.start("b2")
            while "b2" not in (await client.bookies()).writable:
                await asyncio.sleep(0)
            await writer.add(b"more")
            await writer.add(b"and more")
            assert {"b0", "b1", "b2"} == set(writer.metadata.segments[-1].ensemble)
            await writer.close()
            reader = await client.open(writer.ledger_id)
            assert [entry.payload async for entry in reader.read()] == [*PAYLOADS, b"more", b"and more"]

    asyncio.run(scenario())


def test_a_fence_outlives_its_bookies(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, 3) as (machines, client):
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add_many(PAYLOADS)
            reader = await client.open(writer.ledger_id)
            assert reader.last_add_confirmed == len(PAYLOADS) - 1
            for name in ("b0", "b1", "b2"):
                await machines.end(name)
                await machines.start(name)
            await client.bookies()  # they listen elsewhere now
            assert [entry.payload async for entry in reader.read()] == PAYLOADS
            with pytest.raises(LedgerFencedError):
                await writer.add(b"late")

    asyncio.run(scenario())


def test_follow_a_writer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, 3) as (_machines, client):
            writer = await client.create(ensemble_size=3, write_quorum_size=2, ack_quorum_size=2)
            reader = await client.open(writer.ledger_id, recover=False)

            async def follow() -> list[bytes]:
                return [entry.payload async for entry in reader.tail()]

            following = asyncio.create_task(follow())
            for at in range(0, len(PAYLOADS), 40):
                await writer.add_many(PAYLOADS[at : at + 40])
            await writer.close()
            assert await following == PAYLOADS

    asyncio.run(scenario())


def test_deferred_sync_and_free_space(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, 3) as (_machines, client):
            writer = await client.create(
                ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, deferred_sync=True
            )
            await writer.add_many(PAYLOADS)
            assert await writer.force() == len(PAYLOADS) - 1
            await writer.close()
            disk = await client.disk_of("b0")
            assert disk is not None
            assert 0 < disk[1] <= disk[0]

    asyncio.run(scenario())


async def add_in_version_2(address: str, ledger_id: int, entry_id: int, payload: bytes) -> None:
    """As a client that speaks version 2 adds: with the least beside the entry."""
    key, entry = master_key(b"pw"), entry_of(ledger_id, entry_id, payload)
    request = AddRequest(ledger_id=ledger_id, entry_id=entry_id, master_key=key, entry=entry)
    peer = await Peer.connect(address)
    peer.send_frame(version2.encode_request(request))
    response = version2.decode_response(memoryview(await peer.frame()))
    assert response.status is Status.EOK
    peer.writer.close()


def test_entries_that_only_fit_into_the_frames_of_version_2(tmp_path: Path) -> None:
    """They are recovered and copied; a client with shorter frames gets an error with the reason."""
    payload = bytes(BookieConfig().frame_max_bytes - 4 - 4 - 20 - len(entry_of(0, 0, b"")))

    async def scenario() -> None:
        async with cluster_of(tmp_path, 4) as (machines, client):
            writer = await client.create(
                ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=b"pw"
            )
            await writer.abandon()
            ensemble = writer.metadata.segments[0].ensemble
            for name in ensemble:
                for entry_id in range(2):
                    address = machines.running[name].address
                    await add_in_version_2(address, writer.ledger_id, entry_id, payload)
            short = replace(PATIENT, frame_max_bytes=1 << 20)
            why = "a frame of [0-9]+ bytes is announced, the limit is 1048828"
            async with AsyncLedgerClient(f"sqlite:{tmp_path}/metadata", config=short) as other:
                with pytest.raises(LedgerRecoveryError, match=f"LEDGER_RECOVERY; b[0-3]: {why}"):
                    await other.open(writer.ledger_id, b"pw")
            reader = await client.open(writer.ledger_id, b"pw")
            assert [entry.payload for entry in [one async for one in reader.read()]] == [payload] * 2
            async with AsyncLedgerClient(f"sqlite:{tmp_path}/metadata", config=short) as other:
                denied = await other.open(writer.ledger_id, b"pw")
                with pytest.raises(EntryReadError, match=f"BOOKIE_NOT_AVAILABLE; b[0-3]: {why}"):
                    await denied.entries([0])
            # The connections stand, as they mostly do where copies are made.
            async with await client.create(
                ensemble_size=4, write_quorum_size=4, ack_quorum_size=4
            ) as everywhere:
                await everywhere.add(b"x")
            await client.delete(everywhere.ledger_id)
            await machines.end(ensemble[0])
            [done] = [one async for one in replicate_ledgers_of(client, [ensemble[0]])]
            assert (done.outcome, done.problem) == (Outcome.REPLICATED, "")
            assert done.copied_bytes > 2 * len(payload)

    asyncio.run(scenario())
