"""Groups of DLedger's nodes and ours under faults: each member is killed, one of either kind is cut off."""

from functools import partial
from pathlib import Path

import pytest

from pyledger.config.dledger import UPSTREAM_TIMES
from tests.chaos.group import ChaosGroup
from tests.chaos.member import SIZES
from tests.interop.dledger_peers import command, judge, require_kit
from tests.servers.dledger.group import on_a_loop

pytestmark = pytest.mark.java

MORE = 10
"""Appends that a group without one member acknowledges, before it gets that one back."""
PLACE = ("index", "term", "pos", "size")


class MixedGroup(ChaosGroup):
    """Some members are ours, the others Java's; links of its own lead from each to each."""

    def __init__(self, folder: Path, ours: tuple[str, ...]) -> None:
        super().__init__(folder, 7, heart_beat_ms=UPSTREAM_TIMES["heart_beat_time_interval_ms"])
        self.ours = ours

    def command(self, name: str, peers: str) -> list[str]:
        if name in self.ours:
            return super().command(name, peers)
        sizes = (
            f"mappedFileSizeForEntryData={SIZES.data_file_size_bytes}",
            f"mappedFileSizeForEntryIndex={SIZES.index_file_size_bytes}",
        )
        settings = [word for size in sizes for word in ("--set", size)]
        store = ["--store", str(self.folder), *settings]
        return command("Node", "--group", "g", "--id", name, "--peers", peers, *store)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ours", [("n2",), ("n1", "n2")], ids=["2-java", "1-java"])
def test_whichever_member_is_killed_or_cut_off_nothing_is_lost(ours: tuple[str, ...], tmp_path: Path) -> None:
    require_kit()
    group = MixedGroup(tmp_path, ours)
    faults = [
        *(partial(group.kill, name) for name in group.names),
        *(partial(group.disconnect, name, ways=3) for name in ("n0", "n2")),
    ]

    async def work() -> None:
        assert await group.suffer(faults, MORE) == []

    on_a_loop(work)
    found = [judge(tmp_path / f"dledger-{name}") for name in group.names]
    assert [(code, summary["complaints"]) for code, _, summary in found] == [(0, [])] * 3
    places = [[tuple(entry[key] for key in PLACE) for entry in entries] for _, entries, _ in found]
    assert places[0] == places[1] == places[2]
