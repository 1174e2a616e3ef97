"""The pytest fixture for ledgers in a project that is not ours, and our client on our bookies."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from pyledger.bookkeeper import AsyncLedgerClient, BookkeeperConfig
from pyledger.errors import ConfigError, LedgerFencedError
from pyledger.servers.local.bookies import AsyncLocalBookies, LocalBookies
from pyledger.store.bookkeeper.verify import BookieCheck
from tests.support.source_tree import ROOT

pytest_plugins = ["pytester"]

HOUR_MS = 3_600_000
PATIENT = BookkeeperConfig(add_timeout_ms=HOUR_MS, read_timeout_ms=HOUR_MS, connect_timeout_ms=HOUR_MS)


def test_example_of_the_document_works(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    page = (ROOT / "docs/guide/testing.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page.partition("# Bookies")[2], re.DOTALL)
    pytester.makepyfile(example)
    found = pytester.runpytest_subprocess("-p", "pyledger.pytest_plugin", "-W", "error")
    found.assert_outcomes(passed=1)


def test_our_client_writes_recovers_and_reads(tmp_path: Path) -> None:
    async def play(address: str) -> None:
        async with AsyncLedgerClient(address, config=PATIENT) as client:
            writer = await client.create(
                ensemble_size=3, write_quorum_size=2, ack_quorum_size=2, password=b"secret"
            )
            sent = [writer.submit_add(b"%d" % at) for at in range(500)]
            assert [await one for one in sent] == list(range(500))
            reader = await client.open(writer.ledger_id, b"secret")  # which fences the writer off
            found = [entry.payload async for entry in reader.read(0, 499)]
            assert found == [b"%d" % at for at in range(500)]
            assert reader.closed
            with pytest.raises(LedgerFencedError):
                await writer.add(b"late")
            await reader.close()
            await writer.abandon()

    with LocalBookies(folder=tmp_path) as bookies:
        asyncio.run(play(bookies.metadata))
    for number in range(1, 4):
        check = BookieCheck(str(tmp_path / f"bookie-{number}"))
        assert [one for one in check.findings() if one.severity != "note"] == []
        assert check.entries


@pytest.mark.parametrize("count", [0, -1, "3", True, 1.5])
def test_a_count_of_bookies_that_makes_no_cluster(count: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="count"):
        LocalBookies(count, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_entries_outlive_a_bookie_of_their_ensemble(tmp_path: Path) -> None:
    async def play() -> None:
        group = AsyncLocalBookies(tmp_path, 4)
        await group.start()
        async with AsyncLedgerClient(group.address, config=PATIENT) as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            for at in range(20):
                await writer.add(b"%d" % at)
            name = writer.metadata.segments[-1].ensemble[0]
            lost = group.bookies[int(name.removeprefix("bookie-")) - 1]
            await lost.close()
            for at in range(20, 40):
                await writer.add(b"%d" % at)
            await writer.close()
            reader = await client.open(writer.ledger_id)
            found = [entry.payload async for entry in reader.read(0, 39)]
            assert found == [b"%d" % at for at in range(40)]
            assert name not in reader.metadata.segments[-1].ensemble
            await reader.close()
        await group.close()

    asyncio.run(play())
