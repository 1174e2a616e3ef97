"""Scenarios: sequences of faults that random choice would hardly ever find.

Each one reproduces a known loss of data. Other faults occur at random in the meantime.
"""

from collections.abc import Callable
from typing import Protocol

from pyledger.protocol.bookkeeper.metadata import LedgerState
from pyledger.simulator.bookkeeper.bookie import SimulatedBookie
from pyledger.simulator.bookkeeper.client_process import ReaderProcess, WriterProcess
from pyledger.simulator.bookkeeper.cluster import METADATA, Cluster, Shape
from pyledger.simulator.world import World

POLL_MS = 2
LATE_MS = 5000
LONE_SHAPE, SPARE = Shape(3, 3, 2), 2
LONE_ENTRIES = 8
LAC_WITHIN_MS = 3000


class Run(Protocol):
    """The parts of a run that scenarios use."""

    world: World
    cluster: Cluster
    writers: list[WriterProcess]

    def reader(self, ledger_id: int) -> ReaderProcess:
        """Create a reader process."""

    def crash(self, bookie: SimulatedBookie) -> None:
        """Crash a bookie; it restarts later."""


class Scenario:
    """One scenario in a run."""

    def __init__(self, run: Run) -> None:
        self.run, self.world, self.cluster = run, run.world, run.cluster

    def when(
        self,
        condition: Callable[[], bool],
        action: Callable[[], None],
        limit_ms: int,
        otherwise: Callable[[], None] = lambda: None,
    ) -> None:
        """Run an action as soon as a condition holds, or another one after `limit_ms`."""
        if condition():
            action()
        elif limit_ms <= 0 or self.world.healed:
            otherwise()
        else:
            self.world.after(POLL_MS, lambda: self.when(condition, action, limit_ms - POLL_MS, otherwise))

    def writer(self, entries: int, shape: Shape | None = None) -> WriterProcess | None:
        """Create a paused writer of a new ledger; None if there are too few bookies."""
        ledger_id = self.cluster.create_ledger(shape)
        if ledger_id is None:
            return None
        name = f"w{len(self.run.writers)}"
        made = WriterProcess(self.cluster, name, ledger_id, entries, paused=True)
        self.run.writers.append(made)
        return made

    def ensemble(self, ledger_id: int) -> list[SimulatedBookie]:
        """Return the bookies of a ledger with one segment."""
        segment = self.cluster.table.rows[ledger_id].metadata.segments[0]
        return [self.cluster.bookies[name] for name in segment.ensemble]


class LateWriter(Scenario):
    """A ledger is closed before its writer sends anything; its bookies crash at once, and the writer resumes.

    Only a fence on disk can stop the writer then: its bookies have no other data of the ledger.
    """

    def begin(self) -> None:
        """Start the scenario."""
        if (writer := self.writer(self.world.random.randint(1, 5))) is None:
            return
        bookies, random = self.ensemble(writer.ledger_id), self.world.random
        before = [bookie.slow_syncs for bookie in bookies]
        if random.random() < 0.5:
            for bookie in bookies:
                bookie.slow_syncs = 1.0

        def crash() -> None:
            for bookie, slow_syncs in zip(bookies, before, strict=True):
                bookie.slow_syncs = slow_syncs
                self.run.crash(bookie)
            self.when(lambda: all(one.up for one in bookies), writer.resume, LATE_MS, writer.resume)

        reader = self.run.reader(writer.ledger_id)
        reader.recover()
        self.when(lambda: reader.result is not None, crash, LATE_MS, crash)


class LoneCopy(Scenario):
    """Entries are on one bookie; a recovery copies them to bookies that no metadata names yet, and dies.

    The next recovery does not reach that bookie, so no reader may have seen these entries as confirmed.
    """

    def begin(self) -> None:
        """Start the scenario, unless two replicas are too few for the disks that may be lost."""
        if self.cluster.shape.ack_quorum > LONE_SHAPE.ack_quorum:
            return
        while len(self.cluster.writable()) < LONE_SHAPE.ensemble_size + SPARE:
            self.cluster.add_bookie()
        if (writer := self.writer(LONE_ENTRIES, LONE_SHAPE)) is None:
            return
        writer.closes, writer.pending_max, writer.pause_ms_max = False, LONE_ENTRIES, 2
        self.ledger_id, cut = writer.ledger_id, self.cluster.network.disconnected
        self.first, *self.others = self.ensemble(writer.ledger_id)
        cut.update((writer.name, other.name) for other in self.others)

        def die() -> None:
            writer.alive = False
            self.world.note(f"{writer.name} dies")
            self.recover()

        writer.resume()
        self.when(lambda: len(self.held()) >= LONE_ENTRIES - 2, die, 300, die)

    def held(self) -> dict[int, bytes]:
        """Return the entries on the first bookie."""
        return self.first.storage.ledgers.get(self.ledger_id, {})

    def recover(self) -> None:
        """Start a recovery: one bookie's responses are lost, and only the first takes recovery adds."""
        reader = self.run.reader(self.ledger_id)
        network = self.cluster.network
        network.disconnected.add((self.others[0].name, reader.name))
        for other in self.others:
            other.rules.read_only, other.rules.takes_recovery_adds = True, False
        reader.recover()

        def disconnect() -> None:
            network.disconnected.add((reader.name, METADATA))

        recovering = LedgerState.IN_RECOVERY
        rows = self.cluster.table.rows
        self.when(lambda: rows[self.ledger_id].metadata.state is recovering, disconnect, LAC_WITHIN_MS)
        follow, again = lambda: self.follow(reader), lambda: self.recover_again(reader)
        self.when(self.has_confirmed, follow, LAC_WITHIN_MS, again)

    def has_confirmed(self) -> bool:
        """Return whether the first bookie has a last add confirmed."""
        known = self.first.rules.ledgers.get(self.ledger_id)
        return known is not None and known.last_add_confirmed >= 0

    def follow(self, recovering: ReaderProcess) -> None:
        """Start a client that follows the ledger."""
        reader = self.run.reader(self.ledger_id)
        for delay_ms in (0, 30, 60):
            reader.after(delay_ms, reader.follow_ledger)
        history = self.cluster.checks.ledgers[self.ledger_id]
        again = lambda: self.recover_again(recovering)  # noqa: E731 - used twice
        self.when(lambda: history.lac_read >= 0, again, 500, again)

    def recover_again(self, before: ReaderProcess) -> None:
        """Start another recovery, which does not reach the first bookie for a while."""
        before.alive = False
        reader, cut = self.run.reader(self.ledger_id), self.cluster.network.disconnected
        links = {(reader.name, self.first.name), (self.first.name, reader.name)}
        cut.update(links)
        reader.recover()

        def heal() -> None:
            cut.difference_update(links)
            for other in self.others:
                other.rules.read_only, other.rules.takes_recovery_adds = False, True

        self.when(lambda: reader.result is not None, heal, LAC_WITHIN_MS, heal)


SCENARIOS: dict[str, type[LateWriter] | type[LoneCopy]] = {"late writer": LateWriter, "lone copy": LoneCopy}
