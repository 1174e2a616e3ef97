"""What the processes of a simulated cluster share: bookies, the metadata store, the network between them."""

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
"""How long clients of one history avoid a bookie that failed: mostly so short that ensembles change often."""
STALE_VIEWS = 0.1
"""Share of choices that go by who was there a while ago."""
Fault = Callable[[object], None]
"""A known bug to be built into each bookie, at each of its lives, and each process; only tests have such."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of all ledgers of a history."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Metadata as it is stored, and how often it was changed."""

    version: int
    metadata: LedgerMetadata


@dataclass
class MetadataTable:
    """The metadata store: what it does it does at once and for ever."""

    checks: LedgerChecks
    rows: dict[int, Stored] = field(default_factory=dict)
    compares: bool = True

    def create(self, metadata: LedgerMetadata) -> int:
        """Store a new ledger; its id."""
        ledger_id = len(self.rows)
        self.rows[ledger_id] = Stored(0, metadata)
        self.checks.ledgers[ledger_id] = LedgerHistory()
        return ledger_id

    def put(self, ledger_id: int, version: int, wanted: LedgerMetadata) -> bool:
        """Compare and set."""
        row = self.rows[ledger_id]
        if row.version != version and self.compares:
            return False
        self.checks.changed(ledger_id, row.metadata, wanted)
        self.rows[ledger_id] = Stored(row.version + 1, wanted)
        return True


@dataclass
class Cluster:
    """Everything that processes reach.

    Attributes:
        bookies: All that there ever were, by name.
        fault: See `Fault`.
        die: Crashes a bookie, which comes back.
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
    """Fragments that got other bookies."""

    def __post_init__(self) -> None:
        """No bookie, no ledger."""
        self.table = MetadataTable(self.checks)
        self.checks.on_disk = lambda name, ledger_id: self.bookies[name].on_disk(ledger_id)
        self.checks.disk_failed = self.disk_failed
        self.placement = Placement(self.world.random.shuffle)
        self.quarantine = Quarantine(self.world.random.choice(QUARANTINES_MS))
        self.fault(self.table)

    def add_bookie(self) -> SimulatedBookie:
        """One more, with an empty disk and a name of its own."""
        name = f"b{len(self.bookies)}"
        bookie = self.bookies[name] = SimulatedBookie(
            self.world, name, self.fault, slow_syncs=self.slow_syncs, die=self.die
        )
        bookie.look_up = self.look_up
        bookie.crash_at_sync = self.world.random.choice((0.0, 0.002, 0.02))
        bookie.start()
        return bookie

    def create_ledger(self, shape: Shape | None = None) -> int | None:
        """A new ledger, of the usual shape or another; None: too few bookies are there."""
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
        """Other bookies for those that failed; see `protocol.bookkeeper.writer.Replace`."""
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
        """The metadata of a ledger."""
        row = self.table.rows.get(ledger_id)
        return None if row is None else row.metadata

    def disk_failed(self, name: str) -> bool:
        """Whether a bookie's disk is lost or bad."""
        bookie = self.bookies[name]
        return bookie.lost or bookie.bad_disk

    def _stale(self) -> bool:
        return not self.world.healed and self.world.random.random() < STALE_VIEWS
