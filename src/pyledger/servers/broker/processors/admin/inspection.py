"""Inspection of consume queues and of clients: 307, 309, 321.

Source: RocketMQ broker/.../AdminBrokerProcessor.java, Broker2Client.java.
"""

import asyncio
from collections.abc import Mapping

from pyledger.errors import MalformedMessageIdError, RemotingError, RemotingTimeoutError, StoreError
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.servers.broker.auth.admin_gate import denied
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.processors.admin.groups import subscription_of
from pyledger.store.queues.get_result import GetStatus
from pyledger.wire.record.message_id import decode_message_id
from pyledger.wire.remoting.bodies.offsets import QueueUnit, QueueUnits
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.admin import QueryConsumeQueueRequestHeader
from pyledger.wire.remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)

UNITS_MAX = 1024
CLIENT_TIMEOUT_MS = 10_000


class InspectionProcessor:
    """Lists units of queues, and forwards requests to clients."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods that read, by request code."""
        return {
            RequestCode.QUERY_CONSUME_QUEUE: self.query_queue,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_running,
        }

    def changes(self) -> Mapping[RequestCode, Method]:
        """Return the methods that change the broker, by request code."""
        return {RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume}

    def query_queue(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer QUERY_CONSUME_QUEUE (321)."""
        header = request.header(QueryConsumeQueueRequestHeader)
        topic, queue_id = header.topic or "", header.queue_id
        store, tables = self._context.store, self._context.tables
        held = store.queue_range(topic, queue_id)
        if (topic, queue_id) not in store.queues():
            problem = f"{queue_id}@{topic} is not exist!"
            return request.response(ResponseCode.SYSTEM_ERROR, problem)
        wanted, note = None, None
        if header.consumer_group:
            wanted = tables.consumers.subscription(header.consumer_group, topic)
            note = None if wanted else f"{header.consumer_group}@{topic} is not online!"
        units: list[QueueUnit] = []
        offset, count = header.index, min(header.count, UNITS_MAX)
        while len(units) < count:
            page = store.get(topic, queue_id, offset, max_count=count - len(units))
            if page.status is not GetStatus.FOUND:
                break
            units += [
                QueueUnit(
                    physic_offset=message.physical_offset,
                    physic_size=message.store_size,
                    tags_code=message.tags_code,
                    eval=wanted is not None and wanted.wants_code(message.tags_code),
                )
                for message in page.messages
            ]
            offset = page.next_offset
        if not units:
            problem = f"Index {header.index} of {queue_id}@{topic} is not exist!"
            return request.response(ResponseCode.SYSTEM_ERROR, problem)
        body = QueueUnits(
            subscription_data=None if wanted is None else subscription_of(wanted),
            filter_data=note,
            queue_data=tuple(units),
            max_queue_index=held.max_offset,
            min_queue_index=held.min_offset,
        )
        return request.response(body=body.encode())

    def get_running(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """307: forwarded to the client."""
        header = request.header(GetConsumerRunningInfoRequestHeader)
        return self._forward(request, header.consumer_group, header.client_id, b"")

    def consume(self, connection: Connection, request: RemotingCommand) -> Reply:
        """309: the client consumes one message of the log and reports the result."""
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        try:
            offset = decode_message_id(header.msg_id or "").physical_offset
            found = self._context.store.message_at(offset)
        except (MalformedMessageIdError, StoreError) as problem:
            return request.response(ResponseCode.SYSTEM_ERROR, str(problem))
        if (rejected := denied(self._context, connection, request, found.topic, "Sub", "Get")) is not None:
            return rejected
        return self._forward(request, header.consumer_group, header.client_id or "", bytes(found.record_view))

    def _forward(self, request: RemotingCommand, group: str, client_id: str, body: bytes) -> Reply:
        for member in self._context.tables.consumers.members(group):
            if member.client_id == client_id and isinstance(member.channel, Connection):
                command = RemotingCommand.request(request.code, body=body, ext_fields=request.ext_fields)
                return asyncio.ensure_future(forward(request, member.channel, command))
        problem = f"The Consumer <{group}> <{client_id}> not online"
        return request.response(ResponseCode.SYSTEM_ERROR, problem)


async def forward(request: RemotingCommand, client: Connection, command: RemotingCommand) -> RemotingCommand:
    """Send a command to a client, and return its response as the response to a request."""
    try:
        answer = await client.call(command, CLIENT_TIMEOUT_MS)
    except RemotingTimeoutError as problem:
        return request.response(ResponseCode.CONSUME_MSG_TIMEOUT, str(problem))
    except RemotingError as problem:
        return request.response(ResponseCode.SYSTEM_ERROR, str(problem))
    return request.response(answer.code, answer.remark, body=answer.body, ext_fields=answer.ext_fields)
