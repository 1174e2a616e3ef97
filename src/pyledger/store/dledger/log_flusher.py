"""A DLedger log as upkeep of a store on it sees it: the member makes it durable, the store asks how far."""

from typing import NamedTuple

from pyledger._core import read_message
from pyledger.protocol.dledger.messages import ENTRY_HEADER_BYTES
from pyledger.store.dledger.store import DLedgerStore


class LastRecord(NamedTuple):
    """The last record of a range of entries."""

    offset: int
    """Physical offset (bytes)."""
    end_offset: int
    """Physical offset (bytes) behind it."""
    store_timestamp_ms: int


def last_record(entries: DLedgerStore, index: int) -> LastRecord | None:
    """The record in an entry; None: there is no such entry, or it holds none."""
    log = entries.log
    if not log.begin_index <= index <= log.end_index:
        return None
    offset = log.position_of(index) + ENTRY_HEADER_BYTES
    if log.read(index)[3] == ENTRY_HEADER_BYTES:
        return None
    message = read_message(log.data.view(), offset, check=False)
    return LastRecord(offset, offset + message.store_size, message.store_timestamp)


class EntriesFlusher:
    """Stands where `LogFlusher` stands for a log of the store's own."""

    def __init__(self, entries: DLedgerStore) -> None:
        self._entries = entries
        self.vouched_timestamp_ms = 0
        """Records stored before this time are committed, and on this disk."""
        self.vouched_where = 0
        """Physical offset (bytes) that goes with it."""

    @staticmethod
    def exceeds_bound() -> bool:
        """Whether somebody must flush now: the member does, unasked."""
        return False

    def flush_all(self) -> int:
        """Make all that was appended durable; the physical offset (bytes) up to which it is committed, too.

        Raises:
            StoreFailedError: a flush failed, now or earlier.
        """
        last = last_record(self._entries, self._entries.committed_index)
        self._entries.flush()
        if last is not None:
            self.vouched_where, self.vouched_timestamp_ms = last.end_offset, last.store_timestamp_ms
        return self.vouched_where
