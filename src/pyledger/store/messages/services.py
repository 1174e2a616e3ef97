"""The threads of an open store: their order at start and stop, and the effect of a failure."""

import logging
import os
import threading
from dataclasses import dataclass

from pyledger._core import EventNotifier
from pyledger.clock import Clock
from pyledger.errors import PyLedgerError, StoreClosedError, StoreFailedError, StoreFullError
from pyledger.log_events import event, logger
from pyledger.store.dledger.log_flusher import EntriesFlusher
from pyledger.store.files.folder import LOG_FOLDER, QUEUE_FOLDER, is_folder
from pyledger.store.files.retention import RetentionRule, count_expired, disk_usage
from pyledger.store.messages.allocate_ahead import AllocatorThread, ChunkAhead
from pyledger.store.messages.dispatcher import DispatchWork
from pyledger.store.messages.flush_thread import LogFlusher, QueueFlusher
from pyledger.store.messages.opening import SYNC, StoreComponents, remove_abort
from pyledger.store.messages.service_thread import FailureLatch, Service

log = logger("store")

AHEAD_BYTES = 64 << 20
FILES_AHEAD_MAX = 4
"""Small files are full within milliseconds: several are allocated ahead in case the thread loses its core."""
GATHER_MS = 2
"""With sync flush, what is flushed within this time is dispatched together: reads do not wait for it."""
FIRST_CLEAN_MS = 60_000
MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """What a store has done since it was opened, and its state."""

    put_count: int
    """Messages appended."""
    put_bytes: int
    """Their bytes in the log, blank records included."""
    min_offset: int
    """Physical offset (bytes) of the log's start."""
    max_offset: int
    """Physical offset (bytes) of the log's end, as readers see it."""
    flushed_where: int
    """Physical offset (bytes) up to which the log is on disk."""
    dispatched_where: int
    """Physical offset (bytes) up to which queues and index are built."""
    dispatch_lag_bytes: int
    """Confirmed bytes of the log that are not dispatched yet."""
    log_files: int
    queue_count: int
    index_files: int
    flush_count: int
    flush_total_ms: float
    flush_longest_ms: float
    deleted_files: int
    """Commit-log files that retention deleted."""
    disk_full: bool
    """The disk is so full that puts are rejected."""
    failure: BaseException | None
    """Why the store rejects all writes; None while it takes them."""
    dispatch_problem: Exception | None
    """Why dispatch is stuck; None while it is not."""


class StoreServices:
    """Flush, dispatch, allocation and upkeep of an open store; if one of them fails, the store fails."""

    def __init__(self, components: StoreComponents, clock: Clock) -> None:
        self.components = components
        self._clock = clock
        self._latch = FailureLatch()
        self._put_base = (components.log.max_offset, components.dispatcher.message_count)
        self._deleted_files = 0
        self._delete_lock = threading.Lock()
        config = components.config
        self._dispatch = DispatchWork(
            components.log, components.dispatcher, components.confirmed_where, clock
        )
        self._flusher = make_flusher(components, clock)
        self._queue_flusher = QueueFlusher(
            components.path,
            components.queues,
            components.index,
            components.dispatcher,
            self._flusher,
            components.checkpoint,
            config,
            clock,
        )
        self._rule = RetentionRule(
            delete_hours=config.delete_hours(),
            warning_percent=config.disk_warning_percent,
            forced_percent=config.disk_forced_percent,
            used_percent_max=config.disk_used_percent_max,
            may_force=config.clean_forcibly,
        )
        self._clean_at_ms = clock.monotonic_ms() + FIRST_CLEAN_MS
        self._gathers = config.flush_disk_type == SYNC
        self._never_notified = EventNotifier()
        self._dispatch_service = Service(
            "dispatch",
            self._dispatch_round,
            self._failed,
            components.dispatch_notifier,
            self._dispatch.rest_ms,
        )
        self._services = [self._dispatch_service, Service("upkeep", self._keep_up, self._failed)]
        self._flush_service: Service | None = None
        self._chunk_ahead = ChunkAhead(components.log)
        self._chunk_service: Service | None = None
        self._allocator: AllocatorThread | None = None
        if isinstance(self._flusher, LogFlusher):
            self._keep_log(self._flusher)
            self._keep_ahead()
        for service in self._services:
            service.start()

    def _keep_log(self, flusher: LogFlusher) -> None:
        """Add the services of a log of the store's own; for that of a DLedger group the member does it."""
        config = self.components.config
        work = flusher.work_by_request if config.flush_disk_type == SYNC else flusher.work_by_policy
        self._flush_service = Service("flush", work, self._failed)
        self._services.insert(0, self._flush_service)
        if config.transient_store_pool:
            self._services.append(Service("commit", flusher.commit, self._failed))

    def _keep_ahead(self) -> None:
        """Allocate files and pages before they are needed."""
        components = self.components
        self._chunk_service = Service("chunk", self._chunk_ahead.work, self._failed)
        self._services.append(self._chunk_service)
        self._allocator = AllocatorThread(
            components.log, files_ahead(components.config.mapped_file_size_bytes), self._failed
        )
        self._allocator.start()

    def append_by_file(self) -> None:
        """Appends bypass the mapping from now on: they need allocated blocks, but no pages in memory."""
        self._chunk_ahead.populates = False

    # -- what the threads do

    def _dispatch_round(self) -> int:
        gathers = self._gathers and self._dispatch.lag_bytes > 0
        pause_ms = self._dispatch.work()
        if gathers:
            self._never_notified.wait(GATHER_MS)
        if self._flush_service is None:
            return pause_ms
        if self._flusher.exceeds_bound():
            self._flush_service.wake()
        if self._chunk_service is not None and self._chunk_ahead.is_short():
            self._chunk_service.wake()
        return pause_ms

    def _keep_up(self) -> int:
        if self.components.entries is not None:
            self._flusher.flush_all()
        pause_ms = self._queue_flusher.work()
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._clean_at_ms:
            self._clean_at_ms = now_ms + self.components.config.clean_interval_ms
            self.clean()
        return pause_ms

    def _failed(self, name: str, error: BaseException) -> None:
        """A service failed: every later write raises its error. Readers continue."""
        cause = (
            error.__cause__ if isinstance(error, StoreFailedError) and error.__cause__ is not None else error
        )
        if not self._latch.set(cause):
            return
        event(
            log,
            logging.ERROR,
            "store takes no more writes",
            service=name,
            path=self.components.path,
            reason=cause,
        )
        path = self.components.path

        def store_failed() -> Exception:
            failure = StoreFailedError(path)
            failure.__cause__ = cause
            return failure

        self.components.reject_appends(store_failed)
        self.components.group.fail(cause)

    # -- on demand

    def flush(self) -> int:
        """Flush log, queues and index, and write the checkpoint; return the flushed offset (bytes)."""
        flushed_where = self.flush_log()
        self._dispatch.finish()
        try:
            self._queue_flusher.flush_all()
            self._queue_flusher.write_checkpoint()
        except PyLedgerError as error:
            self._failed("flush", error)
            raise
        return flushed_where

    def flush_log(self) -> int:
        """Flush the log; return the flushed offset (bytes)."""
        self._raise_failure()
        try:
            return self._flusher.flush_all()
        except StoreFailedError as error:
            self._failed("flush", error)
            raise

    def _raise_failure(self) -> None:
        if self._latch.cause is not None:
            raise StoreFailedError(self.components.path) from self._latch.cause

    def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        """Wait until the flush service has passed an offset (bytes); False after the timeout."""
        return bool(self.components.group.wait(offset, timeout_ms))

    # -- retention

    def clean(self) -> list[str]:
        """Run retention by the hour and by disk usage; return the paths of the deleted files."""
        if self.components.entries is not None:
            return self._follow_log()
        paths = [os.path.join(self.components.path, name) for name in (LOG_FOLDER, QUEUE_FOLDER)]
        was_full = self._rule.disk_full
        decision = self._rule.decide(
            self._clock.hour_of_day(), [disk_usage(p) for p in paths if is_folder(p)]
        )
        if decision.disk_full != was_full:
            event(
                log,
                logging.WARNING,
                "disk full" if decision.disk_full else "disk no longer full",
                path=self.components.path,
            )
            self._reject_when_full(decision.disk_full)
        if not decision.clean:
            return []
        return self._delete(immediate=decision.immediate)

    def delete_expired(self, *, immediate: bool) -> list[str]:
        """Run retention on demand; return the paths of the deleted files."""
        if self.components.entries is not None:
            return self._follow_log()
        return self._delete(immediate=immediate)

    def _follow_log(self) -> list[str]:
        """The member removed files of its log: delete those of queues and index that name nothing else."""
        components = self.components
        with self._delete_lock:
            least = components.log.min_offset
            gone = components.queues.delete_heads(least)
            if components.index is not None:
                gone += components.index.delete_head(least)
        return gone

    def _delete(self, *, immediate: bool) -> list[str]:
        """Delete the oldest expired log files, `delete_files_max` at most, and what names only them."""
        components = self.components
        # Rounds on demand and by the hour may run at once: each counts the files that are left.
        with self._delete_lock:
            count = count_expired(
                [file.path for file in components.log.files],
                self._clock.now_ms(),
                components.config.retention_hours * MS_PER_HOUR,
                immediate=immediate,
                batch_max=components.config.delete_files_max,
            )
            # What is not dispatched yet must stay: its queue offsets would be lost.
            while count and components.log.files[count].start_offset > components.dispatcher.dispatched_where:
                count -= 1
            if count == 0:
                return []
            self._keep_queue_offsets()
            gone = components.log.delete_head(count)
            self._deleted_files += len(gone)
            least = components.log.min_offset
            gone += components.queues.delete_heads(least)
            if components.index is not None:
                gone += components.index.delete_head(least)
        event(log, logging.INFO, "files deleted", count=len(gone), min_offset=least)
        return gone

    def _keep_queue_offsets(self) -> None:
        """Make units durable: once the records are deleted, only they have the offsets of a queue."""
        try:
            self._queue_flusher.flush_all()
        except PyLedgerError as error:
            self._failed("retention", error)
            raise

    def _reject_when_full(self, full: bool) -> None:
        if self._latch.cause is None:
            path = self.components.path
            self.components.reject_appends((lambda: StoreFullError(path, "put into")) if full else None)

    # -- facts

    def statistics(self) -> StoreStatistics:
        """Return current counts and offsets."""
        components = self.components
        return StoreStatistics(
            put_count=components.dispatcher.message_count - self._put_base[1],
            put_bytes=components.log.wrote_where - self._put_base[0],
            min_offset=max(0, components.log.min_offset),
            max_offset=components.log.max_offset,
            flushed_where=components.log.flushed_where,
            dispatched_where=components.dispatcher.dispatched_where,
            dispatch_lag_bytes=self._dispatch.lag_bytes,
            log_files=len(components.log.files),
            queue_count=len(components.queues.queues),
            index_files=0 if components.index is None else len(components.index.files),
            flush_count=components.log.flush_count,
            flush_total_ms=components.log.flush_total_ns / 1e6,
            flush_longest_ms=components.log.flush_longest_ns / 1e6,
            deleted_files=self._deleted_files,
            disk_full=self._rule.disk_full,
            failure=self._latch.cause or components.log.failed,
            dispatch_problem=self._dispatch.problem,
        )

    # -- the end

    def close(self) -> None:
        """Stop the threads, make everything durable, remove the abort file if all is complete."""
        components = self.components
        components.reject_appends(self._closed_error)
        clean = False
        try:
            try:
                try:
                    if self._latch.cause is None:
                        self._flusher.flush_all()
                finally:
                    # Also after a failure: no thread may work on files that are about to be unmapped.
                    self._stop_threads()
                clean = self._finish()
            finally:
                self._release()
            if clean:
                remove_abort(components.path)
        except PyLedgerError as error:
            self._failed("close", error)
            event(log, logging.ERROR, "store closed with a failure", path=components.path, reason=error)
        finally:
            components.lock.release()

    def abandon(self) -> None:
        """Stop the threads and release the folder without flushing: the owner did not close the store."""
        self.components.reject_appends(self._closed_error)
        self._stop_threads()
        self._release()
        self.components.lock.release()

    def _closed_error(self) -> Exception:
        return StoreClosedError(self.components.path)

    def _stop_threads(self) -> None:
        for service in self._services:
            service.request_stop()
        # Wake the callers that wait in the group commit: they no longer wait for the disk.
        self.components.group.close()
        for service in self._services:
            service.stop()
        if self._allocator is not None:
            self._allocator.stop()

    def _finish(self) -> bool:
        """Bring queues, index and checkpoint up to the log's end; return whether no recovery is needed."""
        if self._latch.cause is not None:
            return False
        self._flusher.flush_all()
        self._dispatch.finish()
        self._queue_flusher.flush_all()
        self._queue_flusher.write_checkpoint()
        end = (
            self.components.log.wrote_where
            if self.components.entries is None
            else self.components.confirmed_where()
        )
        return self.components.dispatcher.dispatched_where >= end

    def _release(self) -> None:
        self.components.dispatcher.close()
        self.components.queues.close()
        if self.components.index is not None:
            self.components.index.close()
        if self.components.entries is None:
            self.components.log.close()


def make_flusher(components: StoreComponents, clock: Clock) -> LogFlusher | EntriesFlusher:
    """Return what flushes the log: the store itself, or the member of a DLedger group."""
    if components.entries is not None:
        return EntriesFlusher(components.entries)
    return LogFlusher(
        components.commit_log, components.group, components.config, clock, components.dispatch_notifier
    )


def files_ahead(file_size_bytes: int) -> int:
    """Number of log files that the allocator keeps ready."""
    return min(FILES_AHEAD_MAX, max(1, AHEAD_BYTES // file_size_bytes))
