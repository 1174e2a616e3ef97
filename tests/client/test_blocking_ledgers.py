"""The client of ledgers without asyncio, and the program of docs/ledgers.md."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from pyledger.client.ledger import LedgerClient
from tests.client.model_bookie import bench
from tests.source_tree import ROOT

PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


async def beside_bookies(folder: Path) -> AsyncGenerator[str, None]:
    async with bench(folder) as made:
        yield made.address


def test_without_asyncio(tmp_path: Path) -> None:
    def scenario(address: str) -> None:
        with LedgerClient(address) as client:
            with client.create(3, 3, 2, password=b"pw") as writer:
                assert writer.add(b"0") == 0
                assert writer.add_soon(b"1").result() == 1
                assert writer.add_many(b"%d" % at for at in range(2, 200)) == 199
            with client.open(writer.ledger_id, b"pw") as reader:
                assert [entry.payload for entry in reader.read()] == [b"%d" % at for at in range(200)]
                assert reader.entry(7).payload == b"7"
                assert next(iter(reader.tail(150))).entry_id == 150
                assert reader.closed
                assert reader.read_last_confirmed() == 199
            assert client.ledgers() == [writer.ledger_id]
            assert client.metadata(writer.ledger_id).length == writer.metadata.length
            assert sorted(client.bookies().writable) == ["b0", "b1", "b2", "b3"]
            client.delete(writer.ledger_id)
            assert client.ledgers() == []

    run_beside(tmp_path, scenario)


def test_the_programs_of_the_page(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for program in PROGRAM.findall((ROOT / "docs" / "ledgers.md").read_text()):
        exec(compile(program, "docs/ledgers.md", "exec"), names)

    def scenario(address: str) -> None:
        assert asyncio.run(names["write_and_read"](address)) == [b"first", b"second", b"third"]
        assert asyncio.run(names["append_and_read"](address)) == [b"pizza", b"pasta"]

    run_beside(tmp_path, scenario)


def run_beside(folder: Path, scenario: Any) -> None:
    async def whole() -> None:
        async with aclosing(beside_bookies(folder)) as addresses:
            await asyncio.to_thread(scenario, await anext(addresses))

    asyncio.run(whole())
