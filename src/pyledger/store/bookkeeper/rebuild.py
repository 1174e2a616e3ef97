"""Indexes rebuilt from the entry logs, at the start of a bookie whose indexes lack what they once held.

Nothing is missing before the journal is replayed: an entry that no log has may be there. Then whatever is
missing still stops the start, since a bookie that says "no such entry" is believed.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from pyledger.errors import LedgerFileError
from pyledger.log_events import event, logger
from pyledger.store.bookkeeper.entry_log import EntryLogs
from pyledger.store.bookkeeper.index import EMPTY, IndexFiles, LedgerHeader
from pyledger.wire.bookkeeper.entry_log import LedgerIndex
from pyledger.wire.bookkeeper.ledger_list import ListedLedger

log = logger("store")


class IndexRecovery:
    """What the indexes of one bookie lack, and how it comes back.

    Attributes:
        headers: What is known of every ledger that has an index, or had one.
    """

    def __init__(self, indexes: IndexFiles, listed: Mapping[int, ListedLedger]) -> None:
        """Look at all indexes.

        Args:
            indexes: Which.
            listed: What they have to hold, as far as that is known.

        Raises:
            LedgerFileError: One is damaged, and nobody knows what it held.
            StoreIOError: The operating system refused.
        """
        self._indexes = indexes
        self.headers: dict[int, LedgerHeader] = {}
        for ledger_id, found in indexes.survey():
            if isinstance(found, LedgerIndex):
                self.headers[ledger_id] = LedgerHeader(found.master_key, found.fenced, found.packet)
            elif ledger_id not in listed:
                raise found
        self._lacking = {ledger_id: one for ledger_id, one in listed.items() if self._lacks(ledger_id, one)}

    def _lacks(self, ledger_id: int, one: ListedLedger) -> bool:
        there = self._indexes.filled.get(ledger_id, EMPTY)
        return ledger_id not in self.headers or there.entries < one.count or there.last < one.last_entry_id

    def rebuild(self, logs: EntryLogs) -> None:
        """Let indexes that lack something name all that the entry logs have of their ledgers.

        Raises:
            StoreFullError: No room.
            StoreIOError: The operating system refused.
        """
        if not self._lacking:
            return
        shown = sorted(self._lacking)[:5]
        event(log, logging.WARNING, "indexes made anew", count=len(self._lacking), ledgers=shown)
        for ledger_id, one in self._lacking.items():
            self.headers.setdefault(ledger_id, LedgerHeader(one.master_key, one.fenced, None))
            self._indexes.write(ledger_id, self.headers[ledger_id], {})
        for found in logs.places(self._lacking, self.headers):
            for ledger_id, locations in found.items():
                self._indexes.write(ledger_id, self.headers[ledger_id], locations)

    def require_all(self, runs: Callable[[int], Iterable[range]]) -> None:
        """Refuse to go on where entries are missing still.

        Args:
            runs: Tells which entries of a ledger are there, in files and in memory.

        Raises:
            LedgerFileError: Some are.
        """
        for ledger_id, one in self._lacking.items():
            found = list(runs(ledger_id))
            count, last = sum(map(len, found)), found[-1][-1] if found else -1
            if count < one.count or last < one.last_entry_id:
                raise LedgerFileError(
                    self._indexes.path(ledger_id),
                    0,
                    f"ledger {ledger_id} has {count} entries, up to {last}; it had {one.count}, up to "
                    f"{one.last_entry_id}, and neither an entry log nor the journal holds the others",
                )
