"""Digests of RocketMQ's formats: CRC-32, CRC-32C, and the CRC of a message body.

The native module picks a kernel when it loads: carry-less multiplication on 512-bit registers, on 128-bit
registers with SSE4.2's own CRC-32C, the CRC instructions of 64-bit Arm with PMULL or alone, or table lookups
anywhere else. All give the same numbers; the choice is `digest_backend()`. A digest can continue from an
earlier result: `crc32(a + b) == crc32(b, crc32(a))`.
"""

from pyledger._core import body_crc, crc32, crc32c, digest_backend

__all__ = ["body_crc", "crc32", "crc32c", "digest_backend"]
