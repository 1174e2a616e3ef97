"""Ledgers in a world of faults, and then in a healed one, in which each has to be closed and read.

Requests and answers are lost, doubled, late and out of order; bookies crash and lose what was not synced,
stand still, lose their disks; writers stand still and go on, and do not know that they were fenced;
recoveries meet each other, die, and begin again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pyledger.errors import PyLedgerError
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.simulator.bookkeeper.autorecovery import AutorecoveryProcesses
from pyledger.simulator.bookkeeper.bookie import SPOILT, SimulatedBookie
from pyledger.simulator.bookkeeper.checks import LedgerChecks
from pyledger.simulator.bookkeeper.client_process import LedgerProcess, ReaderProcess, WriterProcess
from pyledger.simulator.bookkeeper.cluster import Cluster, Fault, Shape
from pyledger.simulator.bookkeeper.scenarios import PLOTS
from pyledger.simulator.safety import SafetyError, require
from pyledger.simulator.world import Faults, Network, World

TICK_MS = 10
WRITE_ON_MS = 3000
"""In a healed world, before all ledgers are closed."""
HEAL_MS = 5000
CALM_MS = 3000
LEDGERS_MAX = 3
"""Ledgers that are written at once."""
ENTRIES_MAX = 60
FROZEN_AT_FIRST = 0.1
"""Share of writers that stand still before an entry of theirs has reached anybody."""
KINDS = (
    *("crash", "stop", "freeze", "recover", "recover") * 2,
    *("kill", "cut", "mend", "wipe", "damage", "read only", "power"),
)
"""What can happen; the first ones more often."""
PLOTTED_EVERY = 8
"""In so many histories one has plots."""
REPAIRED = (1, 4, 5)
"""Of eight histories, those with autorecovery."""
REPAIR_KINDS = ("worker dies", "worker stands still", "collect")
LOSING_KINDS = ("crash", "stop", "wipe", "wipe", "damage", "cut", "mend", "power", *REPAIR_KINDS * 2)
"""What can happen once all ledgers are closed."""
LOSSES = 2
"""How often disks are lost then, each time after all copies are there again."""
REPAIR_MS = 30_000
REPAIR_LOOK_MS = 200
SHAPES = (
    *(Shape(3, 3, 2),) * 3,
    Shape(3, 2, 2),
    Shape(4, 3, 2),
    Shape(5, 3, 2),
    Shape(3, 3, 3),
    Shape(3, 3, 1),
    Shape(2, 2, 2),
    Shape(2, 2, 1),
    Shape(1, 1, 1),
)


@dataclass
class LedgerReport:
    """What a run was."""

    seed: int
    trace: str
    """Hash of everything that happened: the same for the same seed, everywhere."""
    shape: tuple[int, int, int]
    ledgers: int
    confirmed: int
    recoveries: int
    fenced: int
    """Writers that learned that they were fenced."""
    segments: int
    crashes: int
    lost: int
    """Bookies that lost their disk, or a part of it."""
    repairs: int
    """Fragments that got other bookies."""

    def __str__(self) -> str:
        """One line."""
        shape = "/".join(map(str, self.shape))
        return (
            f"{self.confirmed} entries confirmed in {self.ledgers} ledgers of {shape}, "
            f"{self.recoveries} recoveries, {self.fenced} writers fenced, {self.segments} segments, "
            f"{self.crashes} crashes, {self.lost} disks lost, {self.repairs} fragments repaired, "
            f"trace {self.trace[:16]}"
        )


def no_fault(_: object) -> None:
    """Everything is as it should be."""


class LedgerRun:
    """One run of one seed."""

    def __init__(self, seed: int, bookies: int = 5, *, fault: Fault = no_fault) -> None:
        self.world = World(seed, Faults())
        random = self.world.random
        self.world.faults = replace(
            self.world.faults,
            loss=random.choice((0.0, 0.02, 0.1)),
            duplicates=random.choice((0.0, 0.05, 0.3)),
            delay_ms_max=random.choice((5, 30, 120)),
            clogs=random.choice((0.0, 0.02, 0.1, 0.3)),
            clog_ms_max=random.choice((150, 400, 3000)),
            crash_interval_ms=random.choice((50, 150, 500)),
        )
        network = Network(self.world, ordered=random.random() < 0.5)
        shape = random.choice([one for one in SHAPES if one.ensemble_size <= bookies])
        slow_syncs = random.choice((0.0, 0.02, 0.2))
        self.recoveries = self.crashes = 0
        self.kinds: tuple[str, ...] = KINDS
        if (seed + 1) % PLOTTED_EVERY == 0:
            # Not much else happens, so that plots come to their end.
            self.kinds = (*KINDS, *tuple(PLOTS) * 5)
            self.world.faults = replace(self.world.faults, crash_interval_ms=500, clogs=0.0)
        self.cluster = Cluster(self.world, network, shape, LedgerChecks(), fault, self.crash, slow_syncs)
        for _ in range(bookies):
            self.cluster.add_bookie()
        self.writers: list[WriterProcess] = []
        self.readers: list[ReaderProcess] = []
        self.crew: AutorecoveryProcesses | None = None
        if seed % 8 in REPAIRED:
            self.crew = AutorecoveryProcesses(self.cluster)
            self.kinds += REPAIR_KINDS
        for at in range(LEDGERS_MAX):
            self.world.after(random.randint(0, 100 * at), self.write)
        self.world.after(random.randint(50, 300), self.trouble)
        self.world.after(random.randint(10, 100), self.look_in)

    # --- who is at work

    def write(self) -> None:
        """A writer begins a new ledger; another one follows when it is done."""
        cluster, random = self.cluster, self.world.random
        if (ledger_id := cluster.create_ledger()) is not None:
            entries = random.randint(1, ENTRIES_MAX)
            writer = WriterProcess(cluster, f"w{len(self.writers)}", ledger_id, entries)
            self.writers.append(writer)
            if not self.world.healed and random.random() < FROZEN_AT_FIRST:
                self.freeze(writer)
        if not self.world.healed:  # so each chain has a ledger of the healed world, too
            self.world.after(random.randint(200, 1500), self.write)

    def look_in(self) -> None:
        """Somebody follows a ledger without recovering it."""
        random = self.world.random
        if self.world.calm:
            return
        if self.writers:
            reader = self.reader(random.choice(self.writers[-LEDGERS_MAX:]).ledger_id)
            for delay_ms in (0, random.randint(20, 300), random.randint(300, 1500)):
                reader.after(delay_ms, reader.ask_how_far)
        self.world.after(random.randint(20, 400), self.look_in)

    def reader(self, ledger_id: int) -> ReaderProcess:
        """A new process that may read."""
        reader = ReaderProcess(self.cluster, f"r{len(self.readers)}", ledger_id, self.count_recovery)
        self.readers.append(reader)
        return reader

    def count_recovery(self) -> None:
        """A recovery has ended."""
        self.recoveries += 1

    # --- what goes wrong

    def trouble(self) -> None:
        """Something goes wrong, or right again."""
        world, random = self.world, self.world.random
        if world.healed:
            return
        kind = random.choice(self.kinds)
        bookie = random.choice(list(self.cluster.bookies.values()))
        world.note(f"trouble {kind} {bookie.name}")
        self.go_wrong(kind, bookie)
        world.after(random.randint(1, 2 * world.faults.crash_interval_ms), self.trouble)

    def go_wrong(self, kind: str, bookie: SimulatedBookie) -> None:
        """One thing of `KINDS` happens, to a bookie where it concerns one."""
        if kind in BOOKIE_TROUBLES:
            BOOKIE_TROUBLES[kind](self, bookie)
        elif kind in PLOTS:
            PLOTS[kind](self).begin()
        elif kind in WORKER_TROUBLES:
            assert self.crew is not None
            WORKER_TROUBLES[kind](self.crew)
        else:
            TROUBLES[kind](self)

    def crash_all(self) -> None:
        """Perhaps all bookies crash at once."""
        if self.world.random.random() < 0.3:
            for one in self.cluster.bookies.values():
                self.crash(one)

    def mend_links(self) -> None:
        """No link is cut any more."""
        self.cluster.network.disconnected.clear()

    def collect(self) -> None:
        """All bookies look for ledgers that they can delete."""
        for one in self.cluster.bookies.values():
            one.collect()

    def may_lose(self, bookie: SimulatedBookie) -> bool:
        """Whether copies on one more bookie may be lost: of an acknowledged entry one is left."""
        bookies = [one for one in self.cluster.bookies.values() if not one.forgotten]
        lost = sum(one.lost or one.bad_disk for one in bookies)
        more = not bookie.lost and not bookie.bad_disk
        return not bookie.lost and lost + more <= self.cluster.shape.ack_quorum - 1

    def crash(self, bookie: SimulatedBookie) -> None:
        """Crash a bookie; it comes back later."""
        if not bookie.up:
            return
        self.crashes += 1
        bookie.crash()
        random = self.world.random
        self.world.after(random.choice((5, 100, 1000)) + random.randint(0, 300), bookie.start)

    def pause(self, bookie: SimulatedBookie) -> None:
        """Let a bookie stand still for a while."""
        life, random = bookie.life, self.world.random
        bookie.stop()

        def go_on() -> None:
            if bookie.life == life and bookie.stopped is not None:
                bookie.go_on()

        self.world.after(random.choice((20, 300, 2000)) + random.randint(0, 200), go_on)

    def freeze_writer(self) -> None:
        """Let some writer stand still."""
        random = self.world.random
        writers = [one for one in self.writers if one.alive and one.stopped is None and not one.ended]
        if not writers:
            return
        self.freeze(random.choice(writers))

    def freeze(self, writer: WriterProcess) -> None:
        """Let a writer stand still; meanwhile others may recover its ledger, and its bookies crash."""
        world, random = self.world, self.world.random
        writer.stopped = []
        world.note(f"{writer.name} freezes")
        world.after(random.randint(1, 1500), writer.go_on)
        if random.random() < 0.8:
            world.after(random.randint(1, 300), lambda: self.recover(writer.ledger_id))
        if random.random() < 0.3:
            for name in writer.machine.metadata.segments[-1].ensemble:
                world.after(random.randint(1, 600), partial(self.crash, self.cluster.bookies[name]))

    def recover_some(self) -> None:
        """Somebody opens a ledger, perhaps two at once."""
        random = self.world.random
        if self.writers:
            recent = self.writers[-2 * LEDGERS_MAX :]
            busy = [one for one in recent if one.alive and not one.ended]
            ledger_id = random.choice(busy if busy and random.random() < 0.8 else recent).ledger_id
            for _ in range(random.choice((1, 1, 2))):
                self.world.after(random.randint(0, 50), lambda: self.recover(ledger_id))

    def recover(self, ledger_id: int) -> None:
        """Open a ledger; perhaps a bookie cannot be reached at first, and so is not fenced at first."""
        reader, random, cut = self.reader(ledger_id), self.world.random, self.cluster.network.disconnected
        if random.random() < 0.5:
            link = (reader.name, random.choice(reader.known.metadata.segments[-1].ensemble))
            cut.add(link)
            self.world.after(random.randint(1, 150), partial(cut.discard, link))
        reader.recover()

    def kill_client(self) -> None:
        """A writer or a recovery dies."""
        random = self.world.random
        clients: list[LedgerProcess] = [one for one in self.writers if one.alive and not one.ended]
        clients += [one for one in self.readers if one.alive and one.machine and one.result is None]
        if clients:
            client = random.choice(clients)
            client.alive = False
            self.world.note(f"{client.name} dies")

    def cut_links(self) -> None:
        """Cut some links, in one direction."""
        random, network = self.world.random, self.cluster.network
        clients = [one.name for one in (*self.writers[-LEDGERS_MAX:], *self.readers[-LEDGERS_MAX:])]
        if self.crew is not None:
            clients += [worker.name for worker in self.crew.workers]
        for bookie in random.sample(
            list(self.cluster.bookies), random.randint(1, 2) % len(self.cluster.bookies)
        ):
            for client in clients:
                if random.random() < 0.5:
                    ends = (client, bookie)
                    network.disconnected.add(ends if random.random() < 0.5 else ends[::-1])

    def wipe(self, bookie: SimulatedBookie) -> None:
        """Take a bookie's disk; another bookie joins."""
        if self.world.random.random() < 0.5 and self.may_lose(bookie):
            self.crashes += 1
            bookie.wipe()
            self.cluster.add_bookie()
            self.world.after(self.world.random.randint(5, 1000), bookie.start)

    def refuse_adds(self, bookie: SimulatedBookie) -> None:
        """Make a bookie read-only, or writable again."""
        bookie.rules.read_only = self.world.random.random() < 0.5
        bookie.rules.takes_recovery_adds = self.world.random.random() < 0.7

    def damage(self, bookie: SimulatedBookie) -> None:
        """Spoil stored entries, and those to come."""
        if not self.may_lose(bookie):
            return
        bookie.bad_disk = True
        for ledger_id, entries in bookie.storage.ledgers.items():
            chosen = [entry_id for entry_id in entries if self.world.random.random() < SPOILT]
            bookie.damaged.update((ledger_id, entry_id) for entry_id in chosen)

    # --- the whole history

    def run(self, ticks: int) -> LedgerReport:
        """Play the whole history: `ticks` of 10 ms with trouble, then a healed world."""
        try:
            return self._run(ticks)
        except PyLedgerError as error:
            raise SafetyError(f"machines keep their own rules: {error}") from error

    def _run(self, ticks: int) -> LedgerReport:
        world = self.world
        world.run(ticks * TICK_MS)
        self.heal()
        world.run(WRITE_ON_MS + HEAL_MS)
        rows = self.cluster.table.rows
        left = [ledger_id for ledger_id, row in rows.items() if not row.metadata.closed]
        require(not left, "a healed cluster closes its ledgers", left)
        if self.crew is not None:
            self.lose_again(self.crew, ticks * TICK_MS // 4)
        world.calm = True
        readers = [self.reader(ledger_id) for ledger_id in rows]
        for reader in readers:
            reader.read_all()
        world.run(CALM_MS)
        for reader in readers:
            missing = f"{reader.missing} of ledger {reader.ledger_id}"
            require(not reader.missing, "what is acknowledged can be read", missing)
        return self.report()

    def lose_again(self, crew: AutorecoveryProcesses, time_ms: int) -> None:
        """Lose disks of a cluster whose ledgers are closed, again and again, once all copies are there."""
        self.kinds = LOSING_KINDS
        for _ in range(LOSSES):
            self.wait_for_copies(crew)
            for bookie in self.cluster.bookies.values():
                bookie.forgotten |= bookie.lost or bookie.stopped is not None
                bookie.bad_disk = False
            self.world.healed = False
            self.world.note("trouble again")
            self.trouble()
            self.world.run(time_ms)
            self.heal_cluster()
        self.wait_for_copies(crew)

    def wait_for_copies(self, crew: AutorecoveryProcesses) -> None:
        """Let a healed cluster make all copies that are missing."""
        crew.heal()
        crew.clean = False
        end_ms = self.world.now_ms + REPAIR_MS
        while not crew.done and self.world.now_ms < end_ms:
            self.world.run(REPAIR_LOOK_MS)
        left = sorted(crew.board.marks)
        require(crew.done, "a healed cluster restores all replicas", f"{left} are marked")
        for ledger_id, row in self.cluster.table.rows.items():
            self.cluster.checks.copies_last(ledger_id, row.metadata)
            lacking = self.cluster.checks.lacking(ledger_id, row.metadata)
            require(not lacking, "a healed cluster restores all replicas", (ledger_id, sorted(lacking)))

    def heal_cluster(self) -> None:
        """From now on nothing goes wrong with bookies and links."""
        world, cluster = self.world, self.cluster
        world.healed = True
        cluster.network.disconnected.clear()
        world.note("healed")
        for bookie in cluster.bookies.values():
            bookie.start()
            bookie.rules.read_only = False
            if bookie.stopped is not None and not bookie.forgotten:
                bookie.go_on()

    def heal(self) -> None:
        """From now on nothing goes wrong; what is open is closed."""
        self.heal_cluster()
        world, cluster = self.world, self.cluster
        hung = world.random.choice(list(cluster.bookies.values()))
        # A bookie that takes no more entries is replaced, so another one must be up.
        spare = sum(one.up for one in cluster.bookies.values()) > cluster.shape.ensemble_size
        if world.random.random() < 0.5 and spare and self.may_lose(hung):
            world.note(f"{hung.name} hangs for ever")
            hung.stop()
        for writer in self.writers:
            if writer.stopped is not None:
                writer.go_on()
        world.after(WRITE_ON_MS, self.close_all)

    def close_all(self) -> None:
        """Open every ledger; who still writes is fenced."""
        for ledger_id in self.cluster.table.rows:
            self.close(ledger_id)

    def close(self, ledger_id: int) -> None:
        """Open a ledger as often as it takes."""
        if self.cluster.table.rows[ledger_id].metadata.closed:
            return
        last: list[ReaderProcess] = []

        def ended() -> None:
            self.count_recovery()
            if last[0].result is not Result.OK:
                self.world.after(self.world.random.randint(10, 100), lambda: self.close(ledger_id))

        reader = self.reader(ledger_id)
        last.append(reader)
        reader.told_recovered = ended
        reader.recover()

    def report(self) -> LedgerReport:
        """What it was."""
        cluster = self.cluster
        shape = cluster.shape
        rows = cluster.table.rows.values()
        return LedgerReport(
            self.world.seed,
            self.world.digest.hexdigest(),
            (shape.ensemble_size, shape.write_quorum, shape.ack_quorum),
            len(rows),
            sum(history.confirmed + 1 for history in cluster.checks.ledgers.values()),
            self.recoveries,
            sum(one.machine.failure is Result.LEDGER_FENCED for one in self.writers),
            sum(len(row.metadata.segments) for row in rows),
            self.crashes,
            sum(one.lost or one.bad_disk for one in cluster.bookies.values()),
            cluster.repairs,
        )


BOOKIE_TROUBLES: dict[str, Callable[[LedgerRun, SimulatedBookie], None]] = {
    "crash": LedgerRun.crash,
    "stop": LedgerRun.pause,
    "wipe": LedgerRun.wipe,
    "damage": LedgerRun.damage,
    "read only": LedgerRun.refuse_adds,
}
TROUBLES: dict[str, Callable[[LedgerRun], None]] = {
    "freeze": LedgerRun.freeze_writer,
    "recover": LedgerRun.recover_some,
    "kill": LedgerRun.kill_client,
    "cut": LedgerRun.cut_links,
    "mend": LedgerRun.mend_links,
    "power": LedgerRun.crash_all,
    "collect": LedgerRun.collect,
}
WORKER_TROUBLES: dict[str, Callable[[AutorecoveryProcesses], None]] = {
    "worker dies": AutorecoveryProcesses.worker_dies,
    "worker stands still": AutorecoveryProcesses.worker_stands_still,
}
