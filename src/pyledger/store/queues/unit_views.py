"""Numpy views of index units: the only module of the store that imports numpy.

`CQ_UNIT` is the unit of consume queue files, `BATCH_CQ_UNIT` that of batch queue files; both are big-endian
and have no padding. Arrays over mapped files are views: the file stays mapped as long as they exist.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyledger._core import KeyCollector, MappedFile

CQ_UNIT = np.dtype([("physical_offset", ">i8"), ("size_bytes", ">i4"), ("tags_code", ">i8")])
BATCH_CQ_UNIT = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("size_bytes", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
INDEX_ENTRY = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
COLLECTED_KEY = np.dtype(
    [("physical_offset", "i8"), ("store_timestamp", "i8"), ("key_hash", "i4"), ("of_tags", "i4")]
)
FILL_SIZE_BYTES = 0x7FFFFFFF
INDEX_HEADER_BYTES = 40
_BLOCK = 1 << 16

Units = NDArray[np.void]
IndexEntries = NDArray[np.void]
Raw = bytes | bytearray | memoryview
"""Raw units."""


def units_array(raw: Raw) -> Units:
    """View raw units of a consume queue, shape ``(n,)``, dtype `CQ_UNIT`; half a unit is left out."""
    return _view(raw, CQ_UNIT)


def batch_units_array(raw: Raw) -> Units:
    """View raw units of a batch queue, shape ``(n,)``, dtype `BATCH_CQ_UNIT`."""
    return _view(raw, BATCH_CQ_UNIT)


def _view(raw: Raw, unit: np.dtype[Any]) -> Units:
    return np.frombuffer(raw, unit, memoryview(raw).nbytes // unit.itemsize)


def plain_units(raw: Raw) -> bytes:
    """The 20 bytes that each unit of a batch queue has in common with one of a consume queue."""
    count = memoryview(raw).nbytes // BATCH_CQ_UNIT.itemsize
    rows = np.frombuffer(raw, np.uint8, count * BATCH_CQ_UNIT.itemsize).reshape(-1, BATCH_CQ_UNIT.itemsize)
    return rows[:, : CQ_UNIT.itemsize].tobytes()


def keep_tags(raw: Raw, codes: frozenset[int]) -> bytes:
    """Raw units whose tags code is one of `codes`, as consumers filter: by the lower 32 bits of the code.

    Units whose code is not the hash of a tag (delivery times, addresses of extended units) are kept; the
    caller must check their messages.
    """
    units = units_array(raw)
    stored = units["tags_code"].astype(np.int64)
    wanted = np.array(sorted(codes), dtype=np.int64).astype(np.int32)
    hit = np.isin(stored.astype(np.int32), wanted) | _no_hash(stored)
    return units[hit].tobytes()


def same_bytes(one: Raw, other: Raw) -> bool:
    """Whether two buffers hold the same bytes; faster than comparing memoryviews."""
    return np.array_equal(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8))


def drop_fill(raw: Raw) -> Raw:
    """Raw units without fill units, which name no record."""
    units = units_array(raw)
    fill = units["size_bytes"] == FILL_SIZE_BYTES
    return units[~fill].tobytes() if fill.any() else raw


def differing_units(found: Raw, wanted: Raw, unit_bytes: int) -> Iterator[tuple[int, str]]:
    """Index of each unit that is not as wanted, and how it differs; of equal length, 20 or 46 bytes each.

    A tags code that is an address (of an extended unit) or a delivery time is not compared.
    """
    view = batch_units_array if unit_bytes == BATCH_CQ_UNIT.itemsize else units_array
    have, want = view(found), view(wanted)
    fill = want["size_bytes"] == FILL_SIZE_BYTES
    names = [name for name in have.dtype.names or () if name not in ("compacted_offset", "reserved")]
    elsewhere = _no_hash(have["tags_code"])
    for name in names:
        wrong = (have[name] != want[name]) & ~fill
        if name == "tags_code":
            wrong &= ~elsewhere
        for index in np.flatnonzero(wrong).tolist():
            yield index, f"{name} is {have[name][index]}, its record gives {want[name][index]}"


def _no_hash(tags_code: NDArray[Any]) -> NDArray[np.bool_]:
    """Which tags codes are no 32-bit hash: delivery times, addresses of extended units."""
    codes = tags_code.astype(np.int64)
    return np.not_equal(codes, codes.astype(np.int32))


def index_entries(raw: MappedFile, slots: int, entry_count: int) -> IndexEntries:
    """View the entries of an index file: number 1, which is the first, to `entry_count` - 1."""
    start = INDEX_HEADER_BYTES + 4 * slots + INDEX_ENTRY.itemsize
    room = (memoryview(raw).nbytes - start) // INDEX_ENTRY.itemsize
    count = max(0, min(entry_count - 1, room))
    return np.frombuffer(memoryview(raw), INDEX_ENTRY, count, start) if count else np.empty(0, INDEX_ENTRY)


def leading_below(entries: IndexEntries, first: int, physical_offset: int) -> int:
    """How many entries from `first` on name places below a physical offset (bytes), without a break."""
    offsets = entries["physical_offset"]
    at = first
    while at < len(offsets):
        beyond = np.flatnonzero(offsets[at : at + _BLOCK] >= physical_offset)
        if len(beyond):
            return at + int(beyond[0]) - first
        at += _BLOCK
    return len(offsets) - first


def collected_keys(raw: KeyCollector) -> NDArray[np.void]:
    """View the keys of records, oldest first, dtype `COLLECTED_KEY`."""
    return np.frombuffer(memoryview(raw), COLLECTED_KEY) if len(raw) else np.empty(0, COLLECTED_KEY)


def without_tags(entries: IndexEntries, keys: NDArray[np.void]) -> NDArray[np.intp]:
    """Index of each entry that is not the one of a record's tags.

    RocketMQ 5.4 and later file each record by `topic#T#tags`, too; a folder may hold both sorts of records.
    """
    tags = keys[keys["of_tags"] != 0]
    return np.flatnonzero(~np.isin(_mixed(entries), _mixed(tags)))


def _mixed(entries: NDArray[np.void]) -> NDArray[np.uint64]:
    """Place and hash of each entry in one number: two pairs share it about once in 2**64."""
    places = entries["physical_offset"].astype(np.int64).view(np.uint64)
    hashes = entries["key_hash"].astype(np.int64).view(np.uint64)
    return places * np.uint64(0x9E3779B97F4A7C15) ^ hashes * np.uint64(0xC2B2AE3D27D4EB4F)


def strange_entries(
    entries: IndexEntries, keys: NDArray[np.void], min_physical_offset: int
) -> Iterator[tuple[int, str]]:
    """Index of each entry that names no record with such a key, and why.

    Entries of records below `min_physical_offset` (bytes) are of deleted ones and pass.
    """
    same = len(entries) == len(keys) and all(
        bool((entries[name] == keys[name]).all()) for name in ("physical_offset", "key_hash")
    )
    if same:
        return
    places = set(keys["physical_offset"].tolist())
    known = set(zip(keys["physical_offset"].tolist(), keys["key_hash"].tolist(), strict=True))
    found = zip(entries["physical_offset"].tolist(), entries["key_hash"].tolist(), strict=True)
    for index, (place, key_hash) in enumerate(found):
        if place >= min_physical_offset and (place, key_hash) not in known:
            what = "no record with this key" if place in places else "no record with keys"
            yield index, f"{what} is at physical offset {place}"
