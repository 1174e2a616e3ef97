"""The client of ledgers without asyncio, and the program of docs/guide/ledgers.md."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyledger.bookkeeper import LedgerClient, ManagedCursor, ManagedLedger
from tests.client.bookkeeper.model_bookie import bench
from tests.servers.bookkeeper.bookie_peer import PATIENT
from tests.support.source_tree import ROOT

PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


async def beside_bookies(folder: Path) -> AsyncGenerator[str, None]:
    async with bench(folder) as made:
        yield made.address


def test_without_asyncio(tmp_path: Path) -> None:
    def scenario(address: str) -> None:
        with LedgerClient(address, config=PATIENT) as client:
            with client.create(
                ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=b"pw"
            ) as writer:
                assert writer.add(b"0") == 0
                assert writer.submit_add(b"1").result() == 1
                assert writer.add_many(b"%d" % at for at in range(2, 200)) == 199
            with client.open(writer.ledger_id, b"pw") as reader:
                assert [entry.payload for entry in reader.read()] == [b"%d" % at for at in range(200)]
                assert reader.entry(7).payload == b"7"
                assert next(iter(reader.tail(150))).entry_id == 150
                assert reader.closed
                assert reader.read_last_confirmed() == 199
            assert list(client.ledgers()) == [writer.ledger_id]
            assert client.metadata(writer.ledger_id).length == writer.metadata.length
            assert sorted(client.bookies().writable) == ["b0", "b1", "b2", "b3"]
            client.delete(writer.ledger_id)
            assert list(client.ledgers()) == []

    run_beside(tmp_path, scenario)


def test_chosen_ids_and_a_log(tmp_path: Path) -> None:
    def scenario(address: str) -> None:
        with LedgerClient(address, config=replace(PATIENT, explicit_lac_interval_ms=10)) as client:
            with client.create_advanced(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2) as writer:
                soon = writer.submit_add_at(1, b"one")
                assert writer.add_at(0, b"zero") == 0
                assert soon.result() == 1
                assert writer.length == 7
            with ManagedLedger(client, "orders", roll_bytes=1) as log:
                positions = [log.append(b"%d" % at) for at in range(3)]
            with ManagedCursor(client, "orders", "billing") as cursor:
                found = cursor.read(10)
                assert [(entry.position, entry.payload) for entry in found] == [
                    (position, b"%d" % at) for at, position in enumerate(positions)
                ]
                cursor.acknowledge(positions[0])
                cursor.rewind()
                assert cursor.read(1)[0].position == positions[1]
                cursor.acknowledge_through(positions[2])
            with ManagedCursor(client, "orders", "billing") as cursor:
                assert cursor.read(10) == []
            with ManagedLedger(client, "orders") as log:
                assert positions[0].ledger_id in log.trim()

    run_beside(tmp_path, scenario)


def test_the_programs_of_the_page(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for program in PROGRAM.findall((ROOT / "docs" / "guide" / "ledgers.md").read_text()):
        exec(compile(program, "docs/guide/ledgers.md", "exec"), names)

    def scenario(address: str) -> None:
        assert asyncio.run(names["write_and_read"](address)) == [b"first", b"second", b"third"]
        assert asyncio.run(names["append_and_read"](address)) == [b"pizza", b"pasta"]

    run_beside(tmp_path, scenario)


def run_beside(folder: Path, scenario: Any) -> None:
    async def whole() -> None:
        async with aclosing(beside_bookies(folder)) as addresses:
            await asyncio.to_thread(scenario, await anext(addresses))

    asyncio.run(whole())
