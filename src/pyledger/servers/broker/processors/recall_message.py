"""Recalls of timer messages: 370.

Source: RocketMQ broker/.../RecallMessageProcessor.java.
"""

from collections.abc import Mapping
from functools import partial

from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.recall import RECALL_BODY, RecallHandle, check_recall, recall_properties
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.send_rules import STORED
from pyledger.servers.broker.addresses import peer_of
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.message_puts import PutOutcome
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader


class RecallProcessor:
    """Stores messages that recall others."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, connection: Connection, request: RemotingCommand) -> Reply:
        """Answer RECALL_MESSAGE (370)."""
        header = request.header(RecallMessageRequestHeader)
        context = self._context
        handle = check_recall(
            header.topic,
            header.recall_handle,
            broker_state=context.broker_state,
            topics=context.tables.topics,
            config=context.delivery,
            now_ms=context.clock.now_ms(),
        )
        if isinstance(handle, Rejection):
            return request.response(handle.code, handle.remark)
        message = Message(
            header.topic,
            RECALL_BODY,
            properties=recall_properties(handle, header.producer_group or ""),
            born_host=peer_of(connection),
        )
        return context.puts.put(message).then(partial(response_of, request, handle))


def response_of(request: RemotingCommand, handle: RecallHandle, outcome: PutOutcome) -> RemotingCommand:
    """Return the response with the id of the recalled message."""
    if outcome.status not in STORED:
        return request.response(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
    return request.response(header=RecallMessageResponseHeader(msg_id=handle.unique_key))
