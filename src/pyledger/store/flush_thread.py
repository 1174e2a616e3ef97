"""What makes the log and the queues durable, and the checkpoint that says so afterwards.

Log: by policy when flushing is asynchronous, on request when it is synchronous. Queues: every second,
thoroughly every minute. The checkpoint is written after what it vouches for. A failed flush is never
repeated: it ends the service, which latches the store.

Source: RocketMQ store/.../CommitLog.java (FlushRealTimeService, GroupCommitService, CommitRealTimeService),
ConsumeQueueStore.java (FlushConsumeQueueService), StoreCheckpoint.java.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyledger._core import CommitLog, Dispatcher, GroupCommit, IndexFileSet
from pyledger.config.store import StoreConfig
from pyledger.errors import StoreFullError
from pyledger.log import event, logger
from pyledger.store import checkpoint as checkpoint_file
from pyledger.store.checkpoint import StoreCheckpoint
from pyledger.store.clock import Clock
from pyledger.store.folder import CHECKPOINT_FILE
from pyledger.store.queue_set import ConsumeQueueSet

log = logger("store")

REQUEST_WAIT_MS = 60_000
CHECKPOINT_INTERVAL_MS = 1_000


@dataclass(slots=True)
class FlushCounts:
    """How often the log was flushed and how long that took."""

    flushes: int = 0
    total_ns: int = 0
    longest_ns: int = 0


class LogFlusher:
    """Flushes the commit log; one object for the service, for `flush` on demand and for closing."""

    def __init__(
        self,
        commit_log: CommitLog,
        group: GroupCommit,
        config: StoreConfig,
        clock: Clock,
        flushed: Callable[[], None],
    ) -> None:
        self._commit_log = commit_log
        self._log = commit_log.queue
        self._group = group
        self._config = config
        self._clock = clock
        self._flushed = flushed
        self._thorough_at_ms = clock.monotonic_ms() + config.flush_thorough_interval_ms
        self.counts = FlushCounts()
        self.vouched_timestamp_ms = 0
        """Records stored before this time are on disk."""
        self.vouched_where = 0
        """Physical offset (bytes) that goes with it."""

    def work_by_policy(self) -> int:
        """One round of the asynchronous service; the pause until the next (ms)."""
        now_ms = self._clock.monotonic_ms()
        least_pages = self._config.flush_least_pages
        if now_ms >= self._thorough_at_ms or self._config.flush_policy == "bounded":
            self._thorough_at_ms = now_ms + self._config.flush_thorough_interval_ms
            least_pages = 0
        while self.flush_once(least_pages):
            pass
        return self._config.flush_interval_ms

    def work_by_request(self) -> int:
        """One round of the synchronous service: wait for somebody who waits, flush for all; no pause."""
        if self._group.wait_for_request(REQUEST_WAIT_MS):
            target = self._group.requested_where
            while self._log.flushed_where < target and self.flush_once(0):
                pass
        return 0

    def commit(self) -> int:
        """One round of the commit service of the transient pool; the pause until the next (ms)."""
        least_pages = self._config.commit_least_pages
        if self._config.commit_thorough_interval_ms <= self._config.commit_interval_ms:
            least_pages = 0
        moved = False
        while self._log.commit(least_pages):
            moved = True
        if moved:
            self._flushed()
        return self._config.commit_interval_ms

    def exceeds_bound(self) -> bool:
        """Whether policy `bounded` wants a flush now."""
        dirty_bytes = self._log.wrote_where - self._log.flushed_where
        return self._config.flush_policy == "bounded" and dirty_bytes >= self._config.flush_bound_bytes

    def flush_all(self) -> int:
        """Make all that was written durable; the physical offset (bytes) up to which it is."""
        while self._log.commit(0):
            pass
        while self.flush_once(0):
            pass
        return self._log.flushed_where

    def flush_once(self, least_pages: int) -> bool:
        """Flush one file by the page rule; whether anything became durable.

        Raises:
            StoreFailedError: a flush failed, now or earlier.
        """
        # Taken before the flush: a later record may have the same time.
        timestamp_ms = self._commit_log.last_store_timestamp_ms
        wrote_where = self._log.wrote_where
        begin_ns = self._clock.monotonic_ns()
        if not self._log.flush(least_pages):
            return False
        took_ns = self._clock.monotonic_ns() - begin_ns
        self.counts.flushes += 1
        self.counts.total_ns += took_ns
        self.counts.longest_ns = max(self.counts.longest_ns, took_ns)
        flushed_where = self._log.flushed_where
        if flushed_where >= wrote_where:
            self.vouched_timestamp_ms, self.vouched_where = timestamp_ms, wrote_where
        self._group.publish(flushed_where)
        self._flushed()
        return True


class QueueFlusher:
    """Flushes consume queues and index files, and keeps the checkpoint."""

    def __init__(
        self,
        path: str,
        queues: ConsumeQueueSet,
        index: IndexFileSet | None,
        dispatcher: Dispatcher,
        flusher: LogFlusher,
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
        self._queues_at_ms = now_ms + config.consume_queue_flush_interval_ms
        self._thorough_at_ms = now_ms + config.consume_queue_flush_thorough_interval_ms
        self._written = known
        self.checkpoint = known

    def work(self) -> int:
        """One round of the service; the pause until the next (ms)."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._thorough_at_ms:
            self._thorough_at_ms = now_ms + self._config.consume_queue_flush_thorough_interval_ms
            self.flush_all()
        elif now_ms >= self._queues_at_ms:
            self._queues_at_ms = now_ms + self._config.consume_queue_flush_interval_ms
            self._queues.flush(self._config.consume_queue_flush_least_pages)
        self.write_checkpoint()
        return min(self._config.consume_queue_flush_interval_ms, CHECKPOINT_INTERVAL_MS)

    def flush_all(self) -> None:
        """Make queues and index durable as far as the log is, and note that for the checkpoint."""
        timestamp_ms, where = self._flusher.vouched_timestamp_ms, self._flusher.vouched_where
        complete = self._dispatcher.dispatched_where >= where
        self._queues.flush(0)
        index_ms = self._flush_index()
        if complete and timestamp_ms > self.checkpoint.logics_msg_timestamp:
            self.checkpoint = replace(self.checkpoint, logics_msg_timestamp=timestamp_ms)
        if index_ms > self.checkpoint.index_msg_timestamp:
            self.checkpoint = replace(self.checkpoint, index_msg_timestamp=index_ms)

    def write_checkpoint(self) -> None:
        """Write the checkpoint if it has anything new. A full disk leaves the old one, which is true too."""
        timestamp_ms = self._flusher.vouched_timestamp_ms
        if timestamp_ms > self.checkpoint.physic_msg_timestamp:
            self.checkpoint = replace(self.checkpoint, physic_msg_timestamp=timestamp_ms)
        if self.checkpoint == self._written:
            return
        try:
            checkpoint_file.write(self._checkpoint_path, self.checkpoint)
        except StoreFullError as error:
            event(log, logging.WARNING, "checkpoint not written", reason=error)
            return
        self._written = self.checkpoint

    def _flush_index(self) -> int:
        """Flush the index files; the end time (ms) of the newest full one.

        One that is not full is never vouched for: a crash leaves its pages in any mixture.
        """
        if self._index is None:
            return 0
        full = [file.end_timestamp for file in self._index.files if file.full]
        self._index.flush()
        return max(full, default=0)
