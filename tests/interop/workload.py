"""Messages of every kind, drawn from a seed, and what a reader must find once they were put."""

import hashlib
import random
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import lz4.frame
import zstandard

from pyledger.model.message import Message, PutResult
from tests.models.index_file import java_hash
from tests.models.recovery import DELAY_TOPIC, DELAYS_S

WORDS = (
    "ledger",
    "größe",
    "журнал",
    "消息",
    "🚀",
    "ｆｕｌｌ",
    "e\u0301",
    "tab\tbed",
    '"quoted"',
    "a=b\x01c",
    "line\nend",
)
TAGS = ("TagA", "TagB", "красный", "标签", "polygenelubricants", "a", "🚀")
COMPRESSED = {"zlib": 0x301, "oldest": 0x001, "lz4": 0x101, "zstd": 0x201}
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
KINDS = (
    "plain",
    "tagged",
    "tagged",
    "empty",
    "batch",
    *COMPRESSED,
    "delay",
    "tx",
    "ipv6",
    "long",
    "properties",
)

# 4.9 reads only the first record layout.
OLD_KINDS = tuple(kind for kind in KINDS if kind != "long")
# 4.9 knows no delay levels yet when it recovers: units that it makes then hold the hash of the tags.
KILLED_KINDS = tuple(kind for kind in OLD_KINDS if kind != "delay")

Put = list[Message]
Line = dict[str, Any]


def kinds_for(version: str) -> tuple[str, ...]:
    """The kinds that a version of upstream's store can read."""
    return KINDS if version >= "5" else OLD_KINDS


class Workload:
    """Draws puts: one message, or several that go in as one batch."""

    def __init__(
        self, seed: int, *, topics: Sequence[str] = ("orders", "%RETRY%group", "x"), queues: int = 4
    ) -> None:
        self.random = random.Random(seed)
        self.topics, self.queues = topics, queues

    def draw(self, count: int, kinds: Sequence[str] = KINDS) -> Iterator[Put]:
        """Draw puts until they make `count` messages: each kind in its turn first, then at random."""
        order = list(kinds)
        while count > 0:
            kind = order.pop(0) if order else self.random.choice(kinds)
            puts = [self._batch()] if kind == "batch" else [[message] for message in self._draw(kind)]
            count -= sum(map(len, puts))
            yield from puts

    def _draw(self, kind: str) -> list[Message]:
        pick = self.random
        message = self._message(pick.randrange(1, 600))
        changed: dict[str, Any] = {}
        match kind:
            case "plain":
                changed = {"tags": None, "keys": None, "properties": {}}
            case "empty":
                changed = {"body": b""}
            case "big":
                changed = {"body": pick.randbytes(pick.randrange(60_000, 200_000))}
            case "properties":
                changed = {"properties": {f"name{i}": pick.choice(WORDS) * 9 for i in range(200)}}
            case "delay":
                changed = {"delay_level": pick.randrange(1, 19)}
            case "tx":
                changed = {"sys_flag": PREPARED, "properties": {"TRAN_MSG": "true", "PGROUP": "g"}}
            case "ipv6":
                changed = {"born_host": (f"2001:db8::{pick.randrange(1 << 16):x}", pick.randrange(65536))}
            case "long":
                changed = {"topic": "%RETRY%" + "g" * pick.randrange(121, 249), "queue_id": 0}
            case _ if kind in COMPRESSED:
                changed = {"body": pack(kind, message.body * 20), "sys_flag": COMPRESSED[kind]}
        message = replace(message, **changed)
        if kind == "tx":
            return [message, replace(message, sys_flag=pick.choice((COMMIT, ROLLBACK)))]
        return [message]

    def _message(self, body_bytes: int) -> Message:
        pick = self.random
        return Message(
            topic=pick.choice(self.topics),
            queue_id=pick.randrange(self.queues),
            body=pick.randbytes(body_bytes),
            tags=pick.choice((None, *TAGS)),
            keys=" ".join(f"key-{pick.randrange(200)}" for _ in range(pick.randrange(4))) or None,
            properties={f"user{i}": pick.choice(WORDS) for i in range(pick.randrange(4))},
            flag=pick.choice((0, 0, pick.randrange(-(1 << 31), 1 << 31))),
            born_timestamp_ms=1_700_000_000_000 + pick.randrange(1 << 30),
            born_host=(f"192.0.2.{pick.randrange(256)}", pick.randrange(1, 65536)),
            reconsume_times=pick.choice((0, 0, 0, pick.randrange(16))),
        )

    def _batch(self) -> Put:
        first = self._message(50)
        parts = [self._message(self.random.randrange(1, 300)) for _ in range(self.random.randrange(2, 17))]
        shared = {"topic": first.topic, "queue_id": first.queue_id, "born_host": first.born_host}
        shared |= {"born_timestamp_ms": first.born_timestamp_ms, "reconsume_times": 0}
        return [replace(part, **shared) for part in parts]


def pack(kind: str, body: bytes) -> bytes:
    """Compress as a client would."""
    match kind:
        case "lz4":
            return bytes(lz4.frame.compress(body))
        case "zstd":
            return zstandard.ZstdCompressor().compress(body)
        case _:
            return zlib.compress(body, 5)


def unpack(sys_flag: int, body: bytes) -> bytes:
    """Undo `pack`."""
    match sys_flag & 0x700:
        case 0x100:
            return bytes(lz4.frame.decompress(body))
        case 0x200:
            return zstandard.ZstdDecompressor().decompress(body)
        case _:
            return zlib.decompress(body)


def encode_batch(messages: Sequence[Message]) -> bytes:
    """The body in which a client sends several messages at once."""
    encoded = []
    for message in messages:
        properties = dict(message.properties)
        properties |= {
            name: value for name, value in (("TAGS", message.tags), ("KEYS", message.keys)) if value
        }
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
        size = 22 + len(message.body) + len(text)
        head = struct.pack(">5i", size, 0, 0, message.flag, len(message.body))
        encoded.append(head + message.body + struct.pack(">h", len(text)) + text)
    return b"".join(encoded)


def expected_line(message: Message, at: PutResult, store_host: str) -> Line:
    """What `StoreRead` must print for a message that we put."""
    topic, queue_id = message.topic, message.queue_id
    properties = dict(message.properties)
    properties |= {name: value for name, value in (("TAGS", message.tags), ("KEYS", message.keys)) if value}
    code = java_hash(message.tags or "")
    if message.delay_level and not message.sys_flag & PREPARED:
        properties |= {"DELAY": str(message.delay_level), "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
        topic, queue_id = DELAY_TOPIC, message.delay_level - 1
        code = at.store_timestamp_ms + 1000 * DELAYS_S[message.delay_level - 1]
    address, port = message.born_host or ("", 0)
    line = {
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": at.queue_offset,
        "physicalOffset": at.physical_offset,
        "storeSize": at.size_bytes,
        "layout": 2 if len(topic) > 127 else 1,
        "tagsCode": code,
        "tags": message.tags or None,
        "keys": message.keys or None,
        "properties": properties,
        "bodyLength": len(message.body),
        "bodyCRC": zlib.crc32(message.body) & 0x7FFFFFFF,
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
        "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": at.store_timestamp_ms,
        "bornHost": host_text(address, port),
        "storeHost": store_host,
        "sysFlag": message.sys_flag | (0x10 if ":" in address else 0),
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }
    if message.sys_flag & 1:
        line["plainSha256"] = hashlib.sha256(unpack(message.sys_flag, message.body)).hexdigest()
    if message.sys_flag & 0xC in (PREPARED, ROLLBACK):
        del line["tagsCode"]
    return line


def host_text(address: str, port: int) -> str:
    """`ip:port` as Java prints it: IPv6 groups unshortened, in brackets."""
    if ":" not in address:
        return f"{address}:{port}"
    head, _, tail = address.partition("::")
    first, last = (part.split(":") if part else [] for part in (head, tail))
    groups = [*first, *["0"] * (8 - len(first) - len(last)), *last] if "::" in address else address.split(":")
    return f"[{':'.join(groups)}]:{port}"
