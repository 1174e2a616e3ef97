"""The queue to which a producer sends: round robin, without the broker that just failed or slow brokers.

Source: RocketMQ client/.../latency/MQFaultStrategy.java, LatencyFaultToleranceImpl.java,
impl/producer/TopicPublishInfo.java.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyledger.model.message import MessageQueue

LATENCY_MS = (50, 100, 550, 1800, 3000, 5000, 15_000)
PAUSE_MS = (0, 0, 2000, 5000, 6000, 10_000, 30_000)
FAILURE_LATENCY_MS = 10_000


def pause_after(latency_ms: float) -> int:
    """Return how long (ms) to avoid a broker that took `latency_ms` to answer."""
    pause_ms = 0
    for limit_ms, pause in zip(LATENCY_MS, PAUSE_MS, strict=True):
        if latency_ms >= limit_ms:
            pause_ms = pause
    return pause_ms


@dataclass(slots=True)
class BrokerHealth:
    """The last result of one broker."""

    latency_ms: float
    spared_until_ms: float
    reachable: bool


class FaultTable:
    """The brokers that were recently slow or failed."""

    def __init__(self) -> None:
        self._health: dict[str, BrokerHealth] = {}

    def update(
        self,
        broker_name: str,
        latency_ms: float,
        now_ms: float,
        *,
        failed: bool = False,
        reachable: bool = True,
    ) -> None:
        """Record the result of a send.

        Args:
            broker_name: The broker.
            latency_ms: Duration of the send.
            now_ms: Time of a monotonic clock.
            failed: The send failed; it counts as a slow one.
            reachable: Whether a connection could be opened.
        """
        pause_ms = pause_after(FAILURE_LATENCY_MS if failed else latency_ms)
        self._health[broker_name] = BrokerHealth(latency_ms, now_ms + pause_ms, reachable)

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Whether a broker need not be avoided now."""
        health = self._health.get(broker_name)
        return health is None or now_ms >= health.spared_until_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Whether a broker answered when it was last tried."""
        health = self._health.get(broker_name)
        return health is None or health.reachable

    def describe(self, now_ms: float) -> str:
        """Return one line for each broker."""
        return "\n".join(
            f"{name} {'available' if self.is_available(name, now_ms) else 'spared'}"
            f" {'reachable' if health.reachable else 'unreachable'}"
            f" pause={health.spared_until_ms - now_ms:.0f}"
            for name, health in sorted(self._health.items())
        )


class FaultStrategy:
    """Chooses among the queues of one topic, round robin."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        """Start at a random queue.

        Args:
            draw: Returns a random number below its argument.
        """
        self._draw = draw
        self._next = draw(1 << 31)

    def choose(
        self,
        queues: Sequence[MessageQueue],
        last_broker: str | None = None,
        faults: FaultTable | None = None,
        now_ms: float = 0,
    ) -> MessageQueue:
        """Return the queue for the next attempt.

        Args:
            queues: The queues of the topic, at least one.
            last_broker: Broker of the previous, failed attempt; avoided if there is another.
            faults: Brokers to avoid; None avoids none.
            now_ms: Time of the clock of `faults`.
        """
        if faults is None:
            tests: list[Callable[[str], bool]] = [lambda name: name != last_broker]
        else:
            if last_broker is not None:
                self._next = self._draw(1 << 31)
            tests = [
                lambda name: name != last_broker and faults.is_available(name, now_ms),
                lambda name: name != last_broker and faults.is_reachable(name),
            ]
        for accept in tests:
            for _ in queues:
                queue = self._take(queues)
                if accept(queue.broker_name):
                    return queue
        return self._take(queues)

    def _take(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        return queues[self.step(len(queues))]

    def step(self, count: int) -> int:
        """Return the index of the next of `count` queues."""
        index = self._next % count
        self._next = (self._next + 1) & 0x7FFFFFFF
        return index
