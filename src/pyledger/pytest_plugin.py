"""Fixtures for tests of programs that use RocketMQ or BookKeeper: servers of their own, in process.

    def test_orders_arrive(pyledger_broker):
        producer = Producer("tests", name_servers=pyledger_broker.address)
        ...
        assert pyledger_broker.bodies("Orders") == [b"one"]

pytest finds it by itself where PyLedger is installed. Nothing is imported before a test asks for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyledger.broker.background import BackgroundNode
    from pyledger.runtime.bookie_group import BackgroundBookies


@pytest.fixture
def pyledger_broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[BackgroundNode]":
    """A name server and a broker on free ports of loopback, with an empty store; gone after the test."""
    from pyledger.broker.background import BackgroundNode  # noqa: PLC0415 - only for tests that want it

    with BackgroundNode(tmp_path_factory.mktemp("pyledger") / "store") as node:
        yield node


@pytest.fixture
def pyledger_ledgers(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[BackgroundBookies]":
    """Three bookies on free ports of loopback, and their cluster, all empty; gone after the test."""
    from pyledger.runtime.bookie_group import BackgroundBookies  # noqa: PLC0415 - only for tests that want it

    with BackgroundBookies(tmp_path_factory.mktemp("pyledger") / "bookies") as bookies:
        yield bookies
