"""A group of processes under faults, the short form of `make chaos-raft`: what clients saw was possible."""

import asyncio
from pathlib import Path

import pytest

from tests.chaos.group import ChaosGroup
from tests.runtime.group import on_a_loop

MORE = 15
"""Appends that a group without one member acknowledges, before it gets that one back."""
FAULTS = ("kill", "stop", "cut", "cut outward", "jump")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_whatever_happens_to_one_member_the_others_go_on_and_nothing_is_lost(tmp_path: Path) -> None:
    # A loaded machine may keep a leader from running for longer than our defaults allow.
    group = ChaosGroup(tmp_path, 7, heart_beat_ms=500)
    faults = list(FAULTS)

    async def progress() -> None:
        wanted = group.acknowledged + MORE
        while group.acknowledged < wanted:
            await asyncio.sleep(0.02)

    async def troubles() -> bool:
        fault, name = faults.pop(0), group.names[len(faults) % 3]
        match fault:
            case "kill":
                group.kill(name)
            case "stop":
                group.stop(name)
            case "cut":
                group.cut_off(name, ways=3)
            case "cut outward":
                group.cut_off(name, ways=1)
            case "jump":
                group.jump(name)
        await progress()
        await group.heal()
        await progress()
        return bool(faults)

    async def work() -> None:
        assert await group.run(troubles) == []

    on_a_loop(work)
    assert group.acknowledged >= 2 * MORE * len(FAULTS)
    assert group.reads
