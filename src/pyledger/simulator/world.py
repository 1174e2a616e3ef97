"""One timeline, one seed: everything that happens in a simulation is an entry of one heap."""

import hashlib
import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import count
from random import Random


@dataclass(frozen=True)
class Faults:
    """What goes wrong while the world is not healed. Shares are of frames, times in ms."""

    loss: float = 0.05
    duplicates: float = 0.05
    delay_ms_max: int = 200
    crash_interval_ms: int = 60_000
    clock_jump_ms_max: int = 0
    clock_drift_ppm_max: int = 0
    clogs: float = 0.0
    """Frames that are kept for long, and then arrive."""
    clog_ms_max: int = 3000


@dataclass
class World:
    """Time, chance, and what is planned."""

    seed: int
    faults: Faults = field(default_factory=Faults)
    now_ms: int = 1_000_000
    healed: bool = False
    """No more faults."""
    calm: bool = False
    """Healed for so long that everything must be in order."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.numbers = count()
        self.digest = hashlib.sha256()
        self.log: list[str] = []

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Plan an action."""
        heapq.heappush(self.events, (self.now_ms + delay_ms, next(self.numbers), action))

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + duration_ms
        while self.events and self.events[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self.events)
            action()
        self.now_ms = end_ms

    def note(self, text: str) -> None:
        """Remember what happened; two runs of one seed note the same."""
        line = f"{self.now_ms} {text}"
        self.digest.update(line.encode())
        self.log.append(line)
        del self.log[:-200]


class Network:
    """Connections between nodes: some frames are lost, some come twice.

    Those of one connection stay in order, unless each goes its own way.
    """

    def __init__(self, world: World, *, ordered: bool = True) -> None:
        self.world, self.ordered = world, ordered
        self.last_ms: dict[tuple[Hashable, Hashable], int] = {}
        self.cut: set[tuple[Hashable, Hashable]] = set()
        """Links, source and target, that carry nothing while the world is not healed."""
        self.late: set[tuple[Hashable, Hashable]] = set()
        """Links of which a share of the frames is held."""
        self.held = 0.0
        """Share of the frames on links that are cut, or late, that come after all, out of order."""
        self.held_ms_max = 0

    def send(self, source: Hashable, target: Hashable, deliver: Callable[[], None]) -> None:
        """Take a frame along, perhaps."""
        world, faults = self.world, self.world.faults
        if self._holds(source, target):
            world.after(world.random.randint(1, self.held_ms_max), deliver)
            return
        if not world.healed and ((source, target) in self.cut or world.random.random() < faults.loss):
            return
        delay_ms = world.random.randint(1, 10 if world.healed else faults.delay_ms_max)
        if not world.healed and faults.clogs and world.random.random() < faults.clogs:
            delay_ms += world.random.randint(0, faults.clog_ms_max)
        earliest_ms = self.last_ms.get((source, target), 0) if self.ordered else 0
        arrival_ms = max(world.now_ms + delay_ms, earliest_ms)
        self.last_ms[source, target] = arrival_ms
        twice = not world.healed and world.random.random() < faults.duplicates
        world.after(arrival_ms - world.now_ms, deliver)
        if twice:
            again_ms = 0 if self.ordered else world.random.randint(0, faults.delay_ms_max)
            world.after(arrival_ms - world.now_ms + again_ms, deliver)

    def _holds(self, source: Hashable, target: Hashable) -> bool:
        if not self.held or self.world.healed:
            return False
        link = (source, target)
        return (link in self.cut or link in self.late) and self.world.random.random() < self.held


class Clock:
    """A node's own clock, which may be set while the world is not healed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ahead_ms = 0
        limit_ppm = world.faults.clock_drift_ppm_max
        self.drift_ppm = world.random.randint(-limit_ppm, limit_ppm) if limit_ppm else 0

    @property
    def now_ms(self) -> int:
        """What the clock shows."""
        now_ms = self.world.now_ms
        return now_ms + self.ahead_ms + now_ms * self.drift_ppm // 1_000_000

    def jump(self) -> None:
        """Set the clock to some other time."""
        limit_ms = self.world.faults.clock_jump_ms_max
        self.ahead_ms = self.world.random.randint(-limit_ms, limit_ms)
