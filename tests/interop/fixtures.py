"""Fixtures of the tests that run against RocketMQ's own store."""

import pytest

from tests.interop.java import VERSIONS, JavaStore, JavaStores, built


@pytest.fixture(params=VERSIONS)
def java(request: pytest.FixtureRequest) -> JavaStore:
    """Each version of upstream's store in turn."""
    return built(request.param)


@pytest.fixture
def java_store() -> JavaStores:
    """Upstream's store by version: `java_store("5.3.3")`."""
    return built
