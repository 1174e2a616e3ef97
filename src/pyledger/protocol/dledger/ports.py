"""What the machine needs from outside: a log of entries and chance. Nobody else is asked anything."""

from collections.abc import Sequence
from typing import Protocol

from pyledger.protocol.dledger.messages import Entry, TermState


class LogStorage(Protocol):
    """The log, as its owner sees it: what was appended can be read at once, and is durable after `flush`.

    No call waits for the disk but `flush` and `save_term_state`; these two are for the shell, which calls
    them when `Ready.persist` asks. An empty log has begin, end and end term -1. Any call may raise another
    `StoreError` or `OSError` besides those named: then nobody knows what is stored, and the member stops.
    """

    @property
    def begin_index(self) -> int:
        """First entry that is still there."""

    @property
    def end_index(self) -> int:
        """Last entry."""

    @property
    def end_term(self) -> int:
        """Term of the last entry."""

    @property
    def end_position(self) -> int:
        """Bytes: where the next entry would be tried."""

    @property
    def committed_index(self) -> int:
        """As last told; after a start as far as it is known, never beyond the end."""

    @property
    def lost_tail(self) -> bool:
        """After a start: entries that were durable may be missing (damage, or never flushed)."""

    @property
    def promised_index(self) -> int:
        """With `lost_tail`: the last entry that is known to have been durable here; -1: none is known."""

    def regained_tail(self) -> None:
        """The log holds again all that was durable once: `lost_tail` ends.

        Durability: with the next `flush`, after the entries; until then a new start finds `lost_tail` again.
        """

    @property
    def disk_full(self) -> bool:
        """Appends must be refused: there is too little room."""

    def term_at(self, index: int) -> int:
        """Term of an entry.

        Raises:
            OffsetOutOfRangeError: the log does not have it.
            CorruptRecordError: what stands there is not what was written.
        """

    def entry(self, index: int) -> Entry:
        """One entry, its checksum verified; raises as `term_at` does."""

    def entries(self, index: int, count_max: int, size_bytes_max: int) -> Sequence[Entry]:
        """Entries from `index` on: at least one, then as many as the limits and the end allow."""

    def append_bodies(self, term: int, bodies: Sequence[bytes]) -> Sequence[int]:
        """As leader: make entries at the end; returns their places.

        Raises:
            StoreFullError: there is no room; nothing was appended.
            RecordTooLargeError: a body is too large; nothing was appended.
        """

    def append_entries(self, entries: Sequence[Entry]) -> int:
        """As follower: take entries that follow the end, each at its own `pos`.

        Returns:
            How many were taken: fewer when the place that one asks for is not the next one here.

        Raises:
            StoreFullError: there is no room for the first of them.
        """

    def truncate(self, entry: Entry) -> None:
        """Make this the last entry: keep it where it is stored already, else cut at its `pos` and write it.

        Durability: with the next `flush`, together with the removal of what stood behind it.
        """

    def set_committed(self, index: int) -> None:
        """Entries up to `index` are committed; readers may see them."""

    def flush(self) -> None:
        """Make all that was appended and cut durable.

        Raises:
            StoreFailedError: this or an earlier flush failed; what is durable is not known.
        """

    def save_term_state(self, state: TermState) -> None:
        """Replace the term file, durably."""


class RandomSource(Protocol):
    """Chance, given from outside so that a run can be repeated. `random.Random` is one."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to `stop` - 1."""
