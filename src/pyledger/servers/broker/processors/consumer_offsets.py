"""Consumer offsets: 14 and 15.

Source: RocketMQ broker/.../ConsumerManageProcessor.java.
"""

from collections.abc import Mapping

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.consumer_offsets import offset_to_answer
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.queues.queue_reader import default_limits
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers import query as headers

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


class OffsetProcessor:
    """Returns and commits consumer offsets."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._resident_bytes = default_limits().resident_bytes

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
        }

    def query_offset(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer QUERY_CONSUMER_OFFSET (14)."""
        header = request.header(headers.QueryConsumerOffsetRequestHeader)
        topic, queue_id = header.topic, header.queue_id
        committed = self._context.tables.offsets.committed(header.consumer_group, topic, queue_id)
        offset = offset_to_answer(
            committed,
            set_zero_if_not_found=header.set_zero_if_not_found,
            min_offset=self._context.store.queue_range(topic, queue_id).min_offset,
            first_in_memory=committed is None
            and first_in_memory(self._context.store, topic, queue_id, self._resident_bytes),
        )
        if offset is None:
            return request.response(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)
        return request.response(header=headers.QueryConsumerOffsetResponseHeader(offset=offset))

    def update_offset(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer UPDATE_CONSUMER_OFFSET (15)."""
        header = request.header(headers.UpdateConsumerOffsetRequestHeader)
        group, topic = header.consumer_group, header.topic
        tables, now_ms = self._context.tables, self._context.now_ms()
        found = tables.groups.usable(group)
        if found is None:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if tables.topics.find(topic) is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if header.queue_id is None:
            return request.response(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
        if header.commit_offset is None:
            return request.response(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
        if not self._has_queue(topic, header.queue_id) or header.commit_offset < 0:
            problem = (
                f"queueId[{header.queue_id}] or offset[{header.commit_offset}] is illegal, topic is {topic}"
            )
            return request.response(ResponseCode.INVALID_PARAMETER, problem)
        if not tables.offsets.has_room(group, topic, header.queue_id):
            return request.response(ResponseCode.SYSTEM_ERROR, tables.offsets.full_problem())
        tables.groups.keep(found, now_ms)
        tables.offsets.commit(group, topic, header.queue_id, header.commit_offset, now_ms)
        return request.response()

    def _has_queue(self, name: str, queue_id: int) -> bool:
        """Return whether a topic has a queue, or had it and its messages are still stored."""
        topic = self._context.tables.topics.find(name)
        if topic is None or queue_id < 0:
            return False
        if queue_id < max(topic.read_queue_count, topic.write_queue_count):
            return True
        return self._context.store.queue_range(name, queue_id).max_offset > 0


def first_in_memory(store: StoreEngine, topic: str, queue_id: int, resident_bytes: int) -> bool:
    """Return whether message 0 of a queue is in the part of the log that counts as in memory."""
    places = store.get_ranges(topic, queue_id, 0, max_count=1).ranges.places
    return bool(places) and store.max_offset - places[0][0] <= resident_bytes
