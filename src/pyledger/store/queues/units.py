"""Units of consume queues: raw bytes as files hold them, decoded one by one or a column at a time."""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from pyledger._core import select_units, unit_offsets, unit_sizes

UNIT_BYTES = 20
BATCH_UNIT_BYTES = 46
FILL_SIZE_BYTES = 0x7FFFFFFF
_UNIT = struct.Struct(">qiq")
_BATCH_UNIT = struct.Struct(">qiqqqhii")
_COMPARED_FIELDS = (
    "physical_offset",
    "size_bytes",
    "tags_code",
    "store_timestamp",
    "base_offset",
    "batch_size",
)
_COMPARED_UNITS = 256

Raw = bytes | bytearray | memoryview
"""Raw units."""


class Unit(NamedTuple):
    """One unit of a consume queue: where a record is."""

    physical_offset: int
    """In bytes."""
    size_bytes: int
    tags_code: int
    """Hash of the message's tags, its delivery time, or the address of an extended unit."""


class Units(Sequence[Unit]):
    """Units of one queue in the order of their queue offsets; immutable."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        """20 bytes each, big-endian: physical offset i64, size i32, tags code i64."""

    def __len__(self) -> int:
        return len(self.raw) // UNIT_BYTES

    @overload
    def __getitem__(self, index: int) -> Unit: ...
    @overload
    def __getitem__(self, index: slice) -> "Units": ...
    def __getitem__(self, index: int | slice) -> "Unit | Units":
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"the step of a slice of units is {step}, not 1")
            return Units(self.raw[start * UNIT_BYTES : stop * UNIT_BYTES])
        return Unit._make(_UNIT.unpack_from(self.raw, range(len(self))[index] * UNIT_BYTES))

    def __iter__(self) -> Iterator[Unit]:
        return map(Unit._make, _UNIT.iter_unpack(self.raw))

    @property
    def physical_offsets(self) -> list[int]:
        """The physical offset (bytes) of each record; a new list at each use."""
        return unit_offsets(self.raw).tolist()

    @property
    def sizes(self) -> list[int]:
        """The size (bytes) of each record; a new list at each use."""
        return unit_sizes(self.raw).tolist()


def keep_tags(raw: Raw, codes: frozenset[int]) -> bytes:
    """Raw units whose tags code is one of `codes`, as consumers filter: by the lower 32 bits of the code.

    Units whose code is not the hash of a tag (delivery times, addresses of extended units) are kept; the
    caller must check their messages.
    """
    return select_units(raw, array("i", sorted(codes)))


def plain_units(raw: Raw) -> bytes:
    """The 20 bytes that each unit of a batch queue has in common with one of a consume queue."""
    return b"".join(raw[at : at + UNIT_BYTES] for at in range(0, len(raw), BATCH_UNIT_BYTES))


def batch_at(raw: Raw, index: int) -> tuple[int, int]:
    """Queue offsets [first, end) of a batch, by the index of its unit."""
    first, size = struct.unpack_from(">qh", raw, index * BATCH_UNIT_BYTES + 28)
    return first, first + size


def batches_below(raw: Raw, queue_offset: int) -> int:
    """How many batches begin below a queue offset, by a binary search: units of a batch queue ascend."""
    indices = range(len(raw) // BATCH_UNIT_BYTES)
    return bisect_left(indices, queue_offset, key=lambda index: batch_at(raw, index)[0])


def same_bytes(one: Raw, other: Raw) -> bool:
    """Whether two buffers hold the same bytes; a copy of each costs less than comparing memoryviews."""
    return bytes(one) == bytes(other)


def differing_units(found: Raw, wanted: Raw, unit_bytes: int) -> Iterator[tuple[int, str]]:
    """Index of each unit that is not as wanted, and how it differs; of equal length, 20 or 46 bytes each.

    A tags code that is an address (of an extended unit) or a delivery time is not compared.
    """
    unit = _BATCH_UNIT if unit_bytes == BATCH_UNIT_BYTES else _UNIT
    block = _COMPARED_UNITS * unit_bytes
    for start in range(0, len(wanted), block):
        have, want = found[start : start + block], wanted[start : start + block]
        if same_bytes(have, want):
            continue
        pairs = zip(unit.iter_unpack(have), unit.iter_unpack(want), strict=True)
        for index, (ours, records) in enumerate(pairs, start // unit_bytes):
            if ours != records and records[1] != FILL_SIZE_BYTES:
                yield from ((index, detail) for detail in _differences(ours, records))


def _differences(found: tuple[int, ...], wanted: tuple[int, ...]) -> Iterator[str]:
    for name, have, want in zip(_COMPARED_FIELDS, found, wanted, strict=False):
        elsewhere = name == "tags_code" and not -(1 << 31) <= have < 1 << 31
        if have != want and not elsewhere:
            yield f"{name} is {have}, its record gives {want}"
