"""Our clients with RocketMQ's own servers, of both versions."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.scenarios import BASIC, FURTHER, Scenario, timed_messages_wait
from tests.interop.peers import PEER_VERSIONS, built_peer, cluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

SETTINGS = (
    *("--set", "enablePropertyFilter=true"),
    *("--set", "transactionCheckInterval=3000"),
    *("--set", "transactionTimeOut=4000"),
)


@pytest.fixture(scope="module", params=PEER_VERSIONS)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """Version and name server of a cluster of one broker."""
    folder = tmp_path_factory.mktemp("rocketmq")
    with cluster(built_peer(request.param), folder, *SETTINGS) as namesrv:
        yield request.param, namesrv


@pytest.mark.parametrize("scenario", [*BASIC, *FURTHER], ids=lambda one: one.__name__)
def test_clients_with_java(servers: tuple[str, str], tmp_path: Path, scenario: Scenario) -> None:
    version, namesrv = servers
    if scenario is timed_messages_wait and version.startswith("4."):
        pytest.skip("timer messages came with 5.0")
    asyncio.run(scenario(namesrv, scenario.__name__[:4] + version.replace(".", ""), str(tmp_path)))
