"""How fast does a consumer read: by its queue, 32 messages a call, and by key?

`ranges` are what a broker sends to a pull: places of the log, nothing is copied or decoded. `objects` are
messages whose body is taken. Files are in the page cache and mapped. One thread reads.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.load.filling import QUEUES, TOPIC, Filled, body, unique_key
from benchmarks.load.rounds import Rounds
from benchmarks.peers.java_bench import JavaBench
from pyledger.store.messages.store_engine import StoreEngine

GROUP = "consume, 32 a call"
BY_KEY = "consume by key"
KEYS = 20_000


@pytest.fixture(scope="module")
def store(filled: Filled, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreEngine]:
    copy = filled.copy_to(tmp_path_factory.mktemp("consume") / "store")
    with StoreEngine.open(copy.path) as opened:
        yield opened


def read_ranges(store: StoreEngine) -> tuple[int, int]:
    """Messages and bytes of all queues."""
    get = store.get_ranges
    messages = size_bytes = 0
    for queue in range(QUEUES):
        offset = 0
        while True:
            result = get(TOPIC, queue, offset)
            if result.message_count == 0:
                break
            offset = result.next_offset
            messages += result.message_count
            size_bytes += result.ranges.size_bytes
    return messages, size_bytes


def read_objects(store: StoreEngine) -> tuple[int, int]:
    """Messages of all queues, and the bytes of their bodies."""
    get = store.get
    messages = body_bytes = 0
    for queue in range(QUEUES):
        offset = 0
        while True:
            result = get(TOPIC, queue, offset)
            if not result.messages:
                break
            offset = result.next_offset
            messages += len(result.messages)
            for message in result.messages:
                body_bytes += len(message.body)
    return messages, body_bytes


@pytest.mark.benchmark(group=GROUP)
def bench_ranges(rounds: Rounds, store: StoreEngine, filled: Filled) -> None:
    expected = (filled.messages, filled.log_bytes)
    rounds.run(lambda: store, read_ranges, units=filled.messages, expected=expected)


@pytest.mark.benchmark(group=GROUP)
def bench_objects(rounds: Rounds, store: StoreEngine, filled: Filled) -> None:
    expected = (filled.messages, filled.messages * 256)
    rounds.run(lambda: store, read_objects, units=filled.messages, expected=expected, rounds=3)


@pytest.mark.benchmark(group=BY_KEY)
def bench_query(rounds: Rounds, store: StoreEngine, filled: Filled) -> None:
    """Unique keys in random order; each finds one message, whose key is compared."""
    numbers = random.Random(1).choices(range(filled.messages), k=KEYS if rounds.full else 200)
    keys = [unique_key(number) for number in numbers]

    def act(opened: StoreEngine) -> list[bytes]:
        query = opened.query
        return [query(TOPIC, key)[0].body for key in keys]

    rounds.run(lambda: store, act, units=len(keys), expected=[body(number) for number in numbers])


@pytest.mark.java
@pytest.mark.benchmark(group=GROUP)
def bench_java(java_bench: JavaBench, filled: Filled, tmp_path: Path) -> None:
    """RocketMQ's `getMessage` through all queues of a copy of the same folder; its buffers are not read."""
    line = java_bench.run(filled.copy_to(tmp_path / "store").path, "scan")
    assert line["messages"] == filled.messages
    java_bench.rounds.note(per_second=line["best"], per_cpu_second=max(line["perCpuSecond"]))
