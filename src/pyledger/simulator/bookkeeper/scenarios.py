"""Plots: several things that go wrong in one order, which chance alone would hardly ever find.

Each is true of some known loss of data. What else goes wrong meanwhile is left to chance.
"""

from collections.abc import Callable
from typing import Protocol

from pyledger.protocol.bookkeeper.metadata import LedgerState
from pyledger.simulator.bookkeeper.bookie import SimulatedBookie
from pyledger.simulator.bookkeeper.client_process import ReaderProcess, WriterProcess
from pyledger.simulator.bookkeeper.cluster import METADATA, Cluster, Shape
from pyledger.simulator.world import World

LOOK_MS = 2
LATE_MS = 5000
LONE_SHAPE, SPARE = Shape(3, 3, 2), 2
LONE_ENTRIES = 8
TOLD_WITHIN_MS = 3000


class Stage(Protocol):
    """What plots need of a run."""

    world: World
    cluster: Cluster
    writers: list[WriterProcess]

    def reader(self, ledger_id: int) -> ReaderProcess:
        """A new process that may read."""

    def crash(self, bookie: SimulatedBookie) -> None:
        """Crash a bookie; it comes back later."""


class Scenario:
    """One plot in a run."""

    def __init__(self, run: Stage) -> None:
        self.run, self.world, self.cluster = run, run.world, run.cluster

    def when(
        self,
        what: Callable[[], bool],
        action: Callable[[], None],
        limit_ms: int,
        otherwise: Callable[[], None] = lambda: None,
    ) -> None:
        """Do something as soon as something is so; something else if that takes too long."""
        if what():
            action()
        elif limit_ms <= 0 or self.world.healed:
            otherwise()
        else:
            self.world.after(LOOK_MS, lambda: self.when(what, action, limit_ms - LOOK_MS, otherwise))

    def writer(self, entries: int, shape: Shape | None = None) -> WriterProcess | None:
        """A writer of a new ledger that stands still; None: there are too few bookies."""
        ledger_id = self.cluster.create_ledger(shape)
        if ledger_id is None:
            return None
        name = f"w{len(self.run.writers)}"
        made = WriterProcess(self.cluster, name, ledger_id, entries, stands_still=True)
        self.run.writers.append(made)
        return made

    def ensemble(self, ledger_id: int) -> list[SimulatedBookie]:
        """The bookies of a ledger that has one segment."""
        segment = self.cluster.table.rows[ledger_id].metadata.segments[0]
        return [self.cluster.bookies[name] for name in segment.ensemble]


class LateWriter(Scenario):
    """A ledger is closed before its writer sent anything; its bookies crash at once, and the writer goes on.

    Nobody but a fence on disk can stop it then: its bookies know nothing else of the ledger.
    """

    def begin(self) -> None:
        """Let it happen."""
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
            self.when(lambda: all(one.up for one in bookies), writer.go_on, LATE_MS, writer.go_on)

        reader = self.run.reader(writer.ledger_id)
        reader.recover()
        self.when(lambda: reader.result is not None, crash, LATE_MS, crash)


class LoneCopy(Scenario):
    """Entries are on one bookie; a recovery copies them to bookies that no metadata names yet, and dies.

    The next recovery does not see that one bookie. What nobody may have been told by then is that they are
    confirmed.
    """

    def begin(self) -> None:
        """Let it happen, unless so many disks may be lost that two copies are too few."""
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

        writer.go_on()
        self.when(lambda: len(self.held()) >= LONE_ENTRIES - 2, die, 300, die)

    def held(self) -> dict[int, bytes]:
        """What the first bookie has."""
        return self.first.storage.ledgers.get(self.ledger_id, {})

    def recover(self) -> None:
        """The first recovery: one bookie's answers are lost, none but the first takes entries again."""
        reader = self.run.reader(self.ledger_id)
        network = self.cluster.network
        network.disconnected.add((self.others[0].name, reader.name))
        for other in self.others:
            other.rules.read_only, other.rules.takes_recovery_adds = True, False
        reader.recover()

        def cut_off() -> None:
            network.disconnected.add((reader.name, METADATA))

        recovering = LedgerState.IN_RECOVERY
        rows = self.cluster.table.rows
        self.when(lambda: rows[self.ledger_id].metadata.state is recovering, cut_off, TOLD_WITHIN_MS)
        self.when(self.is_told, lambda: self.ask(reader), TOLD_WITHIN_MS, lambda: self.recover_again(reader))

    def is_told(self) -> bool:
        """Whether the first bookie takes some entry for confirmed."""
        known = self.first.rules.ledgers.get(self.ledger_id)
        return known is not None and known.last_add_confirmed >= 0

    def ask(self, recovering: ReaderProcess) -> None:
        """Somebody asks how far the ledger goes."""
        reader = self.run.reader(self.ledger_id)
        for delay_ms in (0, 30, 60):
            reader.after(delay_ms, reader.ask_how_far)
        told = self.cluster.checks.ledgers[self.ledger_id]
        again = lambda: self.recover_again(recovering)  # noqa: E731 - said twice
        self.when(lambda: told.told >= 0, again, 500, again)

    def recover_again(self, before: ReaderProcess) -> None:
        """Another recovery, which does not reach the first bookie for a while."""
        before.alive = False
        reader, cut = self.run.reader(self.ledger_id), self.cluster.network.disconnected
        links = {(reader.name, self.first.name), (self.first.name, reader.name)}
        cut.update(links)
        reader.recover()

        def mend() -> None:
            cut.difference_update(links)
            for other in self.others:
                other.rules.read_only, other.rules.takes_recovery_adds = False, True

        self.when(lambda: reader.result is not None, mend, TOLD_WITHIN_MS, mend)


PLOTS: dict[str, type[LateWriter] | type[LoneCopy]] = {"late writer": LateWriter, "lone copy": LoneCopy}
