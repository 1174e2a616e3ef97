"""Queries of messages and queues: 12, 29 to 33.

Source: RocketMQ broker/.../QueryMessageProcessor.java, AdminBrokerProcessor.java.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from pyledger.errors import StoreError
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.servers.broker.auth.admin_gate import denied
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers import query as headers

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
NOT_FOUND = "can not find message, maybe time range not correct"


class QueryProcessor:
    """Answers queries from the store."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._store = context.store

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return {
            RequestCode.QUERY_MESSAGE: self.query_messages,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.get_max_offset,
            RequestCode.GET_MIN_OFFSET: self.get_min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_time,
        }

    def query_messages(self, connection: Connection, request: RemotingCommand) -> Reply:
        """Answer QUERY_MESSAGE (12)."""
        header = request.header(headers.QueryMessageRequestHeader)
        count = header.max_num
        if request.ext_fields.get(UNIQUE_KEY_QUERY) == "true":
            count = self._context.config.query_count_max
        since, until = header.begin_timestamp, header.end_timestamp + 1
        found = self._store.query(header.topic, header.key, since=since, until=until, limit=count)
        last_time_ms, last_offset = self._store.index_end
        place = headers.QueryMessageResponseHeader(
            index_last_update_timestamp=last_time_ms, index_last_update_phyoffset=last_offset
        )
        if not found:
            return request.response(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND, place)
        response = request.response(header=place)
        newest = within(self._context.records_max_bytes, [message.record_view for message in reversed(found)])
        give(connection, request, response, newest[::-1])
        return None

    def view_message(self, connection: Connection, request: RemotingCommand) -> Reply:
        """Answer VIEW_MESSAGE_BY_ID (33)."""
        header = request.header(headers.ViewMessageRequestHeader)
        try:
            found = self._store.message_at(header.offset)
        except StoreError:
            problem = f"can not find message by the offset, {header.offset}"
            return request.response(ResponseCode.SYSTEM_ERROR, problem)
        if (rejected := denied(self._context, connection, request, found.topic, "Sub", "Get")) is not None:
            return rejected
        give(connection, request, request.response(), [found.record_view])
        return None

    def search_offset(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer SEARCH_OFFSET_BY_TIMESTAMP (29)."""
        header = request.header(headers.SearchOffsetRequestHeader)
        upper = header.boundary_type == headers.BoundaryType.UPPER
        offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper=upper)
        return request.response(header=headers.SearchOffsetResponseHeader(offset=offset))

    def get_max_offset(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_MAX_OFFSET (30)."""
        header = request.header(headers.GetMaxOffsetRequestHeader)
        held = self._store.queue_range(header.topic, header.queue_id)
        return request.response(header=headers.GetMaxOffsetResponseHeader(offset=held.max_offset))

    def get_min_offset(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_MIN_OFFSET (31)."""
        header = request.header(headers.GetMinOffsetRequestHeader)
        held = self._store.queue_range(header.topic, header.queue_id)
        return request.response(header=headers.GetMinOffsetResponseHeader(offset=held.min_offset))

    def get_earliest_time(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_EARLIEST_MSG_STORETIME (32)."""
        header = request.header(headers.GetEarliestMsgStoretimeRequestHeader)
        held = self._store.queue_range(header.topic, header.queue_id)
        time_ms = store_time_ms(self._store, header.topic, header.queue_id, held.min_offset)
        return request.response(header=headers.GetEarliestMsgStoretimeResponseHeader(timestamp=time_ms))


def store_time_ms(store: StoreEngine, topic: str, queue_id: int, offset: int) -> int:
    """Return when the message at a queue offset was stored, ms since 1970; -1 without a message."""
    found = store.get(topic, queue_id, offset, max_count=1).messages if offset >= 0 else []
    return found[0].store_timestamp if found else -1


def within(limit_bytes: int, records: Sequence[memoryview]) -> Sequence[memoryview]:
    """Return the first records up to a total size, but at least one."""
    sizes = accumulate(map(len, records))
    return records[: max(1, sum(size <= limit_bytes for size in sizes))]


def give(
    connection: Connection,
    request: RemotingCommand,
    response: RemotingCommand,
    records: Sequence[memoryview],
) -> None:
    """Send a response with records, which are not copied."""
    if not request.is_oneway:
        connection.send(response, records)
