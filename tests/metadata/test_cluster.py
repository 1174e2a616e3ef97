"""Ledgers, bookies and cookies in a metadata store, against what BookKeeper's own processes left."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest

from pyledger.errors import (
    BookieExistsError,
    ConfigError,
    LedgerExistsError,
    LedgerMetadataError,
    MetadataUnreachableError,
    NodeVersionError,
    NoSuchLedgerError,
)
from pyledger.metadata.cluster import Cluster, locate
from pyledger.metadata.sqlite import SqliteStore
from pyledger.metadata.zookeeper import ZooKeeperStore
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, Segment
from pyledger.wire.bookkeeper.bookies import Cookie, Endpoint, Registration
from tests.golden.ledger_recordings import lines, recordings

LEDGER = LedgerMetadata(
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    segments=(Segment(0, ("b1:3181", "b2:3181", "b3:3181")),),
    digest=DigestType.CRC32C,
    password=b"",
    token=7,
)
HERE = Registration((Endpoint("bookie", 25001, "127.0.0.1"),))
STAGES = sorted(name for name in recordings() if name.startswith("zk/") and name[3].isdigit())


def run(folder: Path, scenario: Callable[[Cluster, Cluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with locate(f"sqlite:{folder}/metadata") as one, locate(f"sqlite:{folder}/metadata") as two:
            assert await one.format()
            await scenario(one, two)

    asyncio.run(whole())


def test_a_new_cluster_is_what_java_formats(tmp_path: Path) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        made = {path: node.data async for path, node in one.store.walk("/ledgers")}
        recorded = {node["path"]: bytes.fromhex(node["hex"]) for node in lines("zk/00-formatted.jsonl")}
        assert made.keys() == recorded.keys()
        assert made["/ledgers/LAYOUT"] == recorded["/ledgers/LAYOUT"]
        assert not await two.format()
        await two.check()
        assert await two.instance_id() == made["/ledgers/INSTANCEID"].decode()
        await one.store.set("/ledgers/LAYOUT", b"2\norg.example.Other:1")
        with pytest.raises(LedgerMetadataError, match=r"org\.example\.Other"):
            await two.check()

    run(tmp_path, scenario)


def test_a_cluster_of_pulsar_gets_its_layout(tmp_path: Path) -> None:
    """Pulsar's set-up makes the name and no layout; several bookies that start at once complete it."""

    async def scenario(one: Cluster, two: Cluster) -> None:
        made = await one.store.get("/ledgers/LAYOUT")
        assert made is not None
        await one.store.delete("/ledgers/LAYOUT")
        await asyncio.gather(*(cluster.check() for cluster in (one, two, one, two)))
        again = await two.store.get("/ledgers/LAYOUT")
        assert again is not None
        assert again.data == made.data
        for name in ("LAYOUT", "INSTANCEID"):
            await one.store.delete(f"/ledgers/{name}")
        with pytest.raises(LedgerMetadataError, match="pyledger cluster format"):
            await one.check()

    run(tmp_path, scenario)


@pytest.mark.parametrize("stage", STAGES)
def test_trees_of_java(stage: str, tmp_path: Path) -> None:
    """Ledgers and bookies are found in whatever state Java left a cluster."""

    async def whole() -> None:
        async with Cluster(SqliteStore(tmp_path / "metadata")) as cluster:
            nodes = lines(stage)
            for node in nodes:
                await cluster.store.create(node["path"], bytes.fromhex(node["hex"]))
            await cluster.check()
            leaves = [one["path"] for one in nodes if one["path"].rpartition("/")[2].startswith("L")]
            paths = [path for path in leaves if path != "/ledgers/LAYOUT" and "underreplication" not in path]
            found = [ledger_id async for ledger_id in cluster.ledgers.ids()]
            assert sorted(map(cluster.ledgers.path, found)) == sorted(paths)
            assert found == sorted(found)
            for ledger_id in found:
                await cluster.ledgers.get(ledger_id)
            bookies = await cluster.bookies.registered()
            assert all(bookies.address(name) == address_in(name) for name in bookies.writable)
            cookies = [one for one in nodes if one["path"].startswith("/ledgers/cookies/")]
            assert len(await cluster.bookies.known()) == len(cookies)

    asyncio.run(whole())


def address_in(bookie_id: str) -> tuple[str, int]:
    host, _, port = bookie_id.rpartition(":")
    return host, int(port)


def test_ledgers(tmp_path: Path) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        first = await one.ledgers.create(LEDGER)
        second = await two.ledgers.create(LEDGER)
        chosen = await one.ledgers.create(LEDGER, 2**33 + 1)
        assert await two.ledgers.get(chosen.ledger_id) == chosen
        with pytest.raises(LedgerExistsError):
            await two.ledgers.create(LEDGER, first.ledger_id)
        ids = [ledger_id async for ledger_id in two.ledgers.ids()]
        assert ids == [first.ledger_id, second.ledger_id, 2**33 + 1]
        closed = await one.ledgers.put(first, LEDGER.closing(3, 17))
        assert await two.ledgers.get(first.ledger_id) == closed
        with pytest.raises(NodeVersionError):
            await two.ledgers.put(first, LEDGER.recovering())
        await two.ledgers.delete(2**33 + 1)
        assert await one.store.get("/ledgers/000") is None, "empty parents go too"
        for missing in (one.ledgers.get(2**33 + 1), one.ledgers.delete(5), one.ledgers.put(chosen, LEDGER)):
            with pytest.raises(NoSuchLedgerError):
                await missing

    run(tmp_path, scenario)


def test_a_taken_id_is_passed_over(tmp_path: Path) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        await one.ledgers.create(LEDGER, 0)
        assert (await two.ledgers.create(LEDGER)).ledger_id == 1

    run(tmp_path, scenario)


def test_ids_beyond_32_bits(tmp_path: Path) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        await one.store.ensure("/ledgers/idgen-long")
        assert [await one.ledgers.next_id() for _ in range(2)] == [1 << 32, 1 << 32 | 1]
        await one.store.ensure("/ledgers/idgen-long/HOB-0000000004")
        assert await two.ledgers.next_id() == 4 << 32

    run(tmp_path, scenario)


class Forgetful(SqliteStore):
    """Makes a change and loses the answer, once for each name in `loses`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.loses: list[str] = []

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        made = await super().create(path, data, ephemeral=ephemeral, sequence=sequence)
        if "/L" in path:
            self._lose("create")
        return made

    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        changed = await super().set(path, data, version)
        self._lose("set")
        return changed

    def _lose(self, what: str) -> None:
        if what in self.loses:
            self.loses.remove(what)
            raise MetadataUnreachableError("here", "the answer is lost")


def test_a_lost_answer_is_explained(tmp_path: Path) -> None:
    async def whole() -> None:
        store = Forgetful(tmp_path / "metadata")
        async with Cluster(store) as cluster:
            await cluster.format()
            store.loses = ["create"]
            made = await cluster.ledgers.create(LEDGER)
            assert [ledger_id async for ledger_id in cluster.ledgers.ids()] == [made.ledger_id]
            store.loses = ["set"]
            with pytest.raises(NodeVersionError):
                await cluster.ledgers.put(made, LEDGER.closing(3, 17))
            assert (await cluster.ledgers.get(made.ledger_id)).metadata.closed

    asyncio.run(whole())


def test_watch_a_ledger(tmp_path: Path) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        made = await one.ledgers.create(LEDGER)
        states = two.ledgers.watch(made.ledger_id)
        assert (await anext(states)) == made
        closed = await one.ledgers.put(made, LEDGER.closing(3, 17))
        assert (await anext(states)) == closed
        await one.ledgers.delete(made.ledger_id)
        with pytest.raises(NoSuchLedgerError):
            await anext(states)

    run(tmp_path, scenario)


def test_bookies_come_change_sides_and_go(tmp_path: Path) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        states = two.bookies.watch()
        assert (await anext(states)).writable == {}
        await one.bookies.register("127.0.0.1:25001", HERE)
        assert (await anext(states)).writable == {"127.0.0.1:25001": HERE}
        data = await one.store.get("/ledgers/available/127.0.0.1:25001")
        recorded = next(
            node
            for node in lines("zk/01-bookies-registered.jsonl")
            if node["path"].endswith("available/127.0.0.1:25001")
        )
        assert data is not None
        assert data.data.hex() == recorded["hex"]
        await one.bookies.register("127.0.0.1:25001", HERE, read_only=True)
        async for state in states:
            if not state.writable:
                assert state.read_only == {"127.0.0.1:25001": HERE}
                break
        await one.bookies.unregister("127.0.0.1:25001")
        assert (await anext(states)).read_only == {}
        await states.aclose()

    run(tmp_path, scenario)


def test_watching_bookies_raises_when_the_store_is_lost(tmp_path: Path) -> None:
    async def scenario(_one: Cluster, two: Cluster) -> None:
        watch = two.store.watch_children

        async def lost(path: str) -> AsyncGenerator[tuple[str, ...], None]:
            async for names in watch(path):
                yield names
                raise MetadataUnreachableError(path, "it is gone")

        two.store.watch_children = lost  # type: ignore[method-assign]
        with pytest.raises(MetadataUnreachableError):
            async for _ in two.bookies.watch():
                pass

    run(tmp_path, scenario)


def test_an_id_is_kept_by_its_session(tmp_path: Path) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        await one.bookies.register("b1", HERE)
        with pytest.raises(BookieExistsError):
            await two.bookies.register("b1", HERE, timeout_ms=1)
        waits = asyncio.create_task(two.bookies.register("b1", HERE, timeout_ms=60_000))
        await one.bookies.unregister("b1")
        await waits
        assert (await one.bookies.registered()).writable == {"b1": HERE}
        with pytest.raises(LedgerMetadataError):
            await two.bookies.register("readonly", HERE)

    run(tmp_path, scenario)


def test_a_malformed_registration_has_no_address(tmp_path: Path) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        await one.store.create("/ledgers/available/bad", b"\xff\xff")
        await one.bookies.register("good", HERE)
        found = await two.bookies.registered()
        assert found.writable == {"bad": None, "good": HERE}
        assert found.address("bad") is None
        assert found.address("10.0.0.1:3181") == ("10.0.0.1", 3181)

    run(tmp_path, scenario)


def test_cookies(tmp_path: Path) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        cookie = Cookie("b1", ("/j",), ("/l",), await one.instance_id())
        assert await one.bookies.cookie("b1") is None
        await one.bookies.put_cookie("b1", cookie)
        assert await two.bookies.cookie("b1") == (cookie, 0)
        await two.bookies.put_cookie("b1", cookie, 0)
        with pytest.raises(NodeVersionError):
            await one.bookies.put_cookie("b1", cookie, 0)
        assert await one.bookies.known() == ("b1",)
        await one.bookies.delete_cookie("b1")
        assert await two.bookies.known() == ()

    run(tmp_path, scenario)


def test_addresses() -> None:
    for text, hosts in (
        ("zk://a:1,b:2/ledgers", "a:1,b:2"),
        ("zk+hierarchical://a:1;b:2/x", "a:1,b:2"),
        ("zk+null://a:1", "a:1"),
    ):
        cluster = locate(text)
        assert isinstance(cluster.store, ZooKeeperStore)
        assert cluster.store.hosts == hosts
    assert locate("zk://a:1/x").root == "/x"
    assert isinstance(locate("sqlite:///x/y").store, SqliteStore)
    for text in ("zk+flat://a:1", "etcd://a:1", "", "x", "zk://a:b/ledgers", "zk://a:99999"):
        with pytest.raises(ConfigError), contextlib.ExitStack():
            locate(text)
