"""Rates over the last minute, against sums over a list of all that happened."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.protocol.client.consumer_stats import MINUTE_MS, TopicRates, Window

EVENTS = st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 50)), max_size=40)


@given(EVENTS, st.integers(0, 200_000))
def test_window_counts_what_is_not_too_old(steps: list[tuple[int, int]], pause_ms: int) -> None:
    window, happened, now_ms = Window(MINUTE_MS), [], 0
    for step_ms, amount in steps:
        now_ms += step_ms
        window.add(amount, now_ms)
        happened.append((now_ms, amount))
    now_ms += pause_ms
    part_ms = MINUTE_MS // 6
    oldest_ms = (now_ms // part_ms - 5) * part_ms
    kept = [amount for at_ms, amount in happened if at_ms >= oldest_ms]
    assert window.total(now_ms) == (sum(kept), len(kept))


def test_rates_of_a_topic() -> None:
    topic = TopicRates()
    topic.pulled(32, 4, 1000)
    topic.pulled(28, 8, 2000)
    for number in range(54):
        topic.consumed(1, 2, 3000 + number, failed=number % 9 == 0)
    rates = topic.rates(4000)
    assert (rates.pull_ms, rates.pulled_per_s) == (6, 1)
    assert (rates.consume_ms, rates.consumed_per_s) == (2, 48 / 60)
    assert (rates.failed_per_s, rates.failed_in_hour) == (pytest.approx(0.1), 6)
    later = topic.rates(4000 + 2 * MINUTE_MS)
    assert (later.pull_ms, later.pulled_per_s, later.consume_ms, later.consumed_per_s) == (0, 0, 0, 0)
    assert (later.failed_per_s, later.failed_in_hour) == (0, 6)
