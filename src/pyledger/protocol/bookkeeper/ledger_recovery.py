"""Recovery of a ledger whose writer is gone: fence, find the end, copy what may have been confirmed, close.

The order of steps: mark the metadata, so that only a recovery may change it; fence enough bookies that the
writer can confirm nothing more; add again every entry that it can have confirmed; store the end.

Source: BookKeeper client/ReadOnlyLedgerHandle.java, LedgerRecoveryOp.java, ReadLastConfirmedOp.java.
"""

from dataclasses import dataclass

from pyledger.errors import InvariantError
from pyledger.protocol.bookkeeper.entry import LedgerEntry
from pyledger.protocol.bookkeeper.entry_reader import EntryProbe, SendRead
from pyledger.protocol.bookkeeper.ledger_writer import LedgerWriter, Proposal, Replace, SendBatch
from pyledger.protocol.bookkeeper.messages import INVALID_ENTRY_ID
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.protocol.bookkeeper.quorum import Coverage
from pyledger.protocol.bookkeeper.result_codes import Result


@dataclass(frozen=True, slots=True)
class RecoveryReady:
    """What the caller has to do. `done` is returned once, after everything else."""

    reads: tuple[SendRead, ...]
    adds: tuple[SendBatch, ...]
    proposal: Proposal | None
    done: Result | None


class LedgerRecovery:
    """Closes a ledger.

    Attributes:
        metadata: The latest stored metadata that is known; closed once `done` is good.
    """

    def __init__(self, metadata: LedgerMetadata, replace: Replace, *, read_ahead: int = 1) -> None:
        """A recovery from the stored metadata.

        Args:
            metadata: Of a ledger in any state.
            replace: Chooses other bookies for entries that are added again.
            read_ahead: Number of entries after the last confirmed one that are read at once.
        """
        self.metadata = metadata
        self._replace, self._read_ahead = replace, read_ahead
        self._reads: list[SendRead] = []
        self._adds: list[SendBatch] = []
        self._proposal: Proposal | None = None
        self._done: Result | None = None
        self._over = False
        self._coverage = Coverage(metadata)
        self._silent: set[str] = set()
        self._fencing = False
        self._last: LedgerEntry | None = None
        self._confirmed_read: EntryProbe | None = None
        self._writer: LedgerWriter | None = None
        # As of the fence: entries are read where the writer put them, whatever is replaced meanwhile.
        self._ensemble: tuple[str, ...] = ()
        self._probes: dict[int, EntryProbe] = {}
        self._next_probe = 0
        self._next_add = 0
        self._end_known = False
        self._begin()

    # --- events

    def stored(self, metadata: LedgerMetadata) -> None:
        """Handle that the proposal was stored."""
        self.metadata = metadata
        if self._writer is None:
            self._proposal = None
            self._fence()
        else:
            self._writer.stored(metadata)
            self._follow_writer()

    def rejected(self, current: LedgerMetadata) -> None:
        """Handle that the proposal was not stored: another client has changed the metadata to `current`."""
        self.metadata = current
        if self._writer is None:
            self._proposal = None
            self._begin()
        else:
            self._writer.rejected(current)
            self._follow_writer()

    def read_answered(
        self, bookie: str, entry_id: int, result: Result, entry: LedgerEntry | None, now_ms: int
    ) -> None:
        """Handle the response to a read, or its timeout; an entry whose digest is wrong is None.

        Args:
            bookie: The bookie.
            entry_id: As in the request.
            result: The result.
            entry: The entry in the response.
            now_ms: The time.
        """
        if self._over:
            return
        if result is Result.UNAUTHORIZED:
            self._end(result)
        elif entry_id == INVALID_ENTRY_ID:
            self._fenced(bookie, result, entry)
        elif self._confirmed_read is not None and entry_id == self._confirmed:
            self._confirmed_read.answered(bookie, result, entry)
            self._begin_scan()
        elif (probe := self._probes.get(entry_id)) is not None:
            probe.answered(bookie, result, entry)
            self._scan(now_ms)

    def tick(self, now_ms: int) -> None:
        """Handle the passing of time."""
        if self._writer is not None:
            self._writer.tick(now_ms)
            self._follow_writer()

    def deadline_ms(self) -> int | None:
        """Return when to call `tick`; None: never."""
        return None if self._writer is None or self._over else self._writer.deadline_ms()

    def add_answered(self, bookie: str, entry_id: int, result: Result) -> None:
        """Handle the response to an add, or its timeout."""
        if self._writer is not None and not self._over:
            self._writer.answered(bookie, entry_id, result)
            self._follow_writer()

    def ready(self) -> RecoveryReady | None:
        """Return what to do now, each step once; None: nothing."""
        proposal, self._proposal = self._proposal, None
        done, self._done = self._done, None
        if not (self._reads or self._adds or proposal or done is not None):
            return None
        ready = RecoveryReady(tuple(self._reads), tuple(self._adds), proposal, done)
        self._reads, self._adds = [], []
        return ready

    # --- lock other writers out

    def _begin(self) -> None:
        if self.metadata.closed:
            self._end(Result.OK)
            return
        recovering = self.metadata.recovering()
        if recovering.state is self.metadata.state:
            self._fence()
        else:
            self._proposal = Proposal(self.metadata, recovering)

    def _fence(self) -> None:
        self._fencing = True
        self._ensemble = self.metadata.segments[-1].ensemble
        self._coverage, self._silent = Coverage(self.metadata), set(self._ensemble)
        self._reads += [SendRead(bookie, INVALID_ENTRY_ID, fence=True) for bookie in self._ensemble]

    def _fenced(self, bookie: str, result: Result, entry: LedgerEntry | None) -> None:
        if not self._fencing or bookie not in self._silent:
            return
        self._silent.discard(bookie)
        # A damaged last entry does not count. Upstream counts it, which may hide confirmed entries.
        damaged = result is Result.OK and entry is None
        self._coverage.answered(self._ensemble.index(bookie), Result.DIGEST_MATCH if damaged else result)
        if entry is not None and (self._last is None or _known(entry) > _known(self._last)):
            self._last = entry
        if self._coverage.covered:
            self._fencing = False
            self._read_confirmed()
        elif not self._silent:
            self._end(Result.LEDGER_RECOVERY)

    # --- from the last confirmed entry on

    @property
    def _confirmed(self) -> int:
        """The last entry that is known to be confirmed."""
        floor = self.metadata.segments[-1].first_entry_id - 1
        return floor if self._last is None else max(self._last.last_add_confirmed, floor)

    def _read_confirmed(self) -> None:
        """Read its length: the ledger's if no entry follows. Upstream then closes with a wrong length."""
        confirmed = self._confirmed
        if confirmed == INVALID_ENTRY_ID:
            self._confirmed_read = None
            self._open_writer(0)
            return
        ensemble = self.metadata.segment_of(confirmed).ensemble
        probe = self._confirmed_read = EntryProbe(self.metadata, ensemble, confirmed)
        self._reads += [SendRead(bookie, confirmed) for bookie in probe.bookies]

    def _begin_scan(self) -> None:
        probe = self._confirmed_read
        if probe is None or not probe.done:
            return
        self._confirmed_read = None
        if probe.entry is not None:
            self._open_writer(probe.entry.length)
        elif probe.absent:
            # No bookie has the confirmed entry: the length of a later entry is all that is known.
            self._open_writer(0 if self._last is None else self._last.length)
        else:
            self._end(Result.LEDGER_RECOVERY)

    def _open_writer(self, length: int) -> None:
        confirmed = self._confirmed
        self._next_add = self._next_probe = confirmed + 1
        self._writer = LedgerWriter(
            self.metadata, self._replace, recovery=True, last_add_confirmed=confirmed, length=length
        )
        self._read_on()

    def _read_on(self) -> None:
        while not self._end_known and self._next_probe < self._next_add + self._read_ahead:
            probe = self._probes[self._next_probe] = EntryProbe(
                self.metadata, self._ensemble, self._next_probe
            )
            self._reads += [SendRead(bookie, self._next_probe, fence=True) for bookie in probe.bookies]
            self._next_probe += 1

    def _scan(self, now_ms: int) -> None:
        """Add the entries that were found, in order, up to the first one that cannot have been confirmed."""
        if self._writer is None:
            raise InvariantError("entries are read before the last confirmed one is known")
        while not self._end_known and (probe := self._probes.get(self._next_add)) is not None and probe.done:
            if probe.failed:
                self._end(Result.LEDGER_RECOVERY)
                return
            if probe.entry is None:
                self._end_known = True
                self._probes.clear()
                break
            del self._probes[self._next_add]
            self._next_add += 1
            self._writer.add([probe.entry.payload], now_ms, length=probe.entry.length)
        self._read_on()
        self._follow_writer()

    # --- the end

    def _follow_writer(self) -> None:
        writer = self._writer
        if writer is None or self._over:
            return
        self._drain(writer)
        if self._end_known and writer.failure is None and writer.last_add_confirmed == self._next_add - 1:
            writer.close()
            self._drain(writer)

    def _drain(self, writer: LedgerWriter) -> None:
        while (ready := writer.ready()) is not None:
            self._adds += ready.sends
            self._proposal = ready.proposal or self._proposal
            if ready.closed is not None:
                self.metadata = writer.metadata
                self._end(ready.closed)
        if writer.failure is not None and not self._over:
            self._end(writer.failure)

    def _end(self, result: Result) -> None:
        self._over, self._done = True, result
        self._probes.clear()


def _known(entry: LedgerEntry) -> tuple[int, int]:
    return entry.last_add_confirmed, entry.entry_id
