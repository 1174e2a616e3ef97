"""Our clients with RocketMQ's own servers, of both versions."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyledger.client import Message, Producer
from tests.client.scenarios import BASIC, FURTHER, Scenario, timed_messages_wait
from tests.interop.peers import PEER_VERSIONS, RocketMQ, built_peer, cluster

pytestmark = [pytest.mark.java, pytest.mark.live, pytest.mark.timeout(600)]

SETTINGS = (
    *("--set", "enablePropertyFilter=true"),
    *("--set", "transactionCheckInterval=3000"),
    *("--set", "transactionTimeOut=4000"),
)


@pytest.fixture(scope="module", params=PEER_VERSIONS)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RocketMQ, str]]:
    """A version of RocketMQ, and the address of its name server."""
    peers = built_peer(request.param)
    with cluster(peers, tmp_path_factory.mktemp("rocketmq"), *SETTINGS) as namesrv:
        yield peers, namesrv


@pytest.mark.parametrize("scenario", [*BASIC, *FURTHER], ids=lambda one: one.__name__)
def test_clients_with_java(servers: tuple[RocketMQ, str], tmp_path: Path, scenario: Scenario) -> None:
    peers, namesrv = servers
    version = peers.version
    if scenario is timed_messages_wait and version.startswith("4."):
        pytest.skip("timer messages came with 5.0")
    asyncio.run(scenario(namesrv, scenario.__name__[:4] + version.replace(".", ""), str(tmp_path)))


def test_java_consumes_what_we_send(servers: tuple[RocketMQ, str]) -> None:
    peers, namesrv = servers
    wanted = {}
    with Producer("senders", namesrv) as producer:
        for number in range(3):
            message = Message(
                "Sent", b"%d" % number, tags="A", keys=f"k{number}", properties={"colour": "red"}
            )
            wanted[producer.send(message).unique_key] = (1, "A", f"k{number}")
        batch = producer.send_batch([Message("Sent", b"b%d" % number, tags="B") for number in range(4)])
        wanted |= dict.fromkeys(batch.unique_key.split(","), (2, "B", None))
        wanted[producer.send(Message("Sent", b"z" * 5000)).unique_key] = (5000, None, None)
    options = ("--topic", "Sent", "--group", "receivers", "--from", "first", "--expect", len(wanted))
    lines = peers.run("Consume", "--namesrv", namesrv, *options)
    received = [line for line in lines if line["event"] == "message"]
    assert {line["uniq"]: (line["size"], line["tags"], line["keys"]) for line in received} == wanted
    assert {line["properties"]["colour"] for line in received if line["keys"]} == {"red"}
