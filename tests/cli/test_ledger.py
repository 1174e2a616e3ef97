"""`pyledger ledger` and what `pyledger cluster` says of bookies, over bookies in memory."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.cli.command_line import pyledger
from tests.client.bookkeeper.model_bookie import bench


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster whose bookies run on a thread of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    stack = AsyncExitStack()
    try:
        made = asyncio.run_coroutine_threadsafe(stack.enter_async_context(bench(tmp_path)), loop).result()
        yield made.address
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_life_of_a_ledger(metadata: str) -> None:
    where = ("-m", metadata)
    written = pyledger("ledger", "write", *where, "--password", "pw", "first", "second", "--json")
    assert written.code == 0, written.err
    assert written.json == [{"ledgerId": 0, "lastEntryId": 1, "length": 11, "closed": True}]
    found = pyledger("ledger", "read", *where, "--password", "pw", "0", "--json")
    assert [(line["entryId"], line["body"], line["length"]) for line in found.json] == [
        (0, "first", 5),
        (1, "second", 11),
    ]
    assert pyledger("ledger", "read", *where, "--password", "pw", "--from", "1", "0").lines == ["0:1 second"]
    assert pyledger("ledger", "tail", *where, "--password", "pw", "0").lines == ["0:0 first", "0:1 second"]
    refused = pyledger("ledger", "read", *where, "0")
    assert refused.code == 1
    assert "password" in refused.err
    (found,) = pyledger("ledger", "info", *where, "0", "--json").json
    assert (found["state"], found["lastEntryId"], found["digestType"]) == ("CLOSED", 1, "CRC32C")
    assert "password" not in found
    shown = pyledger("ledger", "info", *where, "0").lines
    assert "state\tCLOSED" in shown
    assert f"ensembles\t0: {' '.join(found['ensembles']['0'])}" in shown
    assert pyledger("ledger", "delete", *where, "--yes", "0", "--json").json == [
        {"ledgerId": 0, "deleted": True}
    ]
    gone = pyledger("ledger", "info", *where, "0")
    assert gone.code == 1
    assert "ledger 0 does not exist" in gone.err


def test_the_environment_says_where(metadata: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYLEDGER_METADATA", metadata)
    monkeypatch.setenv("PYLEDGER_PASSWORD", "pw")
    monkeypatch.setenv("PYLEDGER_LEDGER_READS_AHEAD", "2")
    assert pyledger("ledger", "write", "first", "second").lines == ["0 closed 2 entries 11 bytes"]
    assert pyledger("ledger", "read", "0").lines == ["0:0 first", "0:1 second"]
    monkeypatch.setenv("PYLEDGER_PASSWORD", "other")
    assert pyledger("ledger", "read", "0").code == 1


def test_a_ledger_that_was_left_is_recovered(metadata: str) -> None:
    where = ("-m", metadata)
    assert pyledger("ledger", "write", *where, "--no-close", "a", "b", "c").code == 0
    assert pyledger("ledger", "ls", *where).lines == ["0 OPEN 3/2/2"]
    assert pyledger("ledger", "recover", *where, "0").lines == ["0 CLOSED 3/2/2 last entry 2 3 bytes"]
    options = ("--ensemble", "4", "--custom", "app=tests", "--id", "7", "--json")
    made = pyledger("ledger", "create", *where, *options)
    assert made.json[0]["customMetadata"] == {"app": "tests"}
    assert [line["ledgerId"] for line in pyledger("ledger", "ls", *where, "--json").json] == [0, 7]
    taken = pyledger("ledger", "create", *where, "--id", "7")
    assert taken.code == 1
    assert "ledger 7 already exists" in taken.err


def test_bench(metadata: str) -> None:
    found = pyledger("ledger", "bench", "-m", metadata, "--seconds", "0.1", "--in-flight", "10", "--json")
    assert found.code == 0, found.err
    assert found.json[0]["addsPerSecond"] > 0
    assert found.json[0]["readsPerSecond"] > 0
    assert pyledger("ledger", "ls", "-m", metadata).lines == []


def test_status_of_a_cluster(metadata: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pyledger("cluster", "status", metadata, "--json")
    assert [(row["bookieId"], row["state"]) for row in rows.json] == [
        (f"b{at}", "writable") for at in range(4)
    ]
    assert {(row["diskBytes"], row["diskFreeBytes"]) for row in rows.json} == {(1000, 400)}
    assert "0 ledgers under-replicated" in rows.err
    monkeypatch.setenv("PYLEDGER_METADATA", metadata)
    named = pyledger("cluster", "status")
    assert named.out == pyledger("cluster", "status", metadata).out
    assert "bookieId" in named.out


def test_format(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path}/other"
    missing = pyledger("ledger", "ls", "-m", address)
    assert missing.code == 3
    assert f"pyledger cluster format {address}" in missing.err
    assert list(tmp_path.glob("other*")) == []
    assert "an empty cluster" in pyledger("cluster", "format", address).err
    assert "nothing was changed" in pyledger("cluster", "format", address).err
    assert pyledger("ledger", "ls", "-m", address).code == 0
    few = pyledger("ledger", "write", "-m", address, "x")
    assert few.code == 1
    assert "3 bookies are needed, 0" in few.err
    assert pyledger("ledger", "ls", "-m", "nowhere").code == 2


@pytest.mark.parametrize(
    "sizes", [("--ensemble", "1"), ("--write-quorum", "4"), ("--write-quorum", "1"), ("--ack-quorum", "3")]
)
def test_sizes_that_do_not_fit_together_are_wrong_use(sizes: tuple[str, str], metadata: str) -> None:
    for command in (("write", "first"), ("create",), ("bench",)):
        found = pyledger("ledger", command[0], "-m", metadata, *sizes, *command[1:])
        assert found.code == 2
        assert "give ensemble_size >= write_quorum_size >= ack_quorum_size" in found.err
