"""EntriesFlusher: flushes for a store whose commit log is a DLedger log."""

from typing import NamedTuple

from pyledger._core import read_message
from pyledger.protocol.dledger.messages import ENTRY_HEADER_BYTES
from pyledger.store.dledger.store import DLedgerStore


class LastRecord(NamedTuple):
    """The last record of a range of entries."""

    offset: int
    """Physical offset (bytes)."""
    end_offset: int
    """Physical offset (bytes) of its end."""
    store_timestamp_ms: int


def last_record(entries: DLedgerStore, index: int) -> LastRecord | None:
    """Return the record in an entry; None when there is no such entry, or it contains no record."""
    log = entries.log
    if not log.begin_index <= index <= log.end_index:
        return None
    offset = log.position_of(index) + ENTRY_HEADER_BYTES
    if log.read(index)[3] == ENTRY_HEADER_BYTES:
        return None
    message = read_message(log.data.view(), offset, check=False)
    return LastRecord(offset, offset + message.store_size, message.store_timestamp)


class EntriesFlusher:
    """Replaces `LogFlusher` for a store whose log a member of a group flushes."""

    def __init__(self, entries: DLedgerStore) -> None:
        self._entries = entries
        self.durable_timestamp_ms = 0
        """Records stored before this time (ms) are committed, and on this disk."""
        self.durable_where = 0
        """Physical offset (bytes) of the end of these records."""

    @staticmethod
    def exceeds_bound() -> bool:
        """Return False: the member flushes by itself."""
        return False

    def flush_all(self) -> int:
        """Make all entries durable; return the physical offset (bytes) up to which they are also committed.

        Raises:
            StoreFailedError: a flush failed, now or earlier.
        """
        last = last_record(self._entries, self._entries.committed_index)
        self._entries.flush()
        if last is not None:
            self.durable_where, self.durable_timestamp_ms = last.end_offset, last.store_timestamp_ms
        return self.durable_where
