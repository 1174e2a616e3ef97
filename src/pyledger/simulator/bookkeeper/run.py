"""Histories of ledgers: first with faults, then in a healed world in which every ledger is closed and read.

Requests and responses are lost, duplicated, delayed and reordered. Bookies crash and lose unsynced records,
pause, or lose their disks. Writers pause and resume without knowing that they were fenced. Recoveries run
concurrently, die and restart.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pyledger.errors import PyLedgerError
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.simulator.bookkeeper.autorecovery import AutorecoveryProcesses
from pyledger.simulator.bookkeeper.bookie import DAMAGED, SimulatedBookie
from pyledger.simulator.bookkeeper.checks import LedgerChecks
from pyledger.simulator.bookkeeper.client_process import LedgerProcess, ReaderProcess, WriterProcess
from pyledger.simulator.bookkeeper.cluster import Cluster, Fault, Shape
from pyledger.simulator.bookkeeper.scenarios import SCENARIOS
from pyledger.simulator.safety import SafetyError, require
from pyledger.simulator.world import Faults, Network, World

TICK_MS = 10
WRITE_ON_MS = 3000
"""Time to write in a healed world, before all ledgers are closed."""
HEAL_MS = 5000
CALM_MS = 3000
LEDGERS_MAX = 3
"""Ledgers that are written concurrently."""
ENTRIES_MAX = 60
PAUSED_AT_FIRST = 0.1
"""Share of writers that pause before their first entry reaches a bookie."""
KINDS = (
    *("crash", "stop", "pause", "recover", "recover") * 2,
    *("kill", "drop links", "restore links", "wipe", "damage", "read only", "power"),
)
"""Kinds of faults; the first ones are more frequent."""
SCENARIO_EVERY = 8
"""One in this many histories has scenarios."""
REPAIRED = (1, 4, 5)
"""Seeds modulo 8 with autorecovery."""
REPAIR_KINDS = ("worker dies", "worker pauses", "collect")
LOSING_KINDS = (
    *("crash", "stop", "wipe", "wipe", "damage", "drop links", "restore links", "power"),
    *REPAIR_KINDS * 2,
)
"""Kinds of faults once all ledgers are closed."""
LOSSES = 2
"""How often disks are lost then, each time after all ledgers are fully replicated."""
REPAIR_MS = 30_000
REPAIR_POLL_MS = 200
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
    """The result of a run."""

    seed: int
    trace: str
    """Hash of all events: the same for the same seed on every machine."""
    shape: tuple[int, int, int]
    ledgers: int
    confirmed: int
    recoveries: int
    fenced: int
    """Writers that found themselves fenced."""
    segments: int
    crashes: int
    lost: int
    """Bookies that lost their disk or a part of it."""
    repairs: int
    """Fragments whose bookies were replaced."""

    def __str__(self) -> str:
        """Summarize the run in one line."""
        shape = "/".join(map(str, self.shape))
        return (
            f"{self.confirmed} entries confirmed in {self.ledgers} ledgers of {shape}, "
            f"{self.recoveries} recoveries, {self.fenced} writers fenced, {self.segments} segments, "
            f"{self.crashes} crashes, {self.lost} disks lost, {self.repairs} fragments repaired, "
            f"trace {self.trace[:16]}"
        )


def no_fault(_: object) -> None:
    """Inject no bug."""


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
        if (seed + 1) % SCENARIO_EVERY == 0:
            # Few other faults, so that scenarios complete.
            self.kinds = (*KINDS, *tuple(SCENARIOS) * 5)
            self.world.faults = replace(self.world.faults, crash_interval_ms=500, clogs=0.0)
        self.cluster = Cluster(self.world, network, shape, LedgerChecks(), fault, self.crash, slow_syncs)
        for _ in range(bookies):
            self.cluster.add_bookie()
        self.writers: list[WriterProcess] = []
        self.readers: list[ReaderProcess] = []
        self.autorecovery: AutorecoveryProcesses | None = None
        if seed % 8 in REPAIRED:
            self.autorecovery = AutorecoveryProcesses(self.cluster)
            self.kinds += REPAIR_KINDS
        for at in range(LEDGERS_MAX):
            self.world.after(random.randint(0, 100 * at), self.write)
        self.world.after(random.randint(50, 300), self.inject_fault)
        self.world.after(random.randint(10, 100), self.follow_some)

    # --- clients

    def write(self) -> None:
        """Start a writer of a new ledger; in a world with faults, schedule the next one."""
        cluster, random = self.cluster, self.world.random
        if (ledger_id := cluster.create_ledger()) is not None:
            entries = random.randint(1, ENTRIES_MAX)
            writer = WriterProcess(cluster, f"w{len(self.writers)}", ledger_id, entries)
            self.writers.append(writer)
            if not self.world.healed and random.random() < PAUSED_AT_FIRST:
                self.pause_writer(writer)
        if not self.world.healed:  # each chain ends with a ledger of the healed world
            self.world.after(random.randint(200, 1500), self.write)

    def follow_some(self) -> None:
        """Start a client that follows a ledger without recovering it."""
        random = self.world.random
        if self.world.calm:
            return
        if self.writers:
            reader = self.reader(random.choice(self.writers[-LEDGERS_MAX:]).ledger_id)
            for delay_ms in (0, random.randint(20, 300), random.randint(300, 1500)):
                reader.after(delay_ms, reader.follow_ledger)
        self.world.after(random.randint(20, 400), self.follow_some)

    def reader(self, ledger_id: int) -> ReaderProcess:
        """Create a reader process."""
        reader = ReaderProcess(self.cluster, f"r{len(self.readers)}", ledger_id, self.count_recovery)
        self.readers.append(reader)
        return reader

    def count_recovery(self) -> None:
        """Count a recovery that has ended."""
        self.recoveries += 1

    # --- faults

    def inject_fault(self) -> None:
        """Cause or clear a fault, and schedule the next one."""
        world, random = self.world, self.world.random
        if world.healed:
            return
        kind = random.choice(self.kinds)
        bookie = random.choice(list(self.cluster.bookies.values()))
        world.note(f"fault {kind} {bookie.name}")
        self.apply_fault(kind, bookie)
        world.after(random.randint(1, 2 * world.faults.crash_interval_ms), self.inject_fault)

    def apply_fault(self, kind: str, bookie: SimulatedBookie) -> None:
        """Cause a fault of one kind; faults of bookies affect `bookie`."""
        if kind in BOOKIE_FAULTS:
            BOOKIE_FAULTS[kind](self, bookie)
        elif kind in SCENARIOS:
            SCENARIOS[kind](self).begin()
        elif kind in WORKER_FAULTS:
            assert self.autorecovery is not None
            WORKER_FAULTS[kind](self.autorecovery)
        else:
            OTHER_FAULTS[kind](self)

    def crash_all(self) -> None:
        """Crash all bookies at once, or none."""
        if self.world.random.random() < 0.3:
            for one in self.cluster.bookies.values():
                self.crash(one)

    def restore_links(self) -> None:
        """Restore all links."""
        self.cluster.network.disconnected.clear()

    def collect(self) -> None:
        """Run the garbage collection of all bookies."""
        for one in self.cluster.bookies.values():
            one.collect()

    def may_lose(self, bookie: SimulatedBookie) -> bool:
        """Return whether one more bookie may lose entries: a replica of each acknowledged entry remains."""
        bookies = [one for one in self.cluster.bookies.values() if not one.forgotten]
        lost = sum(one.lost or one.bad_disk for one in bookies)
        more = not bookie.lost and not bookie.bad_disk
        return not bookie.lost and lost + more <= self.cluster.shape.ack_quorum - 1

    def crash(self, bookie: SimulatedBookie) -> None:
        """Crash a bookie; it restarts later."""
        if not bookie.up:
            return
        self.crashes += 1
        bookie.crash()
        random = self.world.random
        self.world.after(random.choice((5, 100, 1000)) + random.randint(0, 300), bookie.start)

    def pause(self, bookie: SimulatedBookie) -> None:
        """Pause a bookie for a while."""
        life, random = bookie.life, self.world.random
        bookie.stop()

        def resume() -> None:
            if bookie.life == life and bookie.stopped is not None:
                bookie.resume()

        self.world.after(random.choice((20, 300, 2000)) + random.randint(0, 200), resume)

    def pause_some_writer(self) -> None:
        """Pause a writer."""
        random = self.world.random
        writers = [one for one in self.writers if one.alive and one.stopped is None and not one.ended]
        if not writers:
            return
        self.pause_writer(random.choice(writers))

    def pause_writer(self, writer: WriterProcess) -> None:
        """Pause a writer; its ledger may be recovered and its bookies may crash in the meantime."""
        world, random = self.world, self.world.random
        writer.stopped = []
        world.note(f"{writer.name} pauses")
        world.after(random.randint(1, 1500), writer.resume)
        if random.random() < 0.8:
            world.after(random.randint(1, 300), lambda: self.recover(writer.ledger_id))
        if random.random() < 0.3:
            for name in writer.machine.metadata.segments[-1].ensemble:
                world.after(random.randint(1, 600), partial(self.crash, self.cluster.bookies[name]))

    def recover_some(self) -> None:
        """Start one or two recoveries of a ledger."""
        random = self.world.random
        if self.writers:
            recent = self.writers[-2 * LEDGERS_MAX :]
            busy = [one for one in recent if one.alive and not one.ended]
            ledger_id = random.choice(busy if busy and random.random() < 0.8 else recent).ledger_id
            for _ in range(random.choice((1, 1, 2))):
                self.world.after(random.randint(0, 50), lambda: self.recover(ledger_id))

    def recover(self, ledger_id: int) -> None:
        """Recover a ledger; one bookie may be unreachable at first, and so is not fenced at first."""
        reader, random, cut = self.reader(ledger_id), self.world.random, self.cluster.network.disconnected
        if random.random() < 0.5:
            link = (reader.name, random.choice(reader.known.metadata.segments[-1].ensemble))
            cut.add(link)
            self.world.after(random.randint(1, 150), partial(cut.discard, link))
        reader.recover()

    def kill_client(self) -> None:
        """Kill a writer or a recovery."""
        random = self.world.random
        clients: list[LedgerProcess] = [one for one in self.writers if one.alive and not one.ended]
        clients += [one for one in self.readers if one.alive and one.machine and one.result is None]
        if clients:
            client = random.choice(clients)
            client.alive = False
            self.world.note(f"{client.name} dies")

    def drop_links(self) -> None:
        """Drop some links, in one direction."""
        random, network = self.world.random, self.cluster.network
        clients = [one.name for one in (*self.writers[-LEDGERS_MAX:], *self.readers[-LEDGERS_MAX:])]
        if self.autorecovery is not None:
            clients += [worker.name for worker in self.autorecovery.workers]
        for bookie in random.sample(
            list(self.cluster.bookies), random.randint(1, 2) % len(self.cluster.bookies)
        ):
            for client in clients:
                if random.random() < 0.5:
                    ends = (client, bookie)
                    network.disconnected.add(ends if random.random() < 0.5 else ends[::-1])

    def wipe(self, bookie: SimulatedBookie) -> None:
        """Remove a bookie's disk, and add another bookie."""
        if self.world.random.random() < 0.5 and self.may_lose(bookie):
            self.crashes += 1
            bookie.wipe()
            self.cluster.add_bookie()
            self.world.after(self.world.random.randint(5, 1000), bookie.start)

    def change_read_only(self, bookie: SimulatedBookie) -> None:
        """Make a bookie read-only, or writable again."""
        bookie.rules.read_only = self.world.random.random() < 0.5
        bookie.rules.takes_recovery_adds = self.world.random.random() < 0.7

    def damage(self, bookie: SimulatedBookie) -> None:
        """Damage stored and later entries."""
        if not self.may_lose(bookie):
            return
        bookie.bad_disk = True
        for ledger_id, entries in bookie.storage.ledgers.items():
            chosen = [entry_id for entry_id in entries if self.world.random.random() < DAMAGED]
            bookie.damaged.update((ledger_id, entry_id) for entry_id in chosen)

    # --- the history

    def run(self, ticks: int) -> LedgerReport:
        """Run the history: `ticks` of 10 ms with faults, then a healed world."""
        try:
            return self._run(ticks)
        except PyLedgerError as error:
            raise SafetyError(f"state machines raise no error: {error}") from error

    def _run(self, ticks: int) -> LedgerReport:
        world = self.world
        world.run(ticks * TICK_MS)
        self.heal()
        world.run(WRITE_ON_MS + HEAL_MS)
        rows = self.cluster.table.rows
        left = [ledger_id for ledger_id, row in rows.items() if not row.metadata.closed]
        require(not left, "a healed cluster closes its ledgers", left)
        if self.autorecovery is not None:
            self.lose_again(self.autorecovery, ticks * TICK_MS // 4)
        world.calm = True
        readers = [self.reader(ledger_id) for ledger_id in rows]
        for reader in readers:
            reader.read_all()
        world.run(CALM_MS)
        for reader in readers:
            missing = f"{reader.missing} of ledger {reader.ledger_id}"
            require(not reader.missing, "what is acknowledged can be read", missing)
        return self.report()

    def lose_again(self, autorecovery: AutorecoveryProcesses, time_ms: int) -> None:
        """Lose disks repeatedly while all ledgers are closed, each time after full re-replication."""
        self.kinds = LOSING_KINDS
        for _ in range(LOSSES):
            self.wait_for_replicas(autorecovery)
            for bookie in self.cluster.bookies.values():
                bookie.forgotten |= bookie.lost or bookie.stopped is not None
                bookie.bad_disk = False
            self.world.healed = False
            self.world.note("faults again")
            self.inject_fault()
            self.world.run(time_ms)
            self.heal_cluster()
        self.wait_for_replicas(autorecovery)

    def wait_for_replicas(self, autorecovery: AutorecoveryProcesses) -> None:
        """Wait until a healed cluster has re-replicated all ledgers."""
        autorecovery.heal()
        autorecovery.clean = False
        end_ms = self.world.now_ms + REPAIR_MS
        while not autorecovery.done and self.world.now_ms < end_ms:
            self.world.run(REPAIR_POLL_MS)
        left = sorted(autorecovery.board.marks)
        require(autorecovery.done, "a healed cluster restores all replicas", f"{left} are marked")
        for ledger_id, row in self.cluster.table.rows.items():
            self.cluster.checks.replicas_last(ledger_id, row.metadata)
            missing = self.cluster.checks.missing_replicas(ledger_id, row.metadata)
            require(not missing, "a healed cluster restores all replicas", (ledger_id, sorted(missing)))

    def heal_cluster(self) -> None:
        """Clear all faults of bookies and links."""
        world, cluster = self.world, self.cluster
        world.healed = True
        cluster.network.disconnected.clear()
        world.note("healed")
        for bookie in cluster.bookies.values():
            bookie.start()
            bookie.rules.read_only = False
            if bookie.stopped is not None and not bookie.forgotten:
                bookie.resume()

    def heal(self) -> None:
        """Clear all faults; all ledgers are closed later."""
        self.heal_cluster()
        world, cluster = self.world, self.cluster
        hung = world.random.choice(list(cluster.bookies.values()))
        # The bookie that hangs has to be replaced, so there must be a spare one.
        spare = sum(one.up for one in cluster.bookies.values()) > cluster.shape.ensemble_size
        if world.random.random() < 0.5 and spare and self.may_lose(hung):
            world.note(f"{hung.name} hangs forever")
            hung.stop()
        for writer in self.writers:
            if writer.stopped is not None:
                writer.resume()
        world.after(WRITE_ON_MS, self.close_all)

    def close_all(self) -> None:
        """Recover every ledger, which fences its writer."""
        for ledger_id in self.cluster.table.rows:
            self.close(ledger_id)

    def close(self, ledger_id: int) -> None:
        """Recover a ledger, with retries until it is closed."""
        if self.cluster.table.rows[ledger_id].metadata.closed:
            return
        last: list[ReaderProcess] = []

        def ended() -> None:
            self.count_recovery()
            if last[0].result is not Result.OK:
                self.world.after(self.world.random.randint(10, 100), lambda: self.close(ledger_id))

        reader = self.reader(ledger_id)
        last.append(reader)
        reader.on_recovered = ended
        reader.recover()

    def report(self) -> LedgerReport:
        """Return the result."""
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


BOOKIE_FAULTS: dict[str, Callable[[LedgerRun, SimulatedBookie], None]] = {
    "crash": LedgerRun.crash,
    "stop": LedgerRun.pause,
    "wipe": LedgerRun.wipe,
    "damage": LedgerRun.damage,
    "read only": LedgerRun.change_read_only,
}
OTHER_FAULTS: dict[str, Callable[[LedgerRun], None]] = {
    "pause": LedgerRun.pause_some_writer,
    "recover": LedgerRun.recover_some,
    "kill": LedgerRun.kill_client,
    "drop links": LedgerRun.drop_links,
    "restore links": LedgerRun.restore_links,
    "power": LedgerRun.crash_all,
    "collect": LedgerRun.collect,
}
WORKER_FAULTS: dict[str, Callable[[AutorecoveryProcesses], None]] = {
    "worker dies": AutorecoveryProcesses.worker_dies,
    "worker pauses": AutorecoveryProcesses.worker_pauses,
}
