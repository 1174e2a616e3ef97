"""Checking the folders of a bookie: journals, entry logs and indexes against each other, digests of entries.

Digests need no password where they are CRCs. Which a ledger has is not told in the folder: it is the one that
any of its entries bears. Entries of a ledger whose digest cannot be known are counted, not judged.
"""

from collections import Counter
from collections.abc import Iterator

from pyledger.errors import LedgerFileError
from pyledger.protocol.bookkeeper.bookie import EntryRecord
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.store.bookkeeper.folder import BookieFolder, read_bookie_folder
from pyledger.store.bookkeeper.index import written_slots
from pyledger.store.bookkeeper.reader import FileMaps
from pyledger.store.files.finding import Problem
from pyledger.wire.bookkeeper.entry import digest_found
from pyledger.wire.bookkeeper.entry_log import decode_index, entry_at, ledgers_map, logged_entries
from pyledger.wire.bookkeeper.journal import records, start_of, whole_end


class BookieCheck:
    """One check of a bookie's folder.

    Attributes:
        entries: Entries that were looked at, copies included.
        unguarded: Of them, those whose digest cannot be known.
    """

    def __init__(self, path: str, *more: str) -> None:
        """Look at the folder, or the folders, where it has several; see `read_bookie_folder`.

        Raises:
            StoreNotFoundError: It holds no bookie's files.
            StoreFormatError: It holds more than one bookie's.
            StoreIOError: The operating system refused.
        """
        self.folder: BookieFolder = read_bookie_folder(path, *more)
        self.entries = self.unguarded = 0
        self._files = FileMaps()
        self._digests: dict[int, DigestType] = {}
        self._odd: dict[int, list[tuple[str, int, int]]] = {}

    def problems(self) -> Iterator[Problem]:
        """What is wrong, as it is found."""
        for stranger in self.folder.unusual:
            yield Problem("unusual", stranger.path, None, stranger.what, "note")
        if self.folder.dirty:
            yield Problem("unclean", self.folder.path, None, "its writer runs, or was killed", "note")
        for journal in self.folder.journals:
            for number, path in journal.files.items():
                yield from self._journal(number, path)
        for path in self.folder.entry_logs.values():
            yield from self._entry_log(path)
        for ledger_id, path in self.folder.indexes.items():
            yield from self._index(ledger_id, path)
        yield from self._digest_problems()

    def _journal(self, number: int, path: str) -> Iterator[Problem]:
        data = self._files.map(path)
        try:
            start = start_of(path, data)
            for one in records(path, data[: whole_end(path, number, data, start)], start):
                if isinstance(one.record, EntryRecord):
                    self._look(
                        one.record.ledger_id, one.record.entry_id, path, one.position, one.record.entry
                    )
        except LedgerFileError as error:
            yield Problem("bookie-journal", path, error.position, error.problem)

    def _entry_log(self, path: str) -> Iterator[Problem]:
        data, sizes = self._files.map(path), Counter[int]()
        try:
            told = ledgers_map(path, data)
            for one in logged_entries(path, data):
                sizes[one.ledger_id] += len(one.entry) + 4
                self._look(one.ledger_id, one.entry_id, path, one.position, one.entry)
        except LedgerFileError as error:
            yield Problem("bookie-log", path, error.position, error.problem)
            return
        if told is not None and told != sizes:
            wrong = sorted(ledger for ledger in {*told, *sizes} if told.get(ledger) != sizes[ledger])
            yield Problem("bookie-log", path, None, f"its map of ledgers is wrong for {wrong[:5]}")

    def _index(self, ledger_id: int, path: str) -> Iterator[Problem]:
        try:
            decode_index(path, self._files.map(path))
        except LedgerFileError as error:
            yield Problem("bookie-index", path, error.position, error.problem)
            return
        for entry_id, location in written_slots(path):
            log, position = location >> 32, location & 0xFFFFFFFF
            if (log_path := self.folder.entry_logs.get(log)) is None:
                yield Problem("bookie-index", path, entry_id, f"entry {entry_id}: no entry log {log:x}")
                continue
            try:
                entry_at(log_path, self._files.map(log_path), position, ledger_id, entry_id)
            except LedgerFileError as error:
                yield Problem("bookie-index", path, entry_id, str(error))

    def _look(
        self, ledger_id: int, entry_id: int, path: str, position: int, entry: bytes | memoryview
    ) -> None:
        self.entries += 1
        if (digest := digest_found(entry)) is not None:
            self._digests[ledger_id] = digest.type
        else:
            self._odd.setdefault(ledger_id, []).append((path, position, entry_id))

    def _digest_problems(self) -> Iterator[Problem]:
        for ledger_id, places in self._odd.items():
            if (kind := self._digests.get(ledger_id)) is None:
                self.unguarded += len(places)
                continue
            for path, position, entry_id in places:
                detail = f"entry {entry_id} of ledger {ledger_id} does not match its {kind.name}"
                yield Problem("bookie-digest", path, position, detail)
