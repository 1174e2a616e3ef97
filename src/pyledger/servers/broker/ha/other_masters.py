"""Finds another master of the same broker name: two masters would write two different logs.

A promoted broker raises the state version of its topics. Name servers since 5.0 reject the registration of a
master with a lower version while the later one is alive. An old master that starts again finds here that it
is outranked.

Differs: upstream has no such check; the last registration of a master counts, and both take messages.

Source: RocketMQ namesrv/.../RouteInfoManager.java (registerBroker).
"""

from collections.abc import Iterable
from typing import NamedTuple

from pyledger.config import properties
from pyledger.errors import ConfigError, RemotingError, WireError
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.client import RemotingClient
from pyledger.wire.remoting.bodies.route import decode_clusters
from pyledger.wire.remoting.bodies.topic_config import TopicConfigTable
from pyledger.wire.remoting.command import RemotingCommand

TIMEOUT_MS = 3_000
MASTER_ID = 0


class OtherMaster(NamedTuple):
    """Another master of the same name that answers."""

    address: str
    state_version: int
    """State version of its topics, higher at the later master; 0 where it is not reported."""


async def find_other_master(
    client: RemotingClient, name_servers: Iterable[str], name: str, own: str
) -> OtherMaster | None:
    """Return the broker, not at `own`, that name servers know as the master of a name, if it answers.

    Args:
        client: Sends the requests.
        name_servers: `host:port` of each.
        name: The broker's name.
        own: `host:port` of the caller.
    """
    for name_server in name_servers:
        found = await answered(client, name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
        if found is None:
            continue
        try:
            broker = decode_clusters(found).brokers.get(name)
        except WireError:
            continue
        address = None if broker is None else broker.broker_addrs.get(MASTER_ID)
        if address not in (None, own) and await is_master(client, str(address), name):
            return OtherMaster(str(address), await state_version(client, str(address)))
    return None


async def is_master(client: RemotingClient, address: str, name: str) -> bool:
    """Return whether the broker at an address answers, and does not report another name or role."""
    found = await answered(client, address, RequestCode.GET_BROKER_CONFIG)
    if found is None:
        return False
    try:
        settings = properties.parse(found.decode())
    except (ConfigError, UnicodeDecodeError):
        return True
    return settings.get("brokerName", name) == name and settings.get("brokerId", "0") == "0"


async def state_version(client: RemotingClient, address: str) -> int:
    """Return the state version of a broker's topics; 0 where it is not reported."""
    found = await answered(client, address, RequestCode.GET_ALL_TOPIC_CONFIG)
    try:
        return TopicConfigTable.decode(found).data_version.state_version if found else 0
    except WireError:
        return 0


async def answered(client: RemotingClient, address: str, code: RequestCode) -> bytes | None:
    """Return the body of the response to a request without fields; empty: rejected, None: no response."""
    try:
        answer = await client.call(address, RemotingCommand.request(code), TIMEOUT_MS)
    except (RemotingError, WireError, ValueError):
        return None
    return bytes(answer.body) if answer.code == ResponseCode.SUCCESS else b""
