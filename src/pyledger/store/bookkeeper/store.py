"""The disks of a running bookie: journals, entries in memory, entry logs, indexes.

An entry is stored in memory and in a journal; it is acknowledged once the journal is on disk. A checkpoint
writes the entries in memory to the entry log and the index, and then advances the journals' marks: records
before them are never replayed. The event loop puts and gets; one thread at a time writes a checkpoint, and it
reads only entries that do not change any more.

Source: BookKeeper bookie/BookieImpl.java, SyncThread.java, InterleavedLedgerStorage.java.
"""

import logging
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Self

from pyledger._core import AddIntake
from pyledger.clock import Clock
from pyledger.config.bookie import BookieConfig
from pyledger.errors import LedgerFileError, StoreFullError, StoreIOError
from pyledger.log_events import event, logger
from pyledger.protocol.bookkeeper.bookie import BookieRules, LedgerAtBookie
from pyledger.store.bookkeeper.compaction import compaction, logs_worth_compacting
from pyledger.store.bookkeeper.disks import LedgerDisks
from pyledger.store.bookkeeper.entry_log import SIZE_BYTES, EntryLogs
from pyledger.store.bookkeeper.file_maps import FileMaps
from pyledger.store.bookkeeper.folder import CURRENT, BookiePaths, journal_files, mark_name, read_mark
from pyledger.store.bookkeeper.index import ENTRY_ID_MAX, SLOTS_READ, STEP_MAX, IndexFiles, LedgerHeader
from pyledger.store.bookkeeper.journal import Journals, replayed_records, require_marked_file
from pyledger.store.bookkeeper.ledger_list import LedgerList
from pyledger.store.bookkeeper.rebuild import IndexRecovery
from pyledger.store.files.disk_error import disk_error
from pyledger.store.files.lock import StoreLock
from pyledger.wire.bookkeeper.entry import HEADER
from pyledger.wire.bookkeeper.journal import encode_mark
from pyledger.wire.bookkeeper.ledger_list import ListedLedger

log = logger("store")

Entries = dict[int, dict[int, bytes]]
"""By ledger and entry."""
Marks = tuple[tuple[int, int], ...]
"""Of each journal: file and position (bytes)."""


@dataclass(slots=True)
class Checkpoint:
    """The entries and headers that one checkpoint writes.

    Attributes:
        marks: Of each journal: records before it are among the entries, or in an earlier checkpoint.
        entries: They do not change any more.
        headers: Of all ledgers that changed.
    """

    marks: Marks
    entries: Entries
    headers: dict[int, LedgerHeader]


class BookieStore:
    """All folders of one running bookie.

    Attributes:
        ledgers: All ledgers that it knows, by id.
        deleted: Ledgers that are known to be deleted; the entries of all others are kept.
        journals: Where entries become durable before they are acknowledged.
        disks: Those of entry logs and indexes.
        is_listed: Whether the folders had a list of ledgers.
        cached_bytes: Size of the entries that are in memory but not in the entry log.
        waits: Whether a read may wait for the disk; if not, it raises `PageNotCachedError`.
    """

    def __init__(
        self, paths: BookiePaths, config: BookieConfig, clock: Clock, failed: Callable[[], None]
    ) -> None:
        """Use `open`."""
        self.config = config
        folders = [_made(os.path.join(path, CURRENT)) for path in paths.ledgers]
        self._journal_folders = [_made(os.path.join(path, CURRENT)) for path in paths.journals]
        self.disks = LedgerDisks(
            folders, config.disk_usage_threshold_percent, config.disk_usage_lwm_threshold_percent
        )
        # Two bookies with one journal would remove files that the other one still needs.
        apart = {os.path.realpath(folder): folder for folder in (*self._journal_folders, *folders)}
        self._locks = [StoreLock(folder) for folder in apart.values()]
        self.ledgers: dict[int, LedgerAtBookie] = {}
        self.deleted: set[int] = set()
        self.is_listed = False
        self.changed: set[int] = set()
        self.cached_bytes = 0
        self.waits = True
        self.cache: Entries = {}
        self._moving: Entries = {}
        self.last_ids: dict[int, int] = {}
        self.logs = EntryLogs(self.disks, config.log_size_limit_bytes)
        self._indexes = IndexFiles(self.disks, config.open_file_limit)
        self._list = LedgerList(self.disks)
        self._marks: Marks = ()
        self._begun: Checkpoint | None = None
        self._clock, self._failed = clock, failed
        self.journals: Journals
        self._intake: AddIntake

    @classmethod
    def open(
        cls,
        paths: BookiePaths,
        config: BookieConfig,
        clock: Clock,
        failed: Callable[[], None] = lambda: None,
    ) -> Self:
        """Open the folders for adds; see `recover` and `begin`."""
        store = cls.recover(paths, config, clock, failed)
        store.begin()
        return store

    @classmethod
    def recover(
        cls, paths: BookiePaths, config: BookieConfig, clock: Clock, failed: Callable[[], None]
    ) -> Self:
        """Open the folders, create missing ones, and replay the journal. Entries cannot be added yet.

        Args:
            paths: Folders of journals, and of entry logs and indexes.
            config: Sizes and waiting times.
            clock: For the name of the first journal.
            failed: Called in another thread when a journal cannot write any more.

        Raises:
            StoreLockedError: Another bookie has the folders open.
            LedgerFileError: A file is damaged, or the journal that the mark names is missing.
            StoreError: An I/O error occurred.
        """
        store = cls(paths, config, clock, failed)
        try:
            for lock in store._locks:
                lock.acquire()
            store._recover()
        except BaseException:
            store.let_go()
            raise
        return store

    # --- what the rules require

    def can_hold(self, ledger_id: int, entry_id: int) -> bool:
        """Whether an index can have a slot for an entry without exceeding the limit of holes.

        Raises:
            StoreIOError: An I/O error occurred.
        """
        if entry_id <= min(ENTRY_ID_MAX, self.last_ids.get(ledger_id, -1) + STEP_MAX):
            return True
        holes_bytes = self._indexes.holes_bytes(ledger_id, entry_id)
        return entry_id <= ENTRY_ID_MAX and holes_bytes <= self.config.index_holes_max_bytes

    def put(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        """Store an entry in memory; it replaces an older copy."""
        entries = self.cache.get(ledger_id)
        if entries is None:
            entries = self.cache[ledger_id] = {}
        entries[entry_id] = entry
        self.cached_bytes += len(entry)
        if entry_id > self.last_ids.get(ledger_id, -1):
            self.last_ids[ledger_id] = entry_id

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return an entry; None: it was never stored.

        Raises:
            PageNotCachedError: It is on disk only, and `waits` is off.
            LedgerFileError: It is damaged.
            StoreIOError: An I/O error occurred.
        """
        for held in (self.cache, self._moving):
            if (entries := held.get(ledger_id)) is not None and (entry := entries.get(entry_id)) is not None:
                return entry
        if not 0 <= entry_id <= self.last_ids.get(ledger_id, -1):
            return None
        location = self._indexes.location(ledger_id, entry_id)
        return self.logs.read(location, ledger_id, entry_id, wait=self.waits) if location else None

    def following(self, ledger_id: int, entry_id: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Return consecutive entries that need no wait for the disk; each counts with 4 bytes more.

        Raises:
            StoreIOError: An I/O error occurred.
        """
        found: list[bytes] = []
        held = [one for cache in (self.cache, self._moving) if (one := cache.get(ledger_id))]
        while len(found) < count_max and bytes_max > 0:
            at = entry_id + len(found)
            for entries in held:
                if (entry := entries.get(at)) is not None:
                    more = [entry]
                    break
            else:
                count = min(count_max - len(found), self.last_ids.get(ledger_id, -1) + 1 - at)
                more = self._following_on_disk(ledger_id, at, count, bytes_max, held)
            size_bytes = sum(map(len, more)) + SIZE_BYTES * len(more)
            if not more or size_bytes > bytes_max:
                break
            bytes_max -= size_bytes
            found += more
        return found

    def _following_on_disk(
        self, ledger_id: int, entry_id: int, count: int, bytes_max: int, held: Sequence[Container[int]]
    ) -> list[bytes]:
        if count <= 0:
            return []
        if held:  # what is in memory is newer
            ids = range(entry_id, entry_id + min(count, SLOTS_READ))
            count = len(list(takewhile(lambda one: not any(one in entries for entries in held), ids)))
        slots = self._indexes.slots(ledger_id, entry_id, count)
        return self.logs.read_batch(slots, ledger_id, entry_id, bytes_max)

    def take_adds(self, frames: list[Any], at: int, *, version2: bool) -> tuple[int, bytes, list[int]]:
        """Take the batch of plain adds that begins at a frame, into memory and into the journal.

        Args:
            frames: Requests, without their lengths.
            at: The first of the batch.
            version2: Whether they are of version 2 of the protocol, else of version 3.

        Returns: How many were taken, all for one journal; their responses, to send once the journal is on
            disk
        up to here; their ledgers.

        Raises:
            StoreError: The journal has failed.
        """
        count, answers, entry_bytes, ledger_ids = self._intake.take(frames, at, self.cache, version2=version2)
        self.cached_bytes += entry_bytes
        return count, answers, ledger_ids

    def last_entry_id(self, ledger_id: int) -> int | None:
        """Return the highest entry of a ledger; None: it has none."""
        return self.last_ids.get(ledger_id)

    def entry_ranges(self, ledger_id: int) -> Iterator[range]:
        """Yield the entries of a ledger as ranges without a hole, ascending."""
        found = set(self._indexes.entry_ids(ledger_id))
        found.update(self.cache.get(ledger_id, ()), self._moving.get(ledger_id, ()))
        start = end = -1
        for entry_id in sorted(found):
            if entry_id != end:
                if end > start:
                    yield range(start, end)
                start = entry_id
            end = entry_id + 1
        if end > start:
            yield range(start, end)

    # --- checkpoints

    def begin_checkpoint(self) -> Checkpoint | None:
        """Take the entries in memory for a checkpoint; None: nothing changed. In the thread that puts.

        Entries stay readable until `end_checkpoint`. There is one checkpoint at a time. One that failed is
        returned again, since no mark may pass its entries.
        """
        if self._begun is not None:
            return self._begun
        marks = self.journals.marks
        if not self.cache and not self.changed and marks == self._marks:
            return None
        self._begun = self._take(marks)
        return self._begun

    def _take(self, marks: Marks) -> Checkpoint:
        self._moving, self.cache = self.cache, {}
        self.cached_bytes = 0
        headers = {}
        for ledger_id in self.changed | self._moving.keys():
            if (ledger := self.ledgers.get(ledger_id)) is not None:
                headers[ledger_id] = LedgerHeader(ledger.master_key, ledger.fenced, ledger.packet)
        self.changed = set()
        return Checkpoint(marks, self._moving, headers)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write entries and indexes, then the marks; in any one thread.

        Raises:
            StoreError: The write failed. A start would replay all of it from the journals.
        """
        self._move(checkpoint)
        self._list.write(checkpoint.marks, dict(self._listed(checkpoint.headers)))
        for which, mark in enumerate(checkpoint.marks):
            self.disks.write_everywhere(mark_name(which, len(checkpoint.marks)), encode_mark(*mark))
        self.journals.remove_before(checkpoint.marks)

    def end_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Read the entries of the checkpoint from disk from now on. In the thread that puts."""
        self._marks = checkpoint.marks
        self._begun = None
        self._moving = {}
        self._indexes.settle()

    def _move(self, checkpoint: Checkpoint) -> None:
        locations: dict[int, dict[int, int]] = {}
        for ledger_id in sorted(checkpoint.entries):
            if ledger_id not in checkpoint.headers:
                continue  # deleted meanwhile
            entries = checkpoint.entries[ledger_id]
            ids = sorted(entries)
            appended = self.logs.append(ledger_id, map(entries.__getitem__, ids))
            locations[ledger_id] = dict(zip(ids, appended, strict=True))
        self.logs.sync()
        for ledger_id in sorted(checkpoint.headers):
            self._indexes.write(ledger_id, checkpoint.headers[ledger_id], locations.get(ledger_id, {}))

    # --- start and end

    def _recover(self) -> None:
        self.disks.check()
        count = len(self._journal_folders)
        marks = [read_mark(self.disks.folders, mark_name(which, count)) for which in range(count)]
        listed = self._list.read(marks)
        self.is_listed = listed is not None
        recovery = IndexRecovery(self._indexes, listed or {})
        recovery.rebuild(self.logs)
        for ledger_id, header in recovery.headers.items():
            self.ledgers[ledger_id] = LedgerAtBookie(header.master_key, header.fenced, packet=header.packet)
            if (last := self._indexes.filled[ledger_id].last) >= 0:
                self.last_ids[ledger_id] = last
        for folder, mark in zip(self._journal_folders, marks, strict=True):
            self._replay(folder, mark)
        recovery.require_all(self.entry_ranges)
        self._list.ledgers = dict(self._listed(recovery.headers))

    def _listed(self, headers: Mapping[int, LedgerHeader]) -> Iterator[tuple[int, ListedLedger]]:
        for ledger_id, header in headers.items():
            last, count = self._indexes.filled[ledger_id]
            yield ledger_id, ListedLedger(header.master_key, header.fenced, last, count)

    def begin(self) -> None:
        """Continue in new journals: from now on entries can be added.

        Raises:
            StoreError: An I/O error occurred.
        """
        try:
            self._begin()
        except BaseException:
            self.let_go()
            raise

    def _begin(self) -> None:
        self.journals = Journals(self._journal_folders, self.config, self._clock, self._failed)
        try:
            self.journals.start()
            self._intake = AddIntake(
                self.journals.writers,
                self.ledgers,
                self.last_ids,
                entry_id_max=ENTRY_ID_MAX,
                step_max=STEP_MAX,
            )
            # Replayed entries are written to disk before the first request. If the disks are full, they stay
            # in memory and in the journals.
            self._begun = checkpoint = self._take(self.journals.marks)
            try:
                self.write_checkpoint(checkpoint)
            except StoreFullError as error:
                self.disks.leave_out(error.path)
                event(log, logging.ERROR, "disks are full, entries stay in the journal", problem=error)
            else:
                self.end_checkpoint(checkpoint)
            for ledger_id in self.ledgers:
                self._learn_confirmed(ledger_id)
        except BaseException:
            self.journals.close()
            raise

    def _replay(self, folder: str, mark: tuple[int, int]) -> None:
        files = journal_files(folder)
        require_marked_file(files, mark, folder)
        rules = BookieRules(self, self.ledgers)
        for _, one in replayed_records(files, mark, FileMaps()):
            rules.replay(one.record)
            self.changed.add(one.record.ledger_id)
            if self.cached_bytes > self.config.write_cache_bytes:
                self._move(self._take(self._marks))
                self._moving = {}
                self._indexes.settle()

    def _learn_confirmed(self, ledger_id: int) -> None:
        """Set the LAC of a ledger from its last entry and its explicit packet.

        If the entry cannot be read, only reads of that entry fail.
        """
        ledger = self.ledgers[ledger_id]
        if ledger.packet is not None:
            ledger.learn_confirmed(ledger.packet)
        try:
            last = self.last_ids.get(ledger_id)
            if last is not None and (entry := self.get(ledger_id, last)):
                ledger.last_add_confirmed = max(ledger.last_add_confirmed, HEADER.unpack_from(entry)[2])
        except (LedgerFileError, StoreIOError) as error:
            event(log, logging.ERROR, "last entry of a ledger is lost", ledger=ledger_id, problem=error)

    def _closed_logs(self) -> dict[int, dict[int, int]]:
        # No start may expect removed ledgers any more before their entries are deleted.
        self._list.flush()
        return self.logs.closed(list(self.ledgers))

    def unknown_ledgers(self) -> set[int]:
        """Return ledgers that have entries in closed logs but no index, and are not known to be deleted.

        In the thread that writes checkpoints, as the two methods below.

        Raises:
            StoreError: The disk failed.
        """
        return (
            {one for sizes in self._closed_logs().values() for one in sizes} - self.deleted - {*self.ledgers}
        )

    def dead_logs(self) -> list[int]:
        """Return the entry logs in which all ledgers were deleted.

        Raises:
            StoreError: The disk failed.
        """
        closed = self._closed_logs()
        self.deleted.intersection_update(set().union(*self.logs.sizes.values()))
        gone = self.deleted - self.ledgers.keys()
        return [number for number, sizes in closed.items() if sizes.keys() <= gone]

    def logs_worth_compacting(self, threshold_percent: int) -> list[int]:
        """Return the entry logs of which less than a share is needed, and all of whose ledgers are known."""
        unknown = self.unknown_ledgers()
        found = logs_worth_compacting(self.logs, self.ledgers, threshold_percent)
        return [number for number in found if unknown.isdisjoint(self.logs.sizes[number])]

    def compaction(self, number: int) -> Iterator[int]:
        """Move the needed entries of a log; see `compaction`. In the thread that writes checkpoints."""
        return compaction(self.logs, self._indexes, number)

    def close(self) -> None:
        """Shut down cleanly: all entries are in entry logs and indexes, and nothing is left to replay.

        Raises:
            StoreFullError: The disks are full. The entries are in the journals.
            StoreError: The disk failed.
        """
        self.journals.close()
        try:
            while not self.journals.failed and (last := self.begin_checkpoint()) is not None:
                self.write_checkpoint(last)
                self.end_checkpoint(last)
            self.logs.close()
        finally:
            self.let_go()

    def abandon(self) -> None:
        """End after a disk failure: write only the journals, which a start replays."""
        self.journals.close()
        self.let_go()

    def let_go(self) -> None:
        """Close all files as they are, and unlock the folders."""
        self.logs.let_go()
        self._indexes.close()
        for lock in self._locks:
            lock.release()

    def remove_ledger(self, ledger_id: int) -> None:
        """Forget a deleted ledger; its entries are removed with logs in which all ledgers were deleted.

        Not to be called while a checkpoint is written.
        """
        self.ledgers.pop(ledger_id, None)
        self.last_ids.pop(ledger_id, None)
        self.cache.pop(ledger_id, None)
        self.changed.discard(ledger_id)
        if self._begun is not None:
            self._begun.entries.pop(ledger_id, None)
            self._begun.headers.pop(ledger_id, None)
        self._indexes.remove(ledger_id)
        self._list.remove(ledger_id)
        self.deleted.add(ledger_id)


def _made(folder: str) -> str:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, "make", error) from error
    return folder
