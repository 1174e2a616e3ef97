"""Garbage collection of a bookie: remove deleted ledgers and their entry logs, and compact other logs.

The event loop decides, and the thread of the checkpoints reads and writes the disk. A damaged log stays.
Nothing is removed while the cluster does not answer.

Source: BookKeeper bookie/GarbageCollectorThread.java, ScanAndCompareGarbageCollector.java.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

from pyledger.config.bookie import BookieConfig
from pyledger.errors import LedgerFileError, PyLedgerError, StoreFullError
from pyledger.log_events import event, logger
from pyledger.store.bookkeeper.store import BookieStore

log = logger("bookie")

T = TypeVar("T")
END = -1


class GarbageCollector:
    """Collects the garbage of one bookie; belongs to one event loop.

    Attributes:
        used_percent: Use of the fullest disk at the last check.
        all_full: Whether no disk has free space for entries that compaction moves.
    """

    def __init__(
        self,
        store: BookieStore,
        config: BookieConfig,
        disk: Executor,
        deleted: Callable[[list[int]], Awaitable[list[int]]],
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        """Create a collector; its first compactions are due after their intervals.

        Args:
            store: An open store.
            config: Thresholds and intervals.
            disk: The only thread that writes to the store.
            deleted: Returns which of some ledgers were deleted.
            settled: Returns when no checkpoint is running.
        """
        self.used_percent = 0.0
        self.all_full = False
        self._store, self._config, self._disk = store, config, disk
        self._deleted, self._settled = deleted, settled
        self._loop = asyncio.get_running_loop()
        self._minor_s = self._major_s = self._loop.time()
        self._damaged: set[int] = set()
        self._unindexed: set[int] = set()

    async def collect(self) -> None:
        """Run one round.

        Raises:
            StoreError: The disk failed; the bookie must stop.
        """
        store = self._store
        unknown = await self._run(store.unknown_ledgers)
        try:
            missing = await self._deleted([*store.ledgers, *unknown])
        except PyLedgerError as error:
            # Remove nothing in doubt; the next round checks again.
            event(log, logging.WARNING, "not collected", problem=error)
            return
        await self._settled()
        gone = [ledger_id for ledger_id in missing if ledger_id in store.ledgers]
        for ledger_id in gone:
            store.remove_ledger(ledger_id)
        store.deleted.update(missing)
        self._report_unindexed(unknown - store.deleted)
        dead = await self._run(store.dead_logs)
        for number in dead:
            await self._remove(number)
        compacted = 0
        if threshold_percent := self._threshold_percent():
            compacted = await self._compact(threshold_percent)
        if gone or dead or compacted:
            event(
                log,
                logging.INFO,
                "collected",
                ledgers=len(gone),
                entry_logs=len(dead),
                compacted=compacted,
            )

    def _report_unindexed(self, ledgers: set[int]) -> None:
        """Log existing ledgers whose entries no index names, once two rounds have found them."""
        if kept := ledgers & self._unindexed:
            event(log, logging.ERROR, "entries without an index", ledgers=sorted(kept)[:5], count=len(kept))
        self._unindexed = ledgers

    def _threshold_percent(self) -> int:
        """Return the share of live entries below which logs are compacted now; 0 compacts none."""
        config, now = self._config, self._loop.time()
        if self.all_full:
            return 0
        if _due(now, self._major_s, config.major_compaction_interval_ms) and (
            self.used_percent <= config.disk_usage_warn_threshold_percent
        ):
            self._major_s = self._minor_s = now
            return config.major_compaction_threshold_percent
        if _due(now, self._minor_s, config.minor_compaction_interval_ms):
            self._minor_s = now
            return config.minor_compaction_threshold_percent
        return 0

    async def _compact(self, threshold_percent: int) -> int:
        """Compact logs, and return how many were removed."""
        compacted = 0
        for number in await self._run(self._store.logs_worth_compacting, threshold_percent):
            if number in self._damaged:
                continue
            try:
                await self._move(number)
            except LedgerFileError as error:
                self._damaged.add(number)
                event(log, logging.ERROR, "entry log not compacted", problem=error)
                continue
            except StoreFullError as error:
                event(log, logging.WARNING, "disk is full, compaction waits", problem=error)
                break
            await self._remove(number)
            compacted += 1
        return compacted

    async def _move(self, number: int) -> None:
        work = self._store.compaction(number)
        while (moved := await self._run(next, work, END)) != END:
            await asyncio.sleep(moved / self._config.compaction_rate_by_bytes)

    async def _remove(self, number: int) -> None:
        self._store.logs.release(number)
        await self._run(self._store.logs.unlink, number)

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        return await self._loop.run_in_executor(self._disk, call, *arguments)


def _due(now_s: float, last_s: float, interval_ms: int) -> bool:
    return interval_ms > 0 and now_s - last_s >= interval_ms / 1000
