"""Administration of consumer offsets: 43, 45, 222, 308, 314.

A reset is kept in the broker until the group's next pull of the queue gets it, as with upstream's
`useServerSideResetOffset`.

Source: RocketMQ broker/.../AdminBrokerProcessor.java.
"""

import asyncio
from collections.abc import Awaitable, Mapping

from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.topic import DataVersion
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.large_answers import LargeAnswers
from pyledger.protocol.broker.consumer_offsets import Offsets, reset_allowed
from pyledger.protocol.broker.name_rules import INTERNAL_GROUPS
from pyledger.protocol.broker.subscription_groups import internal_group
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.wire.remoting.bodies.offsets import (
    ConsumerOffsetTable,
    CorrectionOffsets,
    DelayOffsetTable,
    QueueOffsets,
)
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.admin import CloneGroupOffsetRequestHeader
from pyledger.wire.remoting.headers.client import ResetOffsetRequestHeader
from pyledger.wire.remoting.headers.query import QueryCorrectionOffsetRequestHeader


class ResetProcessor:
    """Lists and changes offsets."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._offsets = context.tables.offsets
        self._large = LargeAnswers(
            lambda: (context.tables.offsets.change_count, context.tables.offsets.version)
        )

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods that read, by request code."""
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all,
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_delays,
            RequestCode.QUERY_CORRECTION_OFFSET: self.get_corrections,
        }

    def changes(self) -> Mapping[RequestCode, Method]:
        """Return the methods that change the broker, by request code."""
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    def get_all(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_ALL_CONSUMER_OFFSET (43)."""
        return asyncio.ensure_future(self._get_all(request))

    async def _get_all(self, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=await self._large.body("all", self._encoded))

    def _encoded(self) -> Awaitable[bytes]:
        offsets = {key: dict(queues) for key, queues in self._offsets.offsets.items()}
        return asyncio.to_thread(encoded_offsets, offsets, self._offsets.version)

    def get_delays(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_ALL_DELAY_OFFSET (45)."""
        delays = self._context.tables.delays
        body = DelayOffsetTable(offset_table=delays.offsets, data_version=delays.version)
        return request.response(body=body.encode())

    def get_corrections(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer QUERY_CORRECTION_OFFSET (308)."""
        header = request.header(QueryCorrectionOffsetRequestHeader)
        topic = header.topic
        found = self._offsets.corrections(
            topic,
            header.compare_group,
            without=[one for one in (header.filter_groups or "").split(",") if one],
            min_offset=lambda queue_id: self._context.store.queue_range(topic, queue_id).min_offset,
        )
        return request.response(body=CorrectionOffsets(correction_offsets=found).encode())

    def clone(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """314: without the topics that the source's members do not subscribe to any more."""
        header = request.header(CloneGroupOffsetRequestHeader)
        if header.dest_group in INTERNAL_GROUPS:
            rejection = internal_group(header.dest_group)
            return request.response(rejection.code, rejection.remark)
        online = None if header.offline else self._context.tables.consumers.groups.get(header.src_group)
        topics = [header.topic] if header.topic else self._offsets.topics_of_group(header.src_group)
        for topic in topics:
            if self._context.tables.topics.find(topic) is None:
                continue
            if online is not None and topic not in online.subscriptions:
                continue
            self._offsets.clone(header.src_group, header.dest_group, topic)
        return request.response()

    def reset(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer INVOKE_BROKER_TO_RESET_OFFSET (222)."""
        header = request.header(ResetOffsetRequestHeader)
        topic = self._context.tables.topics.find(header.topic)
        if topic is None:
            problem = f"Topic {header.topic} does not exist"
            return request.response(ResponseCode.TOPIC_NOT_EXIST, problem)
        if self._context.tables.groups.known(header.group) is None:
            problem = f"Group {header.group} does not exist"
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        found: dict[MessageQueue, int] = {}
        if header.queue_id >= 0 and header.offset is not None and header.offset != -1:
            held = self._context.store.queue_range(topic.name, header.queue_id)
            if not reset_allowed(header.offset, held):
                bounds = f"[{held.min_offset}-{held.max_offset}]"
                problem = f"Target offset {header.offset} not in consume queue range {bounds}"
                return request.response(ResponseCode.SYSTEM_ERROR, problem)
            found[self._queue(topic.name, header.queue_id)] = header.offset
        else:
            queue_ids = [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_count)
            for queue_id in queue_ids:
                offset = self._offset_at(topic.name, queue_id, header.timestamp)
                found[self._queue(topic.name, queue_id)] = offset
        if not found:
            return request.response(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for queue, offset in found.items():
            self._offsets.reset(header.group, topic.name, queue.queue_id, offset)
        return request.response(body=QueueOffsets(offset_table=found).encode())

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._context.config.name, queue_id)

    def _offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return the offset of the first message stored at a time or later; the end for a negative time."""
        if time_ms < 0:
            return self._context.store.queue_range(topic, queue_id).max_offset
        return self._context.store.offset_by_time(topic, queue_id, time_ms)


def encoded_offsets(offsets: Offsets, version: DataVersion) -> bytes:
    """Return the body of the response to 43."""
    topics: dict[str, list[str]] = {}
    for topic, group in offsets:
        topics.setdefault(group, []).append(topic)
    table = {
        f"{topic}@{group}": {int(queue_id): int(offset) for queue_id, offset in queues.items()}
        for (topic, group), queues in offsets.items()
    }
    return ConsumerOffsetTable(
        offset_table=table,
        group_topic_map={group: tuple(names) for group, names in topics.items()},
        data_version=version,
    ).encode()
