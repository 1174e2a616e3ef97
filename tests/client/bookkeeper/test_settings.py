"""Settings of a client of ledgers: racks, as a table or a function, and how fast a writer adds."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.bookkeeper import AsyncLedgerClient, BookkeeperConfig
from pyledger.errors import ConfigError
from tests.client.bookkeeper.model_bookie import bench

RACKS = {"b0": "/r/one", "b1": "/r/one", "b2": "/r/two", "b3": "/r/two"}


@pytest.mark.parametrize(
    ("config", "racks"),
    [
        (BookkeeperConfig(racks="b0=/r/one, b1=/r/one,b2=/r/two,b3=/r/two"), None),
        (BookkeeperConfig(), RACKS),
        (BookkeeperConfig(racks="b0=/r/other"), RACKS.get),
    ],
    ids=["setting", "table", "function"],
)
def test_copies_stand_in_two_racks(
    tmp_path: Path, config: BookkeeperConfig, racks: dict[str, str] | Callable[[str], str | None] | None
) -> None:
    async def play() -> None:
        async with (
            bench(tmp_path) as made,
            AsyncLedgerClient(made.address, config=config, racks=racks) as client,
        ):
            for _ in range(20):
                writer = await client.create(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2)
                assert len({RACKS[one] for one in writer.metadata.segments[0].ensemble}) == 2
                await writer.close()

    asyncio.run(play())


@pytest.mark.parametrize("racks", ["b0", "b0=rack", "=/r/one"])
def test_racks_that_are_none(racks: str) -> None:
    with pytest.raises(ConfigError, match="racks"):
        BookkeeperConfig(racks=racks)


def test_a_throttled_writer_takes_its_time(tmp_path: Path) -> None:
    """No faster than it may; how much slower is the machine's matter."""

    async def play() -> None:
        async with bench(tmp_path) as made:
            config = BookkeeperConfig(throttle=50, add_timeout_ms=60_000)
            async with AsyncLedgerClient(made.address, config=config) as client:
                writer = await client.create(ensemble_size=3, write_quorum_size=2, ack_quorum_size=2)
                loop = asyncio.get_running_loop()
                begun = loop.time()
                await writer.add_many([b"x"] * 6)
                await writer.add(b"y")
                assert loop.time() - begun >= 7 / 50
                await writer.close()

    asyncio.run(play())
