"""Pulls that found nothing, held until a message arrives or their time is over.

A pull is held at its queue. An arrival checks only that queue. A tick checks the pulls whose time is over. A
sweep compares one number of each queue. So 100,000 held pulls cost an arrival nothing.

Differs: upstream checks every 5 s for pulls whose time is over, and answers up to 5 s late; here they are
answered on time. Pulls of a closed connection are dropped; upstream runs them again.

Source: RocketMQ broker/.../PullRequestHoldService.java, ManyPullRequest.java.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from pyledger.config.delivery import DeliveryConfig

SWEEP_INTERVAL_MS = 5000

QueueKey = tuple[str, int]
Key = TypeVar("Key", bound=Hashable)
Wanted = Callable[[int, Mapping[str, str] | None], bool]
"""Whether a message is wanted, by its tags code and, where they are known, its properties."""


@dataclass(eq=False, slots=True)
class ParkedPull:
    """One held request; `request` is the shell's and is handed back as it came."""

    request: object
    channel: Hashable
    queue: QueueKey
    offset: int
    """Queue offset that it waits for, units."""
    deadline_ms: int
    wanted: Wanted | None
    number: int
    parked: bool = True


class LongPollTable:
    """All parked pulls of a broker. What a method returns is no longer parked: run it again, without hold."""

    def __init__(self, config: DeliveryConfig) -> None:
        self.config = config
        self.queues: dict[QueueKey, dict[int, ParkedPull]] = {}
        self.channels: dict[Hashable, dict[int, ParkedPull]] = {}
        self.deadlines: list[tuple[int, int, ParkedPull]] = []
        self.numbers = count()
        self.parked_count = 0
        self.next_sweep_ms: int | None = None

    def park(
        self,
        request: object,
        *,
        channel: Hashable,
        topic: str,
        queue_id: int,
        offset: int,
        hold_ms: int,
        now_ms: int,
        wanted: Wanted | None = None,
    ) -> ParkedPull | None:
        """Hold a pull that found no message at its offset.

        Args:
            request: Handed back when the pull is to run again.
            channel: Connection that it came on.
            topic: Topic pulled from.
            queue_id: Queue pulled from.
            offset: Queue offset that it waits for, units.
            hold_ms: Time that the client allows.
            now_ms: The time.
            wanted: Which messages wake it; None: all.

        Returns:
            None when as many pulls as allowed are parked: answer this one now.
        """
        if self.parked_count >= self.config.parked_pulls_max:
            return None
        hold_ms = hold_ms if self.config.long_polling else self.config.short_polling_ms
        queue = (topic, queue_id)
        pull = ParkedPull(request, channel, queue, offset, now_ms + hold_ms, wanted, next(self.numbers))
        self.queues.setdefault(queue, {})[pull.number] = pull
        self.channels.setdefault(channel, {})[pull.number] = pull
        heapq.heappush(self.deadlines, (pull.deadline_ms, pull.number, pull))
        self.parked_count += 1
        if self.next_sweep_ms is None:
            self.next_sweep_ms = now_ms + self.sweep_interval_ms
        return pull

    @property
    def sweep_interval_ms(self) -> int:
        """Time between two sweeps."""
        return SWEEP_INTERVAL_MS if self.config.long_polling else self.config.short_polling_ms

    def arrive(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> list[ParkedPull]:
        """Return the pulls that a message wakes, in a queue that now ends at `max_offset`, units.

        Without a tags code every pull below the end wakes.

        Cost: one step for each pull parked at this queue.
        """
        parked = self.queues.get((topic, queue_id))
        if not parked:
            return []
        woken = [
            pull
            for pull in parked.values()
            if max_offset > pull.offset
            and (tags_code is None or pull.wanted is None or pull.wanted(tags_code, properties))
        ]
        return self._take(woken)

    def tick(self, now_ms: int) -> list[ParkedPull]:
        """The pulls whose time is over, soonest first."""
        due = []
        while self.deadlines and self.deadlines[0][0] <= now_ms:
            due.append(heapq.heappop(self.deadlines)[2])
        return self._take([pull for pull in due if pull.parked])

    def sweep(self, now_ms: int, max_offset: Callable[[str, int], int]) -> list[ParkedPull]:
        """Every 5 s: the pulls that a queue has outgrown, tags or not, and those whose time is over.

        Args:
            now_ms: The time.
            max_offset: End of a queue, units, by topic and queue id.

        Cost: one step for each queue with parked pulls.
        """
        woken = []
        for (topic, queue_id), parked in self.queues.items():
            end = max_offset(topic, queue_id)
            woken += [pull for pull in parked.values() if end > pull.offset]
        self._take(woken)
        self.next_sweep_ms = now_ms + self.sweep_interval_ms if self.parked_count else None
        return woken + self.tick(now_ms)

    def release(self, places: Iterable[tuple[QueueKey, int]]) -> None:
        """Forget pulls, by queue and number: what they wait for has come elsewhere."""
        rows = ((self.queues.get(queue, {}), number) for queue, number in places)
        self._take([row[number] for row, number in rows if number in row])

    def drop_channel(self, channel: Hashable) -> int:
        """Forget the pulls of a closed connection; returns how many."""
        return len(self._take(list(self.channels.get(channel, {}).values())))

    def deadline_ms(self) -> int | None:
        """When `tick` or `sweep` is next needed; None while nothing is parked."""
        while self.deadlines and not self.deadlines[0][2].parked:
            heapq.heappop(self.deadlines)
        times = [self.deadlines[0][0]] if self.deadlines else []
        return min([*times, self.next_sweep_ms]) if times and self.next_sweep_ms is not None else None

    def describe(self) -> str:
        """The parked pulls, a line for each queue."""
        lines = []
        for (topic, queue_id), parked in sorted(self.queues.items()):
            pulls = ", ".join(f"{p.request}@{p.offset} until {p.deadline_ms}" for p in parked.values())
            lines.append(f"{topic}/{queue_id}: {pulls}")
        return "\n".join(lines) or "nothing is parked"

    def _take(self, pulls: list[ParkedPull]) -> list[ParkedPull]:
        for pull in pulls:
            pull.parked = False
            remove(self.queues, pull.queue, pull.number)
            remove(self.channels, pull.channel, pull.number)
        self.parked_count -= len(pulls)
        if len(self.deadlines) > 2 * self.parked_count + 64:
            self.deadlines = [entry for entry in self.deadlines if entry[2].parked]
            heapq.heapify(self.deadlines)
        return pulls


def remove(table: dict[Key, dict[int, ParkedPull]], key: Key, number: int) -> None:
    """Take a pull out of one of the tables, and the row when it was the last."""
    row = table[key]
    del row[number]
    if not row:
        del table[key]
