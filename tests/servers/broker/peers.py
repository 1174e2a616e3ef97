"""A broker for the length of a block, and what clients send to it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from pyledger.config.broker import BrokerConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.config.store import StoreConfig
from pyledger.model.remoting_codes import RequestCode
from pyledger.servers.broker.server import Broker
from pyledger.wire.record.properties import encode_properties
from pyledger.wire.remoting.bodies.heartbeat import ConsumerEntry, ConsumeType, Heartbeat, MessageModel
from pyledger.wire.remoting.bodies.subscription import Subscription
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.pull import PullMessageRequestHeader
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader
from tests.net.peers import RawPeer, raw

SMALL = {"mapped_file_size_bytes": 1 << 20, "index_slots": 1000, "index_entries": 4000}
SUSPEND, WITH_SUBSCRIPTION, COMMIT = 2, 4, 1


@asynccontextmanager
async def broker(
    folder: Path,
    *,
    delivery: Mapping[str, Any] | None = None,
    store: Mapping[str, Any] | None = None,
    clock: Any = None,
    **settings: Any,
) -> AsyncIterator[Broker]:
    """A broker on a free port of loopback, which creates topics on their first use unless told otherwise."""
    rules = DeliveryConfig(**{"auto_create_topics": True, "property_filter": True, **(delivery or {})})
    one = Broker(
        BrokerConfig(**{"port": 0, "store_path": str(folder / "store"), **settings}),
        delivery=rules,
        store=StoreConfig(**{**SMALL, **(store or {})}),
        clock=clock,
        random=Random(1),
    )
    await one.start()
    try:
        yield one
    finally:
        await one.close()


@asynccontextmanager
async def peer(one: Broker) -> AsyncIterator[RawPeer]:
    """A connection to a broker for the length of a block."""
    async with raw(int(one.address.rpartition(":")[2])) as connection:
        yield connection


def send(
    topic: str,
    body: bytes = b"hello",
    *,
    queue_id: int = 0,
    properties: Mapping[str, str] | None = None,
    code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    **fields: Any,
) -> RemotingCommand:
    """A producer's request."""
    values = {
        "producer_group": "P",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": encode_properties({"UNIQ_KEY": "U1", **(properties or {})}).decode(),
        **fields,
    }
    return RemotingCommand.request(code, SendMessageRequestHeader(**values), body)


def pull(
    topic: str,
    queue_id: int = 0,
    offset: int = 0,
    *,
    flags: int = WITH_SUBSCRIPTION,
    subscription: str = "*",
    hold_ms: int = 0,
    **fields: Any,
) -> RemotingCommand:
    """A consumer's request."""
    values = {
        "consumer_group": "G",
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": flags,
        "commit_offset": 0,
        "suspend_timeout_millis": hold_ms,
        "subscription": subscription,
        "sub_version": 1,
        "expression_type": "TAG",
        **fields,
    }
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, PullMessageRequestHeader(**values))


def heartbeat(
    client_id: str, topic: str, expression: str = "*", *, version: int = 1, **facts: Any
) -> RemotingCommand:
    """A consumer of group G says what it wants."""
    entry = ConsumerEntry(
        group_name="G",
        consume_type=ConsumeType.PASSIVELY,
        message_model=facts.pop("model", MessageModel.CLUSTERING),
        subscription_data_set=(Subscription.of(topic, expression, version),),
    )
    heartbeat = Heartbeat(client_id=client_id, consumer_data_set=(entry,), **facts)
    return RemotingCommand.request(RequestCode.HEART_BEAT, body=heartbeat.encode())


def make_request(code: RequestCode, body: bytes = b"", **fields: object) -> RemotingCommand:
    """Return a request with text fields, as on the wire."""
    return RemotingCommand.request(
        code, body=body, ext_fields={name: str(value) for name, value in fields.items()}
    )
