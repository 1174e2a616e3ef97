"""Sessions that end: a bookie registers anew or stops, a writer confirms nothing on doubt.

The same over both stores. A session of SQLite ends when its lock is gone, one of ZooKeeper when another
connection takes it over, with its id and password, and closes it. No clock takes part.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyledger.bookkeeper import AsyncLedgerClient
from pyledger.config.bookie import BookieConfig
from pyledger.errors import LedgerFencedError, MetadataUnreachableError, NodeVersionError, NoNodeError
from pyledger.metadata.cluster import Cluster
from pyledger.metadata.sqlite import SqliteStore
from pyledger.metadata.store import MetadataStore
from pyledger.metadata.zookeeper import ZooKeeperStore
from pyledger.protocol.bookkeeper.messages import Status
from pyledger.servers.bookkeeper import registration
from pyledger.servers.bookkeeper.registration import BookieRegistration
from pyledger.servers.bookkeeper.server import BookieServer
from pyledger.store.bookkeeper.folder import BookiePaths
from pyledger.wire.bookkeeper.bookies import ENDPOINT_ID, Endpoint, Registration
from tests.interop.bookkeeper_peers import zookeeper
from tests.metadata.sessions import end_session
from tests.servers.bookkeeper.bookie_peer import PATIENT, Peer

Open = Callable[[], MetadataStore]
LOOK_AGAIN_S = 0.01
OTHER = Registration((Endpoint(ENDPOINT_ID, 1, "127.0.0.1"),))


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=[pytest.mark.java, pytest.mark.slow])])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Makes sessions with one store."""
    if request.param == "sqlite":
        yield lambda: SqliteStore(tmp_path / "metadata.db")
    else:
        with zookeeper(tmp_path) as hosts:
            yield lambda: ZooKeeperStore(hosts, session_timeout_ms=30_000)


def member(folder: Path, cluster: Cluster) -> BookieServer:
    paths = BookiePaths.below(folder / "b1")
    return BookieServer(paths, config=BookieConfig(), cluster=cluster, bookie_id="b1")


def test_a_bookie_registers_again(opened: Open, tmp_path: Path) -> None:
    async def play() -> None:
        async with Cluster(opened()) as looker:
            await looker.format()
            own = Cluster(opened())
            bookie = member(tmp_path, own)
            await bookie.start()
            peer = await Peer.connect(bookie.address)
            for entry_id in range(3):
                await end_session(own.store)  # and with it the registration that it made
                assert (await peer.add(1, entry_id)).status is Status.EOK, "its journal needs no session"
                while not (found := await looker.bookies.registered()).writable:
                    await asyncio.sleep(LOOK_AGAIN_S)
                assert found.address("b1") == ("127.0.0.1", int(bookie.address.rpartition(":")[2]))
            assert not bookie.ended.is_set()
            await peer.close()
            await bookie.close()
            assert not (await looker.bookies.registered()).writable

    asyncio.run(play())


class ScriptedSessions(SqliteStore):
    """Sessions are lost when a test puts the next one."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.next_sessions: asyncio.Queue[str] = asyncio.Queue()

    async def sessions(self) -> AsyncGenerator[str, None]:
        yield "first"
        while True:
            yield await self.next_sessions.get()


def test_a_bookie_whose_name_is_taken_meanwhile_stops(tmp_path: Path) -> None:
    async def play() -> None:
        async with Cluster(SqliteStore(tmp_path / "metadata.db")) as other:
            await other.format()
            store = ScriptedSessions(tmp_path / "metadata.db")
            lost = asyncio.Event()
            paths = BookiePaths.below(tmp_path / "b1")
            bookie = BookieRegistration(Cluster(store), "b1", paths, lost.set, name_timeout_ms=1)
            await bookie.start()
            await bookie.register("127.0.0.1", 3181, read_only=False)
            await other.bookies.unregister("b1")  # its session is over, and it does not know yet
            await other.bookies.register("b1", OTHER)
            store.next_sessions.put_nowait("second")
            await lost.wait()
            assert (await other.bookies.registered()).writable == {"b1": OTHER}
            await bookie.close()
            assert (await other.bookies.registered()).writable == {"b1": OTHER}, "it is not its own"

    asyncio.run(play())


class Unsettled(ScriptedSessions):
    """What a bookie finds there does not fit, once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.problems: list[Exception] = []

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        if ephemeral and self.problems:
            raise self.problems.pop()
        return await super().create(path, data, ephemeral=ephemeral, sequence=sequence)


def test_a_bookie_registers_again_after_any_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "RETRY_S", LOOK_AGAIN_S)

    async def play() -> None:
        async with Cluster(SqliteStore(tmp_path / "metadata.db")) as other:
            await other.format()
            store = Unsettled(tmp_path / "metadata.db")
            bookie = BookieRegistration(
                Cluster(store), "b1", BookiePaths.below(tmp_path / "b1"), lambda: None
            )
            await bookie.start()
            await bookie.register("127.0.0.1", 3181, read_only=False)
            await other.bookies.unregister("b1")
            store.problems = [NoNodeError("/ledgers/available"), NodeVersionError("/ledgers")]
            store.next_sessions.put_nowait("second")
            while not (await other.bookies.registered()).writable:
                await asyncio.sleep(LOOK_AGAIN_S)
            await bookie.close()

    asyncio.run(play())


class Doubtful(SqliteStore):
    """A store that makes changes of ledgers, or does not, and gives no answer."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.silent = self.makes = False

    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        if not self.silent:
            return await super().set(path, data, version)
        if self.makes:
            self.makes = False
            await super().set(path, data, version)
        raise MetadataUnreachableError("here", "no answer")


async def four(folder: Path) -> dict[str, BookieServer]:
    made = {}
    for name in ("b1", "b2", "b3", "b4"):
        cluster = Cluster(SqliteStore(folder / "metadata.db"))
        made[name] = BookieServer(BookiePaths.below(folder / name), cluster=cluster, bookie_id=name)
        await made[name].start()
    return made


@pytest.mark.parametrize("makes", [True, False], ids=["made", "not-made"])
def test_a_writer_confirms_nothing_on_doubt(tmp_path: Path, makes: bool) -> None:
    """The change of its ensemble is not answered: whether it was made is not known, so the writer ends."""

    async def play() -> None:
        async with Cluster(SqliteStore(tmp_path / "metadata.db")) as looker:
            await looker.format()
            bookies = await four(tmp_path)
            store = Doubtful(tmp_path / "metadata.db")
            config = replace(PATIENT, metadata_timeout_ms=1)
            async with AsyncLedgerClient(Cluster(store), config=config) as client:
                writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
                await writer.add_many([b"x"] * 10)
                store.silent, store.makes = True, makes
                lost = writer.metadata.segments[0].ensemble[0]
                await bookies[lost].close()
                with pytest.raises(MetadataUnreachableError):
                    await writer.add(b"y")
                store.silent = False
                with pytest.raises(MetadataUnreachableError):
                    await writer.add(b"z")
                assert writer.last_add_confirmed == 9
                await writer.abandon()
                reader = await client.open(writer.ledger_id)
                assert reader.last_add_confirmed >= 9
                assert [one.payload async for one in reader.read()][:10] == [b"x"] * 10
            for bookie in bookies.values():
                await bookie.close()

    asyncio.run(play())


def test_a_change_that_was_made_without_an_answer_is_explained(tmp_path: Path) -> None:
    """The store answers again: the writer finds its own change, and goes on."""

    async def play() -> None:
        async with Cluster(SqliteStore(tmp_path / "metadata.db")) as looker:
            await looker.format()
            bookies = await four(tmp_path)
            store = Doubtful(tmp_path / "metadata.db")
            async with AsyncLedgerClient(Cluster(store), config=PATIENT) as client:
                writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
                await writer.add_many([b"x"] * 10)
                store.silent = store.makes = True
                lost = writer.metadata.segments[0].ensemble[0]
                await bookies[lost].close()
                adding = asyncio.create_task(writer.add(b"y"))
                changes = looker.ledgers.watch(writer.ledger_id)
                async for stored in changes:
                    if len(stored.metadata.segments) > 1:
                        break  # created, but the response is lost
                await changes.aclose()
                store.silent = False
                assert await adding == 10
                assert lost not in writer.metadata.segments[-1].ensemble
                await writer.close()
                reader = await client.open(writer.ledger_id)
                assert [one.payload async for one in reader.read()] == [b"x"] * 10 + [b"y"]
            for bookie in bookies.values():
                await bookie.close()

    asyncio.run(play())


def test_a_writer_whose_session_ended_finds_what_others_did(opened: Open, tmp_path: Path) -> None:
    """Ledgers do not depend on sessions: the writer continues until another client has closed its ledger."""

    async def play() -> None:
        async with Cluster(opened()) as looker:
            await looker.format()
            own = Cluster(opened())
            bookie = member(tmp_path, Cluster(opened()))
            await bookie.start()
            async with (
                AsyncLedgerClient(own, config=PATIENT) as client,
                AsyncLedgerClient(Cluster(opened()), config=PATIENT) as other,
            ):
                writer = await client.create(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
                await end_session(own.store)
                assert await writer.add(b"x") == 0
                assert (await other.open(writer.ledger_id)).last_add_confirmed == 0
                await end_session(own.store)
                with pytest.raises(LedgerFencedError):
                    await writer.add(b"y")
                assert (await looker.ledgers.get(writer.ledger_id)).metadata.last_entry_id == 0
                await writer.abandon()
            await bookie.close()

    asyncio.run(play())
