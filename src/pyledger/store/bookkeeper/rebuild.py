"""Indexes rebuilt from the entry logs, when a bookie starts and its indexes name fewer entries than before.

An entry that is in no entry log may be in the journal. If entries are still missing after the journal is
replayed, the start fails: clients would believe a bookie that answers "no such entry".
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
    """Find and rebuild the incomplete indexes of one bookie.

    Attributes:
        headers: Of every ledger that has an index, or had one.
    """

    def __init__(self, indexes: IndexFiles, listed: Mapping[int, ListedLedger]) -> None:
        """Read all indexes.

        Args:
            indexes: The indexes of the bookie.
            listed: The entries that they have to name, as far as that is known.

        Raises:
            LedgerFileError: An index is damaged, and its ledger is not in the list.
            StoreIOError: An I/O error occurred.
        """
        self._indexes = indexes
        self.headers: dict[int, LedgerHeader] = {}
        for ledger_id, found in indexes.survey():
            if isinstance(found, LedgerIndex):
                self.headers[ledger_id] = LedgerHeader(found.master_key, found.fenced, found.packet)
            elif ledger_id not in listed:
                raise found
        self._incomplete = {
            ledger_id: one for ledger_id, one in listed.items() if self._is_incomplete(ledger_id, one)
        }

    def _is_incomplete(self, ledger_id: int, one: ListedLedger) -> bool:
        there = self._indexes.filled.get(ledger_id, EMPTY)
        return ledger_id not in self.headers or there.entries < one.count or there.last < one.last_entry_id

    def rebuild(self, logs: EntryLogs) -> None:
        """Write the locations of all entries in entry logs to the incomplete indexes.

        Raises:
            StoreFullError: The disk is full.
            StoreIOError: An I/O error occurred.
        """
        if not self._incomplete:
            return
        shown = sorted(self._incomplete)[:5]
        event(log, logging.WARNING, "indexes are rebuilt", count=len(self._incomplete), ledgers=shown)
        for ledger_id, one in self._incomplete.items():
            self.headers.setdefault(ledger_id, LedgerHeader(one.master_key, one.fenced, None))
            self._indexes.write(ledger_id, self.headers[ledger_id], {})
        for found in logs.locations(self._incomplete, self.headers):
            for ledger_id, locations in found.items():
                self._indexes.write(ledger_id, self.headers[ledger_id], locations)

    def require_all(self, entry_ranges: Callable[[int], Iterable[range]]) -> None:
        """Check that no entry of an incomplete index is still missing.

        Args:
            entry_ranges: Returns the entries of a ledger, those in files and those in memory.

        Raises:
            LedgerFileError: Entries are missing.
        """
        for ledger_id, one in self._incomplete.items():
            found = list(entry_ranges(ledger_id))
            count, last = sum(map(len, found)), found[-1][-1] if found else -1
            if count < one.count or last < one.last_entry_id:
                raise LedgerFileError(
                    self._indexes.path(ledger_id),
                    0,
                    f"ledger {ledger_id} has {count} entries, up to {last}; it had {one.count}, up to "
                    f"{one.last_entry_id}, and neither an entry log nor the journal contains the others",
                )
