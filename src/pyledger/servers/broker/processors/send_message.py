"""Sends: 10, 310, 320. One message, or a batch.

Source: RocketMQ broker/.../SendMessageProcessor.java, AbstractSendMessageProcessor.java.
"""

from collections.abc import Callable, Mapping
from functools import partial

from pyledger.model import names
from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.deferred import DeferredResponse
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
from pyledger.servers.broker.message_puts import Outcome, PutOutcome, after
from pyledger.wire.record.batch import decode_batch
from pyledger.wire.record.properties import decode_properties, encode_properties
from pyledger.wire.remoting.command import RemotingCommand, command_of, encode_frame
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader
from pyledger.wire.remoting.native_codec import SendBatch, SendRequest

NO_BODY = "the request has no body"
TRANSACTIONS = "this broker serves no transactions"
HalfPut = Callable[[Message], Outcome]
"""Stores a half message, given as its producer sent it."""
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class SendProcessor:
    """Answers sends."""

    def __init__(self, context: BrokerContext, put_half: HalfPut | None = None) -> None:
        """Take the broker's context, and who stores messages that open a transaction."""
        self._context = context
        self._put_half = put_half
        tables, broker_state = context.tables, context.broker_state
        self.rules = SendRules(
            context.delivery, broker_state, tables.topics, tables.groups, tables.locks, context.random_below
        )
        self._runs = context.store.send_batches(
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
        """What it answers, by request code."""
        return dict.fromkeys(SENDS, self.send)

    def send(self, connection: Connection, request: RemotingCommand) -> Reply:
        """10, 310, 320."""
        header = request.header(SendMessageRequestHeader)
        if not len(request.body):
            return self._answer(request, ResponseCode.SYSTEM_ERROR, NO_BODY)
        return self._context.stored(partial(self._send, connection, request, header))

    def send_quickly(
        self, connection: Connection, frames: list[Frame], at: int
    ) -> tuple[bytes | DeferredResponse[bytes] | None, int]:
        """The same for ordinary sends to a topic that is open to all, as many as follow one another.

        Returns:
            The answers, and the number of frames that were taken; 0: the first is not ordinary.
        """
        first = frames[at]
        assert isinstance(first, SendRequest)
        if not 0 <= first.queue_id < self.rules.open_queue_count(first.topic, self._context.now_ms()):
            return None, 0
        if self._context.puts.refusal() is not None:
            return None, 0
        run = self._runs.append(frames, at, peer_of(connection), self._context.puts.room)
        if run is None:
            return None, 0
        return self._context.puts.take_run(run, partial(self._told_run, run)), len(run.requests)

    def _told_run(self, run: SendBatch, outcome: PutOutcome) -> bytes:
        """The answers to sends that were put by the run."""
        code = CODE_OF_PUT[outcome.status]
        if outcome.status in STORED:
            return run.answers(code, outcome.problem)
        refused = [command_of(request) for request in run.requests if not request.is_oneway]
        return b"".join(encode_frame(self._answer(command, code, outcome.problem)) for command in refused)

    def _send(
        self, connection: Connection, request: RemotingCommand, header: SendMessageRequestHeader
    ) -> Reply:
        properties = received_properties(header.properties or "")
        if isinstance(properties, Rejection):
            return self._answer(request, properties.code, properties.remark)
        plan = plan_send(self.rules, request, header, properties, self._context.now_ms())
        if isinstance(plan, Rejection):
            return self._answer(request, plan.code, plan.remark)
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
        return after(outcome, partial(self._told, request, plan, unique_key))

    def _put(self, plan: SendPlan, message: Message, *, batch: bool) -> Outcome:
        puts = self._context.puts
        if plan.half:
            if self._put_half is None:
                return PutOutcome("UNKNOWN_ERROR", problem=TRANSACTIONS)
            return self._put_half(message)
        if not batch:
            return puts.put(message)
        if plan.topic.attributes.get("queue.type") == "BatchCQ":
            return puts.put_inner_batch(message, len(decode_batch(bytes(message.body))))
        return puts.put_batch(message)

    def _told(
        self,
        request: RemotingCommand,
        plan: SendPlan,
        unique_key: str | None,
        outcome: PutOutcome,
    ) -> RemotingCommand:
        """The answer to a send that was put."""
        code = CODE_OF_PUT[outcome.status]
        if outcome.status not in STORED:
            return self._answer(request, code, outcome.problem)
        header = SendMessageResponseHeader(
            msg_id=",".join([place.msg_id for place in outcome.places]),
            queue_id=plan.queue_id,
            queue_offset=outcome.places[0].queue_offset,
            transaction_id=unique_key,
            recall_handle=self._recall_handle(plan, unique_key, outcome.deliver_ms),
        )
        return request.response(code, outcome.problem, header, ext_fields=self._fields)

    def _recall_handle(self, plan: SendPlan, unique_key: str | None, deliver_ms: int | None) -> str | None:
        """What a timer message can be taken back with."""
        if deliver_ms is None or unique_key is None:
            return None
        broker_name = self._context.broker_state.broker_name
        return RecallHandle(plan.topic.name, broker_name, deliver_ms, unique_key).encode()

    def _answer(self, request: RemotingCommand, code: int, remark: str | None) -> RemotingCommand:
        return request.response(code, remark, ext_fields=self._fields)


def received_properties(text: str) -> dict[str, str] | Rejection:
    """The properties of a message as a client sends them, without those that only the broker sets."""
    try:
        properties = decode_properties(text.encode())
    except UnicodeEncodeError as error:
        return Rejection(ResponseCode.MESSAGE_ILLEGAL, f"the properties are no valid Unicode: {error.reason}")
    drop_internal(properties)
    return properties


def plan_send(
    rules: SendRules,
    request: RemotingCommand,
    header: SendMessageRequestHeader,
    properties: dict[str, str],
    now_ms: int,
) -> SendPlan | Rejection:
    """What the rules say of a send, or of a reply; its properties may be changed."""
    asked = send_rules.SendRequest(
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
    return rules.check(asked, properties, now_ms)
