"""Known bugs of BookKeeper and similar systems, each built into the parts of a simulated cluster.

A bug is called with each bookie at each of its starts, each client process, and the metadata store.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.bookie import BookieRules, FenceRecord, Outcome
from pyledger.protocol.bookkeeper.entry_reader import EntryRead, SendRead
from pyledger.protocol.bookkeeper.fragments import MissingReplicas
from pyledger.protocol.bookkeeper.ledger_recovery import LedgerRecovery, RecoveryReady
from pyledger.protocol.bookkeeper.ledger_writer import LedgerWriter
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, LedgerState
from pyledger.protocol.bookkeeper.quorum import Coverage
from pyledger.protocol.bookkeeper.re_replication import Repair
from pyledger.protocol.bookkeeper.result_codes import ABSENT
from pyledger.simulator.bookkeeper.bookie import EntriesInMemory, Reply, SimulatedBookie
from pyledger.simulator.bookkeeper.client_process import ReaderProcess, WriterProcess
from pyledger.simulator.bookkeeper.cluster import Fault, MetadataTable
from pyledger.simulator.bookkeeper.replication_worker import Copy, Done, Flow, ReplicationProcess

ENTRY_MAX = (1 << 62) - 1


def recovery_of(part: object) -> LedgerRecovery | None:
    return part.machine if isinstance(part, ReaderProcess) else None


def fence_at_the_first_read_only(part: object) -> None:
    """A recovery fences with its first read only, not with those that find the end (bookkeeper #2614)."""
    if (machine := recovery_of(part)) is None:
        return
    ready = machine.ready

    def unfenced() -> RecoveryReady | None:
        found = ready()
        if found is None:
            return None
        reads = tuple(SendRead(one.bookie, one.entry_id, one.entry_id < 0) for one in found.reads)
        return RecoveryReady(reads, found.adds, found.proposal, found.done)

    machine.ready = unfenced


def every_bookie_must_deny(part: object) -> None:
    """A recovery waits until a whole write set denies an entry, one that hangs too (bookkeeper #1067)."""
    if (machine := recovery_of(part)) is None:
        return
    read_on = machine._read_on

    def patient() -> None:
        read_on()
        for probe in machine._probes.values():
            probe._absent_after = len(probe.bookies)

    machine._read_on = patient


def fence_between_check_and_add(part: object) -> None:
    """An add that was let through before a fence is stored after it (bookkeeper #4701: two handles)."""
    if not isinstance(part, SimulatedBookie):
        return
    handle, life = SimulatedBookie.handle.__get__(part), part.life

    def late(request: m.Request, reply: Reply) -> None:
        ledger = part.rules.ledgers.get(getattr(request, "ledger_id", -1))
        ordinary = isinstance(request, m.AddRequest) and not request.recovery
        if not ordinary or ledger is None or ledger.fenced:
            handle(request, reply)
            return

        def add() -> None:
            fenced, ledger.fenced = ledger.fenced, False
            handle(request, reply)
            ledger.fenced = fenced

        part.world.after(part.world.random.choice((0, 20, 200)), lambda: part.run(life, add))

    part.handle = late


def damage_is_absence(part: object) -> None:
    """A bookie denies an entry that it cannot read (bookkeeper #2908)."""

    class Careless(EntriesInMemory):
        def get(self, ledger_id: int, entry_id: int) -> bytes | None:
            return None if (ledger_id, entry_id) in self.damaged else super().get(ledger_id, entry_id)

    if isinstance(part, SimulatedBookie):
        part.storage.__class__ = Careless


def fresh_disk_under_an_old_name(part: object) -> None:
    """A bookie whose disk was replaced starts under its old name (bookkeeper #4812; no cookie is checked)."""
    if isinstance(part, SimulatedBookie):
        part.checks_cookie = False


def recovery_forgets_the_segment(part: object) -> None:
    """A recovery ignores that the start of the last segment proves what is confirmed (found with TLA+)."""

    class Forgetful(LedgerRecovery):
        @property
        def _confirmed(self) -> int:
            return -1 if self._last is None else self._last.last_add_confirmed

    if (machine := recovery_of(part)) is not None:
        machine.__class__ = Forgetful


def acknowledge_before_sync(part: object) -> None:
    """A bookie answers an add before it is on disk."""
    if isinstance(part, SimulatedBookie):
        part.answers_before_sync = True


def fence_in_memory(part: object) -> None:
    """A fence is not journaled, so it does not outlive its bookie."""

    class Forgetful(BookieRules):
        __slots__ = ()

        def handle(self, request: m.Request) -> Outcome:
            outcome = super().handle(request)
            kept = tuple(one for one in outcome.records if not isinstance(one, FenceRecord))
            return replace(outcome, records=kept)

    if isinstance(part, SimulatedBookie):
        part.rules.__class__ = Forgetful


def fence_without_key(part: object) -> None:
    """A ledger's key is not journaled before its fence, so a restart skips the fence (upstream)."""

    class Keyless(BookieRules):
        __slots__ = ()

        def handle(self, request: m.Request) -> Outcome:
            outcome = super().handle(request)
            fences = any(isinstance(one, FenceRecord) for one in outcome.records)
            return replace(outcome, records=outcome.records[-1:]) if fences else outcome

    if isinstance(part, SimulatedBookie):
        part.rules.__class__ = Keyless


def absence_before_the_fence_is_on_disk(part: object) -> None:
    """An entry is denied although the fence is not on disk yet (upstream)."""
    if not isinstance(part, SimulatedBookie):
        return
    handle = SimulatedBookie.handle.__get__(part)

    def hasty(request: m.Request, reply: Reply) -> None:
        entries = part.storage.ledgers.get(getattr(request, "ledger_id", -1), {})
        fences = isinstance(request, m.ReadRequest) and request.fence
        part.answers_before_sync = fences and (
            not entries if request.entry_id < 0 else request.entry_id not in entries
        )
        handle(request, reply)
        part.answers_before_sync = False

    part.handle = hasty


def acknowledgements_of_replaced_bookies(part: object) -> None:
    """Acknowledgements of a bookie count after it was replaced (bookkeeper #1395)."""
    if not isinstance(part, WriterProcess):
        return

    class Kept(set[int]):
        def discard(self, _: int) -> None:
            pass

    class Keeping(LedgerWriter):
        def _changed(self) -> None:
            for op in self._pending:
                op.acknowledged = Kept(op.acknowledged)
            super()._changed()

    part.machine.__class__ = Keeping


def confirm_while_bookies_are_replaced(part: object) -> None:
    """Entries are confirmed although another ensemble is being stored (bookkeeper #1390)."""

    class Hasty(LedgerWriter):
        def _confirm(self) -> None:
            proposal, self._proposal = self._proposal, None
            super()._confirm()
            self._proposal = proposal

    if isinstance(part, WriterProcess):
        part.machine.__class__ = Hasty


def ensembles_stored_before_the_close(part: object) -> None:
    """A recovery stores a new ensemble before its bookies have the entries (found with TLA+)."""

    class Hasty(LedgerWriter):
        def _change_ensemble(self) -> None:
            self._recovery = False
            super()._change_ensemble()
            self._recovery = True

    if (machine := recovery_of(part)) is None:
        return
    open_writer = machine._open_writer

    def opened(length: int) -> None:
        open_writer(length)
        machine._writer.__class__ = Hasty

    machine._open_writer = opened


def one_denial_is_enough(part: object) -> None:
    """A recovery ends at the first bookie that denies an entry (bookkeeper before #1077)."""
    if (machine := recovery_of(part)) is None:
        return
    read_on = machine._read_on

    def hasty() -> None:
        read_on()
        for probe in machine._probes.values():
            probe._absent_after = 1

    machine._read_on = hasty


def any_answer_covers(part: object) -> None:
    """A recovery continues after an ack quorum of answers, although silent bookies may have more entries."""

    class Sure(Coverage):
        __slots__ = ()

        @property
        def covered(self) -> bool:
            return sum(self._known) >= self._ack_quorum

    if (machine := recovery_of(part)) is None:
        return
    fence = machine._fence

    def quick() -> None:
        fence()
        machine._coverage.__class__ = Sure

    machine._fence = quick
    machine._coverage.__class__ = Sure


def metadata_is_just_set(part: object) -> None:
    """Metadata is stored without comparing versions."""
    if isinstance(part, MetadataTable):
        part.compares = False


def writer_goes_on_after_recovery_began(part: object) -> None:
    """A writer whose change was rejected retries on the stored metadata, whatever its state is."""

    class Stubborn(LedgerWriter):
        @property
        def _expected(self) -> LedgerState:
            return self.metadata.state

    if isinstance(part, WriterProcess):
        part.machine.__class__ = Stubborn


def one_denial_is_enough_for_a_reader(part: object) -> None:
    """An entry is denied to a reader when one bookie denies it and others are silent (ours, fixed)."""
    if not isinstance(part, ReaderProcess) or part.machine is not None:
        return
    ended = part.read_ended

    def denied(metadata: LedgerMetadata, machine: EntryRead) -> None:
        if (absent := ABSENT.intersection(machine._waiting.values())) and machine.entry is None:
            machine.result = min(absent)
        ended(metadata, machine)

    part.read_ended = denied


def reported_before_the_close(part: object) -> None:
    """A recovery reports entries whose new replicas no metadata names yet (upstream; ours, fixed)."""

    class Telling(LedgerWriter):
        def add(self, payloads: list[bytes], now_ms: int, length: int | None = None) -> int:
            self._found_confirmed = self.last_add_confirmed
            return super().add(payloads, now_ms, length)

    if (machine := recovery_of(part)) is None:
        return
    open_writer = machine._open_writer

    def opened(length: int) -> None:
        open_writer(length)
        machine._writer.__class__ = Telling

    machine._open_writer = opened


def replicas_deleted_after_a_repair(part: object) -> None:
    """A bookie deletes a ledger that did not name it before a repair copied to it (bookkeeper #4668)."""

    def keeps(metadata: LedgerMetadata | None) -> bool:
        return metadata is not None and any(part.name in one.ensemble for one in metadata.segments)

    if isinstance(part, SimulatedBookie):
        part.keeps = keeps


def successors_named_before_the_copies(part: object) -> None:
    """A repair stores the new ensemble before it copies."""

    def repair_fragment(repair: Repair, metadata: LedgerMetadata) -> Flow:
        return (yield from part.name_successors(repair)) and (yield from part.copy(repair, metadata))

    if isinstance(part, ReplicationProcess):
        part.repair = repair_fragment


def what_cannot_be_read_is_passed_over(part: object) -> None:
    """A repair copies what it can read, and stores the new ensemble for all entries."""
    if isinstance(part, ReplicationProcess):
        part.may_copy = lambda _: True


def copies_that_failed_count(part: object) -> None:
    """A repair ignores the responses of the bookies to which it copied."""

    def send(copies: Sequence[Copy], done: Done) -> None:
        ReplicationProcess.send_copies(part, copies, lambda _: done(True))

    if isinstance(part, ReplicationProcess):
        part.send_copies = send


def open_ends_are_repaired(part: object) -> None:
    """A repair replaces bookies of a fragment to which a writer may still add."""

    class Careless(Repair):
        def repaired(self, metadata: LedgerMetadata) -> LedgerMetadata | None:
            found = super().repaired(replace(metadata, state=LedgerState.CLOSED, last_entry_id=ENTRY_MAX))
            return found and replace(found, state=metadata.state, last_entry_id=metadata.last_entry_id)

    def repair_fragment(repair: Repair, metadata: LedgerMetadata) -> Flow:
        return ReplicationProcess.repair(part, Careless(repair.fragment, repair.successors), metadata)

    def examine(*, every_entry: bool = False) -> Flow:
        found = yield from ReplicationProcess.examine(part, every_entry=every_entry)
        if found is None:
            return None
        missing = tuple(
            MissingReplicas(replace(one.fragment, sealed=True), one.indexes) for one in found.missing_replicas
        )
        return replace(found, missing_replicas=missing)

    if isinstance(part, ReplicationProcess):
        part.repair, part.examine = repair_fragment, examine


def only_ends_of_fragments_are_checked(part: object) -> None:
    """A repair checks only the ends of fragments, although a check found a hole between (ours, fixed)."""
    if isinstance(part, ReplicationProcess) and part.name != "auditor":
        part.examine = lambda **_: ReplicationProcess.examine(part)


BUGS: list[Fault] = [
    fence_at_the_first_read_only,
    every_bookie_must_deny,
    fence_between_check_and_add,
    damage_is_absence,
    fresh_disk_under_an_old_name,
    recovery_forgets_the_segment,
    ensembles_stored_before_the_close,
    one_denial_is_enough,
    any_answer_covers,
    acknowledge_before_sync,
    fence_in_memory,
    fence_without_key,
    absence_before_the_fence_is_on_disk,
    acknowledgements_of_replaced_bookies,
    confirm_while_bookies_are_replaced,
    writer_goes_on_after_recovery_began,
    metadata_is_just_set,
    one_denial_is_enough_for_a_reader,
    reported_before_the_close,
    replicas_deleted_after_a_repair,
    successors_named_before_the_copies,
    what_cannot_be_read_is_passed_over,
    copies_that_failed_count,
    open_ends_are_repaired,
    only_ends_of_fragments_are_checked,
]
