"""What does a decision of the flush policy cost? Native against the model, over one written history."""

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pyledger._core import FlushPolicy
from tests.models import flush_policy as model

Decide = Callable[[int, int, int, int], str | None]
PASSES = 200
FILE_SIZE = 1 << 20

POLICIES: dict[str, dict[str, Callable[[], Decide]]] = {
    "commit-log": {
        "model": lambda: model.PageRule(4, 10_000).decide,
        "native": lambda: FlushPolicy.for_commit_log().decide,
    },
    "bounded": {
        "model": lambda: model.Bounded(16384, 500).decide,
        "native": lambda: FlushPolicy.bounded().decide,
    },
}


def play(decide: Decide) -> int:
    """Write 7,000 bytes every half second and flush when told; returns the number of flushes."""
    wrote = flushed = flushes = 0
    for now_ms in range(0, PASSES * 500, 500):
        wrote += 7000
        if decide(now_ms, wrote, flushed, FILE_SIZE) is not None:
            flushed = min(wrote, flushed - flushed % FILE_SIZE + FILE_SIZE)
            flushes += 1
    return flushes


@pytest.mark.parametrize("implementation", ["model", "native"], ids="impl={}".format)
@pytest.mark.parametrize("policy", POLICIES, ids="policy={}".format)
def bench_flush_policy(measured: BenchmarkFixture, policy: str, implementation: str) -> None:
    """The baseline is `model`."""
    measured.group = f"flush policy={policy} passes={PASSES}"
    make = POLICIES[policy][implementation]
    expected = play(POLICIES[policy]["model"]())
    assert measured(lambda: play(make())) == expected
