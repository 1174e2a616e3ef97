"""A commit log of typical messages: 256-byte bodies, a tag, one key and a unique key, eight queues."""

import struct
from pathlib import Path

from pyledger._core import LogView, MappedFile
from tests.core.log.log_files import RecordFields

QUEUES = 8
TIME_MS = 1_700_000_000_000


def unique_key(n: int) -> str:
    return f"{n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128):032X}"


def key(n: int) -> str:
    return f"key-{n:07d}"


def typical_log(folder: Path, messages: int) -> LogView:
    """One resident file with nothing but the messages."""
    named = {"UNIQ_KEY": unique_key(0), "KEYS": key(0), "TAGS": "TagA", "WAIT": "true"}
    record = RecordFields(topic=b"orders", body=bytes(range(256)), properties=named, store_timestamp=TIME_MS)
    first = bytearray(record.encode(0))
    unique_at, key_at = first.index(unique_key(0).encode()), first.index(key(0).encode())
    path = folder / f"{0:020d}"
    with path.open("wb") as file:
        for n in range(messages):
            struct.pack_into(">i", first, 12, n % QUEUES)
            struct.pack_into(">qq", first, 20, n // QUEUES, n * len(first))
            struct.pack_into(">q", first, 56, TIME_MS + n // 50)
            first[unique_at : unique_at + 32] = unique_key(n).encode()
            first[key_at : key_at + 11] = key(n).encode()
            file.write(first)
    mapped = MappedFile.open(str(path))
    sum(memoryview(mapped)[::4096])
    return LogView([mapped], messages * len(first))
