"""Checking the folders of a bookie: journals, entry logs and indexes against each other, digests of entries.

A CRC needs no password. The folder does not state the digest type of a ledger: any valid entry of the ledger
shows it. Entries of a ledger whose digest type stays unknown are counted, but not checked.

An entry that is in an entry log and in no index is lost to clients, unless its ledger was deleted or it was
never acknowledged. The list of ledgers of our bookies shows which; in a folder without a list it is a guess.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

from pyledger.errors import LedgerFileError, StoreIOError
from pyledger.protocol.bookkeeper.bookie import EntryRecord
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.store.bookkeeper.file_maps import FileMaps
from pyledger.store.bookkeeper.folder import BookieFolder, read_bookie_folder
from pyledger.store.bookkeeper.index import EMPTY, SLOT_BYTES, Filled, written_slots
from pyledger.store.bookkeeper.journal import replayed_records
from pyledger.store.bookkeeper.ledger_list import read_list
from pyledger.store.files.finding import Finding, Severity
from pyledger.wire.bookkeeper.entry import digest_found
from pyledger.wire.bookkeeper.entry_log import (
    INDEX_HEADER_BYTES,
    decode_index,
    ledgers_map,
    logged_entries,
)
from pyledger.wire.bookkeeper.journal import records, start_of, whole_end
from pyledger.wire.bookkeeper.ledger_list import ListedLedger


class BookieCheck:
    """One check of a bookie's folder.

    Attributes:
        entries: Number of entries that were read, copies included.
        unguarded: Those of them whose digest type is unknown.
    """

    def __init__(self, path: str, *more: str) -> None:
        """Read which files the folder or folders contain; see `read_bookie_folder`.

        Raises:
            StoreNotFoundError: It contains no bookie's files.
            StoreFormatError: It contains the files of several bookies.
            StoreIOError: An I/O error occurred.
        """
        self.folder: BookieFolder = read_bookie_folder(path, *more)
        self.entries = self.unguarded = 0
        self._files = FileMaps()
        self._digests: dict[int, DigestType] = {}
        self._odd: dict[int, list[tuple[str, int, int]]] = {}
        self._filled: dict[int, Filled] = {}
        self._unnamed: dict[int, set[int]] = {}

    def findings(self) -> Iterator[Finding]:
        """Yield the findings as the files are read."""
        for stranger in self.folder.unusual:
            yield Finding("unusual", stranger.path, None, stranger.what, "note")
        if self.folder.dirty:
            yield Finding("unclean", self.folder.path, None, "its writer runs, or was killed", "note")
        for journal in self.folder.journals:
            for number, path in journal.files.items():
                yield from self._journal(number, path)
        for path in self.folder.entry_logs.values():
            yield from self._entry_log(path)
        for ledger_id, path in self.folder.indexes.items():
            yield from self._index(ledger_id, path)
        if not self.folder.has_rocksdb:
            yield from self._lost_entries()
        yield from self._wrong_digests()

    def _journal(self, number: int, path: str) -> Iterator[Finding]:
        try:
            with self._files.reading(path) as data:
                start = start_of(path, data)
                for one in records(path, data[: whole_end(path, number, data, start)], start):
                    if isinstance(one.record, EntryRecord):
                        self._check_digest(
                            one.record.ledger_id, one.record.entry_id, path, one.position, one.record.entry
                        )
        except LedgerFileError as error:
            yield Finding("bookie-journal", path, error.position, error.problem)
        except StoreIOError as error:
            yield Finding("bookie-journal", path, None, str(error))

    def _entry_log(self, path: str) -> Iterator[Finding]:
        sizes = Counter[int]()
        try:
            with self._files.reading(path) as data:
                mapped = ledgers_map(path, data)
                for one in logged_entries(path, data):
                    sizes[one.ledger_id] += len(one.entry) + 4
                    self._check_digest(one.ledger_id, one.entry_id, path, one.position, one.entry)
                    if not self._is_named(one.ledger_id, one.entry_id):
                        self._unnamed.setdefault(one.ledger_id, set()).add(one.entry_id)
        except LedgerFileError as error:
            yield Finding("bookie-log", path, error.position, error.problem)
            return
        except StoreIOError as error:
            yield Finding("bookie-log", path, None, str(error))
            return
        if mapped is not None and mapped != sizes:
            wrong = sorted(ledger for ledger in {*mapped, *sizes} if mapped.get(ledger) != sizes[ledger])
            yield Finding("bookie-log", path, None, f"its map of ledgers is wrong for {wrong[:5]}")

    def _index(self, ledger_id: int, path: str) -> Iterator[Finding]:
        try:
            with self._files.reading(path) as data:
                decode_index(path, data)
            slots = list(written_slots(path))
        except LedgerFileError as error:
            yield Finding("bookie-index", path, error.position, error.problem)
            return
        except StoreIOError as error:
            yield Finding("bookie-index", path, None, str(error))
            return
        for entry_id, location in slots:
            self._filled[ledger_id] = Filled(entry_id, self._filled.get(ledger_id, EMPTY).entries + 1)
            log, position = location >> 32, location & 0xFFFFFFFF
            if (log_path := self.folder.entry_logs.get(log)) is None:
                yield Finding("bookie-index", path, entry_id, f"entry {entry_id}: no entry log {log:x}")
                continue
            try:
                self._files.entry(log_path, position, ledger_id, entry_id)
            except (LedgerFileError, StoreIOError) as error:
                yield Finding("bookie-index", path, entry_id, str(error))

    def _is_named(self, ledger_id: int, entry_id: int) -> bool:
        if (path := self.folder.indexes.get(ledger_id)) is None:
            return False
        at = INDEX_HEADER_BYTES + SLOT_BYTES * entry_id
        with self._files.reading(path) as data:
            return any(data[at : at + SLOT_BYTES])

    @cached_property
    def _replayed(self) -> dict[int, set[int]]:
        """Entries that a start replays from the journal."""
        found: dict[int, set[int]] = {}
        with suppress(LedgerFileError, StoreIOError):  # `_journal` reports it
            for journal in self.folder.journals:
                for _, one in replayed_records(journal.files, journal.mark, self._files):
                    if isinstance(one.record, EntryRecord):
                        found.setdefault(one.record.ledger_id, set()).add(one.record.entry_id)
        return found

    def _lost_entries(self) -> Iterator[Finding]:
        """Yield entries that the bookie had, or has, and that no index names."""
        listed: dict[int, ListedLedger] | None = None
        try:
            if (content := read_list(self.folder.lists, self.folder.marks)) is not None:
                listed = content.ledgers
        except LedgerFileError as error:
            yield Finding("bookie-list", error.path, error.position, error.problem, "note")
        for ledger_id, one in sorted((listed or {}).items()):
            there = self._filled.get(ledger_id, EMPTY)
            if there.entries >= one.count and there.last >= one.last_entry_id:
                continue
            more = self._replayed.get(ledger_id, set())
            count = there.entries + sum(not self._is_named(ledger_id, entry_id) for entry_id in more)
            if count < one.count or max(there.last, *more, -1) < one.last_entry_id:
                detail = f"ledger {ledger_id}: its index names {count} of {one.count} entries"
                yield Finding("bookie-lost", self._index_of(ledger_id), None, detail)
                self._unnamed.pop(ledger_id, None)
        for ledger_id, found in sorted(self._unnamed.items()):
            unnamed = found - self._replayed.get(ledger_id, set())
            has_index = ledger_id in self.folder.indexes
            if not unnamed or (listed is not None and not has_index):
                continue  # it was deleted
            detail = f"ledger {ledger_id}: {len(unnamed)} entries in entry logs, such as {min(unnamed)}, "
            if listed is not None:
                detail += "are in no index and were never acknowledged"
            else:
                detail += "are not in its index" if has_index else "and no index: deleted, or it is lost"
            severity: Severity = "error" if has_index and listed is None else "note"
            yield Finding("bookie-lost", self._index_of(ledger_id), None, detail, severity)

    def _index_of(self, ledger_id: int) -> str:
        return self.folder.indexes.get(ledger_id, self.folder.path)

    def _check_digest(
        self, ledger_id: int, entry_id: int, path: str, position: int, entry: bytes | memoryview
    ) -> None:
        self.entries += 1
        if (digest := digest_found(entry)) is not None:
            self._digests[ledger_id] = digest.type
        else:
            self._odd.setdefault(ledger_id, []).append((path, position, entry_id))

    def _wrong_digests(self) -> Iterator[Finding]:
        for ledger_id, places in self._odd.items():
            if (kind := self._digests.get(ledger_id)) is None:
                self.unguarded += len(places)
                continue
            for path, position, entry_id in places:
                detail = f"entry {entry_id} of ledger {ledger_id} does not match its {kind.name}"
                yield Finding("bookie-digest", path, position, detail)
