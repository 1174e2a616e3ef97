"""The body of a batch: messages one after the other, as a client sends them and an inner batch stores them.

Each is `size i32 | magic i32 = 0 | crc i32 = 0 | flag i32 | body length i32 | body | properties length i16 |
properties`, big-endian; `size` counts all of it. Topic, queue and times are those of the batch.

Source: RocketMQ common/.../MessageDecoder.java (encodeMessage, decodeMessage).
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from pyledger.errors import MalformedBatchError, RecordTooLargeError
from pyledger.wire.record.properties import PROPERTIES_SIZE_MAX_BYTES

HEAD = struct.Struct(">iiiii")
PROPERTIES_LENGTH = struct.Struct(">h")
OVERHEAD_BYTES = HEAD.size + PROPERTIES_LENGTH.size


class BatchItem(NamedTuple):
    """One message of a batch."""

    body: bytes
    properties: bytes = b""
    """Encoded, see `pyledger.wire.record.properties`."""
    flag: int = 0


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """Encode messages into the body of a batch.

    Raises:
        RecordTooLargeError: the properties of one exceed 32,767 bytes.
    """
    encoded = bytearray()
    for body, properties, flag in items:
        if len(properties) > PROPERTIES_SIZE_MAX_BYTES:
            raise RecordTooLargeError("properties", len(properties), PROPERTIES_SIZE_MAX_BYTES)
        encoded += HEAD.pack(OVERHEAD_BYTES + len(body) + len(properties), 0, 0, flag, len(body))
        encoded += body
        encoded += PROPERTIES_LENGTH.pack(len(properties))
        encoded += properties
    return bytes(encoded)


def decode_batch(encoded: bytes) -> list[BatchItem]:
    """Decode the body of a batch. Magic and CRC are ignored: no writer fills them.

    Raises:
        MalformedBatchError: lengths do not fit each other or the body.
    """
    items = []
    start = 0
    while start < len(encoded):
        if len(encoded) - start < OVERHEAD_BYTES:
            raise MalformedBatchError(start, "the batch ends within a message")
        size_bytes, _, _, flag, body_bytes = HEAD.unpack_from(encoded, start)
        end = start + size_bytes
        if size_bytes < OVERHEAD_BYTES or end > len(encoded):
            raise MalformedBatchError(start, f"size {size_bytes} does not fit")
        properties_at = start + HEAD.size + body_bytes
        if body_bytes < 0 or properties_at + PROPERTIES_LENGTH.size > end:
            raise MalformedBatchError(start, f"body length {body_bytes} does not fit")
        (properties_bytes,) = PROPERTIES_LENGTH.unpack_from(encoded, properties_at)
        if properties_at + PROPERTIES_LENGTH.size + properties_bytes != end:
            raise MalformedBatchError(start, f"properties length {properties_bytes} does not fit")
        body = encoded[start + HEAD.size : properties_at]
        items.append(BatchItem(body, encoded[properties_at + PROPERTIES_LENGTH.size : end], flag))
        start = end
    return items
