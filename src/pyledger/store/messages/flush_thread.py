"""What makes the log and the queues durable, and then writes the checkpoint.

Log: by policy when flushing is asynchronous, on request when it is synchronous. Queues: every second,
thoroughly every minute. The checkpoint is written after what it covers. A failed flush is never repeated: it
ends the service, and the store takes no more writes.

Source: RocketMQ store/.../CommitLog.java (FlushRealTimeService, GroupCommitService, CommitRealTimeService),
ConsumeQueueStore.java (FlushConsumeQueueService), StoreCheckpoint.java.
"""

import logging
import os
import threading
from dataclasses import replace

from pyledger._core import CommitLog, Dispatcher, EventNotifier, GroupCommit, IndexFileSet
from pyledger.clock import Clock
from pyledger.config.store import StoreConfig
from pyledger.errors import StoreFullError
from pyledger.log_events import event, logger
from pyledger.store.dledger.log_flusher import EntriesFlusher
from pyledger.store.files import checkpoint as checkpoint_file
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.folder import CHECKPOINT_FILE
from pyledger.store.queues.queue_set import ConsumeQueueSet

log = logger("store")

SERVE_MS = 500
"""Interval at which the synchronous service also flushes records that no caller waits for."""
CHECKPOINT_INTERVAL_MS = 1_000


class FlushPolicy:
    """How many dirty pages of a file make a pass flush it. Pure; `docs/protocols/flush.md` has the rule."""

    def __init__(self, least_pages: int, thorough_interval_ms: int, now_ms: int) -> None:
        self._least_pages = least_pages
        self._thorough_interval_ms = thorough_interval_ms
        self._thorough_at_ms = now_ms + thorough_interval_ms

    def least_pages_at(self, now_ms: int) -> int:
        """Begin a pass at a monotonic time (ms); return its least pages, 0 if it is thorough."""
        if now_ms < self._thorough_at_ms:
            return self._least_pages
        self._thorough_at_ms = now_ms + self._thorough_interval_ms
        return 0


class LogFlusher:
    """Flushes the commit log; one object for the service, for `flush` on demand and for closing."""

    def __init__(
        self,
        commit_log: CommitLog,
        group: GroupCommit,
        config: StoreConfig,
        clock: Clock,
        flushed: EventNotifier,
    ) -> None:
        self._commit_log = commit_log
        self._log = commit_log.queue
        self._group = group
        self._config = config
        self._clock = clock
        self._flushed = flushed
        self._bounded = config.flush_policy == "bounded"
        now_ms = clock.monotonic_ms()
        self._policy = FlushPolicy(
            0 if self._bounded else config.flush_least_pages, config.flush_thorough_interval_ms, now_ms
        )
        self._commit_policy = FlushPolicy(
            config.commit_least_pages, config.commit_thorough_interval_ms, now_ms
        )
        self.durable_timestamp_ms = 0
        """Records stored before this time are on disk."""
        self.durable_where = 0
        """Physical offset (bytes) of the end of these records."""

    def work_by_policy(self) -> int:
        """One round of the asynchronous service; return the pause until the next (ms)."""
        least_pages = self._policy.least_pages_at(self._clock.monotonic_ms())
        while self.flush_once(least_pages):
            pass
        return self._config.flush_interval_ms

    def work_by_request(self) -> int:
        """One round of the synchronous service: flush for waiting callers, then all the rest; no pause."""
        timestamp_ms, where = self._commit_log.last_store_timestamp_ms, self._log.wrote_where
        self._note_durable(timestamp_ms, where, self._group.serve(self._log, SERVE_MS, self._flushed))
        while self.flush_once(0):
            pass
        return 0

    def commit(self) -> int:
        """One round of the commit service of the transient pool; return the pause until the next (ms)."""
        least_pages = self._commit_policy.least_pages_at(self._clock.monotonic_ms())
        moved = False
        while self._log.commit(least_pages):
            moved = True
        if moved:
            self._flushed.notify()
        return self._config.commit_interval_ms

    def exceeds_bound(self) -> bool:
        """Whether policy `bounded` requires a flush now."""
        dirty_bytes = self._log.wrote_where - self._log.flushed_where
        return self._bounded and dirty_bytes >= self._config.flush_bound_bytes

    def flush_all(self) -> int:
        """Flush all that was written; return the flushed offset (bytes)."""
        while self._log.commit(0):
            pass
        while self.flush_once(0):
            pass
        flushed_where = self._log.flushed_where
        # Another thread may have flushed the end, and not have notified waiting callers and readers yet.
        self._group.publish(flushed_where)
        return flushed_where

    def flush_once(self, least_pages: int) -> bool:
        """Flush one file by the page rule; return whether anything became durable.

        Raises:
            StoreFailedError: a flush failed, now or earlier.
        """
        timestamp_ms, where = self._commit_log.last_store_timestamp_ms, self._log.wrote_where
        if not self._log.flush(least_pages):
            return False
        flushed_where = self._log.flushed_where
        self._note_durable(timestamp_ms, where, flushed_where)
        self._group.publish(flushed_where)
        self._flushed.notify()
        return True

    def _note_durable(self, timestamp_ms: int, where: int, flushed_where: int) -> None:
        """Note time and end of the log, both taken before a flush: a later record may have the same time."""
        if flushed_where >= where:
            self.durable_timestamp_ms, self.durable_where = timestamp_ms, where


class QueueFlusher:
    """Flushes consume queues and index files, and keeps the checkpoint."""

    def __init__(
        self,
        path: str,
        queues: ConsumeQueueSet,
        index: IndexFileSet | None,
        dispatcher: Dispatcher,
        flusher: LogFlusher | EntriesFlusher,
        known: StoreCheckpoint,
        config: StoreConfig,
        clock: Clock,
    ) -> None:
        self._checkpoint_path = os.path.join(path, CHECKPOINT_FILE)
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._config = config
        self._clock = clock
        now_ms = clock.monotonic_ms()
        self._policy = FlushPolicy(
            config.consume_queue_flush_least_pages, config.consume_queue_flush_thorough_interval_ms, now_ms
        )
        self._pass_at_ms = now_ms + config.consume_queue_flush_interval_ms
        self._written = checkpoint_file.read(self._checkpoint_path) or StoreCheckpoint()
        self._write_failed = False
        self.checkpoint = known
        # Held by the service and by callers of `flush`: only one may flush and write the checkpoint.
        self._lock = threading.RLock()

    def work(self) -> int:
        """One round of the service; return the pause until the next (ms)."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if now_ms >= self._pass_at_ms:
                self._pass_at_ms = now_ms + self._config.consume_queue_flush_interval_ms
                least_pages = self._policy.least_pages_at(now_ms)
                if least_pages == 0:
                    self.flush_all()
                else:
                    self._queues.flush(least_pages)
            self.write_checkpoint()
        return min(self._config.consume_queue_flush_interval_ms, CHECKPOINT_INTERVAL_MS)

    def flush_all(self) -> None:
        """Flush queues and index, and note for the checkpoint up to which time they are durable."""
        with self._lock:
            timestamp_ms, where = self._flusher.durable_timestamp_ms, self._flusher.durable_where
            complete = self._dispatcher.dispatched_where >= where
            self._queues.flush(0)
            index_ms = self._flush_index()
            if complete and timestamp_ms > self.checkpoint.logics_msg_timestamp:
                self.checkpoint = replace(self.checkpoint, logics_msg_timestamp=timestamp_ms)
            if index_ms > self.checkpoint.index_msg_timestamp:
                self.checkpoint = replace(self.checkpoint, index_msg_timestamp=index_ms)

    def write_checkpoint(self) -> None:
        """Write the checkpoint if it has anything new. On a full disk the old one stays: it is still true."""
        with self._lock:
            timestamp_ms = self._flusher.durable_timestamp_ms
            if timestamp_ms > self.checkpoint.physic_msg_timestamp:
                self.checkpoint = replace(self.checkpoint, physic_msg_timestamp=timestamp_ms)
            if self.checkpoint == self._written:
                return
            try:
                checkpoint_file.write(self._checkpoint_path, self.checkpoint)
            except StoreFullError as error:
                if not self._write_failed:
                    event(log, logging.WARNING, "checkpoint not written", reason=error)
                self._write_failed = True
                return
            self._write_failed = False
            self._written = self.checkpoint

    def _flush_index(self) -> int:
        """Flush the index files; return the end time (ms) of the newest full one.

        The checkpoint covers none that is not full: a crash may keep some of its pages and lose others.
        """
        if self._index is None:
            return 0
        full = [file.end_timestamp for file in self._index.files if file.full]
        self._index.flush()
        return max(full, default=0)
