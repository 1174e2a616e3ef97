"""The writer of a ledger: sends entries to their write sets, confirms them in order, replaces bookies.

The caller sends what `ready` returns, stores proposed metadata with compare-and-set, and reports the results.
Entries are confirmed strictly in order, and none while the ensemble changes. The outcome of a failed add is
unknown: a recovery may still find its entry.

A failed bookie is replaced if another one is available. Otherwise it stays while entries get their quorum
from the other bookies; upstream ends the writer then, or changes the ensemble again and again.

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
    """Replacements of failed bookies.

    Attributes:
        others: By index in the ensemble, as many as are available.
        retry_ms: When bookies that failed recently may be chosen again; None: there are none.
    """

    others: Mapping[int, str]
    retry_ms: int | None = None


Replace = Callable[[tuple[str, ...], Mapping[int, str], bool], Replacements]
"""Gets the ensemble, the failed bookies by index, and whether an entry has no quorum without a replacement.
If not, only bookies that have not failed recently are chosen."""


@dataclass(frozen=True, slots=True)
class SendBatch:
    """Send one entry, or consecutive ones, to bookies.

    Attributes:
        bookies: Each gets all entries.
        first_entry_id: Id of the first one.
        last_add_confirmed: The LAC in each entry.
        length: Bytes of all payloads of the ledger before the first one.
        payloads: One for each entry.
        recovery: A fence does not reject them.
    """

    bookies: tuple[str, ...]
    first_entry_id: int
    last_add_confirmed: int
    length: int
    payloads: list[bytes]
    recovery: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """Store `wanted` if the metadata is still `current`; then call `stored`, else `rejected`."""

    current: LedgerMetadata
    wanted: LedgerMetadata


@dataclass(frozen=True, slots=True)
class Added:
    """The result of an add; good results come in the order of entry ids.

    A good result also confirms all entries before it: of entries added together not each is named.
    """

    entry_id: int
    result: Result


@dataclass(frozen=True, slots=True)
class WriterReady:
    """What the caller has to do, in this order."""

    sends: tuple[SendBatch, ...]
    proposal: Proposal | None
    added: tuple[Added, ...]
    closed: Result | None
    """A requested close has ended."""


class LedgerWriter:
    """The one writer of an open ledger, or of one in recovery.

    Attributes:
        metadata: The latest stored metadata that is known; in a recovery with ensembles not stored yet.
        last_add_pushed: The highest entry that was added; -1 at first.
        last_add_confirmed: The highest entry up to which all have their ack quorum; -1 at first.
        length: Bytes of the payloads up to `last_add_confirmed`.
        failure: Why the writer accepts no more entries; None: it does.
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
        """A writer of a new ledger, or of one in recovery.

        Args:
            metadata: As stored.
            replace: Chooses replacements, perhaps not for all failed bookies.
            recovery: Fences do not reject adds, and changed ensembles are stored only with the close.
            last_add_confirmed: The entry up to which all are confirmed.
            length: Bytes up to there.
            add_quorum_timeout_ms: An entry that waits longer for its quorum ends the writer; None: none does.
            ensemble_changes_max: Ensemble changes after which the next one ends the writer; None: no limit.
        """
        self.metadata = self._stored = metadata
        self.last_add_pushed = self.last_add_confirmed = last_add_confirmed
        self.length = length
        self.failure: Result | None = None
        self._replace = replace
        self._recovery = recovery
        # The LAC in entries that a recovery adds again stays as it was found: until the close their replicas
        # may be on bookies that no metadata names.
        self._found_confirmed = last_add_confirmed
        self._timeout_ms = add_quorum_timeout_ms
        self._changes_left = ensemble_changes_max
        self._pushed_length = length
        self._pending: deque[PendingAdd] = deque()
        # Entries after those. While there are any, no failure concerns them.
        self._batches: deque[PendingBatch] = deque()
        # Of each bookie of the ensemble: the entry in `_batches` that it acknowledges next.
        self._next_acknowledged: list[int] = []
        # The bookies that pending entries were sent to; changes once a new ensemble is stored.
        self._ensemble = metadata.segments[-1].ensemble
        # Failed bookies, by index in the ensemble; those of them that the proposal replaces.
        self._failed: dict[int, str] = {}
        self._replacing: dict[int, str] = {}
        # Until then an entry has no quorum, since possible replacements are in quarantine.
        self._retry_ms: int | None = None
        self._proposal: Proposal | None = None
        self._unstored: list[tuple[int, tuple[str, ...]]] = []
        self._closing = False
        self._storing: Proposal | None = None
        self._sends: list[SendBatch] = []
        self._added: list[Added] = []
        self._closed: Result | None = None

    # --- events

    def add(self, payloads: list[bytes], now_ms: int, length: int | None = None) -> int:
        """Append entries; return the id of the last one. `ready` returns their results.

        Args:
            payloads: At least one.
            now_ms: The time.
            length: In a recovery, of a single payload: the bytes of all payloads up to it.
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
        self._split_batches()
        self.last_add_pushed = entry_id
        self._pushed_length = self._pushed_length + len(payload) if length is None else length
        write_set = self.metadata.write_set(entry_id)
        confirmed = self._found_confirmed if self._recovery else self.last_add_confirmed
        op = PendingAdd(entry_id, payload, self._pushed_length, confirmed, write_set, now_ms)
        self._pending.append(op)
        self._send(op, tuple(self._ensemble[index] for index in write_set))
        # Replaces a bookie that failed after its entries were confirmed by other bookies.
        self._change_ensemble()
        return entry_id

    def answered(self, bookie: str, entry_id: int, result: Result, count: int = 1) -> None:
        """Handle the response to adds of consecutive entries, or its timeout."""
        if self.failure is not None or bookie not in self._ensemble:
            return
        index = self._ensemble.index(bookie)
        if result is Result.OK:
            late = self.last_add_confirmed + 1 - entry_id
            if late >= count:
                return
            if late > 0:  # other bookies were faster
                entry_id, count = entry_id + late, count - late
            if self._batches:
                if entry_id == max(self._next_acknowledged[index], self.last_add_confirmed + 1):
                    self._next_acknowledged[index] = entry_id + count
                    self._confirm()
                    return
                self._split_batches()
        else:
            self._split_batches()
        for one in range(entry_id, entry_id + count):
            if self.failure is None:
                self._answered_alone(index, bookie, one, result)

    def _answered_alone(self, index: int, bookie: str, entry_id: int, result: Result) -> None:
        if result in FATAL_TO_WRITERS:
            self._fail(result)
        elif result is not Result.OK:
            self._failed[index] = bookie
            if (op := self._find(entry_id)) is not None:
                op.failed.add(index)
            if any(index in op.write_set for op in self._pending):
                self._change_ensemble()
        elif (op := self._find(entry_id)) is not None and index in op.write_set:
            op.acknowledged.add(index)
            op.failed.discard(index)
            if self._failed and not any(index in one.failed for one in self._pending):
                self._failed.pop(index, None)  # it was not replaced, and works again
            self._confirm()

    def stored(self, metadata: LedgerMetadata) -> None:
        """Handle that the proposal was stored."""
        self._settle()
        self.metadata = self._stored = metadata
        if metadata.closed:
            self._closed = Result.OK
        elif self._closing:
            self._propose_close()
        else:
            self._changed()

    def rejected(self, current: LedgerMetadata) -> None:
        """Handle that the proposal was not stored: another client has changed the metadata to `current`."""
        self._settle()
        self.metadata = self._stored = current
        if self._closing:
            self._close_rejected()
        elif current.state is not self._expected:
            self._fail(Result.LEDGER_CLOSED if current.closed else Result.LEDGER_FENCED)
        else:
            self._failed = self._replacing | self._failed
            self._changed()

    def close(self) -> None:
        """End the ledger after the last confirmed entry; all other entries fail."""
        if self._closing:
            return
        self._closing = True
        self._drop(Result.LEDGER_CLOSED)
        self._propose_close()

    def fail(self, result: Result) -> None:
        """End the writer: the metadata cannot be changed, or the ledger is gone."""
        self._proposal = None
        self._fail(result)
        if self._closing:
            self._closed = result

    def tick(self, now_ms: int) -> None:
        """Handle the passing of time."""
        late_ms = self._late_ms()
        if late_ms is not None and now_ms >= late_ms:
            self._fail(Result.ADD_QUORUM_TIMEOUT)
        elif self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            self._change_ensemble()

    def deadline_ms(self) -> int | None:
        """Return when to call `tick`; None: never."""
        return min((one for one in (self._late_ms(), self._retry_ms) if one is not None), default=None)

    def _late_ms(self) -> int | None:
        """Return when the first entry has waited too long for its quorum."""
        waiting = self._pending or self._batches
        return waiting[0].added_ms + self._timeout_ms if self._timeout_ms is not None and waiting else None

    def ready(self) -> WriterReady | None:
        """Return what to do now, each step once; None: nothing."""
        proposal = self._proposal if self._proposal is not self._storing else None
        self._storing = self._proposal
        if not (self._sends or proposal or self._added or self._closed is not None):
            return None
        ready = WriterReady(tuple(self._sends), proposal, tuple(self._added), self._closed)
        self._sends, self._added, self._closed = [], [], None
        return ready

    def describe(self) -> str:
        """Return one line for tests."""
        self._split_batches()
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
            # As with single entries, the others need not answer.
            self._batches.popleft()

    def _split_batches(self) -> None:
        """Track each entry on its own from now on."""
        for batch in self._batches:
            self._pending += batch.entries(self._next_acknowledged)
        self._batches.clear()

    # --- other bookies

    def _change_ensemble(self) -> None:
        """Replace failed bookies; if a change is in progress, this happens after it.

        Without replacements failed bookies stay as long as every entry can get its quorum.
        """
        if not self._failed or self._proposal is not None or self.failure is not None or self._closing:
            return
        self._split_batches()
        if self._changes_left == 0:
            self._fail(Result.WRITE)
            return
        needed = not all(self._can_get_quorum(op) for op in self._pending)
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
        self._replacing = {index: bookie for index, bookie in self._failed.items() if index in others}
        # The others are tried again after this change.
        self._failed = {index: bookie for index, bookie in self._failed.items() if index not in others}
        ensemble = tuple(others.get(index, bookie) for index, bookie in enumerate(self._ensemble))
        first = self.last_add_confirmed + 1
        wanted = self.metadata.with_ensemble(first, ensemble)
        if self._recovery:
            # Stored with the close: no client may expect entries there before all of them are stored.
            self._unstored.append((first, ensemble))
            self.metadata = wanted
            self._changed()
        else:
            self._proposal = Proposal(self._stored, wanted)

    def _can_get_quorum(self, op: PendingAdd) -> bool:
        """Whether enough bookies of the write set have not failed."""
        return len(op.write_set) - len(op.failed) >= self.metadata.ack_quorum

    def _settle(self) -> None:
        if self._proposal is None:
            raise InvariantError("a result of metadata that was not proposed")
        self._proposal = None

    def _changed(self) -> None:
        """Use the last ensemble of the metadata from now on: send its new bookies their pending entries."""
        new = self.metadata.segments[-1].ensemble
        moved = [index for index, bookie in enumerate(self._ensemble) if new[index] != bookie]
        self._ensemble = new
        self._failed = {index: bookie for index, bookie in self._failed.items() if new[index] == bookie}
        for op in self._pending:
            for index in moved:
                if index in op.write_set:
                    op.acknowledged.discard(index)
                    op.failed.discard(index)
                    self._send(op, (new[index],))
        if any(index in op.write_set for op in self._pending for index in self._failed):
            self._change_ensemble()
        self._confirm()

    # --- the end

    def _drop(self, result: Result) -> None:
        self._split_batches()
        self._added += [Added(op.entry_id, result) for op in self._pending]
        self._pending.clear()
        self._pushed_length = self.length
        self._retry_ms = None

    def _fail(self, result: Result) -> None:
        self.failure = result
        self._drop(result)

    def _propose_close(self) -> None:
        if self._proposal is not None and self._proposal is self._storing:
            return  # a change is being stored: the close follows it
        wanted = self.metadata.closing(self.last_add_confirmed, self.length)
        self._proposal = Proposal(self._stored, wanted)

    def _close_rejected(self) -> None:
        current = self.metadata
        if current.closed:
            same = (current.last_entry_id, current.length) == (self.last_add_confirmed, self.length)
            # Two recoveries differ only in entries that no client knows as confirmed; the first one counts.
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
