"""Time and randomness of a simulation: one seed, and one heap with all planned events."""

import hashlib
import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import count
from random import Random


@dataclass(frozen=True)
class Faults:
    """Rates of the faults, until the world is healed. Shares are of frames, times in ms."""

    loss: float = 0.05
    duplicates: float = 0.05
    delay_ms_max: int = 200
    crash_interval_ms: int = 60_000
    clock_jump_ms_max: int = 0
    clock_drift_ppm_max: int = 0
    clogs: float = 0.0
    """Share of the frames that arrive up to `clog_ms_max` later."""
    clog_ms_max: int = 3000


@dataclass
class World:
    """The time, the random generator and the planned events."""

    seed: int
    faults: Faults = field(default_factory=Faults)
    now_ms: int = 1_000_000
    healed: bool = False
    """No more faults."""
    calm: bool = False
    """Set some time after `healed`: nothing new starts, everything must complete."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.numbers = count()
        self.digest = hashlib.sha256()
        self.log: list[str] = []

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action later."""
        heapq.heappush(self.events, (self.now_ms + delay_ms, next(self.numbers), action))

    def run(self, duration_ms: int) -> None:
        """Run all events of a span of time."""
        end_ms = self.now_ms + duration_ms
        while self.events and self.events[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self.events)
            action()
        self.now_ms = end_ms

    def note(self, text: str) -> None:
        """Add an event to the trace; two runs of one seed have equal traces."""
        line = f"{self.now_ms} {text}"
        self.digest.update(line.encode())
        self.log.append(line)
        del self.log[:-200]


class Network:
    """Connections between nodes that lose and duplicate frames.

    With `ordered` the frames of one connection arrive in order.
    """

    def __init__(self, world: World, *, ordered: bool = True) -> None:
        self.world, self.ordered = world, ordered
        self.last_ms: dict[tuple[Hashable, Hashable], int] = {}
        self.disconnected: set[tuple[Hashable, Hashable]] = set()
        """Links (source and target) that lose all frames until the world is healed."""
        self.late: set[tuple[Hashable, Hashable]] = set()
        """Links that delay a share of their frames."""
        self.held = 0.0
        """Share of the frames on `disconnected` and `late` links that arrive later, out of order."""
        self.held_ms_max = 0

    def send(self, source: Hashable, target: Hashable, deliver: Callable[[], None]) -> None:
        """Deliver a frame later; or lose or duplicate it."""
        world, faults = self.world, self.world.faults
        if self._holds(source, target):
            world.after(world.random.randint(1, self.held_ms_max), deliver)
            return
        if not world.healed and (
            (source, target) in self.disconnected or world.random.random() < faults.loss
        ):
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
        return (link in self.disconnected or link in self.late) and self.world.random.random() < self.held


class Clock:
    """The clock of a node; it drifts and may be set."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ahead_ms = 0
        limit_ppm = world.faults.clock_drift_ppm_max
        self.drift_ppm = world.random.randint(-limit_ppm, limit_ppm) if limit_ppm else 0

    @property
    def now_ms(self) -> int:
        """The time that the clock shows."""
        now_ms = self.world.now_ms
        return now_ms + self.ahead_ms + now_ms * self.drift_ppm // 1_000_000

    def jump(self) -> None:
        """Set the clock to a random time within the limit."""
        limit_ms = self.world.faults.clock_jump_ms_max
        self.ahead_ms = self.world.random.randint(-limit_ms, limit_ms)
