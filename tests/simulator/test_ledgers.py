"""Histories of ledgers: what must always hold does, and known bugs are found."""

import os

import pytest

from pyledger.simulator.bookkeeper.cluster import Fault
from pyledger.simulator.bookkeeper.run import LedgerRun, no_fault
from tests.simulator.found_bugs import recorded
from tests.simulator.ledger_bugs import BUGS
from tests.simulator.one_trace import assert_one_trace

TICKS = 1000
# Seeds with which a fault was found once: seed, bookies, what it was.
PAST = {
    (1, 5): "a hole between the ends of fragments was marked, and the mark removed without a copy",
    (4, 7): "as 1, on disks that had damaged some entries",
}


def play(seed: int, bookies: int, fault: Fault = no_fault) -> None:
    run = LedgerRun(seed, bookies, fault=fault)
    try:
        run.run(TICKS)
    except AssertionError as error:
        last = "\n".join(run.world.log[-50:])
        raise AssertionError(f"seed {seed}, {bookies} bookies: {error}\n{last}") from error


def play_bug(seed: int, bug: Fault) -> object:
    """A history of the table in docs/design/simulation.md."""
    return LedgerRun(seed, 5 if seed % 2 else 7, fault=bug).run(TICKS)


@pytest.mark.parametrize(("seed", "bookies"), PAST)
def test_past_failures_stay_fixed(seed: int, bookies: int) -> None:
    play(seed, bookies)


@pytest.mark.parametrize("bookies", [1, 2, 3, 4, 5, 7])
def test_nothing_breaks_in_any_history(bookies: int) -> None:
    for seed in range(10_000 + 10 * bookies, 10_003 + 10 * bookies):
        play(seed, bookies)


@pytest.mark.slow
def test_nothing_breaks_in_many_histories() -> None:
    for seed in range(int(os.environ.get("PYLEDGER_SIM_SEEDS", "60"))):
        play(20_000 + seed, 5 if seed % 2 else 7)


def test_a_seed_is_one_history_whatever_the_hash_seed() -> None:
    assert_one_trace("--protocol", "ledger", "--ticks", "300")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_known_bugs_are_found_where_the_table_says(bug: Fault) -> None:
    seed = recorded(bug) - 1
    with pytest.raises(AssertionError):
        play_bug(seed, bug)
