"""The writer of a ledger: entries in order to their write sets, confirmed in order, bookies replaced.

A shell sends what `ready` gives, stores a proposed metadata with compare-and-set, and tells what came of it.
Entries are confirmed strictly in order; none while the ensemble changes. An add that failed may still be
found by a recovery: its outcome is unknown.

A failed bookie is replaced where a better one is known. Without one it stays while entries get their quorum
from the others; upstream ends the writer then, or changes the ensemble again and again.

Source: BookKeeper client/LedgerHandle.java, PendingAddOp.java, EnsembleUtils.java.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from pyledger.errors import InvariantError
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, LedgerState
from pyledger.protocol.bookkeeper.pending_adds import PendingAdd, PendingBatch
from pyledger.protocol.bookkeeper.result_codes import FATAL_TO_WRITERS, Result


@dataclass(frozen=True, slots=True)
class Replacements:
    """Other bookies for those that failed.

    Attributes:
        others: By place, as many as there are.
        retry_ms: When bookies that failed lately may be chosen again; None: there are none.
    """

    others: Mapping[int, str]
    retry_ms: int | None = None


Replace = Callable[[tuple[str, ...], Mapping[int, str], bool], Replacements]
"""Gets the ensemble, failed bookies by place, and whether an entry lacks its quorum without others: else only
bookies that have not failed lately are worth a change."""


@dataclass(frozen=True, slots=True)
class SendBatch:
    """Send consecutive entries, perhaps only one, to some bookies.

    Attributes:
        bookies: Each gets all of them.
        first_entry_id: Of the first.
        last_add_confirmed: Of all.
        length: Bytes of all payloads before the first.
        payloads: Of all.
        recovery: They pass a fence.
    """

    bookies: tuple[str, ...]
    first_entry_id: int
    last_add_confirmed: int
    length: int
    payloads: list[bytes]
    recovery: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """Store `wanted` if the metadata is still `current`; then call `stored`, else `refused`."""

    current: LedgerMetadata
    wanted: LedgerMetadata


@dataclass(frozen=True, slots=True)
class Added:
    """How an add ended; in order of entry ids where it is good.

    It confirms all entries before it, too: of those added together only some are named, and the last.
    """

    entry_id: int
    result: Result


@dataclass(frozen=True, slots=True)
class WriterReady:
    """What a shell has to do, in this order."""

    sends: tuple[SendBatch, ...]
    proposal: Proposal | None
    added: tuple[Added, ...]
    closed: Result | None
    """A requested close has ended."""


class LedgerWriter:
    """The one writer of an open ledger, or of one in recovery.

    Attributes:
        metadata: As last known to be stored; in a recovery with ensembles that are not stored yet.
        last_add_pushed: The highest entry given out; -1 at first.
        last_add_confirmed: All entries up to it have their acknowledgements; -1 at first.
        length: Bytes of the payloads up to `last_add_confirmed`.
        failure: Why nothing can be added any more.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        replace: Replace,
        *,
        recovery: bool = False,
        last_add_confirmed: int = -1,
        length: int = 0,
        add_quorum_timeout_ms: int | None = None,
        ensemble_changes_max: int | None = None,
    ) -> None:
        """A writer of a ledger that was just made, or is being recovered.

        Args:
            metadata: As stored.
            replace: Chooses other bookies; some of the failed places may be missing in what it gives.
            recovery: Adds pass fences, and other ensembles are stored with the close alone.
            last_add_confirmed: What is confirmed already.
            length: Bytes up to there.
            add_quorum_timeout_ms: An entry that waits longer closes the ledger; None: never.
            ensemble_changes_max: More of them close the ledger; None: any number.
        """
        self.metadata = self._stored = metadata
        self.last_add_pushed = self.last_add_confirmed = last_add_confirmed
        self.length = length
        self.failure: Result | None = None
        self._replace = replace
        self._recovery = recovery
        # What a recovery adds again is not told to readers before the close: its copies may stand on bookies
        # that no metadata names yet.
        self._found_confirmed = last_add_confirmed
        self._timeout_ms = add_quorum_timeout_ms
        self._changes_left = ensemble_changes_max
        self._pushed_length = length
        self._pending: deque[PendingAdd] = deque()
        # Entries after those. While there are any, nothing has failed that concerns them.
        self._batches: deque[PendingBatch] = deque()
        # Of those: the entry that each bookie, by index in the ensemble, acknowledges next.
        self._next_acknowledged: list[int] = []
        # What pending entries were sent to; follows the metadata once a change is stored.
        self._ensemble = metadata.segments[-1].ensemble
        # Bookies that failed, by place; those that the proposal replaces.
        self._failed: dict[int, str] = {}
        self._replacing: dict[int, str] = {}
        # An entry lacks its quorum, and bookies that might help rest until then.
        self._retry_ms: int | None = None
        self._proposal: Proposal | None = None
        self._unstored: list[tuple[int, tuple[str, ...]]] = []
        self._closing = False
        self._asked: Proposal | None = None
        self._sends: list[SendBatch] = []
        self._added: list[Added] = []
        self._closed: Result | None = None

    # --- what happens

    def add(self, payloads: list[bytes], now_ms: int, length: int | None = None) -> int:
        """Append entries; the id of the last. `ready` reports how they end.

        Args:
            payloads: At least one.
            now_ms: The time.
            length: Bytes of all payloads up to a single one, where a recovery repeats what its writer stated.
        """
        if self.in_order:
            return self._add_batch(payloads, now_ms)
        for payload in payloads:
            last = self._add_alone(payload, now_ms, length)
        return last

    @property
    def in_order(self) -> bool:
        """Whether new entries are tracked in batches: each bookie gets each entry, and nothing has failed."""
        everywhere = self.metadata.ensemble_size == self.metadata.write_quorum
        wrong = self._failed or self._proposal is not None or self._closing or self.failure is not None
        return everywhere and not wrong and not self._recovery

    def _add_batch(self, payloads: list[bytes], now_ms: int) -> int:
        first, before = self.last_add_pushed + 1, self._pushed_length
        lengths = list(accumulate(map(len, payloads), initial=before))[1:]
        self.last_add_pushed, self._pushed_length = first + len(payloads) - 1, lengths[-1]
        confirmed, ensemble = self.last_add_confirmed, self._ensemble
        at = first % len(ensemble)
        self._sends.append(SendBatch(ensemble[at:] + ensemble[:at], first, confirmed, before, payloads))
        if not self._batches:
            self._next_acknowledged = [first] * len(ensemble)
        self._batches.append(PendingBatch(first, payloads.copy(), lengths, confirmed, now_ms))
        return self.last_add_pushed

    def _add_alone(self, payload: bytes, now_ms: int, length: int | None) -> int:
        entry_id = self.last_add_pushed + 1
        if self.failure is not None or self._closing:
            self._added.append(Added(entry_id, self.failure or Result.LEDGER_CLOSED))
            return entry_id
        self._part_batches()
        self.last_add_pushed = entry_id
        self._pushed_length = self._pushed_length + len(payload) if length is None else length
        write_set = self.metadata.write_set(entry_id)
        confirmed = self._found_confirmed if self._recovery else self.last_add_confirmed
        op = PendingAdd(entry_id, payload, self._pushed_length, confirmed, write_set, now_ms)
        self._pending.append(op)
        self._send(op, tuple(self._ensemble[place] for place in write_set))
        # A bookie that failed after its entry was confirmed without it is replaced now.
        self._change_ensemble()
        return entry_id

    def answered(self, bookie: str, entry_id: int, result: Result, count: int = 1) -> None:
        """A bookie answered adds of consecutive entries, or did not in time."""
        if self.failure is not None or bookie not in self._ensemble:
            return
        place = self._ensemble.index(bookie)
        if result is Result.OK:
            late = self.last_add_confirmed + 1 - entry_id
            if late >= count:
                return
            if late > 0:  # other bookies were faster
                entry_id, count = entry_id + late, count - late
            if self._batches:
                if entry_id == max(self._next_acknowledged[place], self.last_add_confirmed + 1):
                    self._next_acknowledged[place] = entry_id + count
                    self._confirm()
                    return
                self._part_batches()
        else:
            self._part_batches()
        for one in range(entry_id, entry_id + count):
            if self.failure is None:
                self._answered_alone(place, bookie, one, result)

    def _answered_alone(self, place: int, bookie: str, entry_id: int, result: Result) -> None:
        if result in FATAL_TO_WRITERS:
            self._fail(result)
        elif result is not Result.OK:
            self._failed[place] = bookie
            if (op := self._find(entry_id)) is not None:
                op.failed.add(place)
            if any(place in op.write_set for op in self._pending):
                self._change_ensemble()
        elif (op := self._find(entry_id)) is not None and place in op.write_set:
            op.acknowledged.add(place)
            op.failed.discard(place)
            if self._failed and not any(place in one.failed for one in self._pending):
                self._failed.pop(place, None)  # it stayed, and is back
            self._confirm()

    def stored(self, metadata: LedgerMetadata) -> None:
        """The proposal was stored."""
        self._settle()
        self.metadata = self._stored = metadata
        if metadata.closed:
            self._closed = Result.OK
        elif self._closing:
            self._propose_close()
        else:
            self._changed()

    def refused(self, current: LedgerMetadata) -> None:
        """The proposal was not stored: somebody has changed the metadata to `current`."""
        self._settle()
        self.metadata = self._stored = current
        if self._closing:
            self._close_refused()
        elif current.state is not self._expected:
            self._fail(Result.LEDGER_CLOSED if current.closed else Result.LEDGER_FENCED)
        else:
            self._failed = self._replacing | self._failed
            self._changed()

    def close(self) -> None:
        """End the ledger behind the last confirmed entry; entries that are not confirmed fail."""
        if self._closing:
            return
        self._closing = True
        self._drop(Result.LEDGER_CLOSED)
        self._propose_close()

    def fail(self, result: Result) -> None:
        """Nothing can be added any more: the metadata cannot be changed, or the ledger is gone."""
        self._proposal = None
        self._fail(result)
        if self._closing:
            self._closed = result

    def tick(self, now_ms: int) -> None:
        """Time passed."""
        late_ms = self._late_ms()
        if late_ms is not None and now_ms >= late_ms:
            self._fail(Result.ADD_QUORUM_TIMEOUT)
        elif self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            self._change_ensemble()

    def deadline_ms(self) -> int | None:
        """When `tick` is needed."""
        return min((one for one in (self._late_ms(), self._retry_ms) if one is not None), default=None)

    def _late_ms(self) -> int | None:
        """When the first entry has waited too long for its quorum."""
        waiting = self._pending or self._batches
        return waiting[0].asked_ms + self._timeout_ms if self._timeout_ms is not None and waiting else None

    def ready(self) -> WriterReady | None:
        """What to do now, told once; None: nothing."""
        proposal = self._proposal if self._proposal is not self._asked else None
        self._asked = self._proposal
        if not (self._sends or proposal or self._added or self._closed is not None):
            return None
        ready = WriterReady(tuple(self._sends), proposal, tuple(self._added), self._closed)
        self._sends, self._added, self._closed = [], [], None
        return ready

    def describe(self) -> str:
        """One line for tests."""
        self._part_batches()
        pending = " ".join(f"{op.entry_id}:{sorted(op.acknowledged)}" for op in self._pending)
        changing = " changing" if self._proposal is not None and not self._closing else ""
        failure = f" failed:{self.failure.name}" if self.failure is not None else ""
        return (
            f"lap={self.last_add_pushed} lac={self.last_add_confirmed} pending=[{pending}]{changing}{failure}"
        )

    # --- adding

    def _send(self, op: PendingAdd, bookies: tuple[str, ...]) -> None:
        before = op.length - len(op.payload)
        self._sends.append(
            SendBatch(bookies, op.entry_id, op.last_add_confirmed, before, [op.payload], self._recovery)
        )

    def _find(self, entry_id: int) -> PendingAdd | None:
        if not self._pending:
            return None
        at = entry_id - self._pending[0].entry_id
        return self._pending[at] if 0 <= at < len(self._pending) else None

    def _confirm(self) -> None:
        while self._pending and self._proposal is None:
            op = self._pending[0]
            if len(op.acknowledged) < self.metadata.ack_quorum:
                break
            self._pending.popleft()
            self.last_add_confirmed, self.length = op.entry_id, op.length
            self._added.append(Added(op.entry_id, Result.OK))
        if not self._batches or self._pending or self._proposal is not None:
            return
        quorum_end = sorted(self._next_acknowledged)[-self.metadata.ack_quorum]
        while self._batches:
            batch = self._batches[0]
            count = min(quorum_end - batch.first_entry_id, len(batch.payloads))
            if count <= 0:
                break
            self.last_add_confirmed, self.length = batch.first_entry_id + count - 1, batch.lengths[count - 1]
            self._added.append(Added(self.last_add_confirmed, Result.OK))
            if count < len(batch.payloads):
                batch.confirm(count)
                break
            # A bookie that has not answered yet is not waited for, as with single entries.
            self._batches.popleft()

    def _part_batches(self) -> None:
        """Track each entry on its own from now on."""
        for batch in self._batches:
            self._pending += batch.entries(self._next_acknowledged)
        self._batches.clear()

    # --- other bookies

    def _change_ensemble(self) -> None:
        """Replace failed bookies, unless that is under way: then it goes on when that is done.

        Without another bookie those that failed stay, while no entry lacks its quorum for it.
        """
        if not self._failed or self._proposal is not None or self.failure is not None or self._closing:
            return
        self._part_batches()
        if self._changes_left == 0:
            self._fail(Result.WRITE)
            return
        needed = any(self._lacks_quorum(op) for op in self._pending)
        found = self._replace(self._ensemble, dict(self._failed), needed)
        others, self._retry_ms = found.others, None
        if not others:
            if needed and found.retry_ms is None:
                self._fail(Result.NOT_ENOUGH_BOOKIES)
            elif needed:
                self._retry_ms = found.retry_ms
            return
        if self._changes_left is not None:
            self._changes_left -= 1
        self._replacing = {place: bookie for place, bookie in self._failed.items() if place in others}
        # What cannot be replaced is looked at again once the others are.
        self._failed = {place: bookie for place, bookie in self._failed.items() if place not in others}
        ensemble = tuple(others.get(place, bookie) for place, bookie in enumerate(self._ensemble))
        first = self.last_add_confirmed + 1
        wanted = self.metadata.with_ensemble(first, ensemble)
        if self._recovery:
            # Stored with the close: nobody must look for entries there before all of them are.
            self._unstored.append((first, ensemble))
            self.metadata = wanted
            self._changed()
        else:
            self._proposal = Proposal(self._stored, wanted)

    def _lacks_quorum(self, op: PendingAdd) -> bool:
        """Whether too few bookies are left that may still take an entry."""
        return len(op.write_set) - len(op.failed) < self.metadata.ack_quorum

    def _settle(self) -> None:
        if self._proposal is None:
            raise InvariantError("an answer to metadata that was not proposed")
        self._proposal = None

    def _changed(self) -> None:
        """The metadata's last ensemble holds from now on: send what its new bookies lack, then go on."""
        new = self.metadata.segments[-1].ensemble
        moved = [place for place, bookie in enumerate(self._ensemble) if new[place] != bookie]
        self._ensemble = new
        self._failed = {place: bookie for place, bookie in self._failed.items() if new[place] == bookie}
        for op in self._pending:
            for place in moved:
                if place in op.write_set:
                    op.acknowledged.discard(place)
                    op.failed.discard(place)
                    self._send(op, (new[place],))
        if any(place in op.write_set for op in self._pending for place in self._failed):
            self._change_ensemble()
        self._confirm()

    # --- the end

    def _drop(self, result: Result) -> None:
        self._part_batches()
        self._added += [Added(op.entry_id, result) for op in self._pending]
        self._pending.clear()
        self._pushed_length = self.length
        self._retry_ms = None

    def _fail(self, result: Result) -> None:
        self.failure = result
        self._drop(result)

    def _propose_close(self) -> None:
        if self._proposal is not None and self._proposal is self._asked:
            return  # a change is being stored: the close follows it
        wanted = self.metadata.closing(self.last_add_confirmed, self.length)
        self._proposal = Proposal(self._stored, wanted)

    def _close_refused(self) -> None:
        current = self.metadata
        if current.closed:
            same = (current.last_entry_id, current.length) == (self.last_add_confirmed, self.length)
            # Two recoveries may end differently only in what nobody was told; the first one counts.
            self._closed = Result.OK if same or self._recovery else Result.METADATA_VERSION
        elif current.state is self._expected:
            for first_entry_id, ensemble in self._unstored:
                self.metadata = self.metadata.with_ensemble(first_entry_id, ensemble)
            self._propose_close()
        else:
            self._closed = Result.METADATA_VERSION

    @property
    def _expected(self) -> LedgerState:
        return LedgerState.IN_RECOVERY if self._recovery else LedgerState.OPEN
