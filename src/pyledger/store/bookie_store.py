"""The disk of a running bookie: journal, entries in memory, entry logs, indexes.

An entry goes to memory and to the journal; it is acknowledged once the journal has it on disk. A checkpoint
moves what is in memory to the entry log and the index, and then the journal's mark: all before it is never
replayed. The event loop puts and gets; one thread at a time does the work of a checkpoint, which touches only
what nobody changes any more.

Source: BookKeeper bookie/BookieImpl.java, SyncThread.java, InterleavedLedgerStorage.java.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from pyledger._core import AddIntake
from pyledger.config.bookie import BookieConfig
from pyledger.errors import StoreIOError
from pyledger.protocol.bookkeeper.bookie import BookieRules, LedgerAtBookie
from pyledger.store.bookie_compaction import compaction, logs_worth_compacting
from pyledger.store.bookie_entry_log import EntryLogs
from pyledger.store.bookie_folder import CURRENT, MARK_FILE, journal_files, read_mark
from pyledger.store.bookie_index import ENTRY_ID_MAX, IndexFiles, LedgerHeader
from pyledger.store.bookie_journal import Journal, replayed_records, require_marked_file
from pyledger.store.bookie_reader import FileMaps
from pyledger.store.clock import Clock
from pyledger.store.lock import StoreLock
from pyledger.wire.ledger.entry import HEADER
from pyledger.wire.ledger.journal import encode_mark

Entries = dict[int, dict[int, bytes]]
"""By ledger and entry."""


@dataclass(slots=True)
class Checkpoint:
    """What one checkpoint moves.

    Attributes:
        mark: Of the journal: all before it is among the entries, or was moved before.
        entries: Not changed any more.
        headers: Of all ledgers that changed.
    """

    mark: tuple[int, int]
    entries: Entries
    headers: dict[int, LedgerHeader]


class BookieStore:
    """The folders of one running bookie.

    Attributes:
        ledgers: All that it has heard of, by id.
        cached_bytes: Of entries in memory that are not in the entry log.
        waits: Whether a read may wait for the disk; if not, it raises `PageNotCachedError`.
    """

    def __init__(
        self,
        journal_path: str,
        ledgers_path: str,
        config: BookieConfig,
        clock: Clock,
        failed: Callable[[], None],
    ) -> None:
        """Use `open`."""
        self.config = config
        self._folder = _made(os.path.join(ledgers_path, CURRENT))
        self._journal_folder = _made(os.path.join(journal_path, CURRENT))
        self._lock = StoreLock(self._folder)
        self.ledgers: dict[int, LedgerAtBookie] = {}
        self.changed: set[int] = set()
        self.cached_bytes = 0
        self.waits = True
        self.cache: Entries = {}
        self._moving: Entries = {}
        self.last_ids: dict[int, int] = {}
        self.logs = EntryLogs(self._folder, config.log_size_limit_bytes)
        self._indexes = IndexFiles(self._folder, config.open_file_limit)
        self._mark = (0, 0)
        self._clock, self._failed = clock, failed
        self.journal: Journal
        self._intake: AddIntake

    @classmethod
    def open(
        cls,
        journal_path: str,
        ledgers_path: str,
        config: BookieConfig,
        clock: Clock,
        failed: Callable[[], None] = lambda: None,
    ) -> Self:
        """Open the folders, made where they are missing; replay the journal and go on in a new one.

        Args:
            journal_path: Folder of the journal.
            ledgers_path: Folder of entry logs and indexes.
            config: Sizes and waits.
            clock: For the name of the first journal.
            failed: Called in another thread when the journal cannot be written any more.

        Raises:
            StoreLockedError: Another bookie has them open.
            LedgerFileError: A file is damaged, or the journal that the mark names is gone.
            StoreError: The operating system refused.
        """
        store = cls(journal_path, ledgers_path, config, clock, failed)
        store._lock.acquire()
        try:
            store._recover()
        except BaseException:
            store._lock.release()
            raise
        return store

    # --- what the rules ask for

    def put(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        """Store an entry in memory, in the place of an older copy."""
        entries = self.cache.get(ledger_id)
        if entries is None:
            entries = self.cache[ledger_id] = {}
        entries[entry_id] = entry
        self.cached_bytes += len(entry)
        if entry_id > self.last_ids.get(ledger_id, -1):
            self.last_ids[ledger_id] = entry_id

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """An entry; None: it was never stored.

        Raises:
            PageNotCachedError: It is on disk only, and `waits` is off.
            LedgerFileError: It is damaged.
            StoreIOError: The operating system refused.
        """
        for held in (self.cache, self._moving):
            if (entries := held.get(ledger_id)) is not None and (entry := entries.get(entry_id)) is not None:
                return entry
        if not 0 <= entry_id <= self.last_ids.get(ledger_id, -1):
            return None
        location = self._indexes.location(ledger_id, entry_id)
        return self.logs.read(location, ledger_id, entry_id, wait=self.waits) if location else None

    def take_adds(self, frames: list[Any], at: int, *, version2: bool) -> tuple[int, bytes, list[int]]:
        """Take the run of ordinary adds that begins at a frame, into memory and into the journal.

        Args:
            frames: Of requests, without their lengths.
            at: Which of them is the first.
            version2: Whether they are of version 2 of the protocol, else of version 3.

        Returns: How many were taken; their answers, for when the journal is on disk as far as it is appended;
        their ledgers.

        Raises:
            StoreError: The journal has failed.
        """
        count, answers, entry_bytes, ledger_ids = self._intake.take(frames, at, self.cache, version2=version2)
        self.cached_bytes += entry_bytes
        return count, answers, ledger_ids

    def last_entry_id(self, ledger_id: int) -> int | None:
        """The highest entry of a ledger."""
        return self.last_ids.get(ledger_id)

    def runs(self, ledger_id: int) -> Iterator[range]:
        """Entries of a ledger that are there: runs without a hole, ascending."""
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
        """Take what is in memory for a checkpoint; None: nothing changed. In the thread that puts.

        Entries stay readable until `end_checkpoint`. One checkpoint at a time.
        """
        mark = self.journal.writer.mark
        if not self.cache and not self.changed and mark == self._mark:
            return None
        return self._take(mark)

    def _take(self, mark: tuple[int, int]) -> Checkpoint:
        self._moving, self.cache = self.cache, {}
        self.cached_bytes = 0
        headers = {}
        for ledger_id in self.changed | self._moving.keys():
            if (ledger := self.ledgers.get(ledger_id)) is not None:
                headers[ledger_id] = LedgerHeader(ledger.master_key, ledger.fenced, ledger.packet)
        self.changed = set()
        return Checkpoint(mark, self._moving, headers)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write entries and indexes, then the mark; in any one thread.

        Raises:
            StoreError: It failed. The journal still has everything, and a start would replay it.
        """
        self._move(checkpoint)
        path = os.path.join(self._folder, MARK_FILE)
        try:
            with open(
                os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0
            ) as file:
                file.write(encode_mark(*checkpoint.mark))
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreIOError(path, "write", error.strerror or str(error)) from error
        self.journal.remove_before(checkpoint.mark[0])

    def end_checkpoint(self, checkpoint: Checkpoint) -> None:
        """What was moved is read from disk from now on. In the thread that puts."""
        self._mark = checkpoint.mark
        self._moving = {}

    def _move(self, checkpoint: Checkpoint) -> None:
        locations: dict[int, dict[int, int]] = {}
        for ledger_id in sorted(checkpoint.entries):
            if ledger_id not in checkpoint.headers:
                continue  # deleted meanwhile
            entries = checkpoint.entries[ledger_id]
            ids = sorted(entries)
            places = self.logs.append(ledger_id, map(entries.__getitem__, ids))
            locations[ledger_id] = dict(zip(ids, places, strict=True))
        self.logs.sync()
        for ledger_id in sorted(checkpoint.headers):
            self._indexes.write(ledger_id, checkpoint.headers[ledger_id], locations.get(ledger_id, {}))

    # --- beginning and end

    def _recover(self) -> None:
        for ledger_id, index in self._indexes.headers():
            self.ledgers[ledger_id] = LedgerAtBookie(index.master_key, index.fenced, packet=index.packet)
            if (last := self._indexes.last_entry_id(ledger_id)) >= 0:
                self.last_ids[ledger_id] = last
        self._mark = read_mark(self._folder)
        files = journal_files(self._journal_folder)
        require_marked_file(files, self._mark, self._journal_folder)
        rules = BookieRules(self, self.ledgers)
        for _, one in replayed_records(files, self._mark, FileMaps().map):
            rules.replay(one.record)
            self.changed.add(one.record.ledger_id)
            if self.cached_bytes > self.config.write_cache_bytes:
                self._move(self._take(self._mark))
                self._moving = {}
        self.journal = Journal(self._journal_folder, self.config, self._clock, self._failed)
        self.journal.start()
        self._intake = AddIntake(self.journal.writer, self.ledgers, self.last_ids, entry_id_max=ENTRY_ID_MAX)
        # All that was replayed is on disk before the first request.
        checkpoint = self._take(self.journal.writer.mark)
        self.write_checkpoint(checkpoint)
        self.end_checkpoint(checkpoint)
        for ledger_id in self.ledgers:
            self._learn_confirmed(ledger_id)

    def _learn_confirmed(self, ledger_id: int) -> None:
        """What the last entry and the explicit packet tell of the last confirmed entry."""
        ledger = self.ledgers[ledger_id]
        if ledger.packet is not None:
            ledger.tell(ledger.packet)
        if (last := self.last_ids.get(ledger_id)) is not None and (entry := self.get(ledger_id, last)):
            ledger.last_add_confirmed = max(ledger.last_add_confirmed, HEADER.unpack_from(entry)[2])

    def dead_logs(self) -> list[int]:
        """Entry logs that hold nothing but ledgers that were removed. In the thread that writes checkpoints.

        Raises:
            StoreIOError: The operating system refused.
        """
        known = self.ledgers
        closed = self.logs.closed(list(known))
        return [number for number, sizes in closed.items() if not any(one in known for one in sizes)]

    def logs_worth_compacting(self, threshold_percent: int) -> list[int]:
        """Entry logs of which less than a share is needed. In the thread that writes checkpoints."""
        self.logs.closed(list(self.ledgers))
        return logs_worth_compacting(self.logs, self.ledgers, threshold_percent)

    def compaction(self, number: int) -> Iterator[int]:
        """Move what is needed of a log, see `bookie_compaction`. In the thread that writes checkpoints."""
        return compaction(self.logs, self._indexes, number)

    def room(self) -> tuple[int, int]:
        """Size of the disk of the entry logs, and what of it is free (bytes).

        Raises:
            StoreIOError: The operating system refused.
        """
        try:
            found = os.statvfs(self._folder)
        except OSError as error:
            raise StoreIOError(self._folder, "look at", error.strerror or str(error)) from error
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def close(self) -> None:
        """End in good order: all is in entry logs and indexes, and nothing is left to replay."""
        self.journal.close()
        try:
            if not self.journal.writer.failed and (last := self.begin_checkpoint()) is not None:
                self.write_checkpoint(last)
                self.end_checkpoint(last)
            self.logs.close()
        finally:
            self._indexes.close()
            self._lock.release()

    def remove_ledger(self, ledger_id: int) -> None:
        """Forget a ledger that was deleted; its entries go with the last log that holds only such."""
        self.ledgers.pop(ledger_id, None)
        self.last_ids.pop(ledger_id, None)
        self.cache.pop(ledger_id, None)
        self.changed.discard(ledger_id)
        self._indexes.remove(ledger_id)


def _made(folder: str) -> str:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StoreIOError(folder, "make", error.strerror or str(error)) from error
    return folder
