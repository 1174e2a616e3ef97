"""Fixtures of the tests that run against RocketMQ's own store, servers and clients.

What takes long to start stays to the end of the run, and tests of one version stand together.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.java import VERSIONS, JavaStore, JavaStores, built
from tests.interop.peers import PEER_VERSIONS, Peers, RocketMQ, cluster
from tests.interop.servers import Node, our_cluster

BROKER_SETTINGS = (
    *("--set", "enablePropertyFilter=true"),
    *("--set", "transactionCheckInterval=3000"),
    *("--set", "transactionTimeOut=4000"),
)


@pytest.fixture(params=VERSIONS)
def java(request: pytest.FixtureRequest) -> JavaStore:
    """Each version of upstream's store in turn."""
    return built(request.param)


@pytest.fixture
def java_store() -> JavaStores:
    """Upstream's store by version: `java_store("5.3.3")`."""
    return built


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    """RocketMQ's servers and clients by version: `peers("5.3.3")`."""
    found = Peers(tmp_path_factory.mktemp("peers"))
    yield found
    found.close()


@pytest.fixture(scope="session", params=PEER_VERSIONS)
def rocketmq(request: pytest.FixtureRequest, peers: Peers) -> RocketMQ:
    """Clients of each version of upstream in turn."""
    return peers(request.param)


@pytest.fixture(scope="session")
def java_folder(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a cluster of that version has its files: the broker's are in `store`."""
    return tmp_path_factory.mktemp(f"cluster-{rocketmq.version}")


@pytest.fixture(scope="session")
def java_namesrv(rocketmq: RocketMQ, java_folder: Path) -> Iterator[str]:
    """The name server of that cluster."""
    with cluster(rocketmq.version, java_folder, BROKER_SETTINGS) as namesrv:
        yield namesrv


@pytest.fixture(scope="session")
def our_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Our name server and broker."""
    with our_cluster(tmp_path_factory.mktemp("ours")) as node:
        yield node
