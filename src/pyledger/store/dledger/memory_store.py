"""DLedgerMemoryStore: the log of a DLedger node in memory; only its term and vote are a file.

A member that ends has lost its entries. It says so when it starts again, and does not vote before a leader
filled it up; a group of which a majority ended at once elects nobody, as what it acknowledged is gone.

Source: DLedger DLedgerMemoryStore.java. Differs: memory has a bound, entries have places, a lost log is told.
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
    """One node's log in memory, as the machine asks for it.

    Args:
        path: The node's folder, `dledger-<id>`, for the term file; made when it is not there.
        config: The bound of memory.
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
        """Let go of the folder; the entries are lost."""
        self.lock.release()

    # -- what there is

    @property
    def begin_index(self) -> int:
        """First entry; -1 of an empty log."""
        return self._first if self._log else NO_INDEX

    @property
    def end_index(self) -> int:
        """Last entry."""
        return self._first + len(self._log) - 1

    @property
    def end_term(self) -> int:
        """Term of the last entry."""
        return self._log[-1].term if self._log else NO_TERM

    @property
    def end_position(self) -> int:
        """Bytes: where the next entry stands."""
        return self._log[-1].pos + self._log[-1].size if self._log else 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all entries."""
        return self.end_position - self._log[0].pos if self._log else 0

    @property
    def disk_full(self) -> bool:
        """Whether memory is used up, and appends must be refused."""
        return self.held_bytes >= self.config.memory_size_bytes_max

    def regained_tail(self) -> None:
        """The log holds again all that was acknowledged."""
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

    # -- changing it

    def append_bodies(self, term: int, bodies: Sequence[bytes]) -> list[int]:
        """As leader: make entries at the end; returns their places. All or none.

        Raises:
            StoreFullError: memory is used up.
            RecordTooLargeError: a body exceeds 4 MiB less 48 bytes.
        """
        for body in bodies:
            if len(body) > ENTRY_BYTES_MAX - ENTRY_HEADER_BYTES:
                raise RecordTooLargeError(
                    "the body of an entry", len(body), ENTRY_BYTES_MAX - ENTRY_HEADER_BYTES
                )
        self._check_room()
        places = []
        for body in bodies:
            place = self.end_position
            places.append(place)
            entry = Entry(self.end_index + 1, term, place, ENTRY_HEADER_BYTES + len(body), bytes(body))
            self._log.append(entry)
        return places

    def append_entries(self, entries: Sequence[Entry]) -> int:
        """As follower: take entries that follow the end, at their leader's places; returns how many.

        Raises:
            StoreFullError: memory is used up.
        """
        self._check_room()
        for count, entry in enumerate(entries):
            if entry.index != self.end_index + 1:
                return count
            self._log.append(entry)
        return len(entries)

    def _check_room(self) -> None:
        if self.disk_full:
            raise StoreFullError(self.path, "keep more entries than memory_size_bytes_max in the memory of")

    def truncate(self, entry: Entry) -> None:
        """Make this the last entry; one that does not touch the log begins it anew."""
        at = entry.index - self._first
        if not self._log or not 0 <= at <= len(self._log):
            self._log, self._first = [], entry.index
            at = 0
        del self._log[at:]
        self._log.append(entry)

    def set_committed(self, index: int) -> None:
        """Entries up to `index` are committed."""
        self.committed_index = index

    def flush(self) -> None:
        """Nothing of the log survives the process."""

    def save_term_state(self, state: TermState) -> None:
        """Replace the term file, durably."""
        write_term_state(self.path, state)
        self.saved = state


def stored_bytes(entry: Entry) -> bytes:
    """An entry as a file has it."""
    index, term, pos, size, body, magic, channel, chain_crc, body_crc = entry
    head = ENTRY_HEADER.pack(magic, size, index, term, pos, channel, chain_crc, body_crc, len(body))
    return head + body
