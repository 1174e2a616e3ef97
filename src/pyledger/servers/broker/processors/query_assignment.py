"""Assignment of queues to clients by the broker: 400 to 402.

Source: RocketMQ broker/.../QueryAssignmentProcessor.java.
"""

import asyncio
from collections.abc import Mapping

from pyledger.errors import RebalanceError
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.message_request_modes import GroupMode, RequestMode
from pyledger.protocol.rebalance.assignment import assign
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.wire.remoting.bodies.heartbeat import MessageModel
from pyledger.wire.remoting.bodies.membership import (
    MessageRequestMode,
    MessageRequestModeRequest,
    MessageRequestModes,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueueAssignment,
)
from pyledger.wire.remoting.command import RemotingCommand


class AssignmentProcessor:
    """Assigns queues to the members of a group."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods that read, by request code."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_modes,
        }

    def changes(self) -> Mapping[RequestCode, Method]:
        """Return the methods that change the broker, by request code."""
        return {RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode}

    def query(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer QUERY_ASSIGNMENT (400)."""
        return asyncio.ensure_future(self._query(request, request.body_as(QueryAssignmentRequest)))

    async def _query(self, request: RemotingCommand, body: QueryAssignmentRequest) -> RemotingCommand:
        topic, group = body.topic or "", body.consumer_group or ""
        queues = await self._context.routes.queues(topic)
        mode = self._context.tables.modes.find(topic, group)
        if body.message_model == MessageModel.BROADCASTING:
            found = queues
        else:
            members = self._context.tables.consumers.client_ids(group)
            try:
                found = assign(
                    body.client_id or "",
                    body.strategy_name or "",
                    queues,
                    members,
                    pops=mode.mode is RequestMode.POP,
                    share_count=mode.share_count,
                )
            except RebalanceError as problem:
                return request.response(ResponseCode.SYSTEM_ERROR, str(problem))
        if found is None:
            return request.response(body=QueryAssignmentResponse().encode())
        assignments = tuple(
            QueueAssignment(message_queue=queue, mode=MessageRequestMode(mode.mode.value)) for queue in found
        )
        return request.response(body=QueryAssignmentResponse(message_queue_assignments=assignments).encode())

    def get_modes(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_ALL_MESSAGE_REQUEST_MODE (402)."""
        table: dict[str, dict[str, MessageRequestModeRequest]] = {}
        for (topic, group), mode in self._context.tables.modes.modes.items():
            table.setdefault(topic, {})[group] = MessageRequestModeRequest(
                topic=topic,
                consumer_group=group,
                mode=MessageRequestMode(mode.mode.value),
                pop_share_queue_num=mode.share_count,
            )
        return request.response(body=MessageRequestModes(message_request_mode_map=table).encode())

    def set_mode(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer SET_MESSAGE_REQUEST_MODE (401)."""
        body = request.body_as(MessageRequestModeRequest)
        topic, group = body.topic or "", body.consumer_group or ""
        tables = self._context.tables
        usable = tables.groups.usable(group)
        rejection = tables.modes.update(
            topic,
            group,
            GroupMode(RequestMode(body.mode.value), body.pop_share_queue_num),
            topic_known=tables.topics.find(topic) is not None,
            group_known=usable is not None,
        )
        if rejection is not None:
            return request.response(rejection.code, rejection.remark)
        if usable is not None:
            tables.groups.keep(usable, self._context.now_ms())
        return asyncio.ensure_future(self._stored(request))

    async def _stored(self, request: RemotingCommand) -> RemotingCommand:
        await self._context.tables.modes_file.save()
        return request.response()
