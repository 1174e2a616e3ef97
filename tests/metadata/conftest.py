"""A ZooKeeper for the tests that run over both metadata stores."""

from collections.abc import Iterator

import pytest

from tests.interop.bookkeeper_peers import zookeeper


@pytest.fixture(scope="module")
def zookeeper_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as hosts:
        yield hosts
