"""Client processes of a simulated cluster: they write, recover and read ledgers until they die."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.entry_reader import EntryRead
from pyledger.protocol.bookkeeper.ledger_recovery import LedgerRecovery
from pyledger.protocol.bookkeeper.ledger_writer import LedgerWriter, Proposal, SendBatch
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.protocol.bookkeeper.quorum import Coverage
from pyledger.protocol.bookkeeper.result_codes import ABSENT, Result
from pyledger.simulator.bookkeeper.cluster import METADATA, Cluster, Stored
from pyledger.wire.bookkeeper.entry import EntryDigest, master_key, pack_entry
from pyledger.wire.bookkeeper.response_entries import added_result, lac_result, read_result

TIMEOUT_MS = 400
METADATA_TIMEOUT_MS = 300
METADATA_TRIES_MAX = 12
SPECULATIVE_MS = 100
KEY = master_key(b"")
DIGEST = EntryDigest(DigestType.CRC32C)


class LedgerProcess:
    """A client process that works on one ledger.

    Attributes:
        alive: Whether it has not crashed.
        stopped: Actions that wait while it is paused; None while it runs.
        known: The metadata of its ledger as last read.
    """

    def __init__(self, cluster: Cluster, name: str, ledger_id: int) -> None:
        """Create a process that has read the current metadata."""
        self.cluster, self.world, self.name, self.ledger_id = cluster, cluster.world, name, ledger_id
        self.alive = True
        self.stopped: list[Callable[[], None]] | None = None
        self.known = cluster.table.rows[ledger_id]
        self.deadlines: set[int] = set()

    def resume(self) -> None:
        """Resume, and run the actions that waited."""
        held, self.stopped = self.stopped or [], None
        for action in held:
            self.run(action)

    def run(self, action: Callable[[], None]) -> None:
        """Run an action unless the process is dead; if it is paused, run it later."""
        if not self.alive:
            return
        if self.stopped is None:
            action()
        else:
            self.stopped.append(action)

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Schedule an action of this process."""
        self.world.after(delay_ms, lambda: self.run(action))

    def send_request(self, bookie: str, request: m.Request, done: Callable[[Any], None]) -> None:
        """Send a request; `done` gets the response, or None at the timeout."""
        target, network = self.cluster.bookies[bookie], self.cluster.network
        waiting = [done]

        def finish(response: m.Response | None) -> None:
            if waiting:
                waiting.pop()(response)

        def reply(response: m.Response) -> None:
            network.send(bookie, self.name, lambda: self.run(lambda: finish(response)))

        if target.up:
            life = target.life
            network.send(self.name, bookie, lambda: target.receive(life, request, reply))
        else:
            self.after(self.world.random.randint(1, 20), lambda: finish(None))
        self.after(TIMEOUT_MS, lambda: finish(None))

    def send_read(self, bookie: str, entry_id: int, done: Callable[[Any], None], *, fence: bool) -> None:
        """Send a read request."""
        request = m.ReadRequest(
            ledger_id=self.ledger_id, entry_id=entry_id, fence=fence, master_key=KEY if fence else None
        )
        self.send_request(bookie, request, done)

    def send_add(self, bookie: str, send: SendBatch, done: Callable[[Any], None]) -> None:
        """Send an entry, a batch of one."""
        (payload,), entry_id = send.payloads, send.first_entry_id
        length = send.length + len(payload)
        entry = pack_entry(DIGEST, self.ledger_id, entry_id, send.last_add_confirmed, length, payload)
        request = m.AddRequest(
            ledger_id=self.ledger_id,
            entry_id=entry_id,
            master_key=KEY,
            entry=entry,
            recovery=send.recovery,
            priority=m.PRIORITY_HIGH if send.recovery else 0,
        )
        self.send_request(bookie, request, done)

    def added(self, bookie: str, response: m.Response | None) -> Result:
        """Return the result of an add."""
        if (result := added_result(response)) is not Result.OK:
            self.cluster.quarantine.failed(bookie, self.world.now_ms)
        return result

    def tick_later(self, machine: LedgerWriter | LedgerRecovery, follow: Callable[[], None]) -> None:
        """Schedule a tick of a machine at its deadline; `follow` then does what it wants."""
        if (deadline_ms := machine.deadline_ms()) is None or deadline_ms in self.deadlines:
            return
        self.deadlines.add(deadline_ms)

        def tick() -> None:
            machine.tick(self.world.now_ms)
            follow()

        self.after(max(deadline_ms - self.world.now_ms, 1), tick)

    def read_last_add_confirmed(self, done: Callable[[int | None], None]) -> None:
        """Read the last add confirmed from enough bookies to be certain; None if too few answer."""
        metadata = self.known.metadata
        ensemble, coverage = metadata.segments[-1].ensemble, Coverage(metadata)
        found = [metadata.segments[-1].first_entry_id - 1]
        waiting = [done]

        def answered(index: int, response: m.Response | None) -> None:
            result, lac = lac_result(DIGEST, self.ledger_id, response)
            found.append(lac)
            coverage.answered(index, result)
            if waiting and (coverage.covered or len(found) > len(ensemble)):
                waiting.pop()(max(found) if coverage.covered else None)

        for index, bookie in enumerate(ensemble):
            self.send_request(bookie, m.ReadLacRequest(ledger_id=self.ledger_id), partial(answered, index))

    def read_entry(self, entry_id: int, ended: Callable[[EntryRead], None]) -> None:
        """Read an entry from its write set, according to the known metadata."""
        machine = EntryRead(self.known.metadata, entry_id, self.world.now_ms, speculative_ms=SPECULATIVE_MS)

        def answered(bookie: str, response: m.Response | None) -> None:
            if machine.result is None:
                result, entry = read_result(DIGEST, self.ledger_id, entry_id, response)
                machine.answered(bookie, result, entry, self.world.now_ms)
                follow()

        def follow() -> None:
            for send in machine.ready():
                self.send_read(send.bookie, entry_id, partial(answered, send.bookie), fence=False)
            if (deadline_ms := machine.deadline_ms()) is not None:
                self.after(max(deadline_ms - self.world.now_ms, 1), tick)
            if machine.result is not None:
                ended(machine)

        def tick() -> None:
            if machine.result is None:
                machine.tick(self.world.now_ms)
                follow()

        follow()

    def read_metadata(self) -> None:
        """Read the current metadata."""
        self.known = self.cluster.table.rows[self.ledger_id]

    def store(
        self, wanted: LedgerMetadata, stored: Callable[[bool], None], failed: Callable[[], None]
    ) -> None:
        """Change the metadata, with retries until the result is known; `known` is then what is stored."""
        network, table, version = self.cluster.network, self.cluster.table, self.known.version
        over: list[bool] = []

        def on_result(done: bool, known: Stored) -> None:
            if not over:
                over.append(done)
                self.known = known
                stored(done)

        def compare_and_set() -> None:
            done = table.put(self.ledger_id, version, wanted)
            known = table.rows[self.ledger_id]
            self.world.note(f"{self.name} stores {wanted.state.name} {done}")
            network.send(METADATA, self.name, lambda: self.run(lambda: on_result(done, known)))

        def attempt(left: int) -> None:
            if over:
                return
            if not left:
                over.append(False)
                failed()
                return
            network.send(self.name, METADATA, compare_and_set)
            self.after(METADATA_TIMEOUT_MS, lambda: attempt(left - 1))

        attempt(METADATA_TRIES_MAX)


class WriterProcess(LedgerProcess):
    """Writes a ledger, entry by entry, and may close it at the end."""

    def __init__(
        self, cluster: Cluster, name: str, ledger_id: int, entries_max: int, *, paused: bool = False
    ) -> None:
        """Start it.

        Args:
            cluster: The cluster that it uses.
            name: Its name.
            ledger_id: A new ledger.
            entries_max: Number of entries to write.
            paused: Whether it starts paused.
        """
        super().__init__(cluster, name, ledger_id)
        self.entries_max = entries_max
        self.machine = LedgerWriter(self.known.metadata, cluster.replace)
        self.closes = self.world.random.random() < 0.7
        self.pause_ms_max = self.world.random.choice((2, 10, 60))
        self.pending_max = self.world.random.choice((1, 4, 20))
        if paused:
            self.stopped = []
        cluster.fault(self)
        self.run(self.act)

    @property
    def ended(self) -> bool:
        """Whether it adds no more entries."""
        return self.machine.failure is not None or self.machine.last_add_pushed + 1 >= self.entries_max

    def act(self) -> None:
        """Add an entry, or close the ledger."""
        machine = self.machine
        if self.ended:
            if self.closes and machine.failure is None:
                machine.close()
                self.follow()
            return
        if machine.last_add_pushed - machine.last_add_confirmed < self.pending_max:
            entry_id = machine.last_add_pushed + 1
            payload = b"%d:%d" % (self.ledger_id, entry_id) + bytes(self.world.random.randrange(3))
            self.cluster.checks.pushed(self.ledger_id, entry_id, payload)
            machine.add([payload], self.world.now_ms)
            self.follow()
        self.after(self.world.random.randint(1, self.pause_ms_max), self.act)

    def follow(self) -> None:
        """Carry out what the machine requests."""
        machine = self.machine
        while (ready := machine.ready()) is not None:
            for send in ready.sends:
                for bookie in send.bookies:
                    self.send_add(bookie, send, partial(self.answered, bookie, send.first_entry_id))
            if ready.proposal is not None:
                self.propose(ready.proposal)
            for added in ready.added:
                if added.result is Result.OK:
                    confirmed = machine.last_add_confirmed
                    self.cluster.checks.confirmed(self.ledger_id, added.entry_id, confirmed)
                    self.world.note(f"{self.name} confirmed {added.entry_id}")
            if ready.closed is not None:
                self.world.note(f"{self.name} closed {ready.closed.name}")
                if ready.closed is Result.OK:
                    self.cluster.checks.opened(self.ledger_id, machine.metadata)
        self.tick_later(machine, self.follow)

    def answered(self, bookie: str, entry_id: int, response: m.Response | None) -> None:
        """Handle a response."""
        self.machine.answered(bookie, entry_id, self.added(bookie, response))
        self.follow()

    def propose(self, proposal: Proposal) -> None:
        """Store metadata."""

        def stored(done: bool) -> None:
            (self.machine.stored if done else self.machine.rejected)(self.known.metadata)
            self.follow()

        def failed() -> None:
            self.machine.fail(Result.METADATA_VERSION)
            self.follow()

        self.store(proposal.wanted, stored, failed)


class ReaderProcess(LedgerProcess):
    """Reads entries, and checks all responses."""

    def __init__(self, cluster: Cluster, name: str, ledger_id: int, on_recovered: Callable[[], None]) -> None:
        """Create a process that does nothing by itself.

        Args:
            cluster: The cluster that it uses.
            name: Its name.
            ledger_id: The ledger.
            on_recovered: Called when a recovery has ended, successfully or not.
        """
        super().__init__(cluster, name, ledger_id)
        self.on_recovered = on_recovered
        self.last_add_confirmed = -1
        self.machine: LedgerRecovery | None = None
        self.result: Result | None = None
        self.missing = 0
        """Entries that it could not read."""
        cluster.fault(self)

    # --- with recovery

    def recover(self) -> None:
        """Close the ledger."""
        self.read_metadata()
        ahead = self.world.random.choice((1, 1, 4))
        self.machine = LedgerRecovery(self.known.metadata, self.cluster.replace, read_ahead=ahead)
        self.cluster.fault(self)
        self.follow()

    def follow(self) -> None:
        """Carry out what the machine requests."""
        machine = self.machine
        assert machine is not None
        while (ready := machine.ready()) is not None:
            for read in ready.reads:
                done = partial(self.read_answered, read.bookie, read.entry_id)
                self.send_read(read.bookie, read.entry_id, done, fence=read.fence)
            for add in ready.adds:
                for bookie in add.bookies:
                    self.send_add(bookie, add, partial(self.add_answered, bookie, add.first_entry_id))
            if ready.proposal is not None:
                self.propose(ready.proposal)
            if ready.done is not None:
                self.end(ready.done)
        self.tick_later(machine, self.follow)

    def read_answered(self, bookie: str, entry_id: int, response: m.Response | None) -> None:
        """Handle a response."""
        assert self.machine is not None
        result, entry = read_result(DIGEST, self.ledger_id, entry_id, response)
        self.machine.read_answered(bookie, entry_id, result, entry, self.world.now_ms)
        self.follow()

    def add_answered(self, bookie: str, entry_id: int, response: m.Response | None) -> None:
        """Handle a response."""
        assert self.machine is not None
        self.machine.add_answered(bookie, entry_id, self.added(bookie, response))
        self.follow()

    def propose(self, proposal: Proposal) -> None:
        """Store metadata."""

        def stored(done: bool) -> None:
            assert self.machine is not None
            (self.machine.stored if done else self.machine.rejected)(self.known.metadata)
            self.follow()

        self.store(proposal.wanted, stored, lambda: self.end(Result.LEDGER_RECOVERY))

    def end(self, result: Result) -> None:
        """End the recovery."""
        assert self.machine is not None
        self.result = result
        self.world.note(f"{self.name} recovered {result.name}")
        if result is Result.OK:
            self.cluster.checks.opened(self.ledger_id, self.machine.metadata)
            self.read_metadata()
        self.on_recovered()

    # --- without recovery

    def follow_ledger(self) -> None:
        """Read the last add confirmed, and an entry up to it."""
        self.read_metadata()
        if self.known.metadata.closed:
            self.advance(self.known.metadata.last_entry_id)
        else:
            self.read_last_add_confirmed(
                lambda found: None if found is None else self.advance(max(found, self.last_add_confirmed))
            )

    def advance(self, last_add_confirmed: int) -> None:
        """Accept a last add confirmed, and read an entry up to it."""
        self.cluster.checks.lac_read(self.ledger_id, self.last_add_confirmed, last_add_confirmed)
        self.last_add_confirmed = last_add_confirmed
        if last_add_confirmed >= 0:
            self.read(self.world.random.randint(0, last_add_confirmed))

    # --- entries

    def read_all(self) -> None:
        """Read every entry of a closed ledger."""
        self.read_metadata()
        for entry_id in range(self.known.metadata.last_entry_id + 1):
            self.missing += 1
            self.read(entry_id)

    def read(self, entry_id: int) -> None:
        """Read an entry."""
        metadata = self.known.metadata
        self.read_entry(entry_id, lambda machine: self.read_ended(metadata, machine))

    def read_ended(self, metadata: LedgerMetadata, machine: EntryRead) -> None:
        """Check the result; "no such entry" counts only if the metadata has not changed."""
        assert machine.result is not None
        self.read_metadata()
        if machine.result in ABSENT and metadata != self.known.metadata:
            self.read(machine.entry_id)
            return
        self.missing -= machine.result is Result.OK
        self.cluster.checks.read(self.ledger_id, machine.entry_id, machine.result, machine.entry)
