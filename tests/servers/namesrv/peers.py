"""A name server for the length of a block, and what brokers and clients send to it."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from pyledger.config.fields import build
from pyledger.config.namesrv import NamesrvConfig
from pyledger.model.digest import body_crc
from pyledger.model.remoting_codes import RequestCode
from pyledger.model.topic import DataVersion, TopicConfig
from pyledger.servers.namesrv.server import NameServer
from pyledger.wire.remoting.bodies.registration import RegisterBrokerBody
from pyledger.wire.remoting.bodies.topic_config import TopicConfigTable
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.namesrv import RegisterBrokerRequestHeader
from tests.net.peers import RawPeer, raw

TOPICS = ("Orders", "TBW102")
FIRST_VERSION = DataVersion(counter=1, timestamp_ms=1000)


@asynccontextmanager
async def name_server(folder: Path, **settings: Any) -> AsyncIterator[NameServer]:
    """A name server on a free port of loopback."""
    path = str(folder / "kv" / "kvConfig.json")
    server = NameServer(build(NamesrvConfig, {"port": 0, "kv_config_path": path, **settings}))
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def peer(server: NameServer) -> AsyncIterator[RawPeer]:
    """A connection to a name server for the length of a block."""
    async with raw(int(server.address.rpartition(":")[2])) as connection:
        yield connection


def registration(
    broker_addr: str = "127.0.0.1:10911",
    *,
    broker_id: int = 0,
    topics: Iterable[str] = TOPICS,
    version: DataVersion = FIRST_VERSION,
    fields: dict[str, str] | None = None,
    **header: Any,
) -> RemotingCommand:
    """The registration of broker-a in cluster C."""
    table = {name: TopicConfig(name, 4, 4) for name in topics}
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigTable(topic_config_table=table, data_version=version)
    ).encode()
    facts = {
        "broker_name": "broker-a",
        "cluster_name": "C",
        "ha_server_addr": "127.0.0.1:10912",
        "body_crc32": body_crc(body),
        **header,
    }
    head = RegisterBrokerRequestHeader(broker_addr=broker_addr, broker_id=broker_id, **facts)
    return RemotingCommand.request(RequestCode.REGISTER_BROKER, head, body, ext_fields=fields)


def topics_of(server: NameServer) -> list[str]:
    """Names of all topics that a name server knows."""
    return sorted(chain.from_iterable(server.routes.topics()))
