"""Replies to requests: 324 and 325. A reply is pushed to its requester, and stored.

Source: RocketMQ broker/.../ReplyMessageProcessor.java.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from pyledger.errors import RemotingError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.reply import PUSH_TIMEOUT_MS, not_handed_over, pushed_properties, requester_of
from pyledger.protocol.broker.send_rules import SendPlan, SendRules
from pyledger.servers.broker.addresses import peer_of
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.message_puts import PutOutcome
from pyledger.servers.broker.processors.send_message import plan_send, received_properties
from pyledger.wire.record.properties import encode_properties
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)

log = logger("broker")

NOT_STORED = SendMessageResponseHeader(msg_id="0", queue_id=0, queue_offset=0)


class ReplyProcessor:
    """Pushes replies to their requesters."""

    def __init__(self, context: BrokerContext, rules: SendRules) -> None:
        """Take the broker's context, and the rules of sends, which apply to replies."""
        self._context = context
        self._rules = rules
        broker_state = context.broker_state
        self._fields = {
            names.MSG_REGION: broker_state.region,
            names.TRACE_ON: "true" if broker_state.trace else "false",
        }

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        codes = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
        return dict.fromkeys(codes, self.reply)

    def reply(self, connection: Connection, request: RemotingCommand) -> Reply:
        """Answer SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325)."""
        header = request.header(SendMessageRequestHeader)
        return self._context.stored(partial(self._reply, connection, request, header))

    def _reply(
        self, connection: Connection, request: RemotingCommand, header: SendMessageRequestHeader
    ) -> Reply:
        properties = received_properties(header.properties or "")
        if isinstance(properties, Rejection):
            return request.response(properties.code, properties.remark, ext_fields=self._fields)
        plan = plan_send(self._rules, request, header, dict(properties), self._context.now_ms())
        if isinstance(plan, Rejection):
            return request.response(plan.code, plan.remark, ext_fields=self._fields)
        message = Message(
            plan.topic.name,
            bytes(request.body),
            plan.queue_id,
            properties=properties,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp_ms=header.born_timestamp,
            born_host=peer_of(connection),
            reconsume_times=header.reconsume_times or 0,
        )
        work = self._hand_over(connection.remote_address, request, header, plan, message)
        return asyncio.ensure_future(work)

    async def _hand_over(
        self,
        sender: str,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        plan: SendPlan,
        message: Message,
    ) -> RemotingCommand:
        problem = await self._push(sender, header, plan, message)
        code, remark = (problem.code, problem.remark) if problem else (ResponseCode.SUCCESS, None)
        answer = NOT_STORED
        if self._context.delivery.store_replies:
            outcome = await self._context.puts.put_as_it_is(message)
            answer = place_of(plan, outcome)
        return request.response(code, remark, answer, ext_fields=self._fields)

    async def _push(
        self, sender: str, header: SendMessageRequestHeader, plan: SendPlan, message: Message
    ) -> Rejection | None:
        """Push a reply to its requester; return None when the requester has confirmed it."""
        client_id = requester_of(message.properties)
        if isinstance(client_id, Rejection):
            return client_id
        channel = self._context.tables.producers.channel_of_client(client_id)
        if not isinstance(channel, Connection):
            return not_handed_over(client_id, connected=False)
        now_ms = self._context.clock.now_ms()
        properties = pushed_properties(message.properties, self._context.broker_state, now_ms)
        store = self._context.store.config
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=plan.topic.name,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=plan.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=header.reconsume_times or 0,
            unit_mode=bool(header.unit_mode),
            born_host=sender,
            store_host=f"{store.store_host}:{store.store_port}",
            store_timestamp=now_ms,
        )
        command = RemotingCommand.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, bytes(message.body)
        )
        try:
            confirmed = await channel.call(command, PUSH_TIMEOUT_MS)
        except RemotingError as problem:
            event(log, logging.WARNING, "reply not delivered", client=client_id, problem=problem)
            return not_handed_over(client_id, connected=True)
        if confirmed.code != ResponseCode.SUCCESS:
            return not_handed_over(client_id, connected=True)
        return None


def place_of(plan: SendPlan, outcome: PutOutcome) -> SendMessageResponseHeader:
    """Return the response header with the offsets of a stored reply."""
    if not outcome.places:
        return NOT_STORED
    place = outcome.places[0]
    return SendMessageResponseHeader(
        msg_id=place.msg_id, queue_id=plan.queue_id, queue_offset=place.queue_offset
    )
