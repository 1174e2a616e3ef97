"""Processes of a group under faults, the short form of `make chaos-dledger`: clients saw what is possible."""

from pathlib import Path

import pytest

from tests.chaos.group import ChaosGroup
from tests.servers.dledger.group import on_a_loop

MORE = 15
"""Appends that a group without one member acknowledges, before it gets that one back."""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_whatever_happens_to_one_member_the_others_go_on_and_nothing_is_lost(tmp_path: Path) -> None:
    # A loaded machine may keep a leader from running for longer than our defaults allow.
    group = ChaosGroup(tmp_path, 7, heart_beat_ms=500)
    faults = (
        lambda: group.kill("n1"),
        lambda: group.stop("n0"),
        lambda: group.disconnect("n2", ways=3),
        lambda: group.disconnect("n1", ways=1),
        lambda: group.jump("n0"),
    )

    async def work() -> None:
        assert await group.suffer(faults, MORE) == []

    on_a_loop(work)
    assert group.acknowledged >= 2 * MORE * len(faults)
    assert group.reads
