"""Autorecovery's worker at one marked ledger of a simulated cluster, until it dies.

What happens one after the other is told by generators: they yield what is to be begun, and go on with what
became of it.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.entry import LedgerEntry
from pyledger.protocol.bookkeeper.entry_reader import EntryRead, SendRead
from pyledger.protocol.bookkeeper.fragments import LedgerCheck, MissingReplicas
from pyledger.protocol.bookkeeper.ledger_writer import SendBatch
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.protocol.bookkeeper.re_replication import Repair, Step, left_to_writer, next_step, repair_of
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.simulator.bookkeeper.client_process import DIGEST, LedgerProcess, ReaderProcess
from pyledger.simulator.bookkeeper.cluster import Cluster
from pyledger.wire.bookkeeper.response_entries import added_result, read_result

ROUNDS_MAX = 16
"""Looks at one ledger, with copies made between them."""
READS_AT_ONCE = 64
Told = Callable[[Any], None]
Flow = Generator[Callable[[Told], None], Any, Any]
Copy = tuple[int, tuple[str, ...], LedgerEntry]
"""An entry with the bookies that get it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What an examination found."""

    metadata: LedgerMetadata
    last_add_confirmed: int
    missing_replicas: tuple[MissingReplicas, ...]
    there: frozenset[str]


def follow(flow: Flow, ended: Told) -> None:
    """Begin one step after the other; `ended` gets what the generator returns."""

    def go_on(told: Any = None) -> None:
        try:
            begin = flow.send(told)
        except StopIteration as end:
            ended(end.value)
        else:
            begin(go_on)

    go_on()


class RepairProcess(LedgerProcess):
    """Gives one ledger the copies that it lacks."""

    def __init__(self, cluster: Cluster, name: str, ledger_id: int) -> None:
        """A process that does nothing by itself."""
        super().__init__(cluster, name, ledger_id)
        self.closing: ReaderProcess | None = None
        self.ahead = self.world.random.choice((1, 4, 16))
        cluster.fault(self)

    def die(self) -> None:
        """Do nothing more."""
        self.alive = False
        if self.closing is not None:
            self.closing.alive = False

    def care(self, grace_ms: int, *, every_entry: bool = False) -> Flow:
        """Bring the ledger on as far as it goes; whether nothing is missing any more.

        Args:
            grace_ms: How long the writer of an open ledger may help itself.
            every_entry: Look at all of them, not at the ends of each bookie's part alone.
        """
        waited_for: frozenset[str] = frozenset()
        for _ in range(ROUNDS_MAX):
            found = yield from self.examine(every_entry=every_entry)
            if found is None:
                return False
            seen = found.metadata, found.last_add_confirmed, found.missing_replicas, found.there
            step = next_step(*seen, waited_for)
            if step is Step.DONE:
                return True
            if step is Step.COPY:
                if not (yield from self.mend_all(found)):
                    return False
            elif step is Step.CLOSE:
                if (yield self.close) is not Result.OK:
                    return False
            else:
                waited_for = left_to_writer(*seen)
                yield partial(self.wait, grace_ms)
        return False

    def wait(self, time_ms: int, told: Told) -> None:
        """Do nothing for a while."""
        self.after(time_ms, partial(told, None))

    # --- what is missing

    def examine(self, *, every_entry: bool = False) -> Flow:
        """What the ledger lacks, as `Found`; None: nobody knows how far it goes."""
        self.look()
        metadata = self.known.metadata
        end = metadata.last_entry_id if metadata.closed else (yield self.ask_last_confirmed)
        if end is None:
            return None
        there = self.cluster.registered()
        check = LedgerCheck(metadata, end, there, every_entry=every_entry)
        while reads := check.ready(READS_AT_ONCE):
            yield partial(self.check_reads, check, reads)
        return Found(metadata, end, check.missing_replicas, there)

    def check_reads(self, check: LedgerCheck, reads: Sequence[SendRead], told: Told) -> None:
        """Ask for some entries, and tell when all answers are there."""
        left = len(reads)

        def answered(read: SendRead, response: m.Response | None) -> None:
            nonlocal left
            found = read_result(DIGEST, self.ledger_id, read.entry_id, response)
            check.answered(read.bookie, read.entry_id, *found)
            left -= 1
            if not left:
                told(None)

        for read in reads:
            self.ask_read(read.bookie, read.entry_id, partial(answered, read), fence=False)

    # --- what is done

    def mend_all(self, found: Found) -> Flow:
        """Mend what can be mended now; False: something failed, or there are no bookies for it."""
        mended = False
        for lack in found.missing_replicas:
            repair = None
            if lack.fragment.sealed:
                repair = repair_of(lack, self.cluster.placement, self.cluster.writable())
            if repair is None:
                continue
            if not (yield from self.mend(repair, found.metadata)):
                return False
            mended = True
        return mended

    def mend(self, repair: Repair, metadata: LedgerMetadata) -> Flow:
        """Copy first, and name the successors then; False: something failed."""
        return (yield from self.copy(repair, metadata)) and (yield from self.name_successors(repair))

    def copy(self, repair: Repair, metadata: LedgerMetadata) -> Flow:
        """Give the successors their entries; False: one cannot be read, or is not taken."""
        plan = repair.copies(metadata)
        while some := list(islice(plan, self.ahead)):
            entries = yield partial(self.read_entries, [entry_id for entry_id, _ in some])
            if not self.may_go_on(entries):
                return False
            copies = [(*one, entry) for one, entry in zip(some, entries, strict=True) if entry is not None]
            if copies and not (yield partial(self.send_copies, copies)):
                return False
        return True

    def may_go_on(self, entries: Sequence[LedgerEntry | None]) -> bool:
        """Whether copies may be made when some entries could be read."""
        return None not in entries

    def read_entries(self, entry_ids: Sequence[int], told: Told) -> None:
        """Read entries; those that cannot be read are None."""
        found: dict[int, LedgerEntry | None] = {}

        def ended(machine: EntryRead) -> None:
            found[machine.entry_id] = machine.entry
            if len(found) == len(entry_ids):
                told([found[entry_id] for entry_id in entry_ids])

        for entry_id in entry_ids:
            self.read_entry(entry_id, ended)

    def send_copies(self, copies: Sequence[Copy], told: Told) -> None:
        """Send entries to their bookies; tells whether all of them were stored."""
        results: list[Result] = []
        count = sum(len(targets) for _, targets, _ in copies)

        def send(bookie: str, entry: LedgerEntry, *, recovery: bool) -> None:
            before, payloads = entry.length - len(entry.payload), [entry.payload]
            add = SendBatch((bookie,), entry.entry_id, entry.last_add_confirmed, before, payloads, recovery)
            self.send_add(bookie, add, partial(answered, bookie, entry))

        def answered(bookie: str, entry: LedgerEntry, response: m.Response | None) -> None:
            result = added_result(response)
            if result is Result.LEDGER_FENCED:
                send(bookie, entry, recovery=True)
                return
            results.append(result)
            if len(results) == count:
                told(all(one is Result.OK for one in results))

        for _, targets, entry in copies:
            for bookie in targets:
                send(bookie, entry, recovery=False)

    def name_successors(self, repair: Repair) -> Flow:
        """Let the metadata name them, unless somebody else mended it; False: nobody knows what is stored."""
        while (wanted := repair.repaired(self.known.metadata)) is not None:
            if wanted.segments == self.known.metadata.segments:
                return True
            stored = yield partial(self.put, wanted)
            if stored is None:
                return False
            if stored:
                self.world.note(f"{self.name} mended {self.ledger_id} {repair.fragment.first_entry_id}")
                self.cluster.repairs += 1
                return True
        return True

    def put(self, wanted: LedgerMetadata, told: Told) -> None:
        """Store metadata; tells whether it was, None where that is not known."""
        self.store(wanted, told, partial(told, None))

    def close(self, told: Told) -> None:
        """Fence the ledger's writer off, and close it; tells how that ended."""
        reader = ReaderProcess(self.cluster, f"{self.name}c", self.ledger_id, lambda: self.run(ended))

        def ended() -> None:
            told(reader.result)

        self.closing = reader
        reader.recover()
