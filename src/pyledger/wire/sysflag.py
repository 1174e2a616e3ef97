"""Bits of a record's system flag.

Source: RocketMQ common/.../MessageSysFlag.java, CompressionType.java.
"""

from enum import IntEnum

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_SHIFT = 8


class TransactionType(IntEnum):
    """What a record is to a transaction; the values are the bits."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class Compression(IntEnum):
    """How a compressed body is packed; 0 is what clients wrote before there was a choice."""

    LEGACY_ZLIB = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(sys_flag: int) -> TransactionType:
    """The part that a record plays in a transaction."""
    return TransactionType(sys_flag & TRANSACTION_MASK)


def compression(sys_flag: int) -> Compression | None:
    """How the body is packed; None when it is not.

    Raises:
        ValueError: the three bits name a kind that does not exist.
    """
    if not sys_flag & COMPRESSED:
        return None
    return Compression((sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT)
