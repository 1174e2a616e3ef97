"""Dispatch: from log to queues and index, and to memory. Baseline: the plain model over the same records.

The log's pages are resident; making the first queue and index files is included, flushing is not.
`extra_info` holds nanoseconds per message; the model walks far fewer messages, so compare those.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest

from benchmarks.micro.typical_log import QUEUES, key, typical_log
from pyledger._core import ConsumeQueue, Dispatcher, IndexFileSet, LogView, UnitCollector, read_message
from tests.models.consume_queue import QueueModel
from tests.models.index_file import IndexModel, java_hash

ROUNDS = 5


@pytest.fixture(scope="module")
def messages(request: pytest.FixtureRequest) -> int:
    return 500_000 if request.config.getoption("--scale", "smoke") == "full" else 2_000


@pytest.fixture(scope="module")
def log(messages: int, tmp_path_factory: pytest.TempPathFactory) -> LogView:
    return typical_log(tmp_path_factory.mktemp("log"), messages)


def note(benchmark: Any, messages: int) -> None:
    benchmark.extra_info["messages"] = messages
    if benchmark.stats:
        benchmark.extra_info["ns_per_message"] = benchmark.stats.stats.min / messages * 1e9


@pytest.mark.benchmark(group="dispatch")
@pytest.mark.parametrize("index", [False, True], ids=["index=off", "index=on"])
def test_dispatch(benchmark: Any, log: LogView, messages: int, index: bool, tmp_path: Path) -> None:
    full = messages > 10_000
    rounds = itertools.count()

    def prepare() -> tuple[tuple[Dispatcher, IndexFileSet | None], dict[str, Any]]:
        folder = tmp_path / str(next(rounds))
        counts = (5_000_000, 20_000_000) if full else (5_000, 20_000)
        keys = IndexFileSet(str(folder / "index"), *counts) if index else None

        def open_queue(topic: str, queue_id: int, inner_batch: bool) -> ConsumeQueue:
            return ConsumeQueue(str(folder / "queues"), topic, queue_id)

        return (Dispatcher(open_queue, keys), keys), {}

    def act(dispatcher: Dispatcher, keys: IndexFileSet | None) -> None:
        assert dispatcher.dispatch(log) == log.end_offset
        assert sum(queue.max_offset for queue in dispatcher.queues.values()) == messages
        assert keys is None or keys.query("orders", key(messages // 2))
        assert dispatcher.entry_count == (2 * messages if keys else 0)

    benchmark.pedantic(act, setup=prepare, rounds=ROUNDS, warmup_rounds=1)
    note(benchmark, messages)


@pytest.mark.benchmark(group="dispatch")
def test_collect(benchmark: Any, log: LogView, messages: int) -> None:
    def act() -> int:
        collector = UnitCollector()
        assert collector.collect(log) == log.end_offset
        return sum(len(run) for run in collector.take().values())

    assert benchmark.pedantic(act, rounds=ROUNDS, warmup_rounds=1) == messages
    note(benchmark, messages)


@pytest.mark.benchmark(group="dispatch")
def test_model(benchmark: Any, log: LogView, messages: int) -> None:
    some = min(messages, 2_000)

    def act() -> int:
        queues = [QueueModel(300_000) for _ in range(QUEUES)]
        index, offset = IndexModel(5_000, 20_000), 0
        for _ in range(some):
            message = read_message(log, offset, check=False)
            unit = (offset, message.store_size, java_hash(message.tags or ""), message.queue_offset)
            assert queues[message.queue_id].put(*unit)
            for word in (message.properties["UNIQ_KEY"], message.properties["KEYS"]):
                index.put("orders", word, offset, message.store_timestamp)
            offset += message.store_size
        return sum(queue.next_offset for queue in queues)

    assert benchmark.pedantic(act, rounds=1) == some
    note(benchmark, some)
