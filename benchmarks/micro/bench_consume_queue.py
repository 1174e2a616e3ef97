"""ConsumeQueue from Python: a unit put, a unit read, a stretch viewed, a time searched; beside the model."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from benchmarks.micro.typical_log import QUEUES, TIME_MS, typical_log
from pyledger._core import ConsumeQueue, Dispatcher, LogView
from tests.models.consume_queue import QueueModel

ROUNDS = 5


@pytest.fixture(scope="module")
def messages(request: pytest.FixtureRequest) -> int:
    return 100_000 if request.config.getoption("--scale", "smoke") == "full" else 2_000


@pytest.fixture(scope="module")
def log(messages: int, tmp_path_factory: pytest.TempPathFactory) -> LogView:
    return typical_log(tmp_path_factory.mktemp("log"), messages)


@pytest.fixture
def queue(log: LogView, tmp_path: Path) -> ConsumeQueue:
    queues = {n: ConsumeQueue(str(tmp_path / "queues"), "orders", n) for n in range(QUEUES)}
    Dispatcher(lambda _topic, queue_id, _inner_batch: queues[queue_id]).dispatch(log)
    return queues[0]


def note(benchmark: Any, calls: int) -> None:
    if benchmark.stats:
        benchmark.extra_info["ns_per_call"] = benchmark.stats.stats.min / calls * 1e9


@pytest.mark.benchmark(group="consume queue put")
@pytest.mark.parametrize("implementation", ["native", "model"])
def test_put(benchmark: Any, messages: int, implementation: str, tmp_path: Path) -> None:
    rounds = itertools.count()
    calls = messages if implementation == "native" else 500

    def prepare() -> tuple[tuple[ConsumeQueue | QueueModel], dict[str, Any]]:
        if implementation == "model":
            return (QueueModel(300_000),), {}
        return (ConsumeQueue(str(tmp_path / str(next(rounds))), "orders", 0),), {}

    def act(queue: ConsumeQueue | QueueModel) -> None:
        put = queue.put
        assert all(put(n * 432, 432, 7, n) for n in range(calls))

    benchmark.pedantic(act, setup=prepare, rounds=ROUNDS, warmup_rounds=1)
    note(benchmark, calls)


@pytest.mark.benchmark(group="consume queue read")
def test_get(benchmark: Any, queue: ConsumeQueue) -> None:
    count = queue.max_offset

    def act() -> int:
        return sum(queue.get(n)[1] for n in range(count))

    assert benchmark.pedantic(act, rounds=ROUNDS, warmup_rounds=1) == 432 * count
    note(benchmark, count)


@pytest.mark.benchmark(group="consume queue read")
def test_view(benchmark: Any, queue: ConsumeQueue) -> None:
    count = queue.max_offset - 32

    def act() -> int:
        return sum(len(queue.units(n, 32)) for n in range(count))

    assert benchmark.pedantic(act, rounds=ROUNDS, warmup_rounds=1) == 640 * count
    note(benchmark, count)


@pytest.mark.benchmark(group="consume queue read")
def test_offset_by_time(benchmark: Any, queue: ConsumeQueue, log: LogView, messages: int) -> None:
    times = range(TIME_MS, TIME_MS + messages // 50)

    def act() -> int:
        return sum(queue.offset_by_time(log, time) for time in times)

    found = benchmark.pedantic(act, rounds=ROUNDS, warmup_rounds=1)
    assert found == sum(-(-50 * n // QUEUES) for n in range(len(times)))
    note(benchmark, len(times))
