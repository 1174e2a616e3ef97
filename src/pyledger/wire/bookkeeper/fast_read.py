"""Plain reads of version 3 without the protobuf library, as `quick_add` does for adds.

The frames are the library's own, byte by byte; an answer in any other shape is left to the library.
"""

from pyledger.protocol.bookkeeper.messages import ReadResponse, Status
from pyledger.wire.bookkeeper.fast_add import varint

_REQUEST_HEADER = b"\x08\x03\x10\x01\x18"
"""Version 3, READ_ENTRY, and the tag of the number."""
_NUMBER_BYTES_MAX = 10
_MASK = (1 << 64) - 1
_HEAD_BYTES_MAX = 64
"""All that may stand before the entry."""


def encode_read(number: int, ledger_id: int, entry_id: int) -> bytes:
    """A whole frame with its length.

    Args:
        number: Of the request.
        ledger_id: Which.
        entry_id: Which; not negative.
    """
    count = varint(number)
    about = b"\x08%b\x10%b" % (varint(ledger_id), varint(entry_id))
    body = b"\x0a%b%b%b\xa2\x06%b%b" % (
        varint(len(_REQUEST_HEADER) + len(count)),
        _REQUEST_HEADER,
        count,
        varint(len(about)),
        about,
    )
    return len(body).to_bytes(4, "big") + body


def decode_read(frame: memoryview) -> tuple[int, ReadResponse] | None:
    """Number of a read that found its entry, and the answer; None: it is another answer."""
    head = bytes(frame[:_HEAD_BYTES_MAX])
    try:
        at = _past(head, 2, _REQUEST_HEADER)
        number, end = _taken(head, at)
        if head[0] != 0x0A or end != 2 + head[1] or end > at + _NUMBER_BYTES_MAX:
            return None
        # Status of the whole is good, and of the read, which is the next field.
        size, at = _taken(head, _past(head, end, b"\x10\x00\xa2\x06"))
        behind = at + size
        ledger_id, at = _taken(head, _past(head, at, b"\x08\x00\x10"))
        entry_id, at = _taken(head, _past(head, at, b"\x18"))
        length, at = _taken(head, _past(head, at, b"\x22"))
        entry, rest = frame[at : at + length], bytes(frame[at + length :])
        max_lac, at = _optional(rest, 0, 0x28)
        updated, at = _optional(rest, at, 0x30)
    except IndexError:
        return None
    known = len(entry) == length and at == len(rest) and behind == len(frame)
    if not known or max(ledger_id, entry_id) >= 1 << 63:
        return None
    answer = ReadResponse(
        status=Status.EOK,
        txn_id=number,
        ledger_id=ledger_id,
        entry_id=entry_id,
        entry=bytes(entry),
        max_lac=max_lac,
        lac_update_timestamp=updated,
    )
    return number, answer


def encode_found(answer: ReadResponse, entry: bytes) -> tuple[bytes, bytes, bytes]:
    """The answer to a read that found its entry: what is before the entry, the entry, what is behind it."""
    number = varint(answer.txn_id)
    before = b"\x08\x00\x10%b\x18%b\x22%b" % (
        varint(answer.ledger_id),
        varint(answer.entry_id & _MASK),
        varint(len(entry)),
    )
    behind = b"" if answer.max_lac is None else b"\x28" + varint(answer.max_lac & _MASK)
    if answer.lac_update_timestamp is not None:
        behind += b"\x30" + varint(answer.lac_update_timestamp & _MASK)
    head = b"\x0a%b%b%b\x10\x00\xa2\x06%b%b" % (
        varint(len(_REQUEST_HEADER) + len(number)),
        _REQUEST_HEADER,
        number,
        varint(len(before) + len(entry) + len(behind)),
        before,
    )
    return head, entry, behind


def _past(data: bytes, at: int, expected: bytes) -> int:
    """Where something ends that has to stand there."""
    if not data.startswith(expected, at):
        raise IndexError
    return at + len(expected)


def _taken(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _optional(data: bytes, at: int, tag: int) -> tuple[int | None, int]:
    """A signed number after its tag, where that stands."""
    if at == len(data) or data[at] != tag:
        return None, at
    value, at = _taken(data, at + 1)
    return (value - (1 << 64) if value >= 1 << 63 else value), at
