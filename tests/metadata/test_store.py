"""One contract for all metadata stores: SQLite's, and a real ZooKeeper."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from pyledger.errors import NodeExistsError, NodeNotEmptyError, NodeVersionError, NoNodeError
from pyledger.metadata.sqlite import NodeFile, SqliteStore
from pyledger.metadata.store import MetadataStore, Node
from pyledger.metadata.zookeeper import ZooKeeperStore
from tests.interop.bookkeeper_peers import free_port, zookeeper
from tests.metadata.sessions import end_session

T = TypeVar("T")
Open = Callable[[], MetadataStore]


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=[pytest.mark.java, pytest.mark.slow])])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Makes sessions with one store."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "metadata")
    hosts = request.getfixturevalue("zookeeper_hosts")
    return lambda: ZooKeeperStore(hosts, session_timeout_ms=30_000)


def run(opened: Open, scenario: Callable[[MetadataStore, MetadataStore], Awaitable[None]]) -> None:
    """A scenario with two sessions, below a node that is empty at first."""

    async def whole() -> None:
        async with opened() as one, opened() as two:
            with contextlib.suppress(NoNodeError):
                for path in reversed([path async for path, _ in one.walk("/t")]):
                    await one.delete(path)
            await one.ensure("/t")
            await scenario(one, two)

    asyncio.run(whole())


def test_data_and_versions(opened: Open) -> None:
    async def scenario(one: MetadataStore, two: MetadataStore) -> None:
        assert await two.get("/t/a") is None
        assert await one.create("/t/a", b"first") == "/t/a"
        assert await two.get("/t/a") == Node(b"first", 0)
        assert await two.set("/t/a", b"second", 0) == 1
        with pytest.raises(NodeVersionError):
            await one.set("/t/a", b"late", 0)
        assert await one.set("/t/a", b"any") == 2
        assert await two.get("/t/a") == Node(b"any", 2)
        for change in (one.set("/t/none", b""), one.delete("/t/none"), one.create("/t/none/below")):
            with pytest.raises(NoNodeError):
                await change
        with pytest.raises(NodeVersionError):
            await one.delete("/t/a", 1)
        await one.delete("/t/a", 2)
        assert await two.get("/t/a") is None

    run(opened, scenario)


def test_one_of_two_makers_wins(opened: Open) -> None:
    async def scenario(one: MetadataStore, two: MetadataStore) -> None:
        made = await asyncio.gather(
            one.create("/t/a", b"1"), two.create("/t/a", b"2"), return_exceptions=True
        )
        assert sorted(type(found).__name__ for found in made) == ["NodeExistsError", "str"]
        winner = b"1" if isinstance(made[0], str) else b"2"
        assert await one.get("/t/a") == await two.get("/t/a") == Node(winner, 0)
        changed = await asyncio.gather(
            *(store.set("/t/a", b"x", 0) for store in (one, two)), return_exceptions=True
        )
        assert sum(found == 1 for found in changed) == 1
        assert sum(isinstance(found, NodeVersionError) for found in changed) == 1

    run(opened, scenario)


def test_children(opened: Open) -> None:
    async def scenario(one: MetadataStore, two: MetadataStore) -> None:
        assert await one.children("/t") == ()
        for name in ("b", "a", "c"):
            await one.create(f"/t/{name}")
        await one.create("/t/a/deep")
        assert await two.children("/t") == ("a", "b", "c")
        assert [path async for path, _ in two.walk("/t")] == ["/t", "/t/a", "/t/a/deep", "/t/b", "/t/c"]
        with pytest.raises(NodeNotEmptyError):
            await two.delete("/t/a")
        with pytest.raises(NoNodeError):
            await two.children("/t/none")
        with pytest.raises(NodeExistsError):
            await two.create("/t/b")

    run(opened, scenario)


def test_sequence(opened: Open) -> None:
    async def scenario(one: MetadataStore, two: MetadataStore) -> None:
        made = [await store.create("/t/ID-", sequence=True) for store in (one, two, one)]
        numbers = [int(path.removeprefix("/t/ID-")) for path in made]
        assert all(len(path) == len("/t/ID-") + 10 for path in made)
        assert numbers == sorted(set(numbers))
        await one.delete(made[-1])
        again = await two.create("/t/ID-", sequence=True)
        assert int(again.removeprefix("/t/ID-")) > numbers[-1], "a number is given once"

    run(opened, scenario)


def test_ephemeral_nodes_end_with_their_session(opened: Open) -> None:
    async def scenario(one: MetadataStore, two: MetadataStore) -> None:
        third = opened()
        await third.start()
        await third.create("/t/there", b"x", ephemeral=True)
        await one.create("/t/stays", ephemeral=True)
        assert await two.get("/t/there") == Node(b"x", 0, ephemeral=True)
        with pytest.raises(NoNodeError):
            await third.create("/t/there/below")
        states = two.watch("/t/there")
        assert await anext(states) == Node(b"x", 0, ephemeral=True)
        await third.close()
        assert await anext(states) is None
        await states.aclose()
        assert await two.children("/t") == ("stays",)

    run(opened, scenario)


def test_watches_end_at_the_last_state(opened: Open) -> None:
    async def scenario(one: MetadataStore, two: MetadataStore) -> None:
        node, names = two.watch("/t/a"), two.watch_children("/t")
        assert await anext(node) is None
        assert await anext(names) == ()
        await one.create("/t/a", b"0")
        await until(names, ("a",))
        for value in range(1, 6):
            await one.set("/t/a", b"%d" % value)
        await until(node, Node(b"5", 5))
        await one.delete("/t/a")
        await until(node, None)
        await until(names, ())
        await node.aclose()
        await names.aclose()
        gone = two.watch_children("/t/none")
        assert await anext(gone) is None
        await one.create("/t/none")
        assert await anext(gone) == ()
        await gone.aclose()

    run(opened, scenario)


async def until(states: AsyncGenerator[T, None], wanted: T) -> None:
    async for state in states:
        if state == wanted:
            return


def test_who_ends_the_session_of_a_killed_process_hears_of_it(tmp_path: Path) -> None:
    """Also where it has seen all that others changed: what it changes itself is told, too."""
    killed, stays = (NodeFile(tmp_path / "metadata", make=True) for _ in range(2))
    killed.open()
    stays.open()
    killed.create("/there", b"", ephemeral=True, sequence=False)
    before = stays.end_dead_sessions()
    assert stays.end_dead_sessions() == before
    killed.close(clean=False)
    assert stays.end_dead_sessions() != before
    assert stays.get("/there") is None
    stays.close()


def test_a_killed_process_loses_its_nodes(tmp_path: Path) -> None:
    async def scenario() -> None:
        killed, stays = SqliteStore(tmp_path / "metadata"), SqliteStore(tmp_path / "metadata")
        await killed.start()
        await stays.start()
        await killed.create("/there", ephemeral=True)
        states = stays.watch("/there")
        assert await anext(states) == Node(b"", 0, ephemeral=True)
        await killed.abandon()
        assert await anext(states) is None
        await states.aclose()
        await stays.close()

    asyncio.run(scenario())


def test_a_lost_session_is_followed_by_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SqliteStore(tmp_path / "metadata") as store, SqliteStore(tmp_path / "metadata") as other:
            names = store.sessions()
            first = await anext(names)
            await store.create("/there", ephemeral=True)
            await end_session(store)
            assert await anext(names) != first
            assert await other.get("/there") is None
            await store.create("/there", ephemeral=True)
            assert await other.get("/there") == Node(b"", 0, ephemeral=True)
            await names.aclose()

    asyncio.run(scenario())


@pytest.mark.java
@pytest.mark.slow
def test_zookeeper_ends_a_session(zookeeper_hosts: str) -> None:
    """Its nodes go, another session follows, watches go on."""

    async def scenario() -> None:
        async with ZooKeeperStore(zookeeper_hosts) as store, ZooKeeperStore(zookeeper_hosts) as other:
            names, nodes = store.sessions(), store.watch("/lost")
            first = await anext(names)
            assert await anext(nodes) is None
            await store.create("/lost", b"1", ephemeral=True)
            await until(nodes, Node(b"1", 0, ephemeral=True))
            await end_session(store)
            assert await anext(names) != first
            await until(nodes, None)
            assert await other.get("/lost") is None
            await store.create("/lost", b"2", ephemeral=True)
            await until(nodes, Node(b"2", 0, ephemeral=True))
            await names.aclose()
            await nodes.aclose()

    asyncio.run(scenario())


@pytest.mark.java
@pytest.mark.slow
def test_zookeeper_stops_and_returns(tmp_path: Path) -> None:
    """The session outlives its server: nodes stay, reads wait, watches tell what changed."""

    async def scenario() -> None:
        with ExitStack() as servers:
            port = free_port()
            servers.enter_context(zookeeper(tmp_path, port, tick_ms=30_000))
            async with ZooKeeperStore(f"127.0.0.1:{port}", session_timeout_ms=600_000) as store:
                names, nodes = store.sessions(), store.watch("/there")
                first = await anext(names)
                assert await anext(nodes) is None
                await store.create("/there", ephemeral=True)
                await until(nodes, Node(b"", 0, ephemeral=True))
                await asyncio.to_thread(servers.close)
                reading = asyncio.create_task(store.get("/there"))
                await asyncio.to_thread(servers.enter_context, zookeeper(tmp_path, port, tick_ms=30_000))
                assert await reading == Node(b"", 0, ephemeral=True)
                await store.set("/there", b"x")
                await until(nodes, Node(b"x", 1, ephemeral=True))
                assert f"{store._client.client_id[0]:x}" == first
                await names.aclose()
                await nodes.aclose()

    asyncio.run(scenario())
