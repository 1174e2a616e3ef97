"""The replication worker: locks marked ledgers, re-replicates them, and removes the marks.

It works on one ledger at a time. A ledger that is left to its writer for a while, or waits after a failure,
stays locked; the worker takes other ledgers in the meantime.

Source: BookKeeper replication/ReplicationWorker.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, MutableSequence
from typing import Any

from pyledger.client.bookkeeper.client import AsyncLedgerClient
from pyledger.client.bookkeeper.ledger_replication import Examination
from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.errors import (
    EntryReadError,
    LedgerError,
    MetadataUnreachableError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from pyledger.log_events import event, logger
from pyledger.metadata.cancellation import end_if_cancelled
from pyledger.metadata.change_signal import Signal
from pyledger.metadata.underreplication import LEDGERS, LOCKS, LockedLedger
from pyledger.protocol.bookkeeper.re_replication import Step
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.servers.autorecovery.clock import Clock, first_of

log = logger("autorecovery")

Shuffle = Callable[[MutableSequence[str]], None]
ROUNDS_MAX = 16
"""Rounds of examining and copying one ledger before the worker pauses it."""
BACKOFF_STEPS = 5
"""How often the pause after a failure doubles."""


class ReplicationWorker:
    """One of the workers of a cluster."""

    def __init__(
        self, client: AsyncLedgerClient, config: AutoRecoveryConfig, clock: Clock, name: str, shuffle: Shuffle
    ) -> None:
        """Create a worker; `run` starts it.

        Args:
            client: A started client.
            config: Times and limits.
            clock: The source of its time.
            name: Name shown in its locks.
            shuffle: Shuffles a list in place.
        """
        self._client, self._config, self._clock = client, config, clock
        self._name, self._shuffle = name, shuffle
        self._marks, self._repairs = client.cluster.marks, client.repairs(config)
        self._failures: dict[int, int] = {}
        self._held: set[int] = set()
        self._paused: dict[int, asyncio.Task[None]] = {}
        self._broken: asyncio.Future[None]
        self._news = Signal()
        self._bookies_changed = Signal()

    async def run(self) -> None:
        """Work until this is cancelled.

        Raises:
            MetadataUnreachableError: The metadata store does not answer; call this again later.
        """
        self._broken = asyncio.get_running_loop().create_future()
        for ledger_id in sorted(self._held):
            await self._marks.release(ledger_id)
        self._held.clear()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch_paused())
                tasks.create_task(self._follow(LEDGERS))
                tasks.create_task(self._follow(LOCKS))
                tasks.create_task(self._follow_bookies())
                tasks.create_task(self._poll_regularly())
                tasks.create_task(self._work())
        finally:
            paused = list(self._paused.values())
            for task in paused:
                task.cancel()
            await asyncio.gather(*paused, return_exceptions=True)

    async def _watch_paused(self) -> None:
        await self._broken

    # --- when to poll

    async def _follow(self, folder: str) -> None:
        states = self._marks.changes(folder)
        async with contextlib.aclosing(states):
            async for _ in states:
                self._news.give()

    async def _follow_bookies(self) -> None:
        states = self._client.cluster.bookies.watch()
        async with contextlib.aclosing(states):
            async for _ in states:
                self._bookies_changed.give()

    async def _poll_regularly(self) -> None:
        while True:
            await self._clock.wait(self._config.rw_rereplicate_backoff_ms)
            self._news.give()

    async def _work(self) -> None:
        while True:
            states = self._marks.watch_enabled()
            async with contextlib.aclosing(states):
                async for enabled in states:
                    if enabled:
                        break
            seen = self._news.count
            taken = await self._marks.take(self._name, self._shuffle, self._paused)
            if taken is None:
                await self._news.wait(seen)
            else:
                self._held.add(taken.ledger_id)
                await self._replicate(taken)

    # --- one ledger

    async def _replicate(self, taken: LockedLedger, waited_for: Collection[str] = ()) -> None:
        """Re-replicate a ledger as far as that is possible now.

        Args:
            taken: The locked ledger with its mark.
            waited_for: Bookies that its writer had time to replace.
        """
        ledger_id = taken.ledger_id
        try:
            for _ in range(ROUNDS_MAX):
                found = await self._repairs.examine(ledger_id, every_entry=taken.mark.every_entry)
                step = found.next_step(waited_for)
                if step is Step.COPY:
                    await self._copy(found)
                elif step is Step.CLOSE:
                    event(log, logging.WARNING, "ledger closed, its bookies are gone", ledger=ledger_id)
                    await self._repairs.close_ledger(found)
                elif step is Step.WAIT:
                    self._pause(ledger_id, self._leave_to_writer(taken, found.left_to_writer))
                    return
                else:
                    break
            else:
                raise EntryReadError(ledger_id, Result.READ, "its new replicas are lost again")
        except NoSuchLedgerError:
            pass  # deleted in the meantime
        except MetadataUnreachableError:
            raise
        except LedgerError as error:
            event(log, logging.WARNING, "ledger not re-replicated", ledger=ledger_id, problem=error)
            self._pause(ledger_id, self._back_off(ledger_id))
            return
        self._failures.pop(ledger_id, None)
        self._held.discard(ledger_id)
        if await self._marks.finish(taken):
            event(log, logging.INFO, "ledger fully replicated", ledger=ledger_id)

    async def _copy(self, found: Examination) -> None:
        copied = await self._repairs.copy(found)
        if copied < 0:
            raise NotEnoughBookiesError(len(found.missing_replicas), 0)
        event(log, logging.INFO, "ledger re-replicated", ledger=found.stored.ledger_id, bytes=copied)

    def _pause(self, ledger_id: int, work: Coroutine[Any, Any, None]) -> None:
        task = self._paused[ledger_id] = asyncio.get_running_loop().create_task(work)

        def on_done(done: asyncio.Task[None]) -> None:
            if self._paused.get(ledger_id) is done:
                del self._paused[ledger_id]
            if not done.cancelled() and (error := done.exception()) is not None:
                self._broken.set_exception(error)
            self._news.give()

        task.add_done_callback(on_done)

    async def _leave_to_writer(self, taken: LockedLedger, bookies: Collection[str]) -> None:
        await self._clock.wait(self._config.open_ledger_rereplication_grace_period_ms)
        try:
            await self._replicate(taken, bookies)
        except MetadataUnreachableError:
            await self._release(taken.ledger_id)

    async def _back_off(self, ledger_id: int) -> None:
        """Wait for a while or for a change of bookies, then release the ledger to any worker."""
        failures = self._failures[ledger_id] = self._failures.get(ledger_id, 0) + 1
        longest_ms = self._config.lock_release_of_failed_ledger_grace_period_ms
        pause_ms = longest_ms >> max(BACKOFF_STEPS + 1 - failures, 0)
        changed = self._bookies_changed
        await first_of(self._clock.wait(pause_ms), changed.wait(changed.count))
        await self._release(ledger_id)

    async def _release(self, ledger_id: int) -> None:
        """Release a lock, with retries: otherwise no other worker could lock the ledger in this session."""
        while True:
            try:
                await self._marks.release(ledger_id)
            except MetadataUnreachableError:
                end_if_cancelled()
                await self._clock.wait(self._config.rw_rereplicate_backoff_ms)
            else:
                self._held.discard(ledger_id)
                return
