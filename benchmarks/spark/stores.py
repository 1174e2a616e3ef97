"""The stores that Spark reads in benchmarks, and what a query over each must find."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.load.filling import QUEUES, REST, TAG, unique_key
from pyledger.store.messages.message_store import MessageStore

TOPIC = "bench"
RARE = "rare"
RARE_EVERY = 100
FULL_LOG_BYTES = 512 << 20
SMOKE_LOG_BYTES = 1_000_000


@dataclass(frozen=True)
class Stored:
    """A store, the topic that is read of it (None: all), and its rows."""

    path: Path
    topic: str | None
    rows: int
    offset_sum: int
    body_bytes: int


def fixed_body(number: int) -> bytes:
    return number.to_bytes(8, "big") + REST


def varying_body(number: int) -> bytes:
    """Log-normal: half below 256 bytes, a tenth above 900, none above 8 KiB."""
    length = min(8192, 8 + int(random.Random(number).lognormvariate(5.5, 1)))
    return (number.to_bytes(8, "big") + REST * 32)[:length]


def common(_number: int) -> str:
    return TOPIC


def seldom(number: int) -> str:
    return TOPIC if number % RARE_EVERY else RARE


@dataclass(frozen=True)
class Shape:
    """How a store is filled, and what of it is read."""

    body: Callable[[int], bytes] = fixed_body
    topic_of: Callable[[int], str] = common
    topic: str | None = None
    file_bytes: int = 1 << 30
    sizes: int = 1
    """Its log is so many times as long as others."""


SHAPES = {
    "fixed": Shape(sizes=2),
    "varying": Shape(body=varying_body),
    "small-files": Shape(file_bytes=1 << 20),
    "rare-topic": Shape(topic_of=seldom, topic=RARE, sizes=2),
}


def make_store(path: Path, shape: Shape, log_bytes: int, file_bytes_max: int) -> Stored:
    """Fill a store and close it in good order."""
    offsets = {(topic, queue): count() for topic in (TOPIC, RARE) for queue in range(QUEUES)}
    rows = offset_sum = body_bytes = number = physical = 0
    sizes = {"mapped_file_size_bytes": min(shape.file_bytes, file_bytes_max), "index_enabled": False}
    with MessageStore.open(path, **sizes) as store:
        puts = {name: store.appender(*name).put for name in offsets}
        while physical < shape.sizes * log_bytes:
            name = shape.topic_of(number), number // RARE_EVERY % QUEUES if shape.topic else number % QUEUES
            body = shape.body(number)
            physical = puts[name](body, TAG, None, {"UNIQ_KEY": unique_key(number)})
            queue_offset = next(offsets[name])
            if shape.topic in (None, name[0]):
                rows += 1
                offset_sum += queue_offset
                body_bytes += len(body)
            number += 1
        store.dispatch()
    return Stored(path, shape.topic, rows, offset_sum, body_bytes)
