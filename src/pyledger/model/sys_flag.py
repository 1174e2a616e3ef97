"""Bits of a record's system flag.

Source: RocketMQ common/.../MessageSysFlag.java.
"""

from enum import IntEnum

COMPRESSED = 0x1
"""The body is compressed; the bits of `COMPRESSION_MASK` give the type; see `pyledger.wire.compression`."""
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_SHIFT = 8


class TransactionType(IntEnum):
    """Role of a record in a transaction; the values are the bits."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


def transaction_type(sys_flag: int) -> TransactionType:
    """Return the role of a record in a transaction."""
    return TransactionType(sys_flag & TRANSACTION_MASK)
