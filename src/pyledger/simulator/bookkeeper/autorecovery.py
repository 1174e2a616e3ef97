"""Autorecovery of a simulated cluster: an auditor that marks ledgers, and workers that take them.

Workers die, or pause until their locks expire, so that two of them work on one ledger.
"""

from functools import partial
from itertools import count

from pyledger.protocol.bookkeeper.audit import AuditRules
from pyledger.protocol.bookkeeper.fragments import keeps_entries
from pyledger.simulator.bookkeeper.cluster import Cluster
from pyledger.simulator.bookkeeper.replication_worker import Flow, ReplicationProcess, follow

AUDITOR = "auditor"
WORKERS = 2
LOST_DELAY_MS_MAX = 1000
GRACE_MS_MAX = 400
SESSION_MS_MAX = 800


class UnderreplicatedLedgers:
    """Marks and locks of ledgers, as the metadata store keeps them."""

    def __init__(self) -> None:
        """Start without marks."""
        self.marks: dict[int, tuple[int, bool]] = {}
        """The version of each mark, and whether every entry has to be checked."""
        self.locks: dict[int, str] = {}
        self._versions = count()

    def mark(self, ledger_id: int, *, every_entry: bool = False) -> None:
        """Mark a ledger as under-replicated, or mark it again."""
        before = self.marks.get(ledger_id, (0, False))[1]
        self.marks[ledger_id] = next(self._versions), before or every_entry

    def free(self) -> list[int]:
        """Return the marked ledgers without a lock."""
        return [ledger_id for ledger_id in self.marks if ledger_id not in self.locks]

    def finish(self, ledger_id: int, version: int) -> None:
        """Remove a mark, unless it was set again, and the lock."""
        if self.marks.get(ledger_id, (None,))[0] == version:
            del self.marks[ledger_id]
        self.locks.pop(ledger_id, None)

    def end_session(self, holder: str) -> None:
        """Remove the locks of one holder."""
        for ledger_id in [one for one, by in self.locks.items() if by == holder]:
            del self.locks[ledger_id]


class Worker:
    """Re-replicates one marked ledger after the other."""

    def __init__(self, cluster: Cluster, board: UnderreplicatedLedgers, name: str, grace_ms: int) -> None:
        """Create a worker; `work` starts it."""
        self.cluster, self.world, self.board, self.name = cluster, cluster.world, board, name
        self.grace_ms, self.alive = grace_ms, True
        self.process: ReplicationProcess | None = None

    def work(self) -> None:
        """Lock a ledger, or poll again later."""
        if not self.alive:
            return
        free, random = self.board.free(), self.world.random
        if not free:
            self.world.after(random.randint(20, 200), self.work)
            return
        ledger_id = random.choice(free)
        self.board.locks[ledger_id] = self.name
        version, every_entry = self.board.marks[ledger_id]
        self.process = ReplicationProcess(self.cluster, self.name, ledger_id)
        flow = self.process.replicate(self.grace_ms, every_entry=every_entry)
        follow(flow, partial(self.ended, ledger_id, version))

    def ended(self, ledger_id: int, version: int, whole: bool) -> None:
        """Release the ledger: it is fully replicated, or something failed."""
        self.world.note(f"{self.name} leaves {ledger_id} {whole}")
        self.process = None
        if whole:
            self.board.finish(ledger_id, version)
        else:
            self.board.locks.pop(ledger_id, None)
        self.world.after(self.world.random.randint(1, 100), self.work)

    def die(self) -> None:
        """Stop; its lock is released when its session ends."""
        self.alive = False
        if self.process is not None:
            self.process.die()
        self._end_session_later()

    def pause(self) -> None:
        """Pause for a while; the session may end in the meantime."""
        process, random = self.process, self.world.random
        if process is None or process.stopped is not None:
            return
        process.stopped = []
        self._end_session_later()
        self.world.after(random.randint(1, 2 * SESSION_MS_MAX), process.resume)

    def _end_session_later(self) -> None:
        delay_ms = self.world.random.randint(50, SESSION_MS_MAX)
        self.world.after(delay_ms, partial(self.board.end_session, self.name))


class AutorecoveryProcesses:
    """Autorecovery of one cluster.

    Attributes:
        workers: The live workers.
        clean: Whether the last check of all entries found no missing replica.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Start the workers and the auditor."""
        self.cluster, self.world, self.board = cluster, cluster.world, UnderreplicatedLedgers()
        random = self.world.random
        self.clean = False
        self.workers: list[Worker] = []
        self._names = count()
        self._rules, self._delay_ms = AuditRules(), random.randint(0, LOST_DELAY_MS_MAX)
        self._grace_ms = random.randint(1, GRACE_MS_MAX)
        for _ in range(WORKERS):
            self.start_worker()
        self.audit()
        self.world.after(random.randint(100, 1000), self.check)

    def start_worker(self) -> None:
        """Start one more worker."""
        worker = Worker(self.cluster, self.board, f"a{next(self._names)}", self._grace_ms)
        self.workers.append(worker)
        worker.work()

    def worker_dies(self) -> None:
        """Kill a worker; another one starts later."""
        if not self.workers:
            return
        worker = self.world.random.choice(self.workers)
        self.workers.remove(worker)
        self.world.note(f"{worker.name} dies")
        worker.die()
        self.world.after(self.world.random.randint(1, 500), self.start_worker)

    def worker_pauses(self) -> None:
        """Pause a worker."""
        if self.workers:
            self.world.random.choice(self.workers).pause()

    def heal(self) -> None:
        """Resume paused workers."""
        for worker in self.workers:
            if worker.process is not None and worker.process.stopped is not None:
                worker.process.resume()

    # --- the auditor

    def audit(self) -> None:
        """Mark the ledgers of bookies that have been lost for longer than the delay."""
        cluster, now_ms = self.cluster, self.world.now_ms
        self._rules.update(cluster.known(), cluster.registered(), now_ms, self._delay_ms)
        lost = self._rules.due(now_ms)
        for ledger_id, row in cluster.table.rows.items():
            if any(keeps_entries(row.metadata, bookie) for bookie in sorted(lost)):
                self.board.mark(ledger_id)
        if not self.world.calm:
            self.world.after(self.world.random.randint(50, 300), self.audit)

    def check(self) -> None:
        """Check all ledgers, one after the other; in a healed world check every entry."""
        if not self.world.calm:
            follow(self._check_all(every_entry=self.world.healed), self._checked)

    def _check_all(self, *, every_entry: bool) -> Flow:
        under_replicated = 0
        for ledger_id in list(self.cluster.table.rows):
            process = ReplicationProcess(self.cluster, AUDITOR, ledger_id)
            found = yield from process.examine(every_entry=every_entry)
            if found is None or found.missing_replicas:
                under_replicated += 1
                self.board.mark(ledger_id, every_entry=every_entry)
        return every_entry and not under_replicated

    def _checked(self, clean: bool) -> None:
        self.clean = clean
        self.world.after(self.world.random.randint(200, 1000), self.check)

    @property
    def done(self) -> bool:
        """Whether the last check was clean and no ledger is marked."""
        return self.clean and not self.board.marks
