"""A bookie of a simulated cluster: the real rules over a disk that loses unsynced records in a crash."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from pyledger.errors import LedgerFileError, PyLedgerError
from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.bookie import (
    ENTRY_HEAD_BYTES,
    BookieRules,
    EntryRecord,
    Outcome,
    Record,
    rejection,
)
from pyledger.protocol.bookkeeper.messages import Status
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.simulator.world import World

SYNC_MS_MAX = 8
SLOW_SYNC_MS_MAX = 800
COLLECT_MS_MAX = 400
"""Maximum time between a read of the metadata and the deletion that follows from it."""
DAMAGED = 0.3
"""Share of entries that a bad disk damages."""
Reply = Callable[[m.Response], None]


class EntriesInMemory:
    """Entries of a bookie in memory; some of them may be damaged."""

    def __init__(self) -> None:
        """Start without entries."""
        self.ledgers: dict[int, dict[int, bytes]] = {}
        self.damaged: set[tuple[int, int]] = set()

    def can_hold(self, ledger_id: int, entry_id: int) -> bool:  # noqa: ARG002 - memory has no slots
        """Return True: memory holds any entry."""
        return True

    def put(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        """Store an entry, replacing an older copy."""
        self.ledgers.setdefault(ledger_id, {})[entry_id] = entry
        self.damaged.discard((ledger_id, entry_id))

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return an entry; None if it was never stored.

        Raises:
            LedgerFileError: It is damaged.
        """
        entry = self.ledgers.get(ledger_id, {}).get(entry_id)
        if entry is not None and (ledger_id, entry_id) in self.damaged:
            if len(entry) % 2:
                raise LedgerFileError("model disk", entry_id, "it cannot be read")
            return entry[:-1] + bytes([entry[-1] ^ 1])
        return entry

    def following(self, ledger_id: int, entry_id: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Return successive entries from an id up to a gap; each counts 4 bytes more than its size."""
        found: list[bytes] = []
        while len(found) < count_max and (entry := self.get(ledger_id, entry_id + len(found))) is not None:
            if (bytes_max := bytes_max - len(entry) - ENTRY_HEAD_BYTES) < 0:
                break
            found.append(entry)
        return found

    def last_entry_id(self, ledger_id: int) -> int | None:
        """Return the highest stored id."""
        return max(self.ledgers.get(ledger_id, ()), default=None)

    def entry_ranges(self, ledger_id: int) -> Iterator[range]:
        """Return the stored ids as ascending ranges without gaps."""
        ids = sorted(self.ledgers.get(ledger_id, ()))
        starts = ids[:1] + [after for before, after in pairwise(ids) if after != before + 1]
        ends = [before for before, after in pairwise(ids) if after != before + 1] + ids[-1:]
        return (range(start, end + 1) for start, end in zip(starts, ends, strict=True))


@dataclass
class SimulatedBookie:
    """Successive processes of one bookie on one disk.

    Attributes:
        journal: The written records; those before `synced` are on disk.
        life: Number of the process; a request reaches only the process that it was sent to.
        stopped: Actions that wait while the process is stopped; None while it runs.
        lost: Its disk is lost, or is treated as lost.
        forgotten: Its cookie is deleted too: an operator has removed it for good.
        slow_syncs: Share of syncs that take long.
        bad_disk: The disk damages some of the entries that are added from now on.
        damaged: Entries that the disk has damaged.
    """

    world: World
    name: str
    on_start: Callable[["SimulatedBookie"], None] = lambda _: None
    """Called when a process starts; tests inject known bugs here."""
    journal: list[Record] = field(default_factory=list)
    synced: int = 0
    life: int = 0
    up: bool = False
    lost: bool = False
    forgotten: bool = False
    stopped: list[Callable[[], None]] | None = None
    slow_syncs: float = 0.0
    bad_disk: bool = False
    damaged: set[tuple[int, int]] = field(default_factory=set)
    crash_at_sync: float = 0.0
    """Share of syncs during which the bookie crashes."""
    die: Callable[["SimulatedBookie"], None] = lambda bookie: bookie.crash()
    checks_cookie: bool = True
    """Whether a bookie with another disk stays down."""
    look_up: Callable[[int], LedgerMetadata | None] = lambda _: None
    """Returns the metadata of a ledger; None if it was deleted."""
    deleted: dict[int, int] = field(default_factory=dict)
    """The journal index up to which the entries of a ledger were deleted, by ledger."""
    keeps: Callable[[LedgerMetadata | None], bool] = lambda metadata: metadata is not None
    """Whether the garbage collection keeps a ledger."""

    def __post_init__(self) -> None:
        """Create a bookie; `start` starts it."""
        self.storage = EntriesInMemory()
        self.rules = BookieRules(self.storage)
        self._waiting: list[tuple[int, Reply, m.Response]] = []
        self._syncing = False
        self.answers_before_sync = False

    def start(self) -> None:
        """Start a process with the records on disk."""
        if self.up or self.forgotten or (self.lost and self.checks_cookie):
            return
        self.up = True
        self.life += 1
        self.storage = EntriesInMemory()
        self.rules = BookieRules(self.storage)
        for at, record in enumerate(self.journal):
            if not isinstance(record, EntryRecord) or at >= self.deleted.get(record.ledger_id, 0):
                self.rules.replay(record)
        self.storage.damaged = self.damaged
        self.world.note(f"{self.name} starts with {len(self.journal)}")
        self.on_start(self)

    def crash(self) -> None:
        """End this process; any prefix of the unsynced records may survive."""
        if not self.up:
            return
        random = self.world.random
        keep = random.randint(self.synced, len(self.journal)) if random.random() < 0.5 else self.synced
        del self.journal[keep:]
        self.synced = keep
        self.deleted = {ledger_id: min(end, keep) for ledger_id, end in self.deleted.items()}
        self.up = self._syncing = False
        self.stopped = None
        self.life += 1
        self._waiting.clear()
        self.world.note(f"{self.name} crashes, keeps {keep}")

    def wipe(self) -> None:
        """Lose the disk."""
        self.crash()
        self.lost = True
        self.journal.clear()
        self.damaged.clear()
        self.deleted.clear()
        self.bad_disk = False
        self.synced = 0
        self.world.note(f"{self.name} is wiped")

    def collect(self) -> None:
        """Delete the ledgers without metadata, some time after the metadata was read."""
        life = self.life
        for ledger_id in self.storage.ledgers:
            if not self.keeps(self.look_up(ledger_id)):
                delay_ms = self.world.random.randint(1, COLLECT_MS_MAX)
                self.world.after(delay_ms, partial(self.run, life, partial(self.delete, ledger_id)))

    def delete(self, ledger_id: int) -> None:
        """Delete the entries of a ledger."""
        self.world.note(f"{self.name} deletes {ledger_id}")
        self.storage.ledgers.pop(ledger_id, None)
        self.deleted[ledger_id] = len(self.journal)

    def on_disk(self, ledger_id: int) -> set[int]:
        """Return the readable entries of a ledger that survive a crash."""
        start = self.deleted.get(ledger_id, 0)
        return {
            record.entry_id
            for record in self.journal[start : self.synced]
            if isinstance(record, EntryRecord)
            and record.ledger_id == ledger_id
            and (ledger_id, record.entry_id) not in self.damaged
        }

    def stop(self) -> None:
        """Stop the process, as with SIGSTOP."""
        if self.up and self.stopped is None:
            self.stopped = []

    def resume(self) -> None:
        """Continue, and run the actions that waited."""
        held, self.stopped = self.stopped or [], None
        for action in held:
            action()

    def receive(self, life: int, request: m.Request, reply: Reply) -> None:
        """Handle a request if the process that it was sent to is still alive."""
        self.run(life, lambda: self.handle(request, reply))

    def run(self, life: int, action: Callable[[], None]) -> None:
        """Run an action in a process: now, or when it resumes."""
        if life != self.life or not self.up:
            return
        if self.stopped is not None:
            self.stopped.append(lambda: self.run(life, action))
        else:
            action()

    def handle(self, request: m.Request, reply: Reply) -> None:
        """Respond to a request, once its records are on disk."""
        try:
            outcome = self.rules.handle(request)
        except PyLedgerError:
            outcome = Outcome(rejection(request, Status.EIO))
        assert outcome.response is not None
        self.journal += outcome.records
        damages = self.bad_disk and not self.world.healed
        if damages and isinstance(request, m.AddRequest) and self.world.random.random() < DAMAGED:
            self.damaged.add((request.ledger_id, request.entry_id))
        if outcome.records and not self.answers_before_sync:
            self._waiting.append((len(self.journal), reply, outcome.response))
        else:
            reply(outcome.response)
        self._sync()

    def _sync(self) -> None:
        if self._syncing or self.synced == len(self.journal):
            return
        self._syncing = True
        world, life, end = self.world, self.life, len(self.journal)
        slow = not world.healed and world.random.random() < self.slow_syncs

        def synced() -> None:
            if life != self.life:
                return
            self.synced = end
            self.run(life, answer)

        def answer() -> None:
            self._syncing = False
            done = [one for one in self._waiting if one[0] <= end]
            self._waiting = [one for one in self._waiting if one[0] > end]
            for _, reply, response in done:
                reply(response)
            self._sync()

        def die() -> None:
            if life == self.life:
                self.die(self)

        delay_ms = world.random.randint(1, SLOW_SYNC_MS_MAX if slow else SYNC_MS_MAX)
        world.after(delay_ms, synced)
        if not world.healed and world.random.random() < self.crash_at_sync * (20 if slow else 1):
            world.after(world.random.randrange(delay_ms + 1), die)
