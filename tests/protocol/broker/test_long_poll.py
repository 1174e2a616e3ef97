"""Held pulls: what wakes them against a plain model, and that an arrival costs its own queue alone."""

from hypothesis import given
from hypothesis import strategies as st

from pyledger.config.delivery import DeliveryConfig
from pyledger.protocol.broker.long_poll import LongPollTable
from tests.support.processor_time import processor_seconds

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("park"), st.integers(0, 2), st.integers(0, 5), st.integers(0, 9)),
        st.tuples(st.just("arrive"), st.integers(0, 2), st.integers(0, 6), st.integers(0, 1)),
        st.tuples(st.just("time"), st.integers(0, 2000), st.just(0), st.just(0)),
        st.tuples(st.just("close"), st.integers(0, 2), st.just(0), st.just(0)),
        st.tuples(st.just("sweep"), st.integers(0, 6), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(EVENTS)
def test_pulls_wake_as_a_list_of_them_would(events: list[tuple[str, int, int, int]]) -> None:
    table = LongPollTable(DeliveryConfig())
    model: dict[int, tuple[int, int, int, bool]] = {}
    now_ms = 0
    for number, (what, first, second, third) in enumerate(events):
        woken, wanted = [], set()
        if what == "park":
            choosy = third % 2 == 1
            table.park(
                number,
                channel=third % 3,
                topic="T",
                queue_id=first,
                offset=second,
                hold_ms=third * 500,
                now_ms=now_ms,
                wanted=(lambda code, _: code == 1) if choosy else None,
            )
            model[number] = (first, second, now_ms + third * 500, choosy)
        elif what == "arrive":
            woken = table.arrive("T", first, second, third)
            wanted = {
                n
                for n, (q, o, _, choosy) in model.items()
                if q == first and second > o and (third or not choosy)
            }
        elif what == "time":
            now_ms += first
            woken = table.tick(now_ms)
            wanted = {n for n, (_, _, deadline, _) in model.items() if deadline <= now_ms}
        elif what == "close":
            gone = [n for n in model if events[n][3] % 3 == first]
            assert table.drop_channel(first) == len(gone)
            for n in gone:
                del model[n]
        else:
            woken = table.sweep(now_ms, lambda _topic, _queue, end=first: end)
            wanted = {n for n, (_, o, deadline, _) in model.items() if first > o or deadline <= now_ms}
        assert sorted(pull.request for pull in woken) == sorted(wanted)
        for n in wanted:
            del model[n]
        assert table.parked_count == len(model)
        assert (table.deadline_ms() is None) == (not model)


def test_an_arrival_does_not_look_at_other_queues() -> None:
    table = LongPollTable(DeliveryConfig())
    for number in range(100_000):
        hold_ms = 10_000 + number % 5000
        assert table.park(
            number, channel=number % 1000, topic="T", queue_id=number, offset=0, hold_ms=hold_ms, now_ms=0
        )

    def arrivals() -> None:
        for number in range(1000):
            assert table.arrive("T", 1_000_000 + number, 1) == []
            assert len(table.arrive("T", number, 1)) == 1

    assert processor_seconds(arrivals, 1) < 5, "each arrival looked at all of them"
    assert len(table.tick(20_000)) == 99_000
    assert table.describe() == "nothing is parked"
    assert table.deadline_ms() is None
