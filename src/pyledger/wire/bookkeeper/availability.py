"""The list of a ledger's entries that a bookie has, as it answers it.

Source: BookKeeper util/AvailabilityOfEntriesOfLedger.java.
"""

import struct
from collections.abc import Iterable, Iterator

from pyledger.errors import LedgerFrameError

_LIST_HEAD = struct.Struct(">ii56x")
_LIST_GROUP = struct.Struct(">qqii")
_LIST_VERSION = 0


def encode_availability(runs: Iterable[range]) -> bytes:
    """Encode ascending ranges of entry ids. As upstream, each range is one group."""
    groups = [_LIST_GROUP.pack(run.start, run.start, len(run), 0) for run in runs]
    return b"".join((_LIST_HEAD.pack(_LIST_VERSION, len(groups)), *groups))


def decode_availability(data: bytes) -> Iterator[range]:
    """Yield the ranges of entry ids, lazily: a few bytes can encode billions of ids.

    Raises:
        LedgerFrameError: It is malformed.
    """
    if len(data) < _LIST_HEAD.size:
        raise LedgerFrameError(f"a list of entries of {len(data)} bytes is too short")
    version, count = _LIST_HEAD.unpack_from(data)
    if version != _LIST_VERSION or count < 0 or len(data) != _LIST_HEAD.size + count * _LIST_GROUP.size:
        raise LedgerFrameError(
            f"a list of entries of version {version}, {count} groups and {len(data)} bytes is malformed"
        )
    for at in range(count):
        first, last, size, period = _LIST_GROUP.unpack_from(data, _LIST_HEAD.size + at * _LIST_GROUP.size)
        if size < 0 or first < 0 or last < first or (last > first and period <= 0):
            raise LedgerFrameError(f"group {at} of a list of entries is malformed")
        for start in range(first, last + 1, period or 1):
            yield range(start, start + size)
