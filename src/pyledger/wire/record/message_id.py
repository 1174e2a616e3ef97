"""Message ids from a location: store host, port and physical offset in upper-case hex.

32 digits with an IPv4 host (4 + 4 + 8 bytes), 56 with an IPv6 host (16 + 4 + 8 bytes).

Source: RocketMQ common/.../MessageDecoder.java (createMessageId, decodeMessageId).
"""

import struct
from ipaddress import ip_address
from typing import NamedTuple

from pyledger.errors import MalformedMessageIdError
from pyledger.model.ids import PhysicalOffset

IPV4_DIGITS = 32
IPV6_DIGITS = 56
PLACE = struct.Struct(">iq")


class MessageId(NamedTuple):
    """Where a message was stored."""

    host: str
    """An IPv4 or IPv6 literal."""
    port: int
    physical_offset: PhysicalOffset


def encode_message_id(host: str, port: int, physical_offset: int) -> str:
    """Message id of a record at `physical_offset` (bytes) of a store; `host` is an IPv4 or IPv6 literal."""
    return (ip_address(host).packed + PLACE.pack(port, physical_offset)).hex().upper()


def decode_message_id(text: str) -> MessageId:
    """Read a message id; the digits may be lower case.

    Raises:
        MalformedMessageIdError: it has not 32 or 56 hex digits.
    """
    try:
        raw = bytes.fromhex(text) if len(text) in {IPV4_DIGITS, IPV6_DIGITS} else b""
    except ValueError:
        raw = b""
    if len(raw) * 2 != len(text) or not raw:
        raise MalformedMessageIdError(text)
    port, physical_offset = PLACE.unpack(raw[-PLACE.size :])
    return MessageId(str(ip_address(raw[: -PLACE.size])), port, PhysicalOffset(physical_offset))
