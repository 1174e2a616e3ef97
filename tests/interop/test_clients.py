"""Our clients with RocketMQ's own servers, of both versions."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.client.scenarios import BASIC, FURTHER, Scenario, timed_messages_wait
from tests.interop.peers import PEER_VERSIONS, built_peer, free_ports

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
    peers = built_peer(request.param)
    folder = tmp_path_factory.mktemp("rocketmq")
    namesrv_port, broker_port = free_ports(2)
    namesrv = f"127.0.0.1:{namesrv_port}"
    with ExitStack() as stack:
        stack.enter_context(peers.serving("NameServer", "--port", namesrv_port, log=folder / "namesrv.log"))
        where = ("--port", broker_port, "--namesrv", namesrv, "--store", folder / "store", "--small")
        stack.enter_context(peers.serving("Broker", *where, *SETTINGS, log=folder / "broker.log"))
        yield request.param, namesrv


@pytest.mark.parametrize("scenario", [*BASIC, *FURTHER], ids=lambda one: one.__name__)
def test_clients_with_java(servers: tuple[str, str], tmp_path: Path, scenario: Scenario) -> None:
    version, namesrv = servers
    if scenario is timed_messages_wait and version.startswith("4."):
        pytest.skip("timer messages came with 5.0")
    asyncio.run(scenario(namesrv, scenario.__name__[:4] + version.replace(".", ""), str(tmp_path)))
