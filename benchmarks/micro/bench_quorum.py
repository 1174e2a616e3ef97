"""How fast is the quorum index? Native against DLedger's formula in Python, for groups of usual sizes."""

import random
import timeit
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.load.rounds import Rounds
from pyledger.model.quorum import quorum_index
from tests.models import quorum as model

CALLS = 200


def by_model(water_marks: list[int], voters: int) -> int:
    """The baseline, with the same signature."""
    assert voters == len(water_marks)
    return model.descending(water_marks)


IMPLEMENTATIONS: dict[str, Callable[[list[int], int], int]] = {"model": by_model, "native": quorum_index}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids="impl={}".format)
@pytest.mark.parametrize("voters", [3, 5, 7, 15], ids="voters={}".format)
def bench_quorum_index(measured: BenchmarkFixture, voters: int, implementation: str) -> None:
    """The baseline is `model`."""
    measured.group = f"quorum voters={voters}"
    water_marks = random.Random(voters).sample(range(1_000_000), voters)
    function = IMPLEMENTATIONS[implementation]

    def run() -> int:
        total = 0
        for _ in range(CALLS):
            total += function(water_marks, voters)
        return total

    assert measured(run) == model.by_definition(water_marks) * CALLS


@pytest.mark.benchmark(group="quorum index of 3 to 7 peers, against `sorted`")
def bench_quorum_of_groups(rounds: Rounds) -> None:
    """Nanoseconds of a call with a list, alternating with the bare expression; the loop's time is in both."""
    repeats = 20 if rounds.full else 1

    def best_ns(statement: str, marks: list[int]) -> float:
        names = {"marks": marks, "quorum_index": quorum_index, "n": len(marks)}
        return min(timeit.repeat(statement, globals=names, number=10 * CALLS, repeat=repeats)) / CALLS * 1e8

    def compare() -> dict[int, tuple[float, float]]:
        found = {}
        for voters in (3, 5, 7):
            marks = random.Random(voters).sample(range(1_000_000), voters)
            assert quorum_index(marks, voters) == model.by_definition(marks)
            native_ns = best_ns("quorum_index(marks, n)", marks)
            found[voters] = native_ns, best_ns("sorted(marks, reverse=True)[n // 2]", marks) / native_ns
        return found

    found = rounds.benchmark.pedantic(compare, rounds=1)
    rounds.note(
        **{f"voters_{voters}": {"ns": ns, "ratio": ratio} for voters, (ns, ratio) in found.items()},
        most_ns=max(ns for ns, _ in found.values()),
        least_ratio=min(ratio for _, ratio in found.values()),
    )
