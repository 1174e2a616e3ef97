"""DLedgerMemoryStore: the log of a DLedger node in memory; only its term and vote are a file.

A member that stops loses its entries. After a restart it reports this, and does not vote before a leader has
sent it all entries. If a majority stopped at once, no leader is elected, as acknowledged entries are lost.

Source: DLedger DLedgerMemoryStore.java. Differs: memory is bounded, entries have offsets,
a lost log is reported.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.errors import OffsetOutOfRangeError, RecordTooLargeError, StoreFormatError, StoreFullError
from pyledger.protocol.dledger.messages import (
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    NO_INDEX,
    NO_TERM,
    Entry,
    EntryBatch,
    TermState,
)
from pyledger.store.dledger.folder import TERM_FILE, read_vote
from pyledger.store.dledger.store import ENTRY_BYTES_MAX, write_term_state
from pyledger.store.files.folder import names_in
from pyledger.store.files.lock import StoreLock
from pyledger.store.files.meta_file import make_folder


class DLedgerMemoryStore:
    """One node's log in memory: a `LogStorage`.

    Args:
        path: The node's folder, `dledger-<id>`, for the term file; created when missing.
        config: Limits the memory.
    """

    def __init__(self, path: str, config: DLedgerStoreConfig | None = None) -> None:
        self.path = path
        self.config = config or DLedgerStoreConfig()
        self.committed_index = NO_INDEX
        self._log: list[Entry] = []
        self._first = 0
        make_folder(Path(path))
        self.lock = StoreLock(path).acquire()
        try:
            term_file = os.path.join(path, TERM_FILE)
            vote = read_vote(term_file)
            began_before = TERM_FILE in names_in(path)
        except BaseException:
            self.lock.release()
            raise
        if began_before and vote is None:
            self.lock.release()
            raise StoreFormatError(
                term_file,
                "names no term: this member might vote twice in one",
                "with all other members running, set it: "
                f"`pyledger dledger repair {path} --group GROUP --peers PEERS`",
            )
        self.saved = TermState(vote.term, vote.vote_for) if vote is not None else TermState(0, None)
        self.lost_tail = began_before
        self.promised_index = NO_INDEX
        self.notices = [f"{path}: the entries were in memory, and are lost"] if self.lost_tail else []

    def close(self) -> None:
        """Release the lock of the folder; the entries are lost."""
        self.lock.release()

    # -- reading

    @property
    def begin_index(self) -> int:
        """Index of the first entry; -1 of an empty log."""
        return self._first if self._log else NO_INDEX

    @property
    def end_index(self) -> int:
        """Index of the last entry."""
        return self._first + len(self._log) - 1

    @property
    def end_term(self) -> int:
        """Term of the last entry."""
        return self._log[-1].term if self._log else NO_TERM

    @property
    def end_position(self) -> int:
        """Offset (bytes) of the next entry."""
        return self._log[-1].pos + self._log[-1].size if self._log else 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all entries."""
        return self.end_position - self._log[0].pos if self._log else 0

    @property
    def disk_full(self) -> bool:
        """Whether memory is used up, so that appends are rejected."""
        return self.held_bytes >= self.config.memory_size_bytes_max

    def regained_tail(self) -> None:
        """Note that the log has all acknowledged entries again."""
        self.lost_tail = False

    def term_at(self, index: int) -> int:
        """Term of an entry."""
        return self.entry(index).term

    def entry(self, index: int) -> Entry:
        """One entry.

        Raises:
            OffsetOutOfRangeError: the log does not have it.
        """
        if not self._log or not self._first <= index <= self.end_index:
            raise OffsetOutOfRangeError(index, self.begin_index, self.end_index)
        return self._log[index - self._first]

    def entries(self, index: int, count_max: int, size_bytes_max: int) -> EntryBatch:
        """Entries from `index` on: at least one, then as many as the limits (bytes) and the end allow."""
        stored = [stored_bytes(self.entry(index))]
        size_bytes = len(stored[0])
        at = index - self._first
        for entry in self._log[at + 1 : at + count_max]:
            size_bytes += entry.size
            if size_bytes > size_bytes_max:
                break
            stored.append(stored_bytes(entry))
        return EntryBatch(b"".join(stored), index, len(stored))

    # -- writing

    def append_bodies(self, term: int, bodies: Sequence[bytes]) -> list[int]:
        """As leader: append entries, all or none; return their offsets.

        Raises:
            StoreFullError: memory is used up.
            RecordTooLargeError: a body exceeds 4 MiB less 48 bytes.
        """
        for body in bodies:
            if len(body) > ENTRY_BYTES_MAX - ENTRY_HEADER_BYTES:
                raise RecordTooLargeError(
                    "the body of an entry", len(body), ENTRY_BYTES_MAX - ENTRY_HEADER_BYTES
                )
        self._check_free_memory()
        offsets = []
        for body in bodies:
            offset = self.end_position
            offsets.append(offset)
            entry = Entry(self.end_index + 1, term, offset, ENTRY_HEADER_BYTES + len(body), bytes(body))
            self._log.append(entry)
        return offsets

    def append_entries(self, entries: Sequence[Entry]) -> int:
        """As follower: append entries at their leader's offsets; return how many follow the end.

        Raises:
            StoreFullError: memory is used up.
        """
        self._check_free_memory()
        for count, entry in enumerate(entries):
            if entry.index != self.end_index + 1:
                return count
            self._log.append(entry)
        return len(entries)

    def _check_free_memory(self) -> None:
        if self.disk_full:
            raise StoreFullError(self.path, "keep more entries than memory_size_bytes_max in the memory of")

    def truncate(self, entry: Entry) -> None:
        """Make this the last entry. One that does not follow an entry of the log replaces the whole log."""
        at = entry.index - self._first
        if not self._log or not 0 <= at <= len(self._log):
            self._log, self._first = [], entry.index
            at = 0
        del self._log[at:]
        self._log.append(entry)

    def set_committed(self, index: int) -> None:
        """Set the committed index."""
        self.committed_index = index

    def flush(self) -> None:
        """Do nothing: entries do not survive the process."""

    def save_term_state(self, state: TermState) -> None:
        """Replace the term file, durably."""
        write_term_state(self.path, state)
        self.saved = state


def stored_bytes(entry: Entry) -> bytes:
    """Return an entry as it is stored in a data file."""
    index, term, pos, size, body, magic, channel, chain_crc, body_crc = entry
    head = ENTRY_HEADER.pack(magic, size, index, term, pos, channel, chain_crc, body_crc, len(body))
    return head + body
