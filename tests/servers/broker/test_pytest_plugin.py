"""The pytest fixture in a project that is not ours: found by its entry point's module, quick, clean."""

import asyncio
from pathlib import Path

import pytest

from pyledger.errors import StoreLockedError
from pyledger.servers.local.rocketmq import LocalBroker
from pyledger.store.messages.store_engine import StoreEngine
from tests.net.peers import raw
from tests.servers.broker.peers import send
from tests.support.source_tree import ROOT

pytest_plugins = ["pytester"]

A_PROJECT = """
import socket

def test_first(pyledger_broker):
    for address in (pyledger_broker.address, pyledger_broker.broker_address):
        host, port = address.split(":")
        socket.create_connection((host, int(port))).close()
    assert pyledger_broker.bodies("Orders") == []

def test_second_has_its_own(pyledger_broker):
    assert pyledger_broker.store.max_offset == 0
"""


def test_fixture_serves_another_project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether or not the library is installed, its entry point included.
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(A_PROJECT)
    found = pytester.runpytest_subprocess("-p", "pyledger.pytest_plugin", "-W", "error")
    found.assert_outcomes(passed=2)


def test_example_of_the_document_works(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    _, _, rest = (ROOT / "docs" / "guide" / "testing.md").read_text().partition("```python\n")
    pytester.makepyfile(rest.partition("```")[0])
    found = pytester.runpytest_subprocess("-p", "pyledger.pytest_plugin", "-W", "error")
    found.assert_outcomes(passed=1)


def test_node_takes_messages(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "store") as node:

        async def main() -> int:
            async with raw(int(node.broker_address.rpartition(":")[2])) as client:
                return (await client.request(send("Orders", b"one"))).code

        assert asyncio.run(main()) == 0
        assert node.bodies("Orders") == [b"one"]
    with StoreEngine.open(node.folder) as store:
        assert store.recovery.clean


def test_node_reports_why_it_cannot_start(tmp_path: Path) -> None:
    with (
        StoreEngine.open(tmp_path / "store", mapped_file_size_bytes=1 << 20),
        pytest.raises(StoreLockedError),
        LocalBroker(tmp_path / "store"),
    ):
        raise AssertionError("two writers")
