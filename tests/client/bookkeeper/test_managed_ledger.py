"""A log over many ledgers, and its cursors, on bookies in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pyledger.bookkeeper import AsyncLedgerClient, AsyncManagedCursor, AsyncManagedLedger
from pyledger.errors import (
    LedgerFencedError,
    LedgerMetadataError,
    LedgerOperationError,
    NodeVersionError,
    NoNodeError,
)
from tests.client.bookkeeper.model_bookie import Bench, bench


def run(folder: Path, scenario: Callable[[Bench, AsyncLedgerClient], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with bench(folder) as made, made.client(explicit_lac_interval_ms=5) as client:
            await scenario(made, client)

    asyncio.run(whole())


async def ids(client: AsyncLedgerClient) -> list[int]:
    return [ledger_id async for ledger_id in client.ledgers()]


async def until_read(cursor: AsyncManagedCursor, count: int) -> list[bytes]:
    """Entries, waiting for those that the bookies have not been told of as confirmed."""
    found: list[bytes] = []
    while len(found) < count:
        found += [entry.payload for entry in await cursor.read(count - len(found))]
        await asyncio.sleep(0.001)
    return found


def test_append_roll_and_read(tmp_path: Path) -> None:
    async def scenario(made: Bench, client: AsyncLedgerClient) -> None:
        async with AsyncManagedLedger(client, "orders", roll_bytes=50) as log:
            places = [await log.append(b"%02d" % at * 5) for at in range(23)]
            assert len(log.index.ledgers) == 5
            assert len({place.ledger_id for place in places}) == 5
            async with AsyncManagedCursor(client, "orders", "billing") as cursor:
                assert await until_read(cursor, 23) == [b"%02d" % at * 5 for at in range(23)]
                assert await cursor.read(10) == []
                await cursor.acknowledge(*places[:7], places[9])
                cursor.rewind()
                assert await until_read(cursor, 15) == [
                    b"%02d" % at * 5 for at in range(23) if at >= 7 and at != 9
                ]
        async with AsyncManagedCursor(client, "orders", "billing") as again:
            assert again.state.mark == places[6]
            assert [entry.position for entry in await again.read(3)] == [places[7], places[8], places[10]]
        async with AsyncManagedCursor(client, "orders", "late", begin="latest") as late:
            assert await late.read(10) == []
        assert (await client.metadata(places[-1].ledger_id)).closed

    run(tmp_path, scenario)


def test_by_time(tmp_path: Path) -> None:
    async def scenario(made: Bench, client: AsyncLedgerClient) -> None:
        now = 0

        class TimedLedger(AsyncManagedLedger):
            def _now_ms(self) -> int:
                return now

        async with TimedLedger(client, "orders", roll_ms=100) as log:
            first = await log.append(b"1")
            now = 99
            assert (await log.append(b"2")).ledger_id == first.ledger_id
            now = 100
            assert (await log.append(b"3")).ledger_id != first.ledger_id

    run(tmp_path, scenario)


def test_a_log_has_one_writer(tmp_path: Path) -> None:
    async def scenario(made: Bench, client: AsyncLedgerClient) -> None:
        old, new = AsyncManagedLedger(client, "orders"), AsyncManagedLedger(client, "orders", roll_bytes=1)
        await old.start()
        await old.append(b"old")
        await new.start()
        await new.append(b"new")
        with pytest.raises(LedgerFencedError):
            await old.append(b"lost")
        with pytest.raises(LedgerFencedError):
            await old.close()
        await new.append(b"newer")
        await new.close()
        with pytest.raises(LedgerOperationError, match="not open"):
            await new.append(b"late")
        async with AsyncManagedCursor(client, "orders", "c") as cursor:
            assert await until_read(cursor, 3) == [b"old", b"new", b"newer"]

    run(tmp_path, scenario)


def test_what_a_killed_writer_left(tmp_path: Path) -> None:
    async def scenario(made: Bench, client: AsyncLedgerClient) -> None:
        killed = AsyncManagedLedger(client, "orders")
        await killed.start()
        empty = AsyncManagedLedger(client, "orders")
        await killed.append(b"1")
        await empty.start()  # killed before it wrote anything
        async with AsyncManagedLedger(client, "orders") as log:
            assert [one.last_entry_id for one in log.index.ledgers] == [0, None]
            await log.append(b"2")
        async with AsyncManagedCursor(client, "orders", "c") as cursor:
            assert await until_read(cursor, 2) == [b"1", b"2"]
        assert len(await ids(client)) == 2, "an empty ledger is deleted"

    run(tmp_path, scenario)


def test_trim(tmp_path: Path) -> None:
    async def scenario(made: Bench, client: AsyncLedgerClient) -> None:
        async with AsyncManagedLedger(client, "orders", roll_bytes=2) as log:
            places = [await log.append(b"%d" % at) for at in range(8)]
            assert await log.trim() == (), "without a cursor nothing is deleted"
            fast, slow = (
                AsyncManagedCursor(client, "orders", "fast"),
                AsyncManagedCursor(client, "orders", "slow"),
            )
            await fast.start()
            await slow.start()
            await fast.acknowledge_through(places[5])
            assert await log.trim() == ()
            await slow.acknowledge_through(places[3])
            gone = await log.trim()
            assert gone == (places[0].ledger_id, places[2].ledger_id)
            assert not {*gone} & {*await ids(client)}
            assert [entry.payload for entry in await slow.read(2)] == [b"4", b"5"]
            await fast.acknowledge_through(places[7])
            await slow.acknowledge_through(places[7])
            await log.trim()
            await log.append(b"8")
            slow.rewind()
            assert await until_read(slow, 1) == [b"8"]

    run(tmp_path, scenario)


def test_a_cursor_has_one_user(tmp_path: Path) -> None:
    async def scenario(made: Bench, client: AsyncLedgerClient) -> None:
        with pytest.raises(NoNodeError):
            await AsyncManagedCursor(client, "none", "c").start()
        for name in ("", "a/b", "..", "a b"):
            with pytest.raises(LedgerMetadataError):
                AsyncManagedLedger(client, name)
        async with AsyncManagedLedger(client, "orders") as log:
            place = await log.append(b"1")
            one, two = AsyncManagedCursor(client, "orders", "c"), AsyncManagedCursor(client, "orders", "c")
            await one.start()
            await two.start()
            await one.acknowledge(place)
            with pytest.raises(NodeVersionError):
                await two.acknowledge(place)

    run(tmp_path, scenario)
