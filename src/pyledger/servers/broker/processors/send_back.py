"""Messages that a consumer sends back: 36.

Source: RocketMQ broker/.../AbstractSendMessageProcessor.java (consumerSendMsgBack).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from pyledger.errors import StoreError
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.send_back import SendBackRequest, SendBackRules
from pyledger.servers.broker.auth.admin_gate import denied
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.message_puts import PutOutcome, copy_of
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.send import ConsumerSendMsgBackRequestHeader


class SendBackProcessor:
    """Stores a message again, in its retry topic or its dead-letter topic."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        tables = context.tables
        self._rules = SendBackRules(context.broker_state, tables.topics, tables.groups, context.random_below)

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, connection: Connection, request: RemotingCommand) -> Reply:
        """Answer CONSUMER_SEND_MSG_BACK (36)."""
        header = request.header(ConsumerSendMsgBackRequestHeader)
        return self._context.stored(partial(self._send_back, connection, request, header))

    def _send_back(
        self, connection: Connection, request: RemotingCommand, header: ConsumerSendMsgBackRequestHeader
    ) -> Reply:
        wanted = SendBackRequest(
            group=header.group,
            delay_level=header.delay_level,
            max_reconsume_times=header.max_reconsume_times,
            version=request.version,
        )
        now_ms = self._context.now_ms()
        if (rejection := self._rules.check(wanted)) is not None:
            return request.response(rejection.code, rejection.remark or None)
        try:
            found = self._context.store.message_at(header.offset)
        except StoreError:
            problem = f"look message by offset failed, {header.offset}"
            return request.response(ResponseCode.SYSTEM_ERROR, problem)
        if (rejected := denied(self._context, connection, request, found.topic, "Sub")) is not None:
            return rejected
        place = self._rules.place(
            wanted,
            topic=found.topic,
            reconsume_times=found.reconsume_times,
            msg_id=found.msg_id,
            properties=found.properties,
            now_ms=now_ms,
        )
        if isinstance(place, Rejection):
            return request.response(place.code, place.remark)
        message = replace(
            copy_of(found, place.topic, place.queue_id, place.properties),
            reconsume_times=place.reconsume_times,
        )
        self._context.counts.sent_back.add((found.topic, header.group), 1, found.store_size)
        return self._context.puts.put(message).then(partial(response_of, request))


def response_of(request: RemotingCommand, outcome: PutOutcome) -> RemotingCommand:
    """Return the response: success only if the message is as durable as configured."""
    if outcome.ok:
        return request.response()
    return request.response(ResponseCode.SYSTEM_ERROR, outcome.status)
