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
class SendAdd:
    """Send one entry to one bookie."""

    bookie: str
    entry_id: int
    last_add_confirmed: int
    length: int
    payload: bytes
    recovery: bool


@dataclass(frozen=True, slots=True)
class SendBatch:
    """Send entries that follow one another to some bookies.

    Attributes:
        bookies: Each gets all of them.
        first_entry_id: Of the first.
        last_add_confirmed: Of all.
        length: Bytes of all payloads before the first.
        payloads: Of all.
    """

    bookies: tuple[str, ...]
    first_entry_id: int
    last_add_confirmed: int
    length: int
    payloads: list[bytes]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Store `wanted` if the metadata is still `current`; then call `stored`, else `refused`."""

    current: LedgerMetadata
    wanted: LedgerMetadata


@dataclass(frozen=True, slots=True)
class Added:
    """How an add ended; in order of entry ids where it is good."""

    entry_id: int
    result: Result


@dataclass(frozen=True, slots=True)
class WriterReady:
    """What a shell has to do, in this order."""

    sends: tuple[SendAdd, ...]
    proposal: Proposal | None
    added: tuple[Added, ...]
    closed: Result | None
    """A close that was asked for has ended."""
    runs: tuple[SendBatch, ...] = ()


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
        # Entries behind those. While there are any, nothing has failed that they would have to be told of.
        self._runs: deque[PendingBatch] = deque()
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
        self._sends: list[SendAdd] = []
        self._send_runs: list[SendBatch] = []
        self._added: list[Added] = []
        self._closed: Result | None = None

    # --- what happens

    def add(self, payload: bytes, now_ms: int, length: int | None = None) -> int:
        """Take an entry; its id. How it ends is told by `ready`.

        Args:
            payload: Its bytes.
            now_ms: The time.
            length: Bytes of all payloads up to it, where a recovery repeats what its writer said.
        """
        entry_id = self.last_add_pushed + 1
        if self.failure is not None or self._closing:
            self._added.append(Added(entry_id, self.failure or Result.LEDGER_CLOSED))
            return entry_id
        self._part_runs()
        self.last_add_pushed = entry_id
        self._pushed_length = self._pushed_length + len(payload) if length is None else length
        write_set = self.metadata.write_set(entry_id)
        confirmed = self._found_confirmed if self._recovery else self.last_add_confirmed
        op = PendingAdd(entry_id, payload, self._pushed_length, confirmed, write_set, now_ms)
        self._pending.append(op)
        for place in write_set:
            self._send(op, place)
        # A bookie that failed after its entry was confirmed without it is replaced now.
        self._change_ensemble()
        return entry_id

    @property
    def takes_runs(self) -> bool:
        """Whether `add_run` may be called: every bookie gets every entry, and nothing has gone wrong."""
        everywhere = self.metadata.ensemble_size == self.metadata.write_quorum
        wrong = self._failed or self._proposal is not None or self._closing or self.failure is not None
        return everywhere and not wrong and not self._recovery

    def add_run(self, payloads: list[bytes], now_ms: int) -> int:
        """Take many entries; the id of the last. `ready` tells of some of them only, the last included.

        Args:
            payloads: At least one; the list is the machine's from now on.
            now_ms: The time.
        """
        if not self.takes_runs:
            raise InvariantError("a run of adds where entries have to go one by one")
        first, before = self.last_add_pushed + 1, self._pushed_length
        lengths = list(accumulate(map(len, payloads), initial=before))[1:]
        self.last_add_pushed, self._pushed_length = first + len(payloads) - 1, lengths[-1]
        confirmed = self.last_add_confirmed
        self._send_runs.append(SendBatch(self._ensemble, first, confirmed, before, payloads.copy()))
        nobody = [0] * len(self._ensemble)
        self._runs.append(PendingBatch(first, payloads, lengths, confirmed, now_ms, nobody))
        return self.last_add_pushed

    def answered_run(self, bookie: str, entry_id: int, count: int) -> None:
        """A bookie has stored entries that follow one another."""
        late = min(count, self.last_add_confirmed + 1 - entry_id)
        if late > 0:  # the others were quicker
            entry_id, count = entry_id + late, count - late
        if self._runs and bookie in self._ensemble:
            place = self._ensemble.index(bookie)
            for run in self._runs:
                at = run.acknowledged[place]
                if entry_id == run.first_entry_id + at:
                    taken = min(count, len(run.payloads) - at)
                    run.acknowledged[place] += taken
                    entry_id, count = entry_id + taken, count - taken
                if not count:
                    self._confirm()
                    return
        # They are none of a run any more, or out of order.
        for one in range(entry_id, entry_id + count):
            self.answered(bookie, one, Result.OK)

    def answered(self, bookie: str, entry_id: int, result: Result) -> None:
        """A bookie answered an add, or did not in time."""
        if self.failure is not None or bookie not in self._ensemble:
            return
        if result is Result.OK and entry_id <= self.last_add_confirmed:
            return
        self._part_runs()
        place = self._ensemble.index(bookie)
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
        waiting = self._pending or self._runs
        return waiting[0].asked_ms + self._timeout_ms if self._timeout_ms is not None and waiting else None

    def ready(self) -> WriterReady | None:
        """What to do now, told once; None: nothing."""
        proposal = self._proposal if self._proposal is not self._asked else None
        self._asked = self._proposal
        if not (self._sends or self._send_runs or proposal or self._added or self._closed is not None):
            return None
        sends, runs, added = tuple(self._sends), tuple(self._send_runs), tuple(self._added)
        ready = WriterReady(sends, proposal, added, self._closed, runs)
        self._sends, self._send_runs, self._added, self._closed = [], [], [], None
        return ready

    def describe(self) -> str:
        """One line for tests."""
        self._part_runs()
        pending = " ".join(f"{op.entry_id}:{sorted(op.acknowledged)}" for op in self._pending)
        changing = " changing" if self._proposal is not None and not self._closing else ""
        failure = f" failed:{self.failure.name}" if self.failure is not None else ""
        return (
            f"lap={self.last_add_pushed} lac={self.last_add_confirmed} pending=[{pending}]{changing}{failure}"
        )

    # --- adding

    def _send(self, op: PendingAdd, place: int) -> None:
        bookie = self._ensemble[place]
        self._sends.append(
            SendAdd(bookie, op.entry_id, op.last_add_confirmed, op.length, op.payload, self._recovery)
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
        while self._runs and not self._pending and self._proposal is None:
            run = self._runs[0]
            count = sorted(run.acknowledged)[-self.metadata.ack_quorum]
            if not count:
                break
            self.last_add_confirmed, self.length = run.first_entry_id + count - 1, run.lengths[count - 1]
            self._added.append(Added(self.last_add_confirmed, Result.OK))
            if count < len(run.payloads):
                run.confirm(count)
                break
            # Who has not answered yet is not waited for, as with single entries.
            self._runs.popleft()

    def _part_runs(self) -> None:
        """From now on each entry goes its own way."""
        for run in self._runs:
            self._pending += run.entries()
        self._runs.clear()

    # --- other bookies

    def _change_ensemble(self) -> None:
        """Replace failed bookies, unless that is under way: then it goes on when that is done.

        Without another bookie those that failed stay, while no entry lacks its quorum for it.
        """
        if not self._failed or self._proposal is not None or self.failure is not None or self._closing:
            return
        self._part_runs()
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
                    self._send(op, place)
        if any(place in op.write_set for op in self._pending for place in self._failed):
            self._change_ensemble()
        self._confirm()

    # --- the end

    def _drop(self, result: Result) -> None:
        self._part_runs()
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
