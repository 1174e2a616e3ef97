"""A log over many ledgers: which ledgers, in which order, and how far a cursor has come in it.

An entry is acknowledged by itself; all up to `mark` are. The mark moves over entries without a gap, and from
the end of a ledger whose last entry is fixed to the next ledger.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from pyledger.errors import LedgerMetadataError


@dataclass(frozen=True, slots=True)
class Position:
    """Where an entry stands; entry -1 stands before the first one of its ledger."""

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
        """Itself, when its ledgers agree with each other.

        Raises:
            LedgerMetadataError: They do not.
        """
        ids = [one.ledger_id for one in self.ledgers]
        if len(set(ids)) < len(ids):
            raise LedgerMetadataError(f"a log names a ledger twice: {ids}")
        if any(one.last_entry_id is None for one in self.ledgers[:-1]):
            raise LedgerMetadataError("a ledger of a log may grow although another one follows it")
        return self

    @property
    def growing(self) -> ManagedLedgerSegment | None:
        """The ledger that may grow."""
        last = self.ledgers[-1] if self.ledgers else None
        return last if last is not None and last.last_entry_id is None else None

    def ended(self, last_entry_id: int, length: int) -> "LogIndex":
        """The last ledger is closed, with so many bytes of `length`; without an entry it is left out."""
        *before, last = self.ledgers
        if last_entry_id < 0:
            return LogIndex(tuple(before))
        return LogIndex((*before, replace(last, last_entry_id=last_entry_id, length=length)))

    def begun(self, ledger_id: int) -> "LogIndex":
        """Another ledger follows, and may grow."""
        return LogIndex((*self.ledgers, ManagedLedgerSegment(ledger_id))).check()

    def place_of(self, ledger_id: int) -> int:
        """How many ledgers stand before one; of one that was trimmed, none."""
        return next((at for at, one in enumerate(self.ledgers) if one.ledger_id == ledger_id), 0)

    def without_before(self, ledger_ids: Iterable[int]) -> "tuple[LogIndex, tuple[int, ...]]":
        """Without the ledgers that lie before all of those named; and the ids of those left out."""
        places = [self.place_of(ledger_id) for ledger_id in ledger_ids]
        first = min(places, default=0)
        gone = tuple(one.ledger_id for one in self.ledgers[:first])
        return LogIndex(self.ledgers[first:]), gone


@dataclass(slots=True)
class CursorState:
    """What a cursor has had.

    Attributes:
        mark: All up to it are acknowledged; None: nothing is.
        acknowledged: Runs of entries behind the mark, by ledger, ascending.
    """

    mark: Position | None = None
    acknowledged: dict[int, list[range]] = field(default_factory=dict)

    def has(self, index: LogIndex, position: Position) -> bool:
        """Whether the entry at a position is acknowledged."""
        if self.mark is not None and self._key(index, position) <= self._key(index, self.mark):
            return True
        return any(position.entry_id in run for run in self.acknowledged.get(position.ledger_id, ()))

    def acknowledge(self, index: LogIndex, positions: Sequence[Position]) -> None:
        """These entries are acknowledged."""
        for one in positions:
            if not self.has(index, one):
                runs = self.acknowledged.setdefault(one.ledger_id, [])
                runs.append(range(one.entry_id, one.entry_id + 1))
                self.acknowledged[one.ledger_id] = joined(runs)
        self._move(index)

    def acknowledge_through(self, index: LogIndex, position: Position) -> None:
        """All up to a position are acknowledged."""
        if self.mark is None or self._key(index, position) > self._key(index, self.mark):
            self.mark = position
        self._move(index)

    def next_of(self, index: LogIndex, position: Position | None) -> Position | None:
        """Where the entry behind a position stands, or will; None: in a ledger that is not there yet."""
        at = 0
        if position is not None and any(one.ledger_id == position.ledger_id for one in index.ledgers):
            at = index.place_of(position.ledger_id)
            last = index.ledgers[at].last_entry_id
            if last is None or position.entry_id < last:
                return Position(position.ledger_id, position.entry_id + 1)
            at += 1
        return Position(index.ledgers[at].ledger_id, 0) if at < len(index.ledgers) else None

    def _move(self, index: LogIndex) -> None:
        while (following := self.next_of(index, self.mark)) is not None:
            runs = self.acknowledged.get(following.ledger_id, [])
            run = next((one for one in runs if following.entry_id in one), None)
            if run is None:
                break
            self.mark = Position(following.ledger_id, run[-1])
        if self.mark is not None:
            self._drop(index, self.mark)

    def _drop(self, index: LogIndex, mark: Position) -> None:
        """Forget what the mark says too."""
        key, kept = self._key(index, mark), {}
        for ledger_id, runs in self.acknowledged.items():
            behind = [one for one in runs if self._key(index, Position(ledger_id, one[-1])) > key]
            if behind:
                kept[ledger_id] = behind
        self.acknowledged = kept

    @staticmethod
    def _key(index: LogIndex, position: Position) -> tuple[int, int]:
        known = any(one.ledger_id == position.ledger_id for one in index.ledgers)
        return (index.place_of(position.ledger_id) if known else -1), position.entry_id


def joined(runs: Iterable[range]) -> list[range]:
    """The same ids, in as few runs as can be, ascending."""
    found: list[range] = []
    for run in sorted(runs, key=lambda one: one.start):
        if found and run.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, run.stop))
        else:
            found.append(run)
    return found
