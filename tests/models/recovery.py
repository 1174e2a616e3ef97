"""What a recovery finds in a store folder, computed from the commit log alone.

The oracle for everything derived. Its lines have the form of the golden `expected.jsonl`, so that the model
can be held against upstream's own store.
"""

import hashlib
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lz4.frame
import zstandard

from tests.models.commit_log import Log, Record, read_log
from tests.models.index_file import java_hash

DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAYS_S = (1, 5, 10, 30, *(60 * m for m in range(1, 11)), 20 * 60, 30 * 60, 3600, 7200)
ANSWERS_MAX = 64

Queue = tuple[str, int]


def tags_code(record: Record) -> int:
    """The filter column of a queue unit; the delivery time in the delay topic."""
    level = record.properties.get("DELAY")
    if record.topic == DELAY_TOPIC and level is not None and int(level) > 0:
        return record.store_timestamp + 1000 * DELAYS_S[min(int(level), len(DELAYS_S)) - 1]
    return java_hash(record.properties.get("TAGS", ""))


def plain_body(record: Record) -> bytes:
    """The body as the producer gave it."""
    if not record.sys_flag & 1:
        return record.body
    if record.sys_flag & 0x700 == 0x100:
        return bytes(lz4.frame.decompress(record.body))
    if record.sys_flag & 0x700 == 0x200:
        return zstandard.ZstdDecompressor().decompressobj().decompress(record.body)
    return zlib.decompress(record.body)


def index_keys(record: Record) -> list[str]:
    """What the index files one record under."""
    keys = [record.properties.get("UNIQ_KEY", ""), *record.properties.get("KEYS", "").split(" ")]
    return [f"{record.topic}#{key}" for key in keys if key]


def index_hash(key: str) -> int:
    """The hash that stands in an index entry."""
    return abs(java_hash(key)) & 0x7FFFFFFF


@dataclass
class Recovered:
    """A folder after recovery."""

    log: Log
    queues: dict[Queue, dict[int, Record]] = field(default_factory=lambda: defaultdict(dict))
    ends: dict[Queue, int] = field(default_factory=dict)
    unindexed: list[Record] = field(default_factory=list)
    index: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def ranges(self) -> dict[Queue, tuple[int, int]]:
        """First offset and end of every queue; equal for one whose messages are all deleted."""
        return {queue: (min(self.queues.get(queue, {end: None})), end) for queue, end in self.ends.items()}

    def is_batch_queue(self, queue: Queue) -> bool:
        return any(record.sys_flag & 0x80 for record in self.queues[queue].values())

    def query(self, topic: str, key: str) -> list[int]:
        """Physical offsets under a key, ascending, twice where a record has it twice; the newest of many."""
        return sorted(self.index[index_hash(f"{topic}#{key}")][-ANSWERS_MAX:])

    def offset_by_time(self, queue: Queue, timestamp_ms: int, upper: bool) -> int:
        """First unit at or after a time; with `upper` the last one at or before it."""
        offsets = sorted(self.queues[queue])
        times = [self.queues[queue][offset].store_timestamp for offset in offsets]
        if self.is_batch_queue(queue) and timestamp_ms >= times[-1]:
            return offsets[-1]
        if not upper:
            at = bisect_left(times, timestamp_ms)
            return offsets[at] if at < len(offsets) else self.ends[queue]
        at = bisect_right(times, timestamp_ms)
        return offsets[at - 1] if at else offsets[0]


def recover(store: Path) -> Recovered:
    """Derive queues and index from the commit log of a folder."""
    found = Recovered(read_log(store / "commitlog"))
    for record in found.log.records:
        transaction = record.sys_flag & 0xC
        if transaction != 0xC:
            for key in index_keys(record):
                found.index[index_hash(key)].append(record.physical_offset)
        if transaction in (0, 8):
            queue = (record.topic, record.queue_id)
            count = int(record.properties.get("INNER_NUM", "1")) if record.sys_flag & 0x80 else 1
            found.queues[queue][record.queue_offset] = record
            found.ends[queue] = record.queue_offset + count
        else:
            found.unindexed.append(record)
    return replace(found, ends=emptied_queues(store, found) | found.ends)


def emptied_queues(store: Path, found: Recovered) -> dict[Queue, int]:
    """Ends of the queues whose units all point before the log: nothing is left, yet their numbers go on."""
    ends = {}
    for folder in store.glob("consumequeue/*/*"):
        if (folder.parent.name, int(folder.name)) in found.ends:
            continue
        files = sorted(path for path in folder.iterdir() if path.stat().st_size)
        units = list(struct.iter_unpack(">qiq", files[-1].read_bytes())) if files else []
        left = [position for position, size, _ in units if size > 0]
        if left and left[-1] < found.log.start:
            ends[folder.parent.name, int(folder.name)] = int(files[-1].name) // 20 + len(left)
    return ends


def message_line(record: Record, kind: str = "message") -> dict[str, Any]:
    """One record in the vocabulary of `expected.jsonl`."""
    line = {
        "kind": kind,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeSize": record.store_size,
        "layout": record.layout,
        "tags": record.properties.get("TAGS"),
        "keys": record.properties.get("KEYS"),
        "properties": record.properties,
        "bodyLength": len(record.body),
        "bodyCRC": record.body_crc,
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "bornHost": record.born_host,
        "storeHost": record.store_host,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
    }
    if kind == "message":
        line["tagsCode"] = tags_code(record)
    if record.sys_flag & 1:
        line["plainSha256"] = hashlib.sha256(plain_body(record)).hexdigest()
    return line
