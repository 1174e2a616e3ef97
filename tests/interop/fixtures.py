"""Fixtures of the tests that run against RocketMQ's own store, servers and clients."""

import pytest

from tests.interop.java import VERSIONS, JavaStore, JavaStores, built
from tests.interop.peers import PEER_VERSIONS, RocketMQ, built_peer


@pytest.fixture(params=VERSIONS)
def java(request: pytest.FixtureRequest) -> JavaStore:
    """Each version of upstream's store in turn."""
    return built(request.param)


@pytest.fixture
def java_store() -> JavaStores:
    """Upstream's store by version: `java_store("5.3.3")`."""
    return built


@pytest.fixture(params=PEER_VERSIONS)
def rocketmq(request: pytest.FixtureRequest) -> RocketMQ:
    """Servers and clients of each version of upstream in turn."""
    return built_peer(request.param)
