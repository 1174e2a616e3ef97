"""A cluster of bookies in memory with autorecovery beside it, whose time passes when a test says so."""

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from pyledger.bookkeeper import AsyncLedgerClient
from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.servers.autorecovery.service import AutoRecovery
from pyledger.wire.bookkeeper.bookies import Cookie
from tests.client.bookkeeper.model_bookie import Bench, bench
from tests.servers.bookkeeper.bookie_peer import PATIENT

LOOK_AGAIN_S = 0.01
POLL_MS = 1
"""Whoever waits no longer than this looks again and again; that time passes by itself."""


class TestClock:
    """A clock that only `pass_time` advances."""

    __test__ = False

    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self._waits: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    async def wait(self, time_ms: int) -> None:
        if time_ms <= POLL_MS:
            await asyncio.sleep(LOOK_AGAIN_S)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waits, (self._now_ms + time_ms, id(future), future))
        await future

    @property
    def waits(self) -> list[int]:
        """Milliseconds that somebody still waits, ascending."""
        return sorted(at - self._now_ms for at, _, future in self._waits if not future.done())

    def pass_time(self, time_ms: int) -> None:
        self._now_ms += time_ms
        while self._waits and self._waits[0][0] <= self._now_ms:
            _, _, future = heapq.heappop(self._waits)
            if not future.done():
                future.set_result(None)


class RecoveryCluster:
    """Bookies with autorecovery."""

    def __init__(self, bookies: Bench, clock: TestClock) -> None:
        self.bench, self.clock, self.cluster = bookies, clock, bookies.cluster

    async def know(self, name: str) -> None:
        """Give a bookie its cookie."""
        await self.cluster.bookies.put_cookie(name, Cookie(name, ("journal",), ("ledgers",)))

    async def lose(self, name: str) -> None:
        """Stop a bookie and end its session, as after a kill."""
        await self.bench.bookies[name].stop()
        await self.cluster.bookies.unregister(name)

    @contextlib.asynccontextmanager
    async def recovery(self, name: str = "one", **settings: Any) -> AsyncIterator[AutoRecovery]:
        config = AutoRecoveryConfig(rw_rereplicate_backoff_ms=POLL_MS, **settings)
        made = AutoRecovery(self.bench.address, name, config=config, client=PATIENT, clock=self.clock)
        await made.start()
        try:
            yield made
            assert not made.ended.is_set()
        finally:
            await made.close()

    async def wait_for_waiter(self, time_ms: int) -> None:
        """Wait until a task waits for exactly this time."""

        async def holds() -> bool:
            return time_ms in self.clock.waits

        await until(holds)

    async def marked(self) -> list[int]:
        return [ledger_id async for ledger_id in self.cluster.marks.ids()]

    async def none_marked(self) -> bool:
        return not await self.marked()

    async def names(self, ledger_id: int) -> set[str]:
        """Return the bookies of a ledger."""
        metadata = (await self.cluster.ledgers.get(ledger_id)).metadata
        return {bookie for segment in metadata.segments for bookie in segment.ensemble}

    async def without(self, bookie: str, *ledger_ids: int) -> None:
        """Wait until no ledger names a bookie."""

        async def holds() -> bool:
            return not any([bookie in await self.names(one) for one in ledger_ids])

        await until(holds)

    async def copies(self, ledger_id: int) -> list[list[bytes]]:
        """Return the replicas of each entry on its bookies."""
        metadata = (await self.cluster.ledgers.get(ledger_id)).metadata
        found = []
        for entry_id in range(metadata.last_entry_id + 1):
            ensemble = metadata.segment_of(entry_id).ensemble
            at = [self.bench.bookies[ensemble[place]].rules.storage for place in metadata.write_set(entry_id)]
            held = [storage.get(ledger_id, entry_id) for storage in at]
            found.append([entry for entry in held if entry is not None])
        return found

    async def arrived(self, ledger_id: int, entry_id: int) -> None:
        """Wait until all bookies that should have an entry of an open ledger have it."""
        metadata = (await self.cluster.ledgers.get(ledger_id)).metadata
        ensemble = metadata.segments[-1].ensemble
        at = [self.bench.bookies[ensemble[place]].rules.storage for place in metadata.write_set(entry_id)]
        while None in [storage.get(ledger_id, entry_id) for storage in at]:
            await asyncio.sleep(LOOK_AGAIN_S)

    async def whole(self, ledger_id: int) -> None:
        """Wait until every entry has all of its replicas, and check that they are equal."""
        metadata = (await self.cluster.ledgers.get(ledger_id)).metadata
        assert metadata.closed
        found = await self.copies(ledger_id)
        while not all(len(copies) == metadata.write_quorum for copies in found):
            await asyncio.sleep(LOOK_AGAIN_S)
            found = await self.copies(ledger_id)
        assert all(len(set(copies)) == 1 for copies in found)


@contextlib.asynccontextmanager
async def recovery_cluster(folder: Path, bookies: int = 4) -> AsyncIterator[RecoveryCluster]:
    async with bench(folder, bookies) as made:
        found = RecoveryCluster(made, TestClock())
        for name in made.bookies:
            await found.know(name)
        yield found


def play(
    folder: Path, scenario: Callable[[RecoveryCluster, AsyncLedgerClient], Awaitable[None]], bookies: int = 4
) -> None:
    async def whole() -> None:
        async with recovery_cluster(folder, bookies) as made, made.bench.client() as client:
            await scenario(made, client)

    asyncio.run(whole())


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():
        await asyncio.sleep(LOOK_AGAIN_S)
