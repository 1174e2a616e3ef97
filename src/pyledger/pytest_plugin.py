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
    from pyledger.testing import LocalBookies, LocalBroker


@pytest.fixture
def pyledger_broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LocalBroker]":
    """A name server and a broker on free ports of loopback, with an empty store; gone after the test."""
    from pyledger.testing import LocalBroker  # noqa: PLC0415 - only for tests that want it

    with LocalBroker(tmp_path_factory.mktemp("pyledger") / "store") as broker:
        yield broker


@pytest.fixture
def pyledger_bookies(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LocalBookies]":
    """Three bookies on free ports of loopback, and their cluster, all empty; gone after the test."""
    from pyledger.testing import LocalBookies  # noqa: PLC0415 - only for tests that want it

    with LocalBookies(folder=tmp_path_factory.mktemp("pyledger") / "bookies") as bookies:
        yield bookies
