"""Reading the folders of a bookie without changing a byte: the entries that it would serve after a restart.

Entries come from the entry logs. Index files give their locations; where the index is a RocksDB, all logs are
scanned. Then the journal is replayed from its mark on, as a start does. A scan also finds entries of deleted
ledgers that are not collected yet.

Source: BookKeeper bookie/BookieImpl.java (readJournal), InterleavedLedgerStorage.java.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from pyledger.errors import LedgerFileError
from pyledger.protocol.bookkeeper.bookie import EntryRecord, FenceRecord, KeyRecord, LacRecord
from pyledger.store.bookkeeper.file_maps import FileMaps
from pyledger.store.bookkeeper.folder import BookieFolder, read_bookie_folder
from pyledger.store.bookkeeper.index import written_slots
from pyledger.store.bookkeeper.journal import replayed_records
from pyledger.wire.bookkeeper.entry_log import decode_index, logged_entries
from pyledger.wire.bookkeeper.journal import JournalRecord

LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """One entry, with the file and position at which its bytes begin."""

    ledger_id: int
    entry_id: int
    path: str
    position: int
    entry: memoryview


@dataclass(slots=True)
class HeldLedger:
    """What the bookie stores of a ledger besides its entries."""

    master_key: bytes | None = None
    fenced: bool = False
    packet: bytes | None = None


class BookieReader:
    """A bookie's folders, opened for reading.

    Attributes:
        folder: Its files.
        ledgers: All ledgers that it knows, by id.
    """

    def __init__(self, folder: BookieFolder) -> None:
        """Open what `read_bookie_folder` found.

        Raises:
            LedgerFileError: An index or a journal is damaged.
            StoreIOError: An I/O error occurred.
        """
        self.folder = folder
        self.ledgers: dict[int, HeldLedger] = {}
        self._files = FileMaps()
        # Entries that a start would replay from the journal, by ledger and entry.
        self._replayed: dict[int, dict[int, HeldEntry]] = {}
        for ledger_id, path in folder.indexes.items():
            with self._files.reading(path) as data:
                index = decode_index(path, data)
            self.ledgers[ledger_id] = HeldLedger(index.master_key, index.fenced, index.packet)
        for path, one in self.journal_records():
            self._replay(path, one)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *more: str | os.PathLike[str]) -> Self:
        """Open the folder or folders of a bookie; see `read_bookie_folder`.

        Raises:
            StoreNotFoundError: It contains no bookie's files.
            StoreFormatError: It contains the files of several bookies.
            LedgerFileError: An index or a journal is damaged.
            StoreIOError: An I/O error occurred.
        """
        return cls(read_bookie_folder(path, *more))

    def entries(self) -> Iterator[HeldEntry]:
        """Yield the entries that the bookie would serve, by ledger and entry.

        Raises:
            LedgerFileError: An entry log is damaged.
        """
        held = dict(self._walked_entries() if self.folder.has_rocksdb else self._indexed_entries())
        for ledger_id in sorted({*held, *self._replayed}):
            entries = held.get(ledger_id, {}) | self._replayed.get(ledger_id, {})
            for entry_id in sorted(entries):
                yield entries[entry_id]

    def journal_records(self) -> Iterator[tuple[str, JournalRecord]]:
        """Yield the records that a start would replay, with their files.

        Raises:
            LedgerFileError: A record is damaged.
        """
        for journal in self.folder.journals:
            yield from replayed_records(journal.files, journal.mark, self._files)

    def _replay(self, path: str, one: JournalRecord) -> None:
        record = one.record
        ledger = self.ledgers.get(record.ledger_id)
        match record:
            case KeyRecord():
                self.ledgers.setdefault(record.ledger_id, HeldLedger()).master_key = record.master_key
            case EntryRecord():
                self.ledgers.setdefault(record.ledger_id, HeldLedger())
                ids = (record.ledger_id, record.entry_id)
                held = HeldEntry(*ids, path, one.position + LENGTH_BYTES, memoryview(record.entry))
                self._replayed.setdefault(record.ledger_id, {})[record.entry_id] = held
            case FenceRecord() if ledger is not None:
                ledger.fenced = True
            case LacRecord() if ledger is not None:
                ledger.packet = record.packet

    def _indexed_entries(self) -> Iterator[tuple[int, dict[int, HeldEntry]]]:
        for ledger_id, where in self.folder.indexes.items():
            entries = {}
            for entry_id, location in written_slots(where):
                log, position = location >> 32, location & 0xFFFFFFFF
                if (path := self.folder.entry_logs.get(log)) is None:
                    raise LedgerFileError(where, 8 * entry_id, f"entry log {log:x} is missing")
                entry = self._files.entry(path, position, ledger_id, entry_id)
                entries[entry_id] = HeldEntry(ledger_id, entry_id, path, position, entry)
            yield ledger_id, entries

    def _walked_entries(self) -> Iterator[tuple[int, dict[int, HeldEntry]]]:
        found: dict[int, dict[int, HeldEntry]] = {}
        for path in self.folder.entry_logs.values():
            with self._files.reading(path) as data:
                places = [(one.ledger_id, one.entry_id, one.position) for one in logged_entries(path, data)]
            for ledger_id, entry_id, position in places:
                entry = self._files.entry(path, position, ledger_id, entry_id)
                held = HeldEntry(ledger_id, entry_id, path, position, entry)
                found.setdefault(ledger_id, {})[entry_id] = held
        yield from found.items()
