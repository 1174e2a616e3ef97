"""The auditor: marks the ledgers of lost bookies, and checks all ledgers from time to time.

Whatever it does may be done twice, or be stopped at any point: marks that are set again do no harm, and what
was not marked is found by the next audit.

Source: BookKeeper replication/Auditor.java, AuditorBookieCheckTask.java, AuditorCheckAllLedgersTask.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from pyledger.client.bookkeeper.client import AsyncLedgerClient
from pyledger.client.bookkeeper.fragment_replicator import bookies_without_replicas
from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.errors import LedgerMetadataError, LedgerOperationError, NoSuchLedgerError
from pyledger.log_events import event, logger
from pyledger.metadata.change_signal import Signal
from pyledger.protocol.bookkeeper.audit import AuditRules
from pyledger.protocol.bookkeeper.fragments import keeps_entries
from pyledger.servers.autorecovery.clock import Clock, first_of

log = logger("autorecovery")

SECOND_MS = 1_000


class Auditor:
    """The one auditor of a cluster, while it is elected."""

    def __init__(self, client: AsyncLedgerClient, config: AutoRecoveryConfig, clock: Clock) -> None:
        """An auditor that begins with `run`.

        Args:
            client: Started.
            config: How often it looks.
            clock: Its time.
        """
        self._client, self._config, self._clock = client, config, clock
        self._cluster, self._marks = client.cluster, client.cluster.marks
        self._repairs = client.repairs(config)
        self._rules = AuditRules()
        self._news = Signal()
        self._there: tuple[str, ...] | None = None
        self._delay_s = config.lost_bookie_recovery_delay_s

    async def run(self) -> None:
        """Audit until this is cancelled.

        Raises:
            MetadataUnreachableError: The metadata store does not answer; begin anew later.
        """
        await self._marks.delay_s(self._config.lost_bookie_recovery_delay_s)
        delays = self._marks.watch_delay()
        self._delay_s, _ = await anext(delays)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_bookies())
            tasks.create_task(self._follow_delay(delays))
            tasks.create_task(self._audit_regularly())
            tasks.create_task(self._check_regularly())
            tasks.create_task(self._act())

    # --- what it learns

    async def _follow_bookies(self) -> None:
        states = self._cluster.bookies.watch()
        async with contextlib.aclosing(states):
            async for found in states:
                self._there = (*found.writable, *found.read_only)
                await self._look()

    async def _follow_delay(self, delays: AsyncGenerator[tuple[int, int], None]) -> None:
        async with contextlib.aclosing(delays):
            async for delay_s, _version in delays:
                # Upstream's tools set it to what it is when they want an audit now.
                forced, self._delay_s = delay_s == self._delay_s, delay_s
                if self._there is not None:
                    await self._look(forced=forced)

    async def _audit_regularly(self) -> None:
        while interval_s := self._config.auditor_periodic_bookie_check_interval_s:
            await self._clock.wait(interval_s * SECOND_MS)
            await self._look(forced=True)

    async def _look(self, *, forced: bool = False) -> None:
        known = await self._cluster.bookies.known()
        now_ms = self._clock.now_ms()
        self._rules.update(known, self._there or (), now_ms, self._delay_s * SECOND_MS)
        if forced:
            self._rules.force(now_ms)
        self._news.give()

    # --- what it does

    async def _act(self) -> None:
        while True:
            seen, due_ms = self._news.count, self._rules.deadline_ms()
            if due_ms is None:
                await self._news.wait(seen)
            elif (left_ms := due_ms - self._clock.now_ms()) > 0:
                await self._wait_for_news(seen, left_ms)
            else:
                await self._wait_until_enabled()
                # Meanwhile bookies may have come back.
                if lost := self._rules.due(self._clock.now_ms()):
                    await self._mark_ledgers_of(lost)

    async def _wait_for_news(self, seen: int, time_ms: int) -> None:
        await first_of(self._news.wait(seen), self._clock.wait(time_ms))

    async def _wait_until_enabled(self) -> None:
        states = self._marks.watch_enabled()
        async with contextlib.aclosing(states):
            async for enabled in states:
                if enabled:
                    return

    async def _mark_ledgers_of(self, lost: frozenset[str]) -> None:
        event(log, logging.WARNING, "bookies lost", bookies=",".join(sorted(lost)))
        marked = await self.mark_ledgers_of(lost)
        event(log, logging.INFO, "ledgers marked", ledgers=marked)

    async def mark_ledgers_of(self, lost: frozenset[str]) -> int:
        """Mark every ledger with copies at lost bookies; how many there are."""
        marked = 0

        async def look(ledger_id: int) -> None:
            nonlocal marked
            metadata = (await self._cluster.ledgers.get(ledger_id)).metadata
            missing = [bookie for bookie in sorted(lost) if keeps_entries(metadata, bookie)]
            if missing:
                await self._marks.mark(ledger_id, missing, self._clock.now_ms())
                marked += 1

        await self._each_ledger(look)
        return marked

    # --- all ledgers

    async def _check_regularly(self) -> None:
        while interval_s := self._config.auditor_periodic_check_interval_s:
            last_ms, now_ms = await self._marks.last_check_ms(), self._clock.now_ms()
            if last_ms is not None and (left_ms := last_ms + interval_s * SECOND_MS - now_ms) > 0:
                await self._clock.wait(left_ms)
                continue
            await self._wait_until_enabled()
            lacking = await self.check_ledgers()
            event(log, logging.INFO, "ledgers checked", lacking=lacking)
            await self._marks.set_last_check_ms(self._clock.now_ms())

    async def check_ledgers(self) -> int:
        """Check all ledgers by the ends of their fragments, and mark those that lack copies; how many.

        What only a lost bookie has is left to the audit, which may wait for it.
        """
        known, lacking = frozenset(await self._cluster.bookies.known()), 0

        async def look(ledger_id: int) -> None:
            nonlocal lacking
            found = await self._repairs.examine(ledger_id)
            missing = bookies_without_replicas(found.missing_replicas)
            if told := [one for one in missing if one in found.there or one not in known]:
                lacking += 1
                await self._marks.mark(ledger_id, told, self._clock.now_ms())

        await self._each_ledger(look)
        return lacking

    async def _each_ledger(self, look: Callable[[int], Awaitable[None]]) -> None:
        """Do something with each ledger, with some at a time; one that fails does not hinder the others."""
        room = asyncio.Semaphore(self._config.ledgers_checked_at_once)

        async def one(ledger_id: int) -> None:
            try:
                await look(ledger_id)
            except NoSuchLedgerError:
                pass  # deleted meanwhile
            except (LedgerMetadataError, LedgerOperationError) as error:
                event(log, logging.WARNING, "ledger not examined", ledger=ledger_id, problem=error)
            finally:
                room.release()

        async with asyncio.TaskGroup() as tasks:
            async for ledger_id in self._cluster.ledgers.ids():
                await room.acquire()
                tasks.create_task(one(ledger_id))
