"""Marks of ledgers that lack copies, and the auditor's election: SQLite, ZooKeeper, Java's bytes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pyledger.errors import LedgerMetadataError, NoNodeError
from pyledger.metadata.cluster import Cluster
from pyledger.metadata.sqlite import SqliteStore
from pyledger.metadata.zookeeper import ZooKeeperStore
from pyledger.wire.bookkeeper.underreplication import Mark
from tests.golden.ledger_recordings import lines

T = TypeVar("T")
Open = Callable[[], Cluster]
ROOT = "/ledgers/underreplication"
FAR = 2**40 + 1


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=[pytest.mark.java, pytest.mark.slow])])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Makes sessions with one cluster."""
    if request.param == "sqlite":
        return lambda: Cluster(SqliteStore(tmp_path / "metadata"))
    hosts, root = request.getfixturevalue("zookeeper_hosts"), f"/{request.node.originalname}"
    return lambda: Cluster(ZooKeeperStore(hosts, session_timeout_ms=30_000), root)


def run(opened: Open, scenario: Callable[[Cluster, Cluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with opened() as one, opened() as two:
            await one.format()
            await one.marks.prepare()
            await scenario(one, two)

    asyncio.run(whole())


def keep_order(_names: object) -> None:
    """No chance."""


async def marked(cluster: Cluster) -> list[int]:
    return [ledger_id async for ledger_id in cluster.marks.ids()]


async def until(states: AsyncGenerator[T, None], wanted: T) -> None:
    async for state in states:
        if state == wanted:
            return


def test_marks_are_set_and_merged(opened: Open) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        assert await marked(two) == []
        await one.marks.mark(7, ["b1"], 1000)
        await two.marks.mark(7, ["b2", "b1"], 2000)
        await one.marks.mark(FAR, ["b1"], 3000)
        assert await two.marks.get(7) == Mark(("b1", "b2"), 1000)
        assert await two.marks.get(8) is None
        assert await marked(one) == [7, FAR]

    run(opened, scenario)


def test_many_mark_at_once(opened: Open) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        clusters = (one, two)
        await asyncio.gather(*(clusters[at % 2].marks.mark(at // 4, [f"b{at % 4}"], at) for at in range(24)))
        assert await marked(one) == list(range(6))
        for ledger_id in range(6):
            mark = await two.marks.get(ledger_id)
            assert mark is not None
            assert sorted(mark.replicas) == ["b0", "b1", "b2", "b3"]

    run(opened, scenario)


def test_a_ledger_is_taken_by_one_worker(opened: Open) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        for ledger_id in (1, 2):
            await one.marks.mark(ledger_id, ["b1"], 0)
        first = await one.marks.take("one", keep_order)
        second = await two.marks.take("two", keep_order)
        assert first is not None
        assert second is not None
        assert (first.ledger_id, second.ledger_id) == (1, 2)
        assert await one.marks.take("one", keep_order) is None
        await two.marks.release(2)
        assert await one.marks.take("one", keep_order, passed={2}) is None
        again = await one.marks.take("one", keep_order)
        assert again is not None
        for taken in (first, again):
            assert await one.marks.finish(taken)
        assert await marked(two) == []
        with pytest.raises(NoNodeError):
            await two.store.children(f"{two.root}/underreplication/ledgers/0000")
        assert await two.marks.take("two", keep_order) is None

    run(opened, scenario)


def test_a_mark_that_was_set_again_stays(opened: Open) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        await one.marks.mark(1, ["b1"], 0)
        taken = await one.marks.take("one", keep_order)
        assert taken is not None
        await two.marks.mark(1, ["b1"], 0)
        assert not await one.marks.finish(taken)
        assert await marked(two) == [1]
        assert await two.marks.take("two", keep_order) is not None, "its lock is free"

    run(opened, scenario)


def test_a_lock_ends_with_its_session(opened: Open) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        await one.marks.mark(1, ["b1"], 0)
        third = opened()
        await third.start()
        assert await third.marks.take("three", keep_order) is not None
        locks = two.marks.changes("locks")
        await until(locks, ("urL0000000001",))
        assert await two.marks.take("two", keep_order) is None
        await third.close()
        await until(locks, ())
        await locks.aclose()
        assert await two.marks.take("two", keep_order) is not None

    run(opened, scenario)


def test_the_switch_and_the_delay(opened: Open) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        assert await one.marks.enabled()
        states = two.marks.watch_enabled()
        assert await anext(states)
        assert await one.marks.set_enabled(False)
        assert not await one.marks.set_enabled(False)
        await until(states, False)
        assert await two.marks.set_enabled(True)
        assert not await two.marks.set_enabled(True)
        await until(states, True)
        await states.aclose()
        assert await one.marks.delay_s(7) == 7
        assert await two.marks.delay_s(9) == 7
        delays = two.marks.watch_delay()
        assert await anext(delays) == (7, 0)
        await one.marks.set_delay_s(7)
        assert await anext(delays) == (7, 1), "told although it is the same: somebody wants it looked at"
        await delays.aclose()
        assert await one.marks.last_check_ms() is None
        for time_ms in (5, 1_795_253_378_101):
            await one.marks.set_last_check_ms(time_ms)
            assert await two.marks.last_check_ms() == time_ms

    run(opened, scenario)


def test_the_oldest_candidate_is_auditor(opened: Open) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        assert await one.election.auditor() is None
        first, second = one.election.campaign("one"), two.election.campaign("two")
        assert await anext(first)
        assert not await anext(second)
        for cluster in (one, two):
            assert await cluster.election.auditor() == "one"
        await first.aclose()
        assert await anext(second)
        assert await one.election.auditor() == "two"
        await second.aclose()
        assert await one.election.auditor() is None

    run(opened, scenario)


def test_an_auditor_whose_session_ends_is_followed(opened: Open) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        third = opened()
        await third.start()
        first, second = third.election.campaign("three"), two.election.campaign("two")
        assert await anext(first)
        assert not await anext(second)
        waiting = asyncio.create_task(anext(second))
        await third.close()
        assert await waiting
        await second.aclose()
        with contextlib.suppress(Exception):
            await first.aclose()

    run(opened, scenario)


def test_a_lost_vote_is_cast_again(opened: Open) -> None:
    async def scenario(one: Cluster, two: Cluster) -> None:
        first, second = one.election.campaign("one"), two.election.campaign("two")
        assert await anext(first)
        assert not await anext(second)
        folder = f"{one.root}/underreplication/auditorelection"
        await two.store.delete(f"{folder}/{min(await two.store.children(folder))}")
        assert await anext(second)
        assert not await anext(first), "as after a session that was lost"
        again = asyncio.create_task(anext(first))
        await second.aclose()
        assert await again
        await first.aclose()

    run(opened, scenario)


# --- what Java's processes left


def tree(stage: str) -> dict[str, bytes]:
    return {one["path"]: bytes.fromhex(one["hex"]) for one in lines(f"zk/{stage}.jsonl")}


def test_nodes_are_those_of_java(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Cluster(SqliteStore(tmp_path / "metadata")) as cluster:
            await cluster.format()
            await cluster.marks.prepare()
            assert await cluster.marks.delay_s(0) == 0
            recorded = tree("05-bookie-lost")
            marks = {
                path: data for path, data in recorded.items() if "/urL" in path and "/locks/" not in path
            }
            for path, data in marks.items():
                ctime = int(data.rpartition(b"ctime: ")[2])
                await cluster.marks.mark(int(path.rpartition("urL")[2]), ["127.0.0.1:25003"], ctime)
            await cluster.marks.set_last_check_ms(1_795_253_378_101)
            candidate = cluster.election.campaign("127.0.0.1:25031")
            assert await anext(candidate)
            await cluster.election._vote("127.0.0.1:25032")
            made = {path: node.data async for path, node in cluster.store.walk(ROOT)}
            want = {
                path: data
                for path, data in recorded.items()
                if path.startswith(ROOT) and "/locks/" not in path
            }
            assert made == want
            assert len(marks) == 13
            await candidate.aclose()

    asyncio.run(whole())


def test_nodes_of_java_are_read(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Cluster(SqliteStore(tmp_path / "metadata")) as cluster:
            for path, data in tree("05-bookie-lost").items():
                await cluster.store.create(path, data)
            await cluster.marks.prepare()
            assert await marked(cluster) == [*range(12), FAR]
            assert await cluster.marks.get(FAR) == Mark(("127.0.0.1:25003",), 1_795_253_401_048)
            assert await cluster.election.auditor() == "127.0.0.1:25031"
            assert await cluster.marks.last_check_ms() == 1_795_253_378_101
            taken = await cluster.marks.take("x", keep_order)
            assert taken is not None
            assert taken.ledger_id == 0
            assert await cluster.marks.take("x", keep_order, passed={0, 1, 2, 3}) is not None
            await cluster.store.set(f"{ROOT}/LAYOUT", b'type: "OTHER" version: 1')
            with pytest.raises(LedgerMetadataError, match="OTHER"):
                await cluster.marks.prepare()

    asyncio.run(whole())
