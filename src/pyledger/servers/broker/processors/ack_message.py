"""Acks and invisible times of popped messages: 200051, 200151, 200053.

Source: RocketMQ broker/.../AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java.
"""

from collections.abc import Mapping
from functools import partial

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.deferred import completed
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.pop import PopKey, pop_retry_topic
from pyledger.protocol.broker.pop_order import Refused
from pyledger.protocol.broker.pop_rules import PopRules
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.send_rules import CODE_OF_PUT, STORED
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.message_puts import PUT_OK, Outcome, PutOutcome
from pyledger.wire.remoting.bodies.pop import ORDER_REVIVE_QUEUE, BatchAckRequest, PopHandle
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers import pop as headers

NO_HANDLE = "extraInfo names no popped message"
NOT_OPEN = "the message is not popped, or is acknowledged or visible again"


class AckProcessor:
    """Acknowledges popped messages and changes their invisible time."""

    def __init__(self, context: BrokerContext, rules: PopRules) -> None:
        """Take the broker's context, and the rules of pops."""
        self._context = context
        self._rules = rules

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return {
            RequestCode.ACK_MESSAGE: self.acknowledge,
            RequestCode.BATCH_ACK_MESSAGE: self.acknowledge_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_time,
        }

    def acknowledge(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer ACK_MESSAGE (200051)."""
        header = request.header(headers.AckMessageRequestHeader)
        handle = self._handle_of(header, end_allowed=True)
        if isinstance(handle, Rejection):
            return request.response(handle.code, handle.remark)
        key = key_of(header, handle)
        if handle.revive_queue_id == ORDER_REVIVE_QUEUE:
            rejection = self._acknowledge_in_order(key, header.offset)
            if rejection is not None:
                return request.response(rejection.code, rejection.remark)
            return request.response()
        outcome = self._context.pops.acknowledge(key, (header.offset,))
        return outcome.then(partial(response_of, request))

    def acknowledge_batch(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer BATCH_ACK_MESSAGE (200151)."""
        outcome: Outcome | None = None
        rejection: Rejection | None = None
        for one in request.body_as(BatchAckRequest).acks:
            topic, group = one.topic or "", one.consumer_group or ""
            key = PopKey(
                topic if (one.retry or "0") == "0" else pop_retry_topic(topic, group),
                group,
                one.queue_id,
                one.start_offset,
                one.pop_time,
            )
            offsets = one.acked_offsets
            if not offsets or self._context.tables.topics.find(key.topic) is None:
                continue
            if one.revive_queue_id == ORDER_REVIVE_QUEUE:
                for offset in offsets:
                    rejection = self._acknowledge_in_order(key, offset) or rejection
                outcome = outcome or completed(PutOutcome(PUT_OK))
            else:
                outcome = self._context.pops.acknowledge(key, offsets)
        if rejection is not None:
            return request.response(rejection.code, rejection.remark)
        if outcome is None:
            return request.response(ResponseCode.NO_MESSAGE, "nothing to acknowledge")
        return outcome.then(partial(response_of, request))

    def change_time(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer CHANGE_MESSAGE_INVISIBLETIME (200053)."""
        header = request.header(headers.ChangeInvisibleTimeRequestHeader)
        handle = self._handle_of(header, end_allowed=False)
        if isinstance(handle, Rejection):
            return request.response(handle.code, handle.remark)
        old = key_of(header, handle)
        if handle.revive_queue_id == ORDER_REVIVE_QUEUE:
            return request.response(header=self._hide_in_order(old, header.offset, header.invisible_time))
        if not self._context.pops.may_be_open(old, header.offset):
            return request.response(ResponseCode.NO_MESSAGE, NOT_OPEN)
        pop_ms = max(self._context.clock.now_ms(), old.pop_ms + 1)
        new = old._replace(start_offset=header.offset, pop_ms=pop_ms)
        stored = self._context.pops.note(new, header.invisible_time, (header.offset,))
        if (known := stored.peek()) is not None and not known.places:
            return response_of(request, known)
        outcome = self._context.pops.acknowledge(old, (header.offset,))
        place = headers.ChangeInvisibleTimeResponseHeader(
            pop_time=pop_ms, invisible_time=header.invisible_time, revive_qid=handle.revive_queue_id
        )
        return outcome.then(partial(response_of, request, place=place))

    # --- popped in order

    def _acknowledge_in_order(self, key: PopKey, offset: int) -> Rejection | None:
        """Acknowledge a message that was popped in order; this may unlock the queue."""
        context, tables = self._context, self._context.tables
        place = key.topic, key.group, key.queue_id
        committed = tables.offsets.committed(key.group, key.topic, key.queue_id) or 0
        if offset < committed:
            return None
        found = tables.ordered_pops.acknowledge(*place, offset, pop_ms=key.pop_ms, committed=committed)
        if found is Refused.UNKNOWN:
            problem = (
                f"offset is illegal, key:{key.topic}@{key.group}@{key.queue_id}, old:{committed}, "
                f"commit:{offset}: {found.value}"
            )
            return Rejection(ResponseCode.MESSAGE_ILLEGAL, problem)
        if not isinstance(found, Refused):
            tables.offsets.commit(key.group, key.topic, key.queue_id, found, context.now_ms())
            context.held.unlocked(key.topic, key.queue_id, key.group)
        return None

    def _hide_in_order(
        self, key: PopKey, offset: int, invisible_ms: int
    ) -> headers.ChangeInvisibleTimeResponseHeader:
        """Change the invisible time of a message that was popped in order; its pop time stays."""
        context, tables = self._context, self._context.tables
        committed = tables.offsets.committed(key.group, key.topic, key.queue_id) or 0
        until_ms = context.clock.now_ms() + invisible_ms
        if offset >= committed:
            tables.ordered_pops.hide(
                key.topic, key.group, key.queue_id, offset, pop_ms=key.pop_ms, until_ms=until_ms
            )
            context.held.unlocked(key.topic, key.queue_id, key.group)
        return headers.ChangeInvisibleTimeResponseHeader(
            pop_time=key.pop_ms, invisible_time=until_ms - key.pop_ms, revive_qid=ORDER_REVIVE_QUEUE
        )

    def _handle_of(
        self,
        header: headers.AckMessageRequestHeader | headers.ChangeInvisibleTimeRequestHeader,
        *,
        end_allowed: bool,
    ) -> PopHandle | Rejection:
        """Return the handle of a request, if the message that it names may exist."""
        held = self._context.store.queue_range(header.topic, max(0, header.queue_id))
        rejection = self._rules.check_place(
            header.topic, header.queue_id, header.offset, held, end_allowed=end_allowed
        )
        if rejection is not None:
            return rejection
        return PopHandle.decode(header.extra_info) or Rejection(ResponseCode.SYSTEM_ERROR, NO_HANDLE)


def key_of(
    header: headers.AckMessageRequestHeader | headers.ChangeInvisibleTimeRequestHeader, handle: PopHandle
) -> PopKey:
    """Return the key of the pop that a request refers to."""
    return PopKey(header.topic, header.consumer_group, header.queue_id, handle.start_offset, handle.pop_ms)


def response_of(
    request: RemotingCommand,
    outcome: PutOutcome,
    place: headers.ChangeInvisibleTimeResponseHeader | None = None,
) -> RemotingCommand:
    """Return the response to a stored ack or change."""
    if outcome.status not in STORED:
        return request.response(CODE_OF_PUT[outcome.status], outcome.problem)
    return request.response(header=place)
