"""Pops: 200050, and peek, notification and polling info: 200052, 200054, 200055.

Source: RocketMQ broker/.../PopMessageProcessor.java, PeekMessageProcessor.java, NotificationProcessor.java,
PollingInfoProcessor.java.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.topic import TopicConfig
from pyledger.net.deferred import Deferred, completed
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.pop import TOPIC_ITSELF, PopKey, first_offset
from pyledger.protocol.broker.pop_rules import PopPlan, PopRequest, PopRules, PopSource
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.send_rules import CODE_OF_PUT
from pyledger.protocol.broker.subscription import Subscription
from pyledger.protocol.filter.loading import sql_filter
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.message_puts import Outcome, PutOutcome
from pyledger.servers.broker.processors.consumer_offsets import first_in_memory
from pyledger.servers.broker.processors.pull_message import compile_filter, wanted_of
from pyledger.servers.broker.processors.query_message import within
from pyledger.store.queues.get_result import GetStatus
from pyledger.store.queues.queue_reader import default_limits
from pyledger.wire.record.record import decode_record
from pyledger.wire.record.rewrite import queue_offset_of, readdressed, split_records
from pyledger.wire.remoting.bodies.pop import (
    ORDER_REVIVE_QUEUE,
    PopHandle,
    PoppedQueue,
    message_offset_info,
    order_count_info,
    start_offset_info,
)
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers import pop as headers

REVIVE_QUEUE = 0
NO_PLACE = headers.PopMessageResponseHeader(pop_time=0, invisible_time=0, revive_qid=0, rest_num=0)
MOVED = frozenset(
    (
        GetStatus.OFFSET_TOO_SMALL,
        GetStatus.OFFSET_OVERFLOW_BADLY,
        GetStatus.OFFSET_FOUND_NULL,
        GetStatus.MESSAGE_WAS_REMOVING,
    )
)
"""The store names another offset to read from."""


@dataclass(slots=True)
class PopResult:
    """What one pop has found."""

    pop_ms: int
    left: int
    """Messages that are still wanted."""
    queues: list[PoppedQueue] = field(default_factory=list)
    records: list[memoryview] = field(default_factory=list)
    rest: int = 0
    """Messages that stay in the queues."""
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """The end of what was read, by topic and queue: a held pop waits there."""
    outcome: Outcome | None = None
    """The outcome of the last pop checkpoint."""
    locked_until_ms: list[int] = field(default_factory=list)
    """When the locked queues that were skipped can be popped from in order."""
    order_counts: list[str] = field(default_factory=list)
    """How often messages were popped in order before, in upstream's format."""


class PopProcessor:
    """Hands out messages and makes them invisible for a time."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        tables = context.tables
        self.rules = PopRules(
            context.broker_state, tables.topics, tables.groups, compile_filter, context.random_below
        )
        self._resident_bytes = default_limits().resident_bytes

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    # --- pop

    def pop(self, connection: Connection, request: RemotingCommand) -> Reply:
        """Answer POP_MESSAGE (200050)."""
        header = request.header(headers.PopMessageRequestHeader)
        return self._context.stored(partial(self._check_pop, connection, request, header))

    def _check_pop(
        self, connection: Connection, request: RemotingCommand, header: headers.PopMessageRequestHeader
    ) -> Reply:
        wanted = PopRequest(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            count=header.max_msg_nums,
            poll_ms=header.poll_time,
            born_ms=header.born_time,
            expression=header.exp,
            expression_type=header.exp_type,
        )
        plan = self.rules.check(wanted, self._context.clock.now_ms())
        if isinstance(plan, Rejection):
            return request.response(plan.code, plan.remark, NO_PLACE)
        return self._pop(connection, request, header, plan)

    def _pop(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: headers.PopMessageRequestHeader,
        plan: PopPlan,
    ) -> Reply:
        now_ms = self._context.clock.now_ms()
        found = PopResult(now_ms, max(1, header.max_msg_nums))
        sources = self.rules.sources(
            plan.topic, header.consumer_group, header.queue_id, in_order=header.order
        )
        for source in sources:
            self._take(found, source, header, plan)
        if found.outcome is not None:
            return found.outcome.then(partial(self._pop_response, connection, request, header, found))
        if plan.deadline_ms <= now_ms:
            return request.response(ResponseCode.POLLING_TIMEOUT, "POLLING_TIMEOUT", NO_PLACE)
        held = self._context.held.hold_any(
            partial(self._pop_again, connection, request, header, plan),
            connection,
            group=header.consumer_group,
            label=(header.consumer_group, header.queue_id),
            ends=found.ends,
            hold_ms=min([plan.deadline_ms, *found.locked_until_ms]) - now_ms,
            wanted=wanted_of(plan.subscription),
        )
        if held:
            return None
        return request.response(ResponseCode.POLLING_FULL, "POLLING_FULL", NO_PLACE)

    def _pop_again(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: headers.PopMessageRequestHeader,
        plan: PopPlan,
    ) -> None:
        """Answer a held pop, or hold it again."""
        if not connection.closed:
            answer(connection, request, self._pop(connection, request, header, plan))

    def _take(
        self, found: PopResult, source: PopSource, header: headers.PopMessageRequestHeader, plan: PopPlan
    ) -> None:
        """Pop from one queue."""
        context, group = self._context, header.consumer_group
        offset = self._start(source, group, header.init_mode)
        end = context.store.queue_range(source.topic, source.queue_id).max_offset
        if header.order and (until_ms := self._locked_until_ms(header, source.queue_id, found.pop_ms)):
            found.locked_until_ms.append(until_ms)
            found.ends[source.topic, source.queue_id] = end
            return
        if found.left <= 0 or offset == end:
            found.rest += max(0, end - offset)
            found.ends[source.topic, source.queue_id] = max(offset, end)
            return
        records, next_offset = self._read(source, offset, found.left, plan.subscription)
        if found.records and sum(map(len, found.records + records)) > context.records_max_bytes:
            # The records stay in their queue for the next pop.
            found.left, found.rest = 0, found.rest + end - offset
            return
        offsets = [queue_offset_of(record) for record in records]
        if offsets:
            if header.order:
                self._lock(found, header, source.queue_id, offsets)
            elif not self._note(found, source, header, offsets):
                return
            popped = PoppedQueue(source.retry, source.queue_id, offsets[0], offsets)
            found.queues.append(popped)
            found.left -= len(records)
            if source.topic != header.topic:
                records = self._as_of_topic(records, header, popped, found.pop_ms)
            found.records += records
        # In order, only acks move the offset of the group past popped messages.
        moved_to = offsets[0] if header.order and offsets else next_offset
        context.tables.offsets.commit(group, source.topic, source.queue_id, moved_to, context.now_ms())
        found.rest += max(0, end - next_offset)
        found.ends[source.topic, source.queue_id] = next_offset

    def _note(
        self,
        found: PopResult,
        source: PopSource,
        header: headers.PopMessageRequestHeader,
        offsets: Sequence[int],
    ) -> bool:
        """Store a pop checkpoint; return False when it is not stored."""
        key = PopKey(source.topic, header.consumer_group, source.queue_id, offsets[0], found.pop_ms)
        outcome = self._context.pops.note(key, header.invisible_time, offsets)
        if (known := outcome.peek()) is not None and not known.places:
            found.outcome = found.outcome or outcome
            return False
        found.outcome = outcome
        return True

    def _lock(
        self,
        found: PopResult,
        header: headers.PopMessageRequestHeader,
        queue_id: int,
        offsets: Sequence[int],
    ) -> None:
        """Lock a queue from which messages are popped in order."""
        times = self._context.tables.ordered_pops.take(
            header.topic,
            header.consumer_group,
            queue_id,
            offsets,
            attempt=header.attempt_id,
            invisible_ms=header.invisible_time,
            now_ms=found.pop_ms,
        )
        found.order_counts.append(order_count_info(TOPIC_ITSELF, queue_id, offsets, times))
        found.outcome = completed(PutOutcome("PUT_OK"))

    def _locked_until_ms(
        self,
        header: headers.PopMessageRequestHeader | headers.NotificationRequestHeader,
        queue_id: int,
        now_ms: int,
    ) -> int | None:
        """Return until when a queue is locked for a request in order; None: it is not."""
        return self._context.tables.ordered_pops.locked_until_ms(
            header.topic, header.consumer_group, queue_id, attempt=header.attempt_id, now_ms=now_ms
        )

    def _start(self, source: PopSource, group: str, init_mode: int) -> int:
        """Return the queue offset (units) at which a pop starts; the first one is committed."""
        context, topic, queue_id = self._context, source.topic, source.queue_id
        offsets = context.tables.offsets
        reset = offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            context.tables.ordered_pops.unlock(topic, group, queue_id)
        committed = offsets.committed(group, topic, queue_id) if reset is None else reset
        if committed is not None:
            return committed
        held = context.store.queue_range(topic, queue_id)
        mode = init_mode if topic[: len(names.RETRY_PREFIX)] != names.RETRY_PREFIX else 0
        young = mode != 0 and first_in_memory(context.store, topic, queue_id, self._resident_bytes)
        offset = first_offset(mode, held.min_offset, held.max_offset, first_in_memory=young)
        if held.max_offset:
            offsets.commit(group, topic, queue_id, offset, context.now_ms())
        return offset

    def _read(
        self, source: PopSource, offset: int, count: int, wanted: Subscription
    ) -> tuple[list[memoryview], int]:
        """Return the records that a subscription wants, and the queue offset (units) to continue at."""
        store, topic, queue_id = self._context.store, source.topic, source.queue_id
        if not wanted.by_tag:
            matches = sql_filter(wanted.expression).matches
            page = store.get(topic, queue_id, offset, max_count=count)
            if page.status in MOVED and page.next_offset != offset:
                page = store.get(topic, queue_id, page.next_offset, max_count=count)
            kept = [message.record_view for message in page.messages if matches(message.properties)]
            return kept, page.next_offset
        found = store.get_ranges(topic, queue_id, offset, max_count=count, tags=wanted.expression)
        if found.status in MOVED and found.next_offset != offset:
            found = store.get_ranges(
                topic, queue_id, found.next_offset, max_count=count, tags=wanted.expression
            )
        ranges = (found.ranges[at] for at in range(len(found.ranges)))
        return [record for one in ranges for record in split_records(one)], found.next_offset

    def _as_of_topic(
        self,
        records: list[memoryview],
        header: headers.PopMessageRequestHeader,
        popped: PoppedQueue,
        pop_ms: int,
    ) -> list[memoryview]:
        """Return records of a retry topic as records of the requested topic, with their handles."""
        copies = []
        for record, offset in zip(records, popped.offsets, strict=True):
            handle = PopHandle(
                popped.start_offset,
                pop_ms,
                header.invisible_time,
                REVIVE_QUEUE,
                popped.retry,
                self._context.broker_state.broker_name,
                popped.queue_id,
                offset,
            )
            properties = decode_record(record).properties
            properties[names.POP_CHECKPOINT] = handle.encode()
            copies.append(memoryview(readdressed(record, header.topic, popped.queue_id, properties)))
        return copies

    def _pop_response(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: headers.PopMessageRequestHeader,
        found: PopResult,
        outcome: PutOutcome,
    ) -> Answer:
        """Return the response to a pop whose checkpoint is as durable as configured."""
        if not found.records or not outcome.stored:
            return request.response(CODE_OF_PUT[outcome.status], outcome.problem, NO_PLACE)
        sizes = sum(map(len, found.records))
        self._context.counts.count_pull(header.topic, header.consumer_group, len(found.records), sizes)
        response = request.response(
            ResponseCode.SUCCESS,
            "FOUND",
            headers.PopMessageResponseHeader(
                pop_time=found.pop_ms,
                invisible_time=header.invisible_time,
                revive_qid=ORDER_REVIVE_QUEUE if header.order else REVIVE_QUEUE,
                rest_num=found.rest,
                start_offset_info=start_offset_info(found.queues),
                msg_offset_info=message_offset_info(found.queues),
                order_count_info=";".join(found.order_counts) if header.order else None,
            ),
        )
        if not request.is_oneway:
            connection.send(response, found.records)
        return None

    # --- peek, notification, polling info

    def peek(self, connection: Connection, request: RemotingCommand) -> Reply:
        """200052: the messages that a pop would return, which stay visible."""
        header = request.header(headers.PeekMessageRequestHeader)
        topic = self.rules.check_queue(header.topic, header.queue_id)
        if isinstance(topic, Rejection):
            return request.response(topic.code, topic.remark, NO_PLACE)
        wanted = Subscription(header.topic)
        left, records = max(1, min(header.max_msg_nums, 32)), []
        for source in self.rules.sources(topic, header.consumer_group, header.queue_id):
            if left > 0:
                found, _ = self._read(source, self._next(source, header.consumer_group), left, wanted)
                records += found
                left -= len(found)
        records = list(within(self._context.records_max_bytes, records))
        if not records:
            return request.response(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", NO_PLACE)
        if not request.is_oneway:
            connection.send(request.response(ResponseCode.SUCCESS, "FOUND", NO_PLACE), records)
        return None

    def notify(self, connection: Connection, request: RemotingCommand) -> Reply:
        """200054: wait until there are messages."""
        header = request.header(headers.NotificationRequestHeader)
        topic = self.rules.check_queue(header.topic, header.queue_id)
        if isinstance(topic, Rejection):
            return request.response(topic.code, topic.remark)
        now_ms = self._context.clock.now_ms()
        deadline_ms = min(header.born_time or now_ms, now_ms) + header.poll_time
        return self._notify(connection, request, header, topic, deadline_ms)

    def _notify(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: headers.NotificationRequestHeader,
        topic: TopicConfig,
        deadline_ms: int,
    ) -> Reply:
        now_ms = self._context.clock.now_ms()
        ends, until_ms = {}, [deadline_ms]
        sources = self.rules.sources(topic, header.consumer_group, header.queue_id, in_order=header.order)
        for source in sources:
            end = self._context.store.queue_range(source.topic, source.queue_id).max_offset
            ends[source.topic, source.queue_id] = end
            if header.order and (lock_ms := self._locked_until_ms(header, source.queue_id, now_ms)):
                until_ms.append(lock_ms)
            elif self._next(source, header.consumer_group) < end:
                return request.response(header=headers.NotificationResponseHeader(has_msg=True))
        hold_ms = min(until_ms) - now_ms
        if hold_ms <= 0:
            return request.response(header=headers.NotificationResponseHeader())
        held = self._context.held.hold_any(
            partial(self._notify_again, connection, request, header, topic, deadline_ms),
            connection,
            group=header.consumer_group,
            label=None,
            ends=ends,
            hold_ms=hold_ms,
            wanted=None,
        )
        if held:
            return None
        return request.response(header=headers.NotificationResponseHeader(polling_full=True))

    def _notify_again(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: headers.NotificationRequestHeader,
        topic: TopicConfig,
        deadline_ms: int,
    ) -> None:
        """Answer a held notification, or hold it again."""
        if not connection.closed:
            answer(connection, request, self._notify(connection, request, header, topic, deadline_ms))

    def polling_info(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """200055: the number of held pops at a queue."""
        header = request.header(headers.PollingInfoRequestHeader)
        label = (header.consumer_group, header.queue_id)
        count = self._context.held.count_held(header.topic, max(0, header.queue_id), label)
        return request.response(header=headers.PollingInfoResponseHeader(polling_num=count))

    def _next(self, source: PopSource, group: str) -> int:
        """Return the queue offset (units) at which the next pop of a queue starts."""
        committed = self._context.tables.offsets.committed(group, source.topic, source.queue_id)
        if committed is not None:
            return committed
        return self._context.store.queue_range(source.topic, source.queue_id).min_offset


def answer(connection: Connection, request: RemotingCommand, reply: Reply) -> None:
    """Send the response to a held request, now or when it is known."""
    if isinstance(reply, Deferred | asyncio.Future):
        reply.add_done_callback(lambda ended: answer(connection, request, ended.result()))
    elif reply is not None and not request.is_oneway:
        connection.send(reply)
