"""Runs of masters and slaves: all rules hold, and known bugs are found."""

import os

import pytest

from pyledger.simulator.ha.broker import Fault
from pyledger.simulator.ha.run import HaReport, HaRun, no_fault
from tests.simulator.found_bugs import recorded
from tests.simulator.ha_bugs import BUGS
from tests.simulator.one_trace import assert_one_trace

TICKS = 500


def play(seed: int, fault: Fault = no_fault) -> HaReport:
    """Repeat a run of the table in docs/design/simulation.md: alternately with 2, 3 and 4 brokers."""
    return run_or_explain(HaRun(seed, 2 + seed % 3, fault=fault))


def run_or_explain(run: HaRun) -> HaReport:
    try:
        return run.run(TICKS)
    except AssertionError as error:
        last = "\n".join(run.world.log[-50:])
        raise AssertionError(f"{error}\nseed {run.world.seed}, {len(run.brokers)} brokers\n{last}") from error


def test_nothing_breaks_in_any_run() -> None:
    reports = [play(seed) for seed in range(10_000, 10_012)]
    assert sum(one.acknowledged for one in reports) > 1000
    assert sum(one.promotions for one in reports) > 2
    assert min(sum(one.deaths for one in reports), sum(one.breaks for one in reports)) > 5


def test_a_single_master_acknowledges() -> None:
    assert run_or_explain(HaRun(3, 1)).sent > 0


@pytest.mark.slow
def test_nothing_breaks_in_many_runs() -> None:
    for seed in range(int(os.environ.get("PYLEDGER_SIM_SEEDS", "30"))):
        play(20_000 + seed)


def test_a_seed_gives_one_trace_for_every_hash_seed() -> None:
    assert_one_trace("--protocol", "ha", "--nodes", "3", "--ticks", "300")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_known_bugs_are_found_in_the_run_of_the_table(bug: Fault) -> None:
    seed = recorded(bug) - 1
    with pytest.raises(AssertionError):
        play(seed, bug)
