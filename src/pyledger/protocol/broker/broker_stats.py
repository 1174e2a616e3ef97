"""What a broker counts: messages put, given and sent back, over the last minute, hour and day.

Counting costs a table lookup and three additions; rates are computed from samples on request.

Source: RocketMQ common/.../StatsItem.java, StatsItemSet.java, Stats.java; store/.../BrokerStatsManager.java,
BrokerStats.java, StoreStatsService.java.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from typing import NamedTuple

MINUTE_PERIOD_MS = 10_000
HOUR_PERIOD_MS = 600_000
DAY_PERIOD_MS = 3_600_000
RATE_SAMPLES_MAX = 601
TENTHS = 10
IDLE_SAMPLES_MAX = 6 * 60 * 24
"""Samples of 10 s without a change after which a counter is dropped."""


class Sample(NamedTuple):
    """A counter at a time."""

    time_ms: int
    messages: int
    size_bytes: int
    calls: int


class SpanCount(NamedTuple):
    """What was counted over a span."""

    total: int
    per_second: float
    per_call: float


NOTHING = SpanCount(0, 0.0, 0.0)


class Counter:
    """A count that only grows, and its samples."""

    __slots__ = ("calls", "days", "hours", "idle_samples", "messages", "minutes", "size_bytes")

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.calls = 0
        self.idle_samples = 0
        self.minutes: deque[Sample] = deque(maxlen=7)
        self.hours: deque[Sample] = deque(maxlen=7)
        self.days: deque[Sample] = deque(maxlen=25)

    def sample(self, now_ms: int, tick: int) -> None:
        """Every 10 s, with a tick that counts them."""
        sample = Sample(now_ms, self.messages, self.size_bytes, self.calls)
        unchanged = bool(self.minutes) and self.minutes[-1][1:] == sample[1:]
        self.idle_samples = self.idle_samples + 1 if unchanged else 0
        for samples, period_ms in self._spans():
            if tick % (period_ms // MINUTE_PERIOD_MS) == 0:
                append(samples, sample, period_ms)

    def spans(self, field: str) -> tuple[SpanCount, SpanCount, SpanCount]:
        """Counts of the last minute, hour and day: `messages` or `size_bytes`."""
        at = Sample._fields.index(field)
        minute, hour, day = (difference(samples, at) for samples, _ in self._spans())
        return minute, hour, day

    def _spans(self) -> Iterable[tuple[deque[Sample], int]]:
        return (
            (self.minutes, MINUTE_PERIOD_MS),
            (self.hours, HOUR_PERIOD_MS),
            (self.days, DAY_PERIOD_MS),
        )


def append(samples: deque[Sample], sample: Sample, period_ms: int) -> None:
    """Add a sample; before the first one the count was 0."""
    if not samples:
        samples.append(Sample(sample.time_ms - period_ms, 0, 0, 0))
    samples.append(sample)


def difference(samples: deque[Sample], at: int) -> SpanCount:
    """What was counted between the first and the last sample."""
    if not samples:
        return NOTHING
    first, last = samples[0], samples[-1]
    total = last[at] - first[at]
    calls = last.calls - first.calls
    elapsed_ms = last.time_ms - first.time_ms
    return SpanCount(
        total, total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0, total / calls if calls else 0.0
    )


class CounterTable:
    """Counters of one kind by key: a topic, or a topic and a group.

    Each is sampled every 10 s, a tenth of them every second, so that many topics make no pause.
    """

    def __init__(self) -> None:
        self.counters: dict[Hashable, Counter] = {}
        self._tenths: list[dict[Hashable, Counter]] = [{} for _ in range(TENTHS)]
        self._made = 0

    def add(self, key: Hashable, messages: int, size_bytes: int, calls: int = 1) -> None:
        """Count one call, or several."""
        counter = self.counters.get(key)
        if counter is None:
            counter = self.counters[key] = self._tenths[self._made % TENTHS][key] = Counter()
            self._made += 1
        counter.messages += messages
        counter.size_bytes += size_bytes
        counter.calls += calls

    def sample(self, now_ms: int, second: int) -> None:
        """Every second, with a number that counts them; a counter unchanged for a day is dropped."""
        tick, tenth = divmod(second, TENTHS)
        idle = []
        for key, counter in self._tenths[tenth].items():
            counter.sample(now_ms, tick)
            if counter.idle_samples >= IDLE_SAMPLES_MAX:
                idle.append(key)
        for key in idle:
            del self.counters[key], self._tenths[tenth][key]

    def per_second(self, key: Hashable) -> float:
        """Messages a second over the last minute."""
        counter = self.counters.get(key)
        return 0.0 if counter is None else counter.spans("messages")[0].per_second


class Totals(NamedTuple):
    """All that a broker has counted, at a time."""

    time_ms: int
    put: int = 0
    found: int = 0
    """Pulls that found a message."""
    missed: int = 0
    """Pulls that found none."""
    given: int = 0
    """Messages given to pulls."""


class BrokerCounts:
    """All counts of one broker."""

    def __init__(self) -> None:
        self.put = CounterTable()
        """By topic."""
        self.given = CounterTable()
        """By topic and group."""
        self.sent_back = CounterTable()
        """By topic and group."""
        self.messages_put = 0
        self.bytes_put = 0
        self.puts_failed = 0
        self.messages_given = 0
        self.pulls_found = 0
        self.pulls_missed = 0
        self._totals: deque[Totals] = deque(maxlen=RATE_SAMPLES_MAX)
        self._second = 0
        self._hour: int | None = None
        # Messages put and given: at the last midnight, and the one before.
        self.today_morning = (0, 0)
        self.yesterday_morning = (0, 0)

    def count_put(self, topic: str, messages: int, size_bytes: int, calls: int = 1) -> None:
        """Messages were stored, by one request or several: records of `size_bytes` in all."""
        self.messages_put += messages
        self.bytes_put += size_bytes
        self.put.add(topic, messages, size_bytes, calls)

    def count_pull(self, topic: str, group: str, messages: int, size_bytes: int, calls: int = 1) -> None:
        """Pulls were given records of `size_bytes` in all; or one was given none."""
        if not messages:
            self.pulls_missed += 1
            return
        self.pulls_found += calls
        self.messages_given += messages
        self.given.add((topic, group), messages, size_bytes, calls)

    def sample(self, now_ms: int, hour: int) -> None:
        """Every second, with the local hour: a new day begins when that decreases."""
        self._totals.append(
            Totals(now_ms, self.messages_put, self.pulls_found, self.pulls_missed, self.messages_given)
        )
        if self._hour is not None and hour < self._hour:
            self.yesterday_morning = self.today_morning
            self.today_morning = (self.messages_put, self.messages_given)
        self._hour = hour
        for table in (self.put, self.given, self.sent_back):
            table.sample(now_ms, self._second)
        self._second += 1

    def rates(self, field: str) -> tuple[float, float, float]:
        """Per second over the last 10 s, 1 min and 10 min: one of the fields of `Totals`, or `pulls`."""
        ten, sixty, six_hundred = (self._rate(field, seconds) for seconds in (10, 60, 600))
        return ten, sixty, six_hundred

    def _rate(self, field: str, seconds: int) -> float:
        if len(self._totals) < 2:
            return 0.0
        last = self._totals[-1]
        first = self._totals[max(0, len(self._totals) - 1 - seconds)]
        elapsed_ms = last.time_ms - first.time_ms
        return (amount(last, field) - amount(first, field)) * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0


def amount(totals: Totals, field: str) -> int:
    """A field of the totals; `pulls` are those that found something and those that did not."""
    if field == "pulls":
        return totals.found + totals.missed
    value: int = getattr(totals, field)
    return value


BY_TOPIC = frozenset({"TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"})
BYTES = frozenset({"TOPIC_PUT_SIZE", "GROUP_GET_SIZE"})
KEY_SEPARATOR = "@"


def counter_of(counts: BrokerCounts, name: str, key: str) -> Counter | None:
    """The counter of a statistic; None where nothing was counted, or the name is unknown."""
    tables: dict[str, CounterTable] = {
        "TOPIC_PUT_NUMS": counts.put,
        "TOPIC_PUT_SIZE": counts.put,
        "GROUP_GET_NUMS": counts.given,
        "GROUP_GET_SIZE": counts.given,
        "SNDBCK_PUT_NUMS": counts.sent_back,
    }
    table = tables.get(name)
    if table is None:
        return None
    return table.counters.get(key if name in BY_TOPIC else split_key(key))


def split_key(key: str) -> tuple[str, str]:
    """Topic and group of `topic@group`."""
    topic, _, group = key.partition(KEY_SEPARATOR)
    return topic, group


def spans_of(counts: BrokerCounts, name: str, key: str) -> tuple[SpanCount, SpanCount, SpanCount] | None:
    """A statistic over the last minute, hour and day; None where there is none."""
    counter = counter_of(counts, name, key)
    return None if counter is None else counter.spans("size_bytes" if name in BYTES else "messages")
