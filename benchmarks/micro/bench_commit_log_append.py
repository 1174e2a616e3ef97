"""Appending: what a call costs, what a message of a batch costs, and what the machine would allow.

Groups share one question and hold its baselines. `resident` appends to a file whose pages are populated, as
the allocator thread delivers them; `cold` to one that is only allocated, where page faults are most of the
cost. No flush is included. `extra_info` holds nanoseconds per message.
"""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyledger import _core
from tests.models.record_encoder import Draft, encode_properties

NOW_MS = 1_700_000_000_000
OVERHEAD_BYTES = 160  # of a record around its body, at most
ROUNDS = 7


def body_of(size_bytes: int) -> bytes:
    return bytes(range(256)) * (size_bytes // 256) if size_bytes >= 256 else bytes(range(size_bytes))


class Bench:
    """Runs a case over fresh state each round and checks what it leaves."""

    def __init__(self, benchmark: Any, messages: int, folder: Path) -> None:
        self.benchmark, self.messages, self.folder = benchmark, messages, folder
        self.round = 0

    def run(
        self, prepare: Callable[[Path], Any], act: Callable[[Any], int], expected: int, **facts: Any
    ) -> None:
        def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
            self.round += 1
            return (prepare(self.folder / str(self.round)),), {}

        found = self.benchmark.pedantic(act, setup=setup, rounds=ROUNDS, warmup_rounds=1)
        assert found == expected
        self.benchmark.extra_info.update(facts, messages=self.messages)
        if self.benchmark.stats:
            self.benchmark.extra_info["ns_per_message"] = self.benchmark.stats.stats.min / self.messages * 1e9


@pytest.fixture
def messages(request: pytest.FixtureRequest) -> int:
    """Messages a round: few for a check that the case still works, many to measure."""
    return 100_000 if request.config.getoption("--scale", "smoke") == "full" else 2_000


@pytest.fixture
def bench(benchmark: Any, messages: int, tmp_path: Path) -> Bench:
    return Bench(benchmark, messages, tmp_path)


@pytest.fixture
def appender_of(messages: int) -> Iterator[Callable[..., _core.QueueAppender]]:
    """Makes an appender to one file that takes a whole round."""
    opened: list[_core.MappedFileQueue] = []

    def make(folder: Path, body_bytes: int, pages: str) -> _core.QueueAppender:
        for queue in opened:
            queue.close()
        opened.clear()
        queue = _core.MappedFileQueue(str(folder), messages * (body_bytes + OVERHEAD_BYTES) + 4096)
        queue.load()
        file = queue.last_file()
        if pages == "resident":
            file.populate()
        opened.append(queue)
        return _core.CommitLog(queue).appender("flights", 3)

    yield make
    for queue in opened:
        queue.close()


def record_bytes(body: bytes, tags: str | None = None, keys: str | None = None) -> int:
    return len(Draft("flights", body, 3, encode_properties(tags, keys, None)).encode())


@pytest.mark.parametrize("pages", ["resident", "cold"])
@pytest.mark.parametrize("body_bytes", [64, 256, 1024])
@pytest.mark.benchmark(group="append, one call a message")
def test_put(bench: Bench, appender_of: Callable[..., Any], body_bytes: int, pages: str) -> None:
    body = body_of(body_bytes)

    def act(appender: _core.QueueAppender) -> int:
        put = appender.put
        for _ in range(bench.messages):
            last = put(body)
        return last

    expected = (bench.messages - 1) * record_bytes(body)
    bench.run(lambda folder: appender_of(folder, body_bytes, pages), act, expected, body_bytes=body_bytes)


@pytest.mark.benchmark(group="append, one call a message")
def test_put_tags_and_keys(bench: Bench, appender_of: Callable[..., Any]) -> None:
    body = body_of(256)

    def act(appender: _core.QueueAppender) -> int:
        put = appender.put
        for _ in range(bench.messages):
            last = put(body, "UA", "N14228")
        return last

    expected = (bench.messages - 1) * record_bytes(body, "UA", "N14228")
    bench.run(lambda folder: appender_of(folder, 256, "resident"), act, expected, body_bytes=256)


@pytest.mark.parametrize("body_bytes", [64, 256, 1024])
@pytest.mark.benchmark(group="append, one call a message")
def test_baseline_buffered_file_write(bench: Bench, body_bytes: int) -> None:
    body = body_of(body_bytes)

    def act(path: Path) -> int:
        with path.open("wb") as file:
            write = file.write
            for _ in range(bench.messages):
                write(body)
        return path.stat().st_size

    bench.run(lambda path: path, act, bench.messages * body_bytes, body_bytes=body_bytes)


@pytest.mark.parametrize("body_bytes", [64, 256, 1024])
@pytest.mark.benchmark(group="append, one call a message")
def test_baseline_slice_of_anonymous_memory(bench: Bench, body_bytes: int) -> None:
    body = body_of(body_bytes)

    def act(memory: mmap.mmap) -> int:
        at = 0
        for _ in range(bench.messages):
            memory[at : at + body_bytes] = body
            at += body_bytes
        return memory[at - 1]

    bench.run(lambda _: populated(bench.messages * body_bytes), act, body[-1], body_bytes=body_bytes)


@pytest.mark.parametrize("body_bytes", [64, 1024])
@pytest.mark.benchmark(group="append, one call a message")
def test_baseline_model(bench: Bench, body_bytes: int) -> None:
    body = body_of(body_bytes)

    def act(memory: mmap.mmap) -> int:
        at = 0
        for i in range(bench.messages):
            record = Draft("flights", body, 3, queue_offset=i, physical_offset=at).encode()
            memory[at : at + len(record)] = record
            at += len(record)
        return at

    size_bytes = bench.messages * record_bytes(body)
    bench.run(lambda _: populated(size_bytes), act, size_bytes, body_bytes=body_bytes)


def populated(size_bytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size_bytes)
    for at in range(0, size_bytes, 4096):
        memory[at] = 1
    return memory


@pytest.mark.parametrize("batch", [32, 1000])
@pytest.mark.parametrize("body_bytes", [64, 1024])
@pytest.mark.benchmark(group="append, in batches")
def test_put_many(bench: Bench, appender_of: Callable[..., Any], body_bytes: int, batch: int) -> None:
    bodies = [bytes([i % 256]) * body_bytes for i in range(batch)]
    bench.messages -= bench.messages % batch

    def act(appender: _core.QueueAppender) -> int:
        put_many = appender.put_many
        for _ in range(bench.messages // batch):
            last = put_many(bodies)
        return last

    expected = (bench.messages - batch) * record_bytes(bodies[0])
    bench.run(
        lambda folder: appender_of(folder, body_bytes, "resident"),
        act,
        expected,
        body_bytes=body_bytes,
        batch=batch,
    )


@pytest.mark.parametrize("batch", [32, 1000])
@pytest.mark.parametrize("body_bytes", [64, 1024])
@pytest.mark.benchmark(group="append, in batches")
def test_floor_copy_and_crc(bench: Bench, body_bytes: int, batch: int) -> None:
    bodies = [bytes([i % 256]) * body_bytes for i in range(batch)]
    bench.messages -= bench.messages % batch
    step = batch * body_bytes

    def act(memory: memoryview) -> int:
        for at in range(0, bench.messages * body_bytes, step):
            last = _core.copy_and_digest(memory[at : at + step], bodies)
        return last

    bench.run(
        lambda _: memoryview(populated(bench.messages * body_bytes)),
        act,
        _core.body_crc(bodies[-1]),
        body_bytes=body_bytes,
        batch=batch,
    )
