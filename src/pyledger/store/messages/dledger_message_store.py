"""MemberStore: a broker's store whose commit log is the log of a member of a DLedger group.

Each record is the body of one entry, and its physical offset is the start of that body. Queues and index are
built from what the group has committed, and only that can be read. While the member leads, puts append
entries, and a put returns once its entry is committed. The member owns the files of the log.

Differs: upstream can append entries to a plain commit log; here a folder has one or the other.

Source: RocketMQ store/.../dledger/DLedgerCommitLog.java.
"""

import os
from collections.abc import Callable
from typing import Self, Unpack

from pyledger._core import CommitLog, EventNotifier, GroupCommit, MessageScan
from pyledger.clock import Clock
from pyledger.config.keywords import StoreSettings
from pyledger.config.store import StoreConfig
from pyledger.errors import CorruptRecordError, StoreClosedError, StoreFormatError
from pyledger.model.sys_flag import TRANSACTION_MASK, TransactionType
from pyledger.store.dledger.log_flusher import last_record
from pyledger.store.dledger.store import DLedgerStore
from pyledger.store.files import checkpoint as checkpoint_file
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.folder import CHECKPOINT_FILE, LOG_FOLDER, StoreFolder, offset_files, read_folder
from pyledger.store.files.lock import StoreLock, lock_store
from pyledger.store.messages.message_store import FlushFuture
from pyledger.store.messages.opening import (
    SYNC,
    StoreComponents,
    fit_settings,
    join_parts,
    make_commit_log,
    write_abort,
)
from pyledger.store.messages.recovery import LogVerdict, RecoveredStore, recover
from pyledger.store.messages.services import StoreServices
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.log_end import LogEnd, start_file_offset

INNER_NUM = "INNER_NUM"
WITH_UNITS = (TransactionType.NONE, TransactionType.COMMIT)


class MemberStore(StoreEngine):
    """A store on the log of a group's member, which calls `commit` when the group has committed entries."""

    def __init__(self, services: StoreServices) -> None:
        super().__init__(services)
        self.leads = False
        self.grown: Callable[[], None] = lambda: None
        """Called after entries were appended: the member has to replicate them."""

    @classmethod
    def open_on(
        cls, path: str, entries: DLedgerStore, *, leads: bool, clock: Clock, **settings: Unpack[StoreSettings]
    ) -> Self:
        """Open a folder whose log is that of a member.

        Args:
            path: The store's folder; the log's is in it.
            entries: The log, open; it stays open when the store is closed.
            leads: The member leads its group: the store takes puts, and no other member appends.
            clock: Where the services get the time from.
            settings: As `MessageStore.open` takes them.

        Raises:
            StoreLockedError: another process has the folder open for writing.
            StoreFormatError: there is a plain commit log with messages.
            CorruptRecordError: entries that are not committed yet have no valid records.
        """
        lock = lock_store(path).acquire()
        try:
            components = open_member_parts(path, entries, lock, leads=leads, options=dict(settings))
        except BaseException:
            lock.release()
            raise
        store = cls(StoreServices(components, clock))
        store.leads = leads
        return store

    def commit(self, end_offset: int) -> None:
        """The group has committed all below a physical offset (bytes): it can be read, and its puts return.

        Does nothing on a closed store.
        """
        components = self._components
        if not self._finalizer.alive:
            return
        if end_offset > components.group.flushed_where and not components.group.closed:
            least = components.log.min_offset
            if least > components.dispatcher.dispatched_where:
                # The leader has no older entries any more, and the log was restarted there.
                components.dispatch_from(least)
            components.group.publish(end_offset)
            components.dispatch_notifier.notify()

    def stand_down(self) -> None:
        """The member no longer leads: waiting puts fail, as the next leader may replace their entries."""
        path, components = self.path, self._components
        if self._finalizer.alive:
            components.reject_appends(lambda: StoreClosedError(path))
            components.group.close()

    def flush_log(self) -> int:
        """Flush the log, as leader on a majority of the group; return the flushed offset (bytes).

        What is written afterwards may refer to all that was put before. Waits while the member leads.

        Raises:
            StoreClosedError: the member no longer leads, and something was not committed.
        """
        components, end_offset = self._components, self.max_offset
        flushed_where = super().flush_log()
        if self.leads and components.confirmed_where() < end_offset:
            components.group.wait(end_offset, -1)
        return flushed_where

    def until_durable(self, end_offset: int) -> FlushFuture | None:
        """Return a future: true once the group has committed everything below a physical offset (bytes)."""
        self.grown()
        return super().until_durable(end_offset)


def open_member_parts(
    path: str, entries: DLedgerStore, lock: StoreLock, *, leads: bool, options: dict[str, object]
) -> StoreComponents:
    """Return the components of a `MemberStore`, with queues and index up to the committed entries."""
    if offset_files(os.path.join(path, LOG_FOLDER)):
        raise StoreFormatError(
            os.path.join(path, LOG_FOLDER),
            "holds messages, and the log of a group cannot continue them here",
            "start the group with an empty store, and copy the messages with `pyledger write`",
        )
    folder = read_folder(path, entries=True)
    config = fit_settings(folder, {**options, "flush_disk_type": SYNC})
    entries.flush()
    known = checkpoint_file.read(os.path.join(path, CHECKPOINT_FILE)) or StoreCheckpoint()
    recovered = recover_queues(folder, config, entries, known)
    committed = recovered.report.end_offset
    group = GroupCommit(path, flushed_where=committed)
    # A store that does not lead rejects puts at once: they would never be committed.
    commit_log = make_commit_log(config, recovered, notifier=None, entries=entries.log)
    if leads:
        count_uncommitted(commit_log, committed)
    else:
        commit_log.reject_appends(lambda: StoreClosedError(path))
    return join_parts(
        path, config, lock, recovered, commit_log, group, EventNotifier(), lambda: group.flushed_where,
        waits=True, entries=entries,
    )  # fmt: skip


def recover_queues(
    folder: StoreFolder, config: StoreConfig, entries: DLedgerStore, known: StoreCheckpoint
) -> RecoveredStore:
    """Bring queues and index in step with the committed entries; the log itself is recovered already."""
    log = entries.log.data
    committed = max(entries.committed_position, log.min_offset, 0)
    view = log.view(committed)
    last = last_record(entries, entries.committed_index)
    newest = last_record(entries, entries.end_index) or last
    start = committed
    if not folder.clean:
        start = start_file_offset(view, clean=False, durable_ms=known.min_timestamp_ms)
    end = LogEnd(
        start_offset=start,
        end_offset=committed,
        status="end",
        problem="",
        last_record_offset=-1 if last is None else last.offset,
        last_store_timestamp=0 if last is None else last.store_timestamp_ms,
        damages=(),
    )
    write_abort(folder.path)
    verdict = LogVerdict(end, committed, must_truncate=False)
    found = recover(folder, config, log, verdict, clean=folder.clean, known=known, view=view)
    found.last_store_timestamp_ms = 0 if newest is None else newest.store_timestamp_ms
    return found


def count_uncommitted(commit_log: CommitLog, committed: int) -> None:
    """Continue queue offsets after entries that are not committed yet, and so have no units."""
    view = commit_log.queue.view()
    scan = MessageScan(view, committed, check=False)
    for message in scan:
        if message.sys_flag & TRANSACTION_MASK in WITH_UNITS:
            after = message.queue_offset + int(message.properties.get(INNER_NUM, 1))
            commit_log.set_next_queue_offset(message.topic, message.queue_id, after)
    if scan.stop is not None and not scan.stop.ordinary:
        where = scan.stop.next_offset
        raise CorruptRecordError(commit_log.queue.folder, where, scan.stop.problem)
