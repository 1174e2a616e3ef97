"""Rewrite a record for delivery under another topic than the one in the log.

A half message is checked under its real topic, and a popped retry under the topic that it came from.

Source: RocketMQ common/.../MessageDecoder.java (encode).
"""

import struct
from collections.abc import Iterator, Mapping

from pyledger.errors import MalformedRecordError
from pyledger.model.message import PutResult
from pyledger.model.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6
from pyledger.wire.record.properties import encode_properties

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
HOST_V4_BYTES = 8
HOST_V6_BYTES = 20

HEADS = {
    flags: struct.Struct(
        f">iIIiiqqiq{HOST_V6_BYTES if flags & BORN_HOST_IPV6 else HOST_V4_BYTES}s"
        f"q{HOST_V6_BYTES if flags & STORE_HOST_IPV6 else HOST_V4_BYTES}siqi"
    )
    for flags in (0, BORN_HOST_IPV6, STORE_HOST_IPV6, BORN_HOST_IPV6 | STORE_HOST_IPV6)
}
"""The fields before the body, by the bits of sysFlag for the length of hosts."""
SIZE = struct.Struct(">i")
AT_SYS_FLAG = 36
TOPIC_LENGTHS = {MAGIC_V1: struct.Struct(">B"), MAGIC_V2: struct.Struct(">H")}
PROPERTIES_LENGTH = struct.Struct(">h")

Buffer = bytes | bytearray | memoryview

V1_TOPIC_MAX_BYTES = 127
AT_MAGIC = 4
AT_QUEUE_ID = 12
AT_QUEUE_OFFSET = 20
QUEUE_OFFSET = struct.Struct(">q")
OFFSETS = struct.Struct(">qq")
MAGIC = struct.Struct(">I")


def readdressed(
    record: Buffer,
    topic: str,
    queue_id: int,
    properties: Mapping[str, str],
    place: PutResult | None = None,
) -> bytes:
    """Copy a record with another topic, queue and properties; the body does not change.

    Args:
        record: As it is stored in the log.
        topic: Topic of the copy.
        queue_id: Queue of the copy.
        properties: Properties of the copy.
        place: Offsets of the copy; None: those of the record.

    Raises:
        MalformedRecordError: lengths do not fit each other.
        RecordTooLargeError: the properties are too long for a record.
    """
    view = memoryview(record)
    try:
        (flags,) = SIZE.unpack_from(view, AT_SYS_FLAG)
        head = HEADS[flags & (BORN_HOST_IPV6 | STORE_HOST_IPV6)]
        body_bytes = head.unpack_from(view)[-1]
    except struct.error:
        raise MalformedRecordError(0, "it ends within its head") from None
    body_end = head.size + body_bytes
    if not head.size <= body_end <= len(view):
        raise MalformedRecordError(0, "its body leads out of it")
    name, encoded = topic.encode(), encode_properties(properties)
    magic = MAGIC_V1 if len(name) <= V1_TOPIC_MAX_BYTES else MAGIC_V2
    length = TOPIC_LENGTHS[magic].pack(len(name))
    tail = b"".join((length, name, PROPERTIES_LENGTH.pack(len(encoded)), encoded))
    copy = bytearray(view[:body_end])
    SIZE.pack_into(copy, 0, body_end + len(tail))
    MAGIC.pack_into(copy, AT_MAGIC, magic)
    SIZE.pack_into(copy, AT_QUEUE_ID, queue_id)
    if place is not None:
        OFFSETS.pack_into(copy, AT_QUEUE_OFFSET, place.queue_offset, place.physical_offset)
    return bytes(copy + tail)


def split_records(run: memoryview) -> Iterator[memoryview]:
    """The records of a run of whole ones, without a copy.

    Raises:
        MalformedRecordError: the run does not consist of whole records.
    """
    start, end = 0, len(run)
    while start < end:
        (size_bytes,) = SIZE.unpack_from(run, start) if end - start >= SIZE.size else (0,)
        if not 0 < size_bytes <= end - start:
            raise MalformedRecordError(start, f"its size cannot be {size_bytes}")
        yield run[start : start + size_bytes]
        start += size_bytes


def queue_offset_of(record: Buffer) -> int:
    """Place of a record in its queue, units."""
    offset: int = QUEUE_OFFSET.unpack_from(record, AT_QUEUE_OFFSET)[0]
    return offset
