"""A simulated cluster, shared by its processes: bookies, the metadata store, the network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.ledger_writer import Replacements
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, Segment
from pyledger.protocol.bookkeeper.placement import Placement
from pyledger.protocol.bookkeeper.quarantine import Quarantine, replacements
from pyledger.simulator.bookkeeper.bookie import SimulatedBookie
from pyledger.simulator.bookkeeper.checks import LedgerChecks, LedgerHistory
from pyledger.simulator.world import Network, World

METADATA = "metadata"
QUARANTINES_MS = (10, 10, 400, 5_000)
"""How long clients avoid a failed bookie; mostly short, so that ensembles change often."""
STALE_VIEWS = 0.1
"""Share of choices that use an outdated list of bookies."""
Fault = Callable[[object], None]
"""Injects a known bug into each process and each start of a bookie; only tests use it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The quorums of all ledgers of a history."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Stored metadata with its version."""

    version: int
    metadata: LedgerMetadata


@dataclass
class MetadataTable:
    """The metadata store: each operation is immediate and durable."""

    checks: LedgerChecks
    rows: dict[int, Stored] = field(default_factory=dict)
    compares: bool = True

    def create(self, metadata: LedgerMetadata) -> int:
        """Store a new ledger, and return its id."""
        ledger_id = len(self.rows)
        self.rows[ledger_id] = Stored(0, metadata)
        self.checks.ledgers[ledger_id] = LedgerHistory()
        return ledger_id

    def put(self, ledger_id: int, version: int, wanted: LedgerMetadata) -> bool:
        """Replace the metadata if its version matches; return whether it did."""
        row = self.rows[ledger_id]
        if row.version != version and self.compares:
            return False
        self.checks.changed(ledger_id, row.metadata, wanted)
        self.rows[ledger_id] = Stored(row.version + 1, wanted)
        return True


@dataclass
class Cluster:
    """A cluster, as its processes see it.

    Attributes:
        bookies: All bookies ever added, by name.
        fault: See `Fault`.
        die: Crashes a bookie, which restarts later.
        slow_syncs: Share of syncs that take long.
    """

    world: World
    network: Network
    shape: Shape
    checks: LedgerChecks
    fault: Fault
    die: Callable[[SimulatedBookie], None]
    slow_syncs: float = 0.0
    bookies: dict[str, SimulatedBookie] = field(default_factory=dict)
    repairs: int = 0
    """Fragments whose bookies were replaced."""

    def __post_init__(self) -> None:
        """Start without bookies and ledgers."""
        self.table = MetadataTable(self.checks)
        self.checks.on_disk = lambda name, ledger_id: self.bookies[name].on_disk(ledger_id)
        self.checks.disk_failed = self.disk_failed
        self.placement = Placement(self.world.random.shuffle)
        self.quarantine = Quarantine(self.world.random.choice(QUARANTINES_MS))
        self.fault(self.table)

    def add_bookie(self) -> SimulatedBookie:
        """Add a bookie with an empty disk."""
        name = f"b{len(self.bookies)}"
        bookie = self.bookies[name] = SimulatedBookie(
            self.world, name, self.fault, slow_syncs=self.slow_syncs, die=self.die
        )
        bookie.look_up = self.look_up
        bookie.crash_at_sync = self.world.random.choice((0.0, 0.002, 0.02))
        bookie.start()
        return bookie

    def create_ledger(self, shape: Shape | None = None) -> int | None:
        """Create a ledger and return its id; None if there are too few bookies."""
        shape = shape or self.shape
        ensemble = self.placement.ensemble(self.writable(), shape.ensemble_size, shape.write_quorum)
        if ensemble is None:
            return None
        made = LedgerMetadata(
            ensemble_size=shape.ensemble_size,
            write_quorum=shape.write_quorum,
            ack_quorum=shape.ack_quorum,
            segments=(Segment(0, ensemble),),
            digest=DigestType.CRC32C,
            password=b"",
        )
        return self.table.create(made)

    def replace(self, ensemble: tuple[str, ...], failed: Mapping[int, str], needed: bool) -> Replacements:
        """Choose bookies to replace failed ones."""
        now_ms, writable = self.world.now_ms, self.writable()
        return replacements(
            self.placement, self.quarantine, writable, ensemble, failed, now_ms, needed=needed
        )

    def writable(self) -> list[str]:
        """Return the writable bookies; the list is sometimes out of date."""
        stale = self._stale()
        return [
            name
            for name, bookie in self.bookies.items()
            if (bookie.up and bookie.stopped is None and not bookie.rules.read_only)
            or (stale and not bookie.forgotten)
        ]

    def registered(self) -> frozenset[str]:
        """Return all registered bookies; the list is sometimes out of date."""
        stale = self._stale()
        there = (one for one in self.bookies.values() if (one.up and one.stopped is None) or stale)
        return frozenset(one.name for one in there if not one.forgotten)

    def known(self) -> frozenset[str]:
        """Return the bookies that have a cookie."""
        return frozenset(name for name, bookie in self.bookies.items() if not bookie.forgotten)

    def look_up(self, ledger_id: int) -> LedgerMetadata | None:
        """Return the metadata of a ledger; None if it was deleted."""
        row = self.table.rows.get(ledger_id)
        return None if row is None else row.metadata

    def disk_failed(self, name: str) -> bool:
        """Return whether a bookie's disk is lost or bad."""
        bookie = self.bookies[name]
        return bookie.lost or bookie.bad_disk

    def _stale(self) -> bool:
        return not self.world.healed and self.world.random.random() < STALE_VIEWS
