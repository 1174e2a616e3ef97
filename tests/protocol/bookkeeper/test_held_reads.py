"""Held reads of a ledger against a plain model, and what an add costs with many of them."""

from hypothesis import given
from hypothesis import strategies as st

from pyledger.protocol.bookkeeper.held_reads import SPARE_NUMBERS, HeldReads

ADD, DROP, TAKE, TAKE_ALL = range(4)
STEPS = st.lists(
    st.tuples(st.sampled_from([ADD, ADD, ADD, ADD, DROP, DROP, TAKE, TAKE_ALL]), st.integers(-1, 12)),
    max_size=400,
)


@given(STEPS)
def test_reads_are_held_until_more_is_confirmed_than_they_know(steps: list[tuple[int, int]]) -> None:
    held: HeldReads[int] = HeldReads()
    model: dict[int, int] = {}
    for key, (step, number) in enumerate(steps):
        if step == ADD:
            held.add(number, key, key)
            model[key] = number
        elif step == DROP and model:
            dropped = list(model)[number % len(model)]
            assert held.drop(model.pop(dropped), dropped) == dropped
        elif step == TAKE:
            expected = [one for one, known in model.items() if known < number]
            assert sorted(held.take(number)) == expected
            for one in expected:
                del model[one]
        elif step == TAKE_ALL:
            assert sorted(held.take_all()) == list(model)
            model.clear()
        assert sorted(held) == list(model)
        assert bool(held) == bool(model)


class Counted(int):
    """A number that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)


def test_an_add_asks_only_the_reads_that_it_answers() -> None:
    held: HeldReads[int] = HeldReads()
    for key in range(20_000):
        held.add(Counted(1_000_000 + key), key, key)
    Counted.comparisons = 0
    for confirmed in range(1000):
        assert held.take(confirmed) == []
    assert Counted.comparisons == 1000
    held.add(Counted(3), -1, -1)
    Counted.comparisons = 0
    assert held.take(5) == [-1]
    assert Counted.comparisons < 100


def test_numbers_that_are_held_no_more_take_no_memory() -> None:
    held: HeldReads[int] = HeldReads()
    held.add(7, 0, 0)
    for number in range(10_000):
        held.add(number + 100, 1, 1)
        held.drop(number + 100, 1)
        assert len(held._known) <= SPARE_NUMBERS + 4
    assert held.take(8) == [0]
    assert not held
