"""How fast is the quorum index? Native against DLedger's formula in Python, for groups of usual sizes."""

import random
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pyledger.quorum import quorum_index
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
