"""The index from Python: put a key, look up a key. Baseline: the plain model."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from benchmarks.micro.typical_log import TIME_MS, key
from pyledger._core import IndexFileSet
from tests.models.index_file import IndexModel

ROUNDS = 5
COUNTS = (50_000, 200_000)


@pytest.fixture
def calls(request: pytest.FixtureRequest) -> int:
    return 100_000 if request.config.getoption("--scale", "smoke") == "full" else 2_000


def note(benchmark: Any, calls: int) -> None:
    if benchmark.stats:
        benchmark.extra_info["ns_per_call"] = benchmark.stats.stats.min / calls * 1e9


@pytest.mark.benchmark(group="index put")
@pytest.mark.parametrize("implementation", ["native", "model"])
def test_put(benchmark: Any, calls: int, implementation: str, tmp_path: Path) -> None:
    rounds = itertools.count()

    def prepare() -> tuple[tuple[IndexFileSet | IndexModel], dict[str, Any]]:
        if implementation == "model":
            return (IndexModel(*COUNTS),), {}
        return (IndexFileSet(str(tmp_path / str(next(rounds))), *COUNTS),), {}

    def act(index: IndexFileSet | IndexModel) -> None:
        for n in range(calls):
            index.put("orders", key(n), n * 432, TIME_MS + n)
        assert index.query("orders", key(calls - 1)) == [(calls - 1) * 432]

    benchmark.pedantic(act, setup=prepare, rounds=ROUNDS, warmup_rounds=1)
    note(benchmark, calls)


@pytest.mark.benchmark(group="index query")
@pytest.mark.parametrize("implementation", ["native", "model"])
def test_query(benchmark: Any, calls: int, implementation: str, tmp_path: Path) -> None:
    index = IndexFileSet(str(tmp_path), *COUNTS) if implementation == "native" else IndexModel(*COUNTS)
    for n in range(calls):
        index.put("orders", key(n), n * 432, TIME_MS + n)
    sampled = range(0, calls, 1 if implementation == "native" else max(calls // 20, 1))

    def act() -> int:
        return sum(index.query("orders", key(n))[-1] for n in sampled)

    assert benchmark.pedantic(act, rounds=ROUNDS, warmup_rounds=1) == 432 * sum(sampled)
    note(benchmark, len(sampled))
