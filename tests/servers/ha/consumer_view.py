"""What a consumer sees at a broker: the one comparison of brokers in the tests of masters and slaves.

All of it is asked over the wire, so a broker may be ours or RocketMQ's: each queue from its least offset to
its end by pulls, messages by key and by time, the offsets of groups, the configuration of topics and groups.
Logs that are equal byte for byte prove nothing of that: queues and index may be missing.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.record.message_id import decode_message_id
from pyledger.wire.record.record import decode_records
from pyledger.wire.remoting.bodies.json_body import Body
from pyledger.wire.remoting.bodies.offsets import ConsumerOffsetTable
from pyledger.wire.remoting.bodies.topic_config import KVTable, SubscriptionGroupTable, TopicConfigTable
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.query import QueryMessageRequestHeader
from tests.net.peers import RawPeer, raw
from tests.servers.broker.peers import make_request, pull

VIEWER = "CONSUMER_VIEW"
"""The group that pulls: brokers make it, so it is left out of what is compared."""
KEYS_ASKED = 12
"""Keys of each topic that are asked for, spread over its messages."""
FOUND_MAX = 10
"""Messages that a query gives at most; more large ones than fit into a frame end the connection."""
END_OF_TIME_MS = (1 << 63) - 1
Queue = tuple[str, int]


@dataclass(frozen=True)
class Message:
    """A message of a queue as its consumer gets it."""

    queue_offset: int
    physical_offset: int
    msg_id: str
    body: bytes
    flag: int
    born_ms: int
    stored_ms: int
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class QueueView:
    """One queue."""

    min_offset: int
    max_offset: int
    messages: tuple[Message, ...]
    found_by_time_ms: int
    """Time of the message that a search for the last one's time finds; -1 without any. Which one of several
    with the same time differs between brokers."""


@dataclass(frozen=True)
class ConsumerView:
    """All that a consumer sees."""

    log_start: int
    """Physical offset (bytes) before which the broker has nothing."""
    queues: Mapping[Queue, QueueView]
    found_by_key: Mapping[tuple[str, str], frozenset[int]]
    """Physical offsets of the messages with a key, by topic and key."""
    group_offsets: Mapping[tuple[str, str, int], int]
    """By topic, group and queue."""
    topics: Mapping[str, Any]
    groups: Mapping[str, Any]

    def of_topic(self, topic: str) -> "ConsumerView":
        """What is there of one topic: a broker may write to its own topics until it ends."""
        return replace(
            self,
            queues={key: one for key, one in self.queues.items() if key[0] == topic},
            found_by_key={key: one for key, one in self.found_by_key.items() if key[0] == topic},
            group_offsets={key: one for key, one in self.group_offsets.items() if key[0] == topic},
            topics={name: one for name, one in self.topics.items() if name == topic},
        )

    def reaching_back_to(self, log_start: int) -> "ConsumerView":
        """What is left of it at a broker whose log begins at a physical offset (bytes).

        A queue without a message there is left out: a slave cannot know its numbers from the log.
        """
        if log_start == 0:
            return self
        queues: dict[Queue, QueueView] = {}
        for queue, view in self.queues.items():
            messages = tuple(one for one in view.messages if one.physical_offset >= log_start)
            if messages:
                least = messages[0].queue_offset
                queues[queue] = replace(view, min_offset=least, messages=messages)
        found = {
            key: here
            for key, places in self.found_by_key.items()
            if (here := frozenset(place for place in places if place >= log_start))
        }
        return replace(self, log_start=log_start, queues=queues, found_by_key=found)


async def consumer_view(port: int, *, keys: Mapping[str, list[str]] | None = None) -> ConsumerView:
    """Ask a broker on this machine for all that a consumer sees there.

    Args:
        port: The broker's.
        keys: What to query, by topic; None: some keys of each topic's messages.
    """
    async with raw(port) as client:
        topics = (await _table(client, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable)).topic_config_table
        subscriptions = await _table(
            client, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupTable
        )
        offsets = await _group_offsets(client)
        runtime = (await _table(client, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table
        queues: dict[Queue, QueueView] = {}
        for name, config in sorted(topics.items()):
            for queue_id in range(config.read_queue_count):
                view = await _queue(client, name, queue_id)
                if view.max_offset:
                    queues[name, queue_id] = view
        asked_for = some_keys(queues) if keys is None else keys
        found = {}
        for topic, wanted in asked_for.items():
            for key in wanted:
                if places := await _found_by_key(client, topic, key):
                    found[topic, key] = places
    groups = {name: one for name, one in subscriptions.subscription_group_table.items() if name != VIEWER}
    log_start = int(runtime["commitLogMinOffset"])
    return ConsumerView(log_start, queues, found, offsets, topics, groups)


async def same_for_consumers(master_port: int, slave_port: int, *, tables: bool = True) -> ConsumerView:
    """Wait until a consumer sees at a slave what it sees at its master, as far back as the slave's log goes.

    What differs last is in the error that ends the wait; the test's own limit would not tell.

    Args:
        master_port: Where requests are sent.
        slave_port: The same.
        tables: Whether topics, groups and offsets are compared, which come to a slave by the clock.
    """
    master = slave = None
    try:
        async with asyncio.timeout(30):
            while True:
                slave = await consumer_view(slave_port)
                master = (await consumer_view(master_port, keys=keys_of(slave))).reaching_back_to(
                    slave.log_start
                )
                if not differences(master, slave, tables=tables):
                    return slave
                await asyncio.sleep(0.02)
    except TimeoutError:
        assert master is not None
        assert slave is not None
        assert not (found := differences(master, slave, tables=tables)), "\n".join(found)
        raise


def differences(expected: ConsumerView, found: ConsumerView, *, tables: bool = True) -> list[str]:
    """What a consumer would notice, a line for each; none: the two are the same to it."""
    parts = ["queues", "found_by_key", *(["group_offsets", "topics", "groups"] if tables else [])]
    return [
        f"{part} {key!r}: {_short(wanted.get(key))} there, {_short(there.get(key))} here"
        for part in parts
        for wanted, there in [(getattr(expected, part), getattr(found, part))]
        for key in sorted({*wanted, *there}, key=repr)
        if wanted.get(key) != there.get(key)
    ]


def _short(value: object) -> str:
    if isinstance(value, QueueView):
        places = [one.queue_offset for one in value.messages]
        return f"{value.min_offset}..{value.max_offset}, messages {places[:3]}…{places[-3:]}"
    return repr(value)


def keys_of(view: ConsumerView) -> dict[str, list[str]]:
    """What was asked for in a view."""
    return some_keys(view.queues)


def some_keys(queues: Mapping[Queue, QueueView]) -> dict[str, list[str]]:
    """Keys of messages of each topic, from all over it."""
    found: dict[str, dict[str, None]] = {}
    for (topic, _), view in queues.items():
        for message in view.messages:
            properties = dict(message.properties)
            for key in (*properties.get("KEYS", "").split(), properties.get("UNIQ_KEY", "")):
                if key:
                    found.setdefault(topic, {})[key] = None
    return {topic: spread(list(keys), KEYS_ASKED) for topic, keys in found.items()}


def spread(values: list[str], count: int) -> list[str]:
    """So many of them at most, from the first to the last."""
    step = max(1, -(-len(values) // count))
    return sorted({*values[::step], *values[-1:]})


async def _table(client: RawPeer, code: RequestCode, kind: type[Body]) -> Any:
    answer = await client.request(make_request(code))
    assert answer.code == 0, answer.remark
    return kind.decode(answer.body)


async def _group_offsets(client: RawPeer) -> dict[tuple[str, str, int], int]:
    """Each offset by the table that slaves copy, and by the question that consumers ask."""
    answer = await client.request(make_request(RequestCode.GET_ALL_CONSUMER_OFFSET))
    if answer.code != 0:  # RocketMQ's word for an empty table
        return {}
    found = {}
    for key, queues in ConsumerOffsetTable.decode(answer.body).offset_table.items():
        topic, _, group = key.partition("@")
        for queue_id in queues:
            request = make_request(
                RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=queue_id
            )
            said = await client.request(request)
            assert said.code == 0, said.remark
            if group != VIEWER:
                found[topic, group, queue_id] = int(said.ext_fields["offset"])
    return found


async def _queue(client: RawPeer, topic: str, queue_id: int) -> QueueView:
    least = await _offset(client, RequestCode.GET_MIN_OFFSET, topic, queue_id)
    end = await _offset(client, RequestCode.GET_MAX_OFFSET, topic, queue_id)
    messages: list[Message] = []
    offset = least
    while offset < end:
        request = pull(topic, queue_id, offset, consumer_group=VIEWER)
        answer = await client.request(request)
        assert "nextBeginOffset" in answer.ext_fields, (topic, queue_id, answer.code, answer.remark)
        if not answer.body:
            # A removed tail, or a batch: what a consumer does is to go on where it is told.
            assert int(answer.ext_fields["nextBeginOffset"]) > offset, (topic, queue_id, offset, answer)
        messages += map(_message, decode_records(bytes(answer.body)))
        offset = int(answer.ext_fields["nextBeginOffset"])
    by_time = -1
    if messages:
        code, at_ms = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, messages[-1].stored_ms
        at = await _offset(client, code, topic, queue_id, timestamp=at_ms)
        by_time = next((one.stored_ms for one in messages if one.queue_offset == at), -1)
    return QueueView(least, end, tuple(messages), by_time)


def _message(one: Any) -> Message:
    return Message(
        one.queue_offset,
        one.physical_offset,
        one.msg_id,
        one.body,
        one.flag,
        one.born_timestamp,
        one.store_timestamp,
        tuple(sorted(one.properties.items())),
    )


async def _offset(client: RawPeer, code: RequestCode, topic: str, queue_id: int, **fields: object) -> int:
    answer = await client.request(make_request(code, topic=topic, queueId=queue_id, **fields))
    assert answer.code == 0, answer.remark
    return int(answer.ext_fields["offset"])


async def _found_by_key(client: RawPeer, topic: str, key: str) -> frozenset[int]:
    """Physical offsets of the messages that a query finds, of the newest ones alone."""
    header = QueryMessageRequestHeader(
        topic=topic, key=key, max_num=FOUND_MAX, begin_timestamp=0, end_timestamp=END_OF_TIME_MS
    )
    answer = await client.request(RemotingCommand.request(RequestCode.QUERY_MESSAGE, header))
    return frozenset(
        int(decode_message_id(one.msg_id).physical_offset) for one in decode_records(bytes(answer.body))
    )
