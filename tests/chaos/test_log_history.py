"""The checker of histories: it passes what one log can give, and finds what none can."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.log_history import Append, Outcome, Read, violations

DONE, REFUSED, UNKNOWN = Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN


def found(appends: list[Append], reads: list[Read], log: dict[int, bytes]) -> list[str]:
    return list(violations(appends, reads, log))


def test_a_history_of_one_log_passes() -> None:
    appends = [
        Append(b"a", 0, 1, DONE, 1),
        Append(b"b", 2, 5, DONE, 4),
        Append(b"c", 3, 4, DONE, 3),  # began later and stands before: they overlap
        Append(b"d", 6, 7, UNKNOWN),
        Append(b"e", 6, 7, UNKNOWN),  # never came in
        Append(b"f", 8, 9, REFUSED),
        Append(b"g", 10, 11, DONE, 7),
    ]
    reads = [Read(0, 1, 0), Read(2, 6, 4), Read(3.5, 3.6, 2), Read(3.5, 3.6, 1), Read(12, 13, 9)]
    # "d" came in long after its client gave up; at 6 stands an entry of a leader.
    assert found(appends, reads, {1: b"a", 3: b"c", 4: b"b", 7: b"g", 8: b"d"}) == []


@pytest.mark.parametrize(
    ("appends", "reads", "log"),
    [
        pytest.param([Append(b"a", 0, 1, DONE, 1)], [], {}, id="acknowledged and lost"),
        pytest.param([Append(b"a", 0, 1, DONE, 1)], [], {2: b"a"}, id="stands elsewhere"),
        pytest.param([Append(b"a", 0, 1, UNKNOWN)], [], {1: b"a", 2: b"a"}, id="twice"),
        pytest.param([Append(b"a", 0, 1, REFUSED)], [], {1: b"a"}, id="refused and there"),
        pytest.param([], [], {1: b"a"}, id="of nobody"),
        pytest.param(
            [Append(b"a", 0, 1, DONE, 2), Append(b"b", 2, 3, DONE, 1)],
            [],
            {1: b"b", 2: b"a"},
            id="appends in the wrong order",
        ),
        pytest.param(
            [Append(b"a", 0, 1, DONE, 2), Append(b"b", 2, 3, UNKNOWN)],
            [],
            {1: b"b", 2: b"a"},
            id="an unknown one before one that had ended",
        ),
        pytest.param([Append(b"a", 0, 1, DONE, 1)], [Read(2, 3, 0)], {1: b"a"}, id="a stale read"),
        pytest.param([Append(b"a", 2, 3, DONE, 1)], [Read(0, 1, 1)], {1: b"a"}, id="a read of the future"),
        pytest.param([], [Read(0, 1, 5), Read(2, 3, 4)], {}, id="reads that go back"),
    ],
)
def test_what_cannot_be_is_found(appends: list[Append], reads: list[Read], log: dict[int, bytes]) -> None:
    assert found(appends, reads, log)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 3)), max_size=5))
def test_it_agrees_with_trying_every_order(drawn: list[tuple[int, int, int]]) -> None:
    """Times and, for reads, indexes are drawn; the first of each index is its append."""
    appends: dict[int, Append] = {}
    reads = []
    for first, second, index in drawn:
        begin, end = sorted((first, second))
        if index in appends:
            reads.append(Read(begin, end, index))
        else:
            appends[index] = Append(b"%d" % index, begin, end, DONE, index)
    log = {index: one.body for index, one in appends.items()}
    operations = [(2 * index, one.begin, one.end) for index, one in appends.items()]
    operations += [(2 * read.index + 1, read.begin, read.end) for read in reads]
    possible = any(map(is_possible, permutations(operations)))
    assert bool(found(list(appends.values()), reads, log)) == (not possible)


def is_possible(order: tuple[tuple[int, float, float], ...]) -> bool:
    """Is this order one of the log and of the clock?"""
    places = [place for place, _, _ in order]
    if places != sorted(places):
        return False
    return all(later[2] >= earlier[1] for at, earlier in enumerate(order) for later in order[at + 1 :])
