"""Which entries of a ledger a bookie has: runs of consecutive ids, and periods of such runs.

Source: BookKeeper proto/../util/AvailabilityOfEntriesOfLedger.java.
"""

import struct
from collections.abc import Iterable, Iterator

from pyledger.errors import LedgerFrameError

_HEAD = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
VERSION = 0


def encode_availability(entry_ids: Iterable[int]) -> bytes:
    """Bytes that tell these ids, which ascend. As upstream every run makes a group."""
    groups: list[list[int]] = []
    for entry_id in entry_ids:
        if groups and entry_id == groups[-1][0] + groups[-1][1]:
            groups[-1][1] += 1
        else:
            groups.append([entry_id, 1])
    parts = [_HEAD.pack(VERSION, len(groups))]
    parts += [_GROUP.pack(first, first, count, 0) for first, count in groups]
    return b"".join(parts)


def decode_availability(data: bytes) -> Iterator[range]:
    """Runs of ids, lazily: a few bytes can tell billions.

    Raises:
        LedgerFrameError: It is malformed.
    """
    if len(data) < _HEAD.size:
        raise LedgerFrameError(f"a list of entries of {len(data)} bytes is too short")
    version, count = _HEAD.unpack_from(data)
    if version != VERSION or count < 0 or len(data) != _HEAD.size + count * _GROUP.size:
        raise LedgerFrameError(
            f"a list of entries of version {version}, {count} groups and {len(data)} bytes is malformed"
        )
    for at in range(count):
        first, last, size, period = _GROUP.unpack_from(data, _HEAD.size + at * _GROUP.size)
        if size < 0 or first < 0 or last < first or (last > first and period <= 0):
            raise LedgerFrameError(f"group {at} of a list of entries is malformed")
        for start in range(first, last + 1, period or 1):
            yield range(start, start + size)
