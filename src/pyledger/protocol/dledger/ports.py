"""What the state machine needs from outside: a log of entries and random numbers."""

from collections.abc import Sequence
from typing import Protocol

from pyledger.protocol.dledger.messages import Entry, TermState


class LogStorage(Protocol):
    """The log, as its owner sees it: entries can be read once they are appended; `flush` makes them durable.

    Only `flush` and `save_term_state` wait for the disk; the shell calls them for `Ready.persist`. An empty
    log has begin, end and end term -1. Any call may raise another `StoreError` or `OSError` besides those
    named: what is stored is then unknown, and the member stops.
    """

    @property
    def begin_index(self) -> int:
        """First entry that is not deleted."""

    @property
    def end_index(self) -> int:
        """Last entry."""

    @property
    def end_term(self) -> int:
        """Term of the last entry."""

    @property
    def end_position(self) -> int:
        """Offset (bytes) at which the next entry would begin."""

    @property
    def committed_index(self) -> int:
        """As last set; after a start as far as it is known, never beyond the end."""

    @property
    def lost_tail(self) -> bool:
        """After a start: entries that were durable may be missing (damage, or never flushed)."""

    @property
    def promised_index(self) -> int:
        """With `lost_tail`: the last entry that is known to have been durable here; -1: none is known."""

    def regained_tail(self) -> None:
        """End `lost_tail`: the log has again everything that was durable once.

        Durability: with the next `flush`, after the entries; until then a restart finds `lost_tail` again.
        """

    @property
    def disk_full(self) -> bool:
        """Appends must be rejected: there is too little free space. True after `append_bodies` found none."""

    def term_at(self, index: int) -> int:
        """Term of an entry.

        Raises:
            OffsetOutOfRangeError: the log does not have it.
            CorruptRecordError: its bytes are not those that were written.
        """

    def entry(self, index: int) -> Entry:
        """One entry, its checksum verified; raises as `term_at` does."""

    def entries(self, index: int, count_max: int, size_bytes_max: int) -> Sequence[Entry]:
        """Entries from `index` on: at least one, then as many as the limits and the end allow."""

    def append_bodies(self, term: int, bodies: Sequence[bytes]) -> Sequence[int]:
        """As leader: append entries; return their offsets.

        Raises:
            StoreFullError: the disk is full; nothing was appended.
            RecordTooLargeError: a body is too large; nothing was appended.
        """

    def append_entries(self, entries: Sequence[Entry]) -> int:
        """As follower: take entries that follow the end, each at its own `pos`.

        Returns:
            How many were taken: fewer if the `pos` of one is not the next offset here.

        Raises:
            StoreFullError: the disk is too full for the first of them.
        """

    def truncate(self, entry: Entry) -> None:
        """Make this the last entry: keep it if it is stored already, else truncate at its `pos` and write it.

        Durability: with the next `flush`, together with the removal of the entries after it.
        """

    def set_committed(self, index: int) -> None:
        """Entries up to `index` are committed; readers may see them."""

    def flush(self) -> None:
        """Make all appends and truncations durable.

        Raises:
            StoreFailedError: this or an earlier flush failed; what is durable is not known.
        """

    def save_term_state(self, state: TermState) -> None:
        """Replace the term file, durably."""


class RandomSource(Protocol):
    """Random numbers, from outside so that a run can be repeated. `random.Random` is one."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to `stop` - 1."""
