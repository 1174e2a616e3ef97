"""The auditor: marks the ledgers of lost bookies, and checks all ledgers from time to time.

Every step may be repeated or interrupted: setting a mark again does no harm, and the next audit finds what
was not marked.

Source: BookKeeper replication/Auditor.java, AuditorBookieCheckTask.java, AuditorCheckAllLedgersTask.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from pyledger.client.bookkeeper.client import AsyncLedgerClient
from pyledger.client.bookkeeper.ledger_replication import bookies_without_replicas
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
        """Create an auditor; `run` starts it.

        Args:
            client: A started client.
            config: How often it audits and checks.
            clock: The source of its time.
        """
        self._client, self._config, self._clock = client, config, clock
        self._cluster, self._marks = client.cluster, client.cluster.marks
        self._repairs = client.repairs(config)
        self._rules = AuditRules()
        self._news = Signal()
        self._registered: tuple[str, ...] | None = None
        self._delay_s = config.lost_bookie_recovery_delay_s

    async def run(self) -> None:
        """Audit until this is cancelled.

        Raises:
            MetadataUnreachableError: The metadata store does not answer; call this again later.
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

    # --- input

    async def _follow_bookies(self) -> None:
        states = self._cluster.bookies.watch()
        async with contextlib.aclosing(states):
            async for found in states:
                self._registered = (*found.writable, *found.read_only)
                await self._update_rules()

    async def _follow_delay(self, delays: AsyncGenerator[tuple[int, int], None]) -> None:
        async with contextlib.aclosing(delays):
            async for delay_s, _version in delays:
                # Upstream's tools request an audit by setting the delay to its current value.
                forced, self._delay_s = delay_s == self._delay_s, delay_s
                if self._registered is not None:
                    await self._update_rules(forced=forced)

    async def _audit_regularly(self) -> None:
        while interval_s := self._config.auditor_periodic_bookie_check_interval_s:
            await self._clock.wait(interval_s * SECOND_MS)
            await self._update_rules(forced=True)

    async def _update_rules(self, *, forced: bool = False) -> None:
        known = await self._cluster.bookies.known()
        now_ms = self._clock.now_ms()
        self._rules.update(known, self._registered or (), now_ms, self._delay_s * SECOND_MS)
        if forced:
            self._rules.force(now_ms)
        self._news.give()

    # --- actions

    async def _act(self) -> None:
        while True:
            seen, due_ms = self._news.count, self._rules.deadline_ms()
            if due_ms is None:
                await self._news.wait(seen)
            elif (left_ms := due_ms - self._clock.now_ms()) > 0:
                await self._wait_for_news(seen, left_ms)
            else:
                await self._wait_until_enabled()
                # Bookies may have returned in the meantime.
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
        """Mark every ledger with replicas on lost bookies, and return how many there are."""
        marked = 0

        async def mark(ledger_id: int) -> None:
            nonlocal marked
            metadata = (await self._cluster.ledgers.get(ledger_id)).metadata
            missing = [bookie for bookie in sorted(lost) if keeps_entries(metadata, bookie)]
            if missing:
                await self._marks.mark(ledger_id, missing, self._clock.now_ms())
                marked += 1

        await self._each_ledger(mark)
        return marked

    # --- all ledgers

    async def _check_regularly(self) -> None:
        while interval_s := self._config.auditor_periodic_check_interval_s:
            last_ms, now_ms = await self._marks.last_check_ms(), self._clock.now_ms()
            if last_ms is not None and (left_ms := last_ms + interval_s * SECOND_MS - now_ms) > 0:
                await self._clock.wait(left_ms)
                continue
            await self._wait_until_enabled()
            count = await self.check_ledgers()
            event(log, logging.INFO, "ledgers checked", under_replicated=count)
            await self._marks.set_last_check_ms(self._clock.now_ms())

    async def check_ledgers(self) -> int:
        """Check the ends of all fragments, mark under-replicated ledgers, and return how many there are.

        Replicas that are missing only because their bookie is lost are left to the audit, which may wait for
        the bookie.
        """
        known, under_replicated = frozenset(await self._cluster.bookies.known()), 0

        async def check(ledger_id: int) -> None:
            nonlocal under_replicated
            found = await self._repairs.examine(ledger_id)
            missing = bookies_without_replicas(found.missing_replicas)
            if bookies := [one for one in missing if one in found.there or one not in known]:
                under_replicated += 1
                await self._marks.mark(ledger_id, bookies, self._clock.now_ms())

        await self._each_ledger(check)
        return under_replicated

    async def _each_ledger(self, action: Callable[[int], Awaitable[None]]) -> None:
        """Run an action for every ledger, several at a time. A failure does not stop the others."""
        slots = asyncio.Semaphore(self._config.ledgers_checked_at_once)

        async def one(ledger_id: int) -> None:
            try:
                await action(ledger_id)
            except NoSuchLedgerError:
                pass  # deleted in the meantime
            except (LedgerMetadataError, LedgerOperationError) as error:
                event(log, logging.WARNING, "ledger not examined", ledger=ledger_id, problem=error)
            finally:
                slots.release()

        async with asyncio.TaskGroup() as tasks:
            async for ledger_id in self._cluster.ledgers.ids():
                await slots.acquire()
                tasks.create_task(one(ledger_id))
