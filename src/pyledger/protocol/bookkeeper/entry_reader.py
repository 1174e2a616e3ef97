"""Reading one entry: from the bookies of its write set one after another, or from all of them at once.

Source: BookKeeper client/ReadOpBase.java, PendingReadOp.java, LedgerRecoveryOp.java.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyledger.protocol.bookkeeper.entry import LedgerEntry
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.protocol.bookkeeper.quorum import absent_after
from pyledger.protocol.bookkeeper.result_codes import ABSENT, Result

SPECULATIVE_MS = 2_000
"""After this time without a response the next bookie gets the read, too."""


@dataclass(frozen=True, slots=True)
class SendRead:
    """Read one entry from one bookie; entry -1: the last one that it has."""

    bookie: str
    entry_id: int
    fence: bool = False


class EntryRead:
    """One read by a reader: the first good response counts.

    Attributes:
        entry: The entry of that response.
        result: The result; None: the read is in progress.
    """

    __slots__ = ("_next_ms", "_order", "_sends", "_speculative_ms", "_waiting", "entry", "entry_id", "result")

    def __init__(
        self,
        metadata: LedgerMetadata,
        entry_id: int,
        now_ms: int,
        *,
        prefer: Sequence[str] = (),
        speculative_ms: int | None = SPECULATIVE_MS,
    ) -> None:
        """Send the read to the first bookie.

        Args:
            metadata: Of the ledger.
            entry_id: The entry.
            now_ms: The time.
            prefer: Bookies, the best one first; others come last, in the order of the write set.
            speculative_ms: Time after which the next bookie gets the read, too; None: only after a failure.
        """
        ensemble = metadata.segment_of(entry_id).ensemble
        held = [ensemble[index] for index in metadata.write_set(entry_id)]
        rank = {bookie: at for at, bookie in enumerate(prefer)}
        self.entry_id = entry_id
        self.entry: LedgerEntry | None = None
        self.result: Result | None = None
        self._order = sorted(held, key=lambda bookie: rank.get(bookie, len(rank)))
        self._waiting: dict[str, Result | None] = {}
        self._speculative_ms = speculative_ms
        self._next_ms = now_ms
        self._sends: list[SendRead] = []
        self._send_next(now_ms)

    def answered(self, bookie: str, result: Result, entry: LedgerEntry | None, now_ms: int) -> None:
        """Handle a response; `entry` is None unless the result is good and the digest matches."""
        if self.result is not None or self._waiting.get(bookie, Result.OK) is not None:
            return
        if result is Result.OK and entry is not None:
            self.entry, self.result = entry, Result.OK
            return
        self._waiting[bookie] = Result.DIGEST_MATCH if result is Result.OK else result
        if self._order:
            self._send_next(now_ms)
        elif None not in self._waiting.values():
            self.result = worst(tuple(found for found in self._waiting.values() if found is not None))

    def tick(self, now_ms: int) -> None:
        """Handle the passing of time."""
        deadline = self.deadline_ms()
        if deadline is not None and now_ms >= deadline:
            self._send_next(now_ms)

    def deadline_ms(self) -> int | None:
        """Return when to call `tick`; None: never."""
        waits = self.result is None and self._order and self._speculative_ms is not None
        return self._next_ms if waits else None

    def ready(self) -> tuple[SendRead, ...]:
        """Return the reads to send, each once."""
        sends, self._sends = tuple(self._sends), []
        return sends

    def _send_next(self, now_ms: int) -> None:
        bookie = self._order.pop(0)
        self._waiting[bookie] = None
        self._sends.append(SendRead(bookie, self.entry_id))
        self._next_ms = now_ms + (self._speculative_ms or 0)


def worst(results: Sequence[Result]) -> Result:
    """Return the result of several failures: faults first, an absence only if all report it."""
    return min(results, key=_precedence)


def _precedence(result: Result) -> int:
    if result in ABSENT:
        return 2
    return 1 if result is Result.BOOKIE_NOT_AVAILABLE else 0


class EntryProbe:
    """One read by a recovery, from all bookies of a write set: can an entry have been confirmed?

    Attributes:
        entry: The entry, if a bookie has it.
        absent: It cannot have been confirmed.
        failed: Neither can be decided.
    """

    __slots__ = ("_absent_after", "_answers", "absent", "bookies", "entry", "failed")

    def __init__(self, metadata: LedgerMetadata, ensemble: Sequence[str], entry_id: int) -> None:
        """A read without responses."""
        self.bookies = tuple(ensemble[index] for index in metadata.write_set(entry_id))
        self.entry: LedgerEntry | None = None
        self._absent_after = absent_after(metadata)
        self._answers: dict[str, Result] = {}
        self.absent = self.failed = False

    def answered(self, bookie: str, result: Result, entry: LedgerEntry | None) -> None:
        """Handle a response; a good result without an entry means a wrong digest."""
        if bookie not in self.bookies or bookie in self._answers or self.done:
            return
        self._answers[bookie] = Result.DIGEST_MATCH if result is Result.OK and entry is None else result
        if result is Result.OK and entry is not None:
            self.entry = entry
        elif sum(found in ABSENT for found in self._answers.values()) >= self._absent_after:
            self.absent = True
        elif len(self._answers) == len(self.bookies):
            self.failed = True

    @property
    def done(self) -> bool:
        """Whether further responses change nothing."""
        return self.entry is not None or self.absent or self.failed
