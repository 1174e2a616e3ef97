"""How many messages a second can one thread append, through the public API, without waiting for a flush?

The store runs as it always does: its dispatch, flush and allocation threads are at work meanwhile, so what a
second core does is not in `per_cpu_second`. Pages are resident: a round fits into the room that the store has
made ahead. `sustained` writes a whole 1 GiB, and waits for room where that is not ahead. Baselines write the
same body (files, lmdb, rocksdict), or the whole message (RocketMQ's own store).
"""

import mmap
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.peers.java_bench import JavaBench
from pyledger import _core
from pyledger.store.messages.message_store import MessageStore

BODY = bytes(range(256))
ROUND_BYTES = 48 << 20  # less than a store has ready
OVERHEAD_BYTES = 100  # of a record around its body, at least
SINGLE = "produce, one call a message, body=256B"


class Appender(Protocol):
    @property
    def next_queue_offset(self) -> int: ...
    def put(self, body: bytes) -> int: ...
    def put_many(self, bodies: list[bytes]) -> int: ...


class OpenStore:
    """A fresh store whose first file is there."""

    def __init__(self, folder: Path, options: Mapping[str, int]) -> None:
        self.folder = folder
        self.store = MessageStore.open(folder, **options)
        self.appender: Appender = self.store.appender("bench", 0)
        self.appender.put(b"first")
        self.start_offset = self.store.max_offset

    def finish(self, count: int) -> None:
        """Check what the round wrote; close and remove it, so that it is not written to disk meanwhile."""
        assert self.store.queue_range("bench", 0).max_offset == count + 1
        newest = self.store.get("bench", 0, count).messages[0]
        assert _core.body_crc(newest.body) == newest.body_crc
        self.store.close()
        shutil.rmtree(self.folder)


class Folders:
    """Gives each round a folder of its own."""

    def __init__(self, base: Path, options: Mapping[str, int]) -> None:
        self.base, self.options, self.made = base, options, 0

    def next(self) -> Path:
        self.made += 1
        return self.base / str(self.made)

    def open(self) -> OpenStore:
        return OpenStore(self.next(), self.options)

    def record_bytes(self, body: bytes) -> int:
        """Size of a record; the log's end is where the next one starts."""
        opened = self.open()
        opened.appender.put(body)
        size = opened.store.max_offset - opened.start_offset
        opened.finish(1)
        return size


@pytest.fixture
def folders(tmp_path: Path, store_options: Mapping[str, int]) -> Folders:
    return Folders(tmp_path, store_options)


def messages_of(full: bool, body_bytes: int) -> int:
    return ROUND_BYTES // (body_bytes + OVERHEAD_BYTES) if full else 1_000


def append_all(opened: OpenStore, count: int, body: bytes) -> int:
    put = opened.appender.put
    for _ in range(count):
        put(body)
    return opened.appender.next_queue_offset - 1


@pytest.mark.benchmark(group=SINGLE)
@pytest.mark.parametrize("pages", ["resident", "sustained"], ids="pages={}".format)
def bench_pyledger(rounds: Rounds, folders: Folders, pages: str) -> None:
    size = folders.record_bytes(BODY)
    count = messages_of(rounds.full, len(BODY))
    if pages == "sustained":
        count = (1 << 30) // size if rounds.full else 3_000
    rounds.run(
        folders.open,
        lambda opened: append_all(opened, count, BODY),
        units=count,
        expected=count,
        finish=lambda opened: opened.finish(count),
        rounds=7 if pages == "resident" else 2,
        record_bytes=size,
    )


@pytest.mark.benchmark(group=SINGLE)
def bench_file_write(rounds: Rounds, folders: Folders) -> None:
    """Python's buffered writer, the bare body: no record, no CRC, nobody can read meanwhile."""
    count = messages_of(rounds.full, len(BODY))

    def act(path: Path) -> int:
        with path.open("wb") as file:
            write = file.write
            for _ in range(count):
                write(BODY)
        return path.stat().st_size

    rounds.run(folders.next, act, units=count, expected=count * len(BODY), finish=os.unlink, rounds=7)


@pytest.mark.benchmark(group=SINGLE)
def bench_lmdb(rounds: Rounds, folders: Folders) -> None:
    """All puts in one transaction, keys ascending, appended; the commit is included, its sync is not."""
    lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed: pip install '.[bench]'")
    count = messages_of(rounds.full, len(BODY))
    keys = [n.to_bytes(8, "big") for n in range(count)]

    def act(environment: Any) -> int:
        with environment.begin(write=True) as transaction:
            put = transaction.put
            for key in keys:
                put(key, BODY, append=True)
        return int(environment.stat()["entries"])

    rounds.run(
        lambda: lmdb.open(str(folders.next()), map_size=1 << 30, sync=False),
        act,
        units=count,
        expected=count,
        finish=lambda environment: environment.close(),
        rounds=7,
    )


@pytest.mark.benchmark(group=SINGLE)
def bench_rocksdict(rounds: Rounds, folders: Folders) -> None:
    """Default options: write-ahead log on, not synced."""
    rocksdict = pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install '.[bench]'")
    count = messages_of(rounds.full, len(BODY))
    keys = [n.to_bytes(8, "big") for n in range(count)]

    def act(database: Any) -> bool:
        for key in keys:
            database[key] = BODY
        return bool(database[keys[-1]] == BODY and database[keys[0]] == BODY)

    rounds.run(
        lambda: rocksdict.Rdict(str(folders.next()), rocksdict.Options(raw_mode=True)),
        act,
        units=count,
        expected=True,
        finish=lambda database: database.close(),
        rounds=7,
    )


@pytest.mark.java
@pytest.mark.benchmark(group=SINGLE)
@pytest.mark.parametrize("properties", ["key+tag", "none"], ids="properties={}".format)
def bench_java(java_bench: JavaBench, properties: str, tmp_path: Path) -> None:
    """RocketMQ's own store, its defaults, after its warm-up."""
    plain = ("--plain",) if properties == "none" else ()
    java_bench.rate(tmp_path / "store", "put", "--body", "256", *plain, *java_bench.duration)


@pytest.mark.parametrize("batch", [32, 1000], ids="batch={}".format)
@pytest.mark.parametrize("body_bytes", [64, 1024], ids="body={}B".format)
def bench_batch(rounds: Rounds, folders: Folders, body_bytes: int, batch: int) -> None:
    rounds.benchmark.group = f"produce, batch={batch} body={body_bytes}B"
    bodies = [bytes([n % 256]) * body_bytes for n in range(batch)]
    size = folders.record_bytes(bodies[0])
    calls = messages_of(rounds.full, body_bytes) // batch

    def act(opened: OpenStore) -> int:
        put_many = opened.appender.put_many
        for _ in range(calls):
            put_many(bodies)
        return opened.appender.next_queue_offset - 1

    rounds.run(
        folders.open,
        act,
        units=calls * batch,
        expected=calls * batch,
        finish=lambda opened: opened.finish(calls * batch),
        rounds=7,
        record_bytes=size,
    )


@pytest.mark.parametrize("batch", [32, 1000], ids="batch={}".format)
@pytest.mark.parametrize("body_bytes", [64, 1024], ids="body={}B".format)
def bench_floor(rounds: Rounds, body_bytes: int, batch: int) -> None:
    """Copy and CRC of the same bodies to resident anonymous memory: what no append can do without."""
    rounds.benchmark.group = f"produce, batch={batch} body={body_bytes}B"
    bodies = [bytes([n % 256]) * body_bytes for n in range(batch)]
    calls = messages_of(rounds.full, body_bytes) // batch
    step = batch * body_bytes

    def act(memory: memoryview) -> int:
        for at in range(0, calls * step, step):
            last = _core.copy_and_digest(memory[at : at + step], bodies)
        return last

    def prepare() -> memoryview:
        memory = mmap.mmap(-1, calls * step)
        for at in range(0, calls * step, mmap.PAGESIZE):
            memory[at] = 1
        return memoryview(memory)

    rounds.run(prepare, act, units=calls * batch, expected=_core.body_crc(bodies[-1]), rounds=7)
