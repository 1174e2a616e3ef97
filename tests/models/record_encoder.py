"""A second writer of commit-log records, obvious rather than fast."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address, ip_address

from tests.models.commit_log import MAGIC_BLANK, MAGIC_V1, MAGIC_V2


def crc(data: bytes) -> int:
    return zlib.crc32(data) & 0x7FFFFFFF


def encode_host(host: tuple[str, int]) -> bytes:
    return ip_address(host[0]).packed + struct.pack(">i", host[1])


def encode_properties(tags: str | None, keys: str | None, others: Mapping[str, str] | bytes | None) -> bytes:
    own = {"TAGS": tags, "KEYS": keys}
    text = b"".join(f"{name}\x01{value}\x02".encode() for name, value in own.items() if value)
    if isinstance(others, bytes):
        return text + others
    return text + b"".join(f"{name}\x01{value}\x02".encode() for name, value in (others or {}).items())


@dataclass(frozen=True)
class Draft:
    """A message and where it is to stand."""

    topic: str
    body: bytes
    queue_id: int = 0
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    born_timestamp: int = 0
    born_host: tuple[str, int] = ("127.0.0.1", 10911)
    store_timestamp: int = 0
    store_host: tuple[str, int] = ("127.0.0.1", 10911)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    crc_property: bool = False

    def encode(self) -> bytes:
        """The record's bytes."""
        long_topic = len(self.topic.encode("utf-16-be")) > 2 * 127
        topic, properties = self.topic.encode(), self.properties
        if self.crc_property:
            if properties and not properties.endswith(b"\x02"):
                properties += b"\x02"
            properties += bytes(20)
        born_v6, store_v6 = (
            isinstance(ip_address(h[0]), IPv6Address) for h in (self.born_host, self.store_host)
        )
        rest = b"".join([
            struct.pack(">I", MAGIC_V2 if long_topic else MAGIC_V1),
            struct.pack(">iii", crc(self.body), self.queue_id, self.flag),
            struct.pack(">qq", self.queue_offset, self.physical_offset),
            struct.pack(">i", self.sys_flag & ~0x30 | (0x10 if born_v6 else 0) | (0x20 if store_v6 else 0)),
            struct.pack(">q", self.born_timestamp) + encode_host(self.born_host),
            struct.pack(">q", self.store_timestamp) + encode_host(self.store_host),
            struct.pack(">iq", self.reconsume_times, self.prepared_transaction_offset),
            struct.pack(">i", len(self.body)) + self.body,
            struct.pack(">h" if long_topic else ">b", len(topic)) + topic,
            struct.pack(">h", len(properties)) + properties,
        ])  # fmt: skip
        record = struct.pack(">i", 4 + len(rest)) + rest
        if self.crc_property:
            digits = f"{crc(record[:-20]):010d}"[::-1]
            record = record[:-20] + b"__CRC32#\x01" + digits.encode() + b"\x02"
        return record


def encode_batch(messages: Sequence[tuple[bytes, bytes, int]]) -> bytes:
    """A client's batch body from (body, properties, flag) triples."""
    items = []
    for body, properties, flag in messages:
        rest = struct.pack(">iiii", 0, 0, flag, len(body)) + body
        rest += struct.pack(">h", len(properties)) + properties
        items.append(struct.pack(">i", 4 + len(rest)) + rest)
    return b"".join(items)


@dataclass
class LogModel:
    """Files of a log as byte strings; each record goes where the rule of the file end says."""

    file_size_bytes: int
    files: dict[int, bytearray] = field(default_factory=dict)
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        if not self.files:
            return 0
        start = max(self.files)
        return start + len(self.files[start])

    def make_room(self, size_bytes: int) -> None:
        """Leave an end that takes `size_bytes` and a blank record behind."""
        if not self.files or len(self.files[max(self.files)]) == self.file_size_bytes:
            self.files[self.end] = bytearray()
        last = self.files[max(self.files)]
        left = self.file_size_bytes - len(last)
        if size_bytes + 8 > left:
            last += struct.pack(">iI", left, MAGIC_BLANK) + bytes(left - 8)
            self.make_room(size_bytes)

    def place(self, draft: Draft) -> int:
        """Put one record; return where it stands."""
        self.make_room(len(draft.encode()))
        from_queue = draft.sys_flag & 0xC in {0, 8}
        key = (draft.topic, draft.queue_id)
        queue_offset = self.next_offsets.get(key, 0) if from_queue else 0
        placed = replace(draft, physical_offset=self.end, queue_offset=queue_offset)
        if from_queue:
            self.next_offsets[key] = queue_offset + 1
        self.files[max(self.files)] += placed.encode()
        return placed.physical_offset
