"""Columns of raw units, and the units that a consumer wants, against the obvious way."""

import struct
from array import array

from hypothesis import given
from hypothesis import strategies as st

from pyledger._core import select_units, unit_offsets, unit_sizes

UNIT = struct.Struct(">qiq")
FILL_SIZE_BYTES = 0x7FFFFFFF

sizes = st.one_of(st.just(FILL_SIZE_BYTES), st.integers(-(1 << 31), (1 << 31) - 1))
codes = st.one_of(st.integers(-3, 3), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(1 << 31, 1 << 62))
places = st.one_of(st.just(0), st.integers(-(1 << 63), (1 << 63) - 1))
units = st.lists(st.tuples(places, sizes, codes), max_size=30)
wanted = st.one_of(st.none(), st.frozensets(codes.filter(lambda code: code < 1 << 31)))


@given(units, wanted, st.binary(max_size=19))
def test_units_are_selected_as_consumers_filter(
    found: list[tuple[int, int, int]], tags: frozenset[int] | None, half_a_unit: bytes
) -> None:
    raw = b"".join(UNIT.pack(*unit) for unit in found) + half_a_unit
    kept = [
        unit
        for unit in found
        if unit[:2] != (0, FILL_SIZE_BYTES) and (tags is None or unit[2] in tags or unit[2] >= 1 << 31)
    ]
    assert (
        list(UNIT.iter_unpack(select_units(raw, None if tags is None else array("i", sorted(tags))))) == kept
    )
    assert unit_offsets(memoryview(raw)).tolist() == [unit[0] for unit in found]
    assert unit_sizes(raw).tolist() == [unit[1] for unit in found]
