"""Counts and rates of a broker against a second, obvious account of the same events."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger.protocol.broker.broker_stats import BrokerCounts, Counter, CounterTable, spans_of

MINUTE_SAMPLES, HOUR_SAMPLES, DAY_SAMPLES = 6, 6, 24


def test_a_minute_an_hour_and_a_day_of_steady_puts() -> None:
    table = CounterTable()
    for second in range(60 * 60 * 25):
        if second % 10 == 0:
            table.add("T", 5, 1000)
        table.sample(second * 1000, second)
    minute, hour, day = table.counters["T"].spans("messages")
    assert (minute.total, hour.total, day.total) == (5 * 6, 5 * 360, 5 * 360 * 24)
    assert minute.per_second == hour.per_second == day.per_second == 0.5
    assert minute.per_call == 5.0
    assert table.counters["T"].spans("size_bytes")[0].total == 6000


def test_first_sample_counts_from_nothing() -> None:
    """As in Java: three messages before the first sample are 0.3 a second over its 10 s."""
    counter = Counter()
    counter.messages = counter.calls = 3
    counter.sample(1_000_000, 0)
    minute, _, _ = counter.spans("messages")
    assert (minute.total, minute.per_second, minute.per_call) == (3, 0.3, 1.0)


@settings(max_examples=200)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=400))
def test_spans_are_sums_of_what_was_added(added: list[int]) -> None:
    """A span is the sum of what was added since its first sample, in whole periods."""
    counter = Counter()
    for tick, messages in enumerate(added):
        counter.messages += messages
        counter.calls += 1
        counter.sample(tick * 10_000, tick)
    minute, hour, _ = counter.spans("messages")
    assert minute.total == sum(added[-MINUTE_SAMPLES:])
    # Taken every 60 ticks, from the first one on: what came after the last is not in it yet.
    marks = list(range(0, len(added), 60))
    totals = [0, *(sum(added[: mark + 1]) for mark in marks)][-HOUR_SAMPLES - 1 :]
    assert hour.total == sum(after - before for before, after in pairwise(totals))


def test_counter_that_is_idle_for_a_day_is_dropped() -> None:
    table = CounterTable()
    table.add("T", 1, 1)
    table.add("U", 1, 1)
    for second in range(10 * (6 * 60 * 24 + 1)):
        assert "T" in table.counters
        table.sample(second * 1000, second)
        if second % 10 == 0:
            table.add("U", 1, 1)
        if second == 86_400:
            break
    assert list(table.counters) == ["U"]
    table.add("T", 1, 1)
    assert table.counters["T"].messages == 1


def test_rates_of_ten_seconds_a_minute_and_ten_minutes() -> None:
    counts = BrokerCounts()
    assert counts.rates("put") == (0.0, 0.0, 0.0)
    for second in range(700):
        counts.sample(second * 1000, 12)
        # 10 a second at first, 100 a second in the last 20 s.
        counts.count_put("T", 100 if second >= 680 else 10, 1)
        counts.count_pull("T", "G", second % 2, 1)
    counts.sample(700_000, 12)
    ten, sixty, six_hundred = counts.rates("put")
    assert ten == pytest.approx(100)
    assert sixty == pytest.approx((20 * 100 + 40 * 10) / 60)
    assert six_hundred == pytest.approx((20 * 100 + 580 * 10) / 600)
    assert counts.rates("found")[0] == counts.rates("missed")[0] == counts.rates("given")[0] == 0.5
    assert counts.rates("pulls")[0] == 1.0


def test_midnight_moves_the_mornings() -> None:
    counts = BrokerCounts()
    for hour, put in ((22, 5), (23, 5), (0, 1), (1, 1), (23, 1), (0, 0)):
        counts.count_put("T", put, put)
        counts.sample(hour * 1000, hour)
    assert (counts.yesterday_morning[0], counts.today_morning[0], counts.messages_put) == (11, 13, 13)


def test_names_of_statistics_find_their_counters() -> None:
    counts = BrokerCounts()
    counts.count_put("T", 2, 300)
    counts.count_pull("T", "G", 3, 450)
    counts.sample(10_000, 12)
    found = {
        (name, key): spans[0].total
        for name, key in (
            ("TOPIC_PUT_NUMS", "T"),
            ("TOPIC_PUT_SIZE", "T"),
            ("GROUP_GET_NUMS", "T@G"),
            ("GROUP_GET_SIZE", "T@G"),
        )
        if (spans := spans_of(counts, name, key)) is not None
    }
    assert list(found.values()) == [2, 300, 3, 450]
    assert spans_of(counts, "TOPIC_PUT_NUMS", "U") is None
    assert spans_of(counts, "GROUP_GET_NUMS", "T") is None
    assert spans_of(counts, "SNDBCK_PUT_NUMS", "T@G") is None
    assert spans_of(counts, "UNKNOWN", "T") is None
