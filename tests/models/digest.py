"""CRC-32 and CRC-32C one bit at a time, straight from the definition."""

from collections.abc import Iterator

CRC32 = 0xEDB88320
CRC32C = 0x82F63B78


def crc(polynomial: int, data: bytes, value: int = 0) -> int:
    """CRC of `data` for a reflected polynomial, going on from `value`."""
    *_, last = prefixes(polynomial, data, value)
    return last


def prefixes(polynomial: int, data: bytes, value: int = 0) -> Iterator[int]:
    """CRC of the first 0, 1, 2 … bytes of `data`."""
    yield value
    state = value ^ 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (polynomial if state & 1 else 0)
        yield state ^ 0xFFFFFFFF


def body_crc(data: bytes) -> int:
    """RocketMQ's form of CRC-32: the sign bit is dropped."""
    return crc(CRC32, data) & 0x7FFFFFFF
