"""A replication worker of a simulated cluster, on one marked ledger.

Sequences of steps are generators: they yield a step to start, and receive its result.
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
"""Rounds of examining and copying one ledger."""
READS_AT_ONCE = 64
Done = Callable[[Any], None]
Flow = Generator[Callable[[Done], None], Any, Any]
Copy = tuple[int, tuple[str, ...], LedgerEntry]
"""An entry with the bookies that get it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of an examination."""

    metadata: LedgerMetadata
    last_add_confirmed: int
    missing_replicas: tuple[MissingReplicas, ...]
    there: frozenset[str]


def follow(flow: Flow, ended: Done) -> None:
    """Run the steps of a generator; `ended` gets its return value."""

    def resume(result: Any = None) -> None:
        try:
            begin = flow.send(result)
        except StopIteration as end:
            ended(end.value)
        else:
            begin(resume)

    resume()


class ReplicationProcess(LedgerProcess):
    """Re-replicates one ledger."""

    def __init__(self, cluster: Cluster, name: str, ledger_id: int) -> None:
        """Create a process that does nothing by itself."""
        super().__init__(cluster, name, ledger_id)
        self.closing: ReaderProcess | None = None
        self.ahead = self.world.random.choice((1, 4, 16))
        cluster.fault(self)

    def die(self) -> None:
        """Stop."""
        self.alive = False
        if self.closing is not None:
            self.closing.alive = False

    def replicate(self, grace_ms: int, *, every_entry: bool = False) -> Flow:
        """Re-replicate the ledger as far as possible; return whether no replica is missing.

        Args:
            grace_ms: How long the writer of an open ledger may replace bookies itself.
            every_entry: Check all entries, not only the ends of each bookie's part.
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
                if not (yield from self.repair_all(found)):
                    return False
            elif step is Step.CLOSE:
                if (yield self.close) is not Result.OK:
                    return False
            else:
                waited_for = left_to_writer(*seen)
                yield partial(self.wait, grace_ms)
        return False

    def wait(self, time_ms: int, done: Done) -> None:
        """Wait for some time."""
        self.after(time_ms, partial(done, None))

    # --- examining

    def examine(self, *, every_entry: bool = False) -> Flow:
        """Return the missing replicas as `Found`; None if the last entry is not known."""
        self.read_metadata()
        metadata = self.known.metadata
        end = metadata.last_entry_id if metadata.closed else (yield self.read_last_add_confirmed)
        if end is None:
            return None
        there = self.cluster.registered()
        check = LedgerCheck(metadata, end, there, every_entry=every_entry)
        while reads := check.ready(READS_AT_ONCE):
            yield partial(self.check_reads, check, reads)
        return Found(metadata, end, check.missing_replicas, there)

    def check_reads(self, check: LedgerCheck, reads: Sequence[SendRead], done: Done) -> None:
        """Read some entries; `done` is called after all responses."""
        left = len(reads)

        def answered(read: SendRead, response: m.Response | None) -> None:
            nonlocal left
            found = read_result(DIGEST, self.ledger_id, read.entry_id, response)
            check.answered(read.bookie, read.entry_id, *found)
            left -= 1
            if not left:
                done(None)

        for read in reads:
            self.send_read(read.bookie, read.entry_id, partial(answered, read), fence=False)

    # --- copying

    def repair_all(self, found: Found) -> Flow:
        """Repair the fragments that can be repaired now; False if one failed or none could be repaired."""
        repaired = False
        for missing in found.missing_replicas:
            repair = None
            if missing.fragment.sealed:
                repair = repair_of(missing, self.cluster.placement, self.cluster.writable())
            if repair is None:
                continue
            if not (yield from self.repair(repair, found.metadata)):
                return False
            repaired = True
        return repaired

    def repair(self, repair: Repair, metadata: LedgerMetadata) -> Flow:
        """Copy the entries, then name the successors in the metadata; False if something failed."""
        return (yield from self.copy(repair, metadata)) and (yield from self.name_successors(repair))

    def copy(self, repair: Repair, metadata: LedgerMetadata) -> Flow:
        """Copy entries to the successors; False if one could not be read or stored."""
        plan = repair.copies(metadata)
        while some := list(islice(plan, self.ahead)):
            entries = yield partial(self.read_entries, [entry_id for entry_id, _ in some])
            if not self.may_copy(entries):
                return False
            copies = [(*one, entry) for one, entry in zip(some, entries, strict=True) if entry is not None]
            if copies and not (yield partial(self.send_copies, copies)):
                return False
        return True

    def may_copy(self, entries: Sequence[LedgerEntry | None]) -> bool:
        """Return whether a batch may be copied: all of its entries were read."""
        return None not in entries

    def read_entries(self, entry_ids: Sequence[int], done: Done) -> None:
        """Read entries; unreadable ones are None."""
        found: dict[int, LedgerEntry | None] = {}

        def ended(machine: EntryRead) -> None:
            found[machine.entry_id] = machine.entry
            if len(found) == len(entry_ids):
                done([found[entry_id] for entry_id in entry_ids])

        for entry_id in entry_ids:
            self.read_entry(entry_id, ended)

    def send_copies(self, copies: Sequence[Copy], done: Done) -> None:
        """Send entries to their bookies; `done` gets whether all were stored."""
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
                done(all(one is Result.OK for one in results))

        for _, targets, entry in copies:
            for bookie in targets:
                send(bookie, entry, recovery=False)

    def name_successors(self, repair: Repair) -> Flow:
        """Name the successors in the metadata, unless it changed; False if the result is not known."""
        while (wanted := repair.repaired(self.known.metadata)) is not None:
            if wanted.segments == self.known.metadata.segments:
                return True
            stored = yield partial(self.put, wanted)
            if stored is None:
                return False
            if stored:
                self.world.note(f"{self.name} repaired {self.ledger_id} {repair.fragment.first_entry_id}")
                self.cluster.repairs += 1
                return True
        return True

    def put(self, wanted: LedgerMetadata, done: Done) -> None:
        """Store metadata; `done` gets whether it was stored, None if that is not known."""
        self.store(wanted, done, partial(done, None))

    def close(self, done: Done) -> None:
        """Fence and close the ledger; `done` gets the result."""
        reader = ReaderProcess(self.cluster, f"{self.name}c", self.ledger_id, lambda: self.run(ended))

        def ended() -> None:
            done(reader.result)

        self.closing = reader
        reader.recover()
