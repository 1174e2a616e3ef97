"""A log over many ledgers: its ledgers in order, and the position of a cursor.

Entries are acknowledged one by one, or all up to a position. The mark advances over acknowledged entries
without a gap, and from the end of a ledger whose last entry is fixed to the next ledger.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from pyledger.errors import LedgerMetadataError


@dataclass(frozen=True, slots=True)
class Position:
    """The position of an entry; entry -1: before the first one of its ledger."""

    ledger_id: int
    entry_id: int


@dataclass(frozen=True, slots=True)
class ManagedLedgerSegment:
    """One ledger of a log.

    Attributes:
        last_entry_id: None while it may grow.
        length: Bytes of all payloads; 0 while it may grow.
    """

    ledger_id: int
    last_entry_id: int | None = None
    length: int = 0


@dataclass(frozen=True, slots=True)
class LogIndex:
    """The ledgers of a log, oldest first. Only the last one may grow."""

    ledgers: tuple[ManagedLedgerSegment, ...] = ()

    def check(self) -> Self:
        """Return itself if its ledgers are consistent.

        Raises:
            LedgerMetadataError: They are not.
        """
        ids = [one.ledger_id for one in self.ledgers]
        if len(set(ids)) < len(ids):
            raise LedgerMetadataError(f"a log names a ledger twice: {ids}")
        if any(one.last_entry_id is None for one in self.ledgers[:-1]):
            raise LedgerMetadataError("a ledger of a log has no end although another one follows it")
        return self

    @property
    def growing(self) -> ManagedLedgerSegment | None:
        """The ledger that may grow; None: there is none."""
        last = self.ledgers[-1] if self.ledgers else None
        return last if last is not None and last.last_entry_id is None else None

    def ended(self, last_entry_id: int, length: int) -> "LogIndex":
        """Return the index with its last ledger closed at `length` bytes; an empty ledger is left out."""
        *before, last = self.ledgers
        if last_entry_id < 0:
            return LogIndex(tuple(before))
        return LogIndex((*before, replace(last, last_entry_id=last_entry_id, length=length)))

    def begun(self, ledger_id: int) -> "LogIndex":
        """Return the index with one more ledger, which may grow."""
        return LogIndex((*self.ledgers, ManagedLedgerSegment(ledger_id))).check()

    def index_of(self, ledger_id: int) -> int:
        """Return the index of a ledger in `ledgers`; 0 for one that was trimmed."""
        return next((at for at, one in enumerate(self.ledgers) if one.ledger_id == ledger_id), 0)

    def without_before(self, ledger_ids: Iterable[int]) -> "tuple[LogIndex, tuple[int, ...]]":
        """Return the index without the ledgers before all of `ledger_ids`, and the ids of those left out."""
        first = min(map(self.index_of, ledger_ids), default=0)
        gone = tuple(one.ledger_id for one in self.ledgers[:first])
        return LogIndex(self.ledgers[first:]), gone


@dataclass(slots=True)
class CursorState:
    """The acknowledged entries of a cursor.

    Attributes:
        mark: All entries up to it are acknowledged; None: no mark yet.
        acknowledged: Ranges of entries after the mark, by ledger, ascending.
    """

    mark: Position | None = None
    acknowledged: dict[int, list[range]] = field(default_factory=dict)

    def has(self, index: LogIndex, position: Position) -> bool:
        """Whether the entry at a position is acknowledged."""
        if self.mark is not None and self._key(index, position) <= self._key(index, self.mark):
            return True
        return any(position.entry_id in one for one in self.acknowledged.get(position.ledger_id, ()))

    def acknowledge(self, index: LogIndex, positions: Sequence[Position]) -> None:
        """Acknowledge single entries."""
        for one in positions:
            if not self.has(index, one):
                ranges = self.acknowledged.setdefault(one.ledger_id, [])
                ranges.append(range(one.entry_id, one.entry_id + 1))
                self.acknowledged[one.ledger_id] = joined(ranges)
        self._advance(index)

    def acknowledge_through(self, index: LogIndex, position: Position) -> None:
        """Acknowledge all entries up to a position."""
        if self.mark is None or self._key(index, position) > self._key(index, self.mark):
            self.mark = position
        self._advance(index)

    def next_of(self, index: LogIndex, position: Position | None) -> Position | None:
        """Return the position after another one; None: it is in a ledger that does not exist yet."""
        at = 0
        if position is not None and any(one.ledger_id == position.ledger_id for one in index.ledgers):
            at = index.index_of(position.ledger_id)
            last = index.ledgers[at].last_entry_id
            if last is None or position.entry_id < last:
                return Position(position.ledger_id, position.entry_id + 1)
            at += 1
        return Position(index.ledgers[at].ledger_id, 0) if at < len(index.ledgers) else None

    def _advance(self, index: LogIndex) -> None:
        while (following := self.next_of(index, self.mark)) is not None:
            ranges = self.acknowledged.get(following.ledger_id, [])
            found = next((one for one in ranges if following.entry_id in one), None)
            if found is None:
                break
            self.mark = Position(following.ledger_id, found[-1])
        if self.mark is not None:
            self._drop(index, self.mark)

    def _drop(self, index: LogIndex, mark: Position) -> None:
        """Forget the entries up to the mark."""
        key, kept = self._key(index, mark), {}
        for ledger_id, ranges in self.acknowledged.items():
            after = [one for one in ranges if self._key(index, Position(ledger_id, one[-1])) > key]
            if after:
                kept[ledger_id] = after
        self.acknowledged = kept

    @staticmethod
    def _key(index: LogIndex, position: Position) -> tuple[int, int]:
        known = any(one.ledger_id == position.ledger_id for one in index.ledgers)
        return (index.index_of(position.ledger_id) if known else -1), position.entry_id


def joined(ranges: Iterable[range]) -> list[range]:
    """Return the same ids in as few ranges as possible, ascending."""
    found: list[range] = []
    for one in sorted(ranges, key=lambda one: one.start):
        if found and one.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, one.stop))
        else:
            found.append(one)
    return found
