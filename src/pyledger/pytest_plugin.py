"""Fixtures for tests of programs that use RocketMQ or BookKeeper: servers in the test's process.

    def test_orders_arrive(pyledger_broker):
        producer = Producer("tests", name_servers=pyledger_broker.address)
        ...
        assert pyledger_broker.bodies("Orders") == [b"one"]

pytest loads it if PyLedger is installed. Servers are imported when a test uses a fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyledger.testing import LocalBookies, LocalBroker


@pytest.fixture
def pyledger_broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LocalBroker]":
    """Start a name server and a broker with an empty store on free loopback ports."""
    from pyledger.testing import LocalBroker  # noqa: PLC0415 - only for tests that want it

    with LocalBroker(tmp_path_factory.mktemp("pyledger") / "store") as broker:
        yield broker


@pytest.fixture
def pyledger_bookies(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LocalBookies]":
    """Start an empty cluster of three bookies on free loopback ports."""
    from pyledger.testing import LocalBookies  # noqa: PLC0415 - only for tests that want it

    with LocalBookies(folder=tmp_path_factory.mktemp("pyledger") / "bookies") as bookies:
        yield bookies
