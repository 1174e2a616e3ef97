"""Runs of DLedger groups: all rules hold, and known bugs are found."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.simulator.dledger.cluster import DLedgerGroup
from pyledger.simulator.dledger.member import DLedgerMember
from tests.simulator.dledger_bugs import BUGS
from tests.simulator.found_bugs import recorded
from tests.simulator.one_trace import assert_one_trace

TICKS = 1000
# Runs that found a bug of the machine: seed and members, and the bug.
PAST = {
    (
        97,
        3,
    ): "a leader kept its term after it learned of a higher one, and a member without a vote stayed out",
    (161, 5): "damage found in a healed world was not repaired",
    (210, 3): "an entry that cannot be read stopped the machine where it answers an append",
    (237, 5): "a member that lost entries was never compared, so it never voted again",
    (791, 3): "as 97, and the member that stayed out had no entries",
    (1305, 5): "as 97, with five members",
    (336, 3): "a member without a vote let the wrong candidate raise its term for ever",
    (
        4557,
        5,
    ): "a truncation removed a damaged entry, so the member that had acknowledged it voted without it",
    (504461, 5): "all members started late, one of them damaged, and had too little time",
    (1288, 3): "a truncation was sent again to a member that had restarted without the compared entries",
}


def play(seed: int, nodes: int, fault: Callable[[DLedgerMember], None] | None = None) -> None:
    group = DLedgerGroup(seed, nodes, fault=fault)
    try:
        group.run(TICKS)
    except AssertionError as error:
        last = "\n".join(group.world.log[-50:])
        raise AssertionError(f"seed {seed}, {nodes} nodes: {error}\n{last}") from error


@pytest.mark.parametrize(("seed", "nodes"), PAST)
def test_past_bugs_stay_fixed(seed: int, nodes: int) -> None:
    play(seed, nodes)


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 7])
def test_nothing_breaks_in_any_run(nodes: int) -> None:
    for seed in range(10_000 + 10 * nodes, 10_005 + 10 * nodes):  # in the last of them leaders are the target
        play(seed, nodes)


@pytest.mark.parametrize("seed", range(2))
def test_the_real_store_equals_the_model(seed: int, tmp_path: Path) -> None:
    DLedgerGroup(seed, 3, folder=tmp_path).run(ticks=200)


@pytest.mark.slow
def test_nothing_breaks_in_many_runs() -> None:
    for seed in range(int(os.environ.get("PYLEDGER_SIM_SEEDS", "60"))):
        play(20_000 + seed, 5 if seed % 2 else 3)


def test_a_seed_gives_one_trace_for_every_hash_seed() -> None:
    assert_one_trace("--seed", "3", "--ticks", "300")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_known_bugs_are_found_in_the_run_of_the_table(bug: Callable[[DLedgerMember], None]) -> None:
    seed = recorded(bug) - 1
    with pytest.raises(AssertionError):
        DLedgerGroup(seed, 5 if seed % 2 else 3, fault=bug).run(TICKS)
