"""Sends: 10, 310, 320. One message, or a batch.

Source: RocketMQ broker/.../SendMessageProcessor.java, AbstractSendMessageProcessor.java.
"""

from collections.abc import Callable, Mapping
from functools import partial

from pyledger.model import names
from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.deferred import Deferred, completed
from pyledger.net.endpoint import Frame
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker import send_rules
from pyledger.protocol.broker.recall import RecallHandle
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.send_rules import (
    CODE_OF_PUT,
    SPECIAL_PROPERTIES,
    STORED,
    SendPlan,
    SendRules,
    drop_internal,
)
from pyledger.servers.broker.addresses import peer_of
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.message_puts import Outcome, PutOutcome
from pyledger.wire.record.batch import decode_batch
from pyledger.wire.record.properties import decode_properties, encode_properties
from pyledger.wire.remoting.command import RemotingCommand, command_of, encode_frame
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader
from pyledger.wire.remoting.native_codec import SendBatch, SendRequest

NO_BODY = "the request has no body"
TRANSACTIONS = "this broker serves no transactions"
HalfPut = Callable[[Message], Outcome]
"""Stores a message as a half message."""
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class SendProcessor:
    """Stores the messages of sends."""

    def __init__(self, context: BrokerContext, put_half: HalfPut | None = None) -> None:
        """Take the broker's context, and the function that stores half messages."""
        self._context = context
        self._put_half = put_half
        tables, broker_state = context.tables, context.broker_state
        self.rules = SendRules(
            context.delivery, broker_state, tables.topics, tables.groups, tables.locks, context.random_below
        )
        self._batches = context.store.send_batches(
            encode_properties(self.rules.added_properties()),
            tuple(name.encode() for name in SPECIAL_PROPERTIES),
            broker_state.region,
            trace_on=broker_state.trace,
        )
        self._fields = {
            names.MSG_REGION: broker_state.region,
            names.TRACE_ON: "true" if broker_state.trace else "false",
        }

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return dict.fromkeys(SENDS, self.send)

    def answer(
        self, connection: Connection, requests: list[Frame], at: int
    ) -> tuple[Reply | bytes | Deferred[bytes], int]:
        """Answer the send at an index, and those after it that native code stores with it.

        Native code stores plain sends to one queue of an open topic; any other is a batch of one for `send`.

        Returns:
            The answer, and the number of requests it answers.
        """
        first, puts = requests[at], self._context.puts
        assert isinstance(first, SendRequest)
        queue_count = self.rules.open_queue_count(first.topic, self._context.now_ms())
        if 0 <= first.queue_id < queue_count and puts.rejection() is None:
            batch = self._batches.append(requests, at, peer_of(connection), puts.capacity)
            if batch is not None:
                encode = partial(self._encode_batch_response, batch)
                answer: bytes | Deferred[bytes] = puts.complete_batch(batch, encode)
                return answer, len(batch.requests)
        return self.send(connection, command_of(first)), 1

    def _encode_batch_response(self, batch: SendBatch, outcome: PutOutcome) -> bytes:
        """Encode the answers to the sends of a batch, which have one outcome."""
        code = CODE_OF_PUT[outcome.status]
        if outcome.status in STORED:
            return batch.answers(code, outcome.problem)
        rejected = [command_of(request) for request in batch.requests if not request.is_oneway]
        return b"".join(encode_frame(self._response(command, code, outcome.problem)) for command in rejected)

    def send(self, connection: Connection, request: RemotingCommand) -> Reply:
        """Answer SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320)."""
        header = request.header(SendMessageRequestHeader)
        if not len(request.body):
            return self._response(request, ResponseCode.SYSTEM_ERROR, NO_BODY)
        return self._context.stored(partial(self._send, connection, request, header))

    def _send(
        self, connection: Connection, request: RemotingCommand, header: SendMessageRequestHeader
    ) -> Reply:
        properties = received_properties(header.properties or "")
        if isinstance(properties, Rejection):
            return self._response(request, properties.code, properties.remark)
        plan = plan_send(self.rules, request, header, properties, self._context.now_ms())
        if isinstance(plan, Rejection):
            return self._response(request, plan.code, plan.remark)
        message = Message(
            plan.topic.name,
            request.body,
            plan.queue_id,
            properties=plan.properties,
            flag=header.flag,
            sys_flag=plan.sys_flag,
            born_timestamp_ms=header.born_timestamp,
            born_host=peer_of(connection),
            reconsume_times=header.reconsume_times or 0,
        )
        unique_key = properties.get(names.UNIQUE_KEY)
        outcome = self._put(plan, message, batch=bool(header.batch))
        return outcome.then(partial(self._put_response, request, plan, unique_key))

    def _put(self, plan: SendPlan, message: Message, *, batch: bool) -> Outcome:
        puts = self._context.puts
        if plan.half:
            if self._put_half is None:
                return completed(PutOutcome("UNKNOWN_ERROR", problem=TRANSACTIONS))
            return self._put_half(message)
        if not batch:
            return puts.put(message)
        if plan.inner_batch:
            return puts.put_inner_batch(message, len(decode_batch(bytes(message.body))))
        return puts.put_batch(message)

    def _put_response(
        self,
        request: RemotingCommand,
        plan: SendPlan,
        unique_key: str | None,
        outcome: PutOutcome,
    ) -> RemotingCommand:
        """Return the response to a send that was put."""
        code = CODE_OF_PUT[outcome.status]
        if outcome.status not in STORED:
            return self._response(request, code, outcome.problem)
        header = SendMessageResponseHeader(
            msg_id=",".join([stored.msg_id for stored in outcome.places]),
            queue_id=plan.queue_id,
            queue_offset=outcome.places[0].queue_offset,
            transaction_id=unique_key,
            # Without it, Java's producer expects an id for each message of the batch.
            batch_uniq_id=unique_key if plan.inner_batch else None,
            recall_handle=self._recall_handle(plan, unique_key, outcome.deliver_ms),
        )
        return request.response(code, outcome.problem, header, ext_fields=self._fields)

    def _recall_handle(self, plan: SendPlan, unique_key: str | None, deliver_ms: int | None) -> str | None:
        """Return the handle for a recall of a timer message."""
        if deliver_ms is None or unique_key is None:
            return None
        broker_name = self._context.broker_state.broker_name
        return RecallHandle(plan.topic.name, broker_name, deliver_ms, unique_key).encode()

    def _response(self, request: RemotingCommand, code: int, remark: str | None) -> RemotingCommand:
        return request.response(code, remark, ext_fields=self._fields)


def received_properties(text: str) -> dict[str, str] | Rejection:
    """Return the properties that a client sent, without those that only the broker sets."""
    try:
        properties = decode_properties(text.encode())
    except UnicodeEncodeError as error:
        return Rejection(ResponseCode.MESSAGE_ILLEGAL, f"properties are not valid Unicode: {error.reason}")
    drop_internal(properties)
    return properties


def plan_send(
    rules: SendRules,
    request: RemotingCommand,
    header: SendMessageRequestHeader,
    properties: dict[str, str],
    now_ms: int,
) -> SendPlan | Rejection:
    """Apply the rules to a send, or to a reply; its properties may be changed."""
    checked = send_rules.SendRequest(
        topic=header.topic,
        queue_id=header.queue_id,
        default_topic=header.default_topic,
        default_topic_queue_count=header.default_topic_queue_nums,
        sys_flag=header.sys_flag,
        batch=bool(header.batch),
        reconsume_times=header.reconsume_times or 0,
        max_reconsume_times=header.max_reconsume_times,
        unit_mode=bool(header.unit_mode),
        version=request.version,
    )
    return rules.check(checked, properties, now_ms)
