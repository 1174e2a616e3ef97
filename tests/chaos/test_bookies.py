"""Bookies that are killed under load, as in `make chaos-bookies` for long: nothing acknowledged is lost."""

import asyncio
from pathlib import Path

import pytest

from tests.chaos.bookies import PAUSE_S, ChaosBookies
from tests.servers.dledger.group import on_a_loop

TROUBLES = 8
MORE = 40
"""Entries that are acknowledged after each of them."""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_whichever_bookies_are_killed_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    bookies = ChaosBookies(tmp_path, 7, autorecovery=False)
    left = TROUBLES

    async def next_fault() -> bool:
        nonlocal left
        await bookies.inject_fault()
        wanted = bookies.acknowledged + MORE
        while bookies.acknowledged < wanted:
            await asyncio.sleep(PAUSE_S)
        left -= 1
        return left > 0

    async def work() -> None:
        assert await bookies.run(next_fault) == []

    on_a_loop(work)
    assert bookies.kills >= TROUBLES // 2
    assert bookies.acknowledged >= TROUBLES * MORE
