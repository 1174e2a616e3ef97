"""Which bookies are chosen: distinct ones, spread over racks and regions as far as there are."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.protocol.bookkeeper.placement import Placement

NAMES = [f"b{at}" for at in range(9)]
RACKS = {name: f"/region{at % 2}/rack{at % 3}" for at, name in enumerate(NAMES)}


@given(st.integers(), st.sets(st.sampled_from(NAMES)), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_an_ensemble(seed: int, there: set[str], size: int, quorum: int, racks: bool) -> None:
    placement = Placement(Random(seed).shuffle, RACKS.get if racks else {}.get)
    chosen = placement.ensemble(sorted(there), size, min(size, quorum))
    if len(there) < size:
        assert chosen is None
    else:
        assert chosen is not None
        assert len(set(chosen)) == size
        assert set(chosen) <= there


@given(st.integers(), st.integers(2, 4))
def test_neighbours_stand_in_other_racks(seed: int, size: int) -> None:
    racks = {name: f"/r/rack{at % 4}" for at, name in enumerate(NAMES)}
    chosen = Placement(Random(seed).shuffle, racks.get, racks_min=4).ensemble(NAMES, size, size)
    assert chosen is not None
    assert len({racks[name] for name in chosen}) == size


@given(st.integers())
def test_two_copies_stand_in_two_regions(seed: int) -> None:
    chosen = Placement(Random(seed).shuffle, RACKS.get).ensemble(NAMES, 2, 2)
    assert chosen is not None
    assert {RACKS[name].split("/")[1] for name in chosen} == {"region0", "region1"}


@given(st.integers())
def test_who_failed_is_avoided(seed: int) -> None:
    placement = Placement(Random(seed).shuffle)
    chosen = placement.ensemble(NAMES, 3, 3, avoid=NAMES[:6])
    assert chosen is not None
    assert set(chosen) == set(NAMES[6:])
    assert placement.ensemble(NAMES[:3], 3, 3, avoid=NAMES[:3]) is not None, (
        "rather one that failed than none"
    )


@pytest.mark.parametrize("seed", range(20))
def test_replacements(seed: int) -> None:
    placement = Placement(Random(seed).shuffle, RACKS.get)
    ensemble = ("b0", "b1", "b2")
    found = placement.replacements(ensemble, {1: "b1"}, NAMES)
    assert RACKS[found[1]] == RACKS["b1"] == RACKS["b7"], "first one of the same rack"
    assert placement.replacements(ensemble, {0: "b0", 2: "b2"}, ["b0", "b1", "b2", "b5"]) == {0: "b5"}
    assert placement.replacements(ensemble, {0: "b0"}, list(ensemble)) == {}
    two = placement.replacements(ensemble, {0: "b0", 2: "b2"}, NAMES)
    assert len({*two.values()}) == 2
    assert not {*two.values()} & {*ensemble}
