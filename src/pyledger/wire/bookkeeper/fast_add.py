"""Adds of version 3 without the protobuf library: a writer sends thousands of them a second.

The frames are the library's own, byte by byte. Ordinary adds are made natively, see `AddEncoder`; these are
all the others.
"""

_REQUEST_HEADER = b"\x08\x03\x10\x02\x18"
"""Version 3, ADD_ENTRY, and the tag of the number."""
_RECOVERY = b"\xa0\x06\x01"
_BYTES = tuple(bytes((value,)) for value in range(0x80))


def varint(value: int) -> bytes:
    """A number that is not negative, as protobuf writes it."""
    if value < 0x80:
        return _BYTES[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def encode_add(
    number: int,
    ledger_id: int,
    entry_id: int,
    master_key: bytes,
    entry: bytes,
    *,
    deferred_sync: bool,
    recovery: bool = False,
) -> tuple[bytes, bytes, bytes]:
    """A whole frame with its length, in three parts: what is before the entry, the entry, what is behind it.

    Args:
        number: Of the request.
        ledger_id: Which.
        entry_id: Which.
        master_key: Of the ledger.
        entry: Whole, with its header.
        deferred_sync: May be answered before it is on disk.
        recovery: Passes a fence.
    """
    behind = (b"\x28\x01" if deferred_sync else b"") + (_RECOVERY if recovery else b"")
    count = varint(number)
    about = b"\x08%b\x10%b\x1a%b%b\x22%b" % (
        varint(ledger_id),
        varint(entry_id),
        varint(len(master_key)),
        master_key,
        varint(len(entry)),
    )
    size = varint(len(about) + len(entry) + len(behind))
    before = b"\x0a%b%b%b\xaa\x06%b%b" % (
        _BYTES[len(_REQUEST_HEADER) + len(count)],
        _REQUEST_HEADER,
        count,
        size,
        about,
    )
    length = len(before) + len(entry) + len(behind)
    return length.to_bytes(4, "big") + before, entry, behind
