"""The rates at which a consumer pulls and consumes, by topic.

Source: RocketMQ client/.../stat/ConsumerStatsManager.java.
"""

from pyledger.model.lazy_dataclass import lazy_dataclass

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
PARTS = 6


class Window:
    """Sums over the last `span_ms`, with a resolution of a sixth of it."""

    def __init__(self, span_ms: int) -> None:
        self._part_ms = span_ms // PARTS
        self._sums = [0.0] * PARTS
        self._counts = [0] * PARTS
        self._newest = 0

    def add(self, amount: float, now_ms: float) -> None:
        """Count one event with its amount."""
        at = self._advance(now_ms)
        self._sums[at] += amount
        self._counts[at] += 1

    def total(self, now_ms: float) -> tuple[float, int]:
        """Return the sum of the amounts, and the number of events."""
        self._advance(now_ms)
        return sum(self._sums), sum(self._counts)

    def _advance(self, now_ms: float) -> int:
        """Clear the parts that have expired; return the current part."""
        newest = int(now_ms // self._part_ms)
        if newest == self._newest:
            return newest % PARTS
        for part in range(max(self._newest + 1, newest - PARTS + 1), newest + 1):
            self._sums[part % PARTS] = 0.0
            self._counts[part % PARTS] = 0
        self._newest = max(self._newest, newest)
        return self._newest % PARTS


@lazy_dataclass()
class Rates:
    """Values of the last minute: times are averages in ms, rates are messages per second."""

    pull_ms: float
    pulled_per_s: float
    consume_ms: float
    consumed_per_s: float
    failed_per_s: float
    failed_in_hour: int


class TopicRates:
    """Counts the messages of one topic. Times are ms of a monotonic clock."""

    def __init__(self) -> None:
        self._pull_ms, self._pulled = Window(MINUTE_MS), Window(MINUTE_MS)
        self._consume_ms, self._consumed = Window(MINUTE_MS), Window(MINUTE_MS)
        self._failed, self._failed_in_hour = Window(MINUTE_MS), Window(HOUR_MS)

    def pulled(self, count: int, took_ms: float, now_ms: float) -> None:
        """Count the messages of a pull."""
        self._pulled.add(count, now_ms)
        self._pull_ms.add(took_ms, now_ms)

    def consumed(self, count: int, took_ms: float, now_ms: float, *, failed: bool) -> None:
        """Count the messages of a listener's call."""
        self._consume_ms.add(took_ms, now_ms)
        if failed:
            self._failed.add(count, now_ms)
            self._failed_in_hour.add(count, now_ms)
        else:
            self._consumed.add(count, now_ms)

    def rates(self, now_ms: float) -> Rates:
        """Return the rates at a time."""

        def average(window: Window) -> float:
            amount, count = window.total(now_ms)
            return amount / count if count else 0.0

        def per_second(window: Window) -> float:
            return window.total(now_ms)[0] * 1000 / MINUTE_MS

        return Rates(
            average(self._pull_ms),
            per_second(self._pulled),
            average(self._consume_ms),
            per_second(self._consumed),
            per_second(self._failed),
            int(self._failed_in_hour.total(now_ms)[0]),
        )
