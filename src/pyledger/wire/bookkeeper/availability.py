"""Which entries of a ledger a bookie has: runs of consecutive ids, and periods of such runs.

Source: BookKeeper proto/../util/AvailabilityOfEntriesOfLedger.java.
"""

import struct
from collections.abc import Iterable, Iterator

from pyledger.errors import LedgerFrameError

_HEAD = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
VERSION = 0


def encode_availability(runs: Iterable[range]) -> bytes:
    """Bytes that tell these runs of ids, which ascend. As upstream every run makes a group."""
    groups = [_GROUP.pack(run.start, run.start, len(run), 0) for run in runs]
    return b"".join((_HEAD.pack(VERSION, len(groups)), *groups))


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
