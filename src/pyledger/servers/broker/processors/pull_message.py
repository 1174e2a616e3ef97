"""Pulls: 11 and 361. Records are sent from the log without a copy, unless `transfer_by_heap` is set.

Source: RocketMQ broker/.../PullMessageProcessor.java, DefaultPullMessageResultHandler.java.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.endpoint import Frame
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.long_poll import Wanted
from pyledger.protocol.broker.pull_rules import PullFlag, PullRequest, PullRules, answer_pull
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.subscription import Subscription
from pyledger.protocol.filter.loading import sql_filter
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.store.queues.get_result import GetResult, GetStatus
from pyledger.store.queues.queue_reader import default_limits
from pyledger.wire.remoting.command import RemotingCommand, command_of
from pyledger.wire.remoting.headers.pull import PullMessageRequestHeader
from pyledger.wire.remoting.native_codec import PullRequest as NativePull
from pyledger.wire.remoting.native_codec import encode_pull_response

PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
RECORDS_MAX_BYTES = 128 << 20
BATCH_BYTES = 64 << 10
"""Size of the responses that are written together."""
OFFSET_RESET = "OFFSET_RESET"
FILTER_STEPS_MAX = 200_000
"""Nodes of SQL92 expressions evaluated for one pull, summed over its messages: about 30 ms."""
FILTERED_BYTES_MAX = 256 << 10
PAGE = 32


Buffer = bytes | memoryview
Place = tuple[int, int]
"""Physical offset and size of a record, in bytes."""


class Found(NamedTuple):
    """The records of the store for a pull."""

    status: str
    """Upstream's `GetMessageStatus`."""
    next_offset: int
    min_offset: int
    max_offset: int
    records: Sequence[Buffer] = ()
    message_count: int = 0
    lags: bool = False
    """Whether the pull lags so far that a slave should serve the next one."""


@dataclass(frozen=True, slots=True)
class PullReply:
    """The response to a pull that was served."""

    code: ResponseCode
    broker_id: int
    found: Found
    topic_flags: int
    group_flags: int


Header = PullMessageRequestHeader | NativePull


class PullProcessor:
    """Answers pulls, or holds them until there is a message."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._resident_bytes = default_limits().resident_bytes
        tables = context.tables
        self.rules = PullRules(
            context.delivery,
            context.broker_state,
            tables.topics,
            tables.groups,
            tables.consumers,
            compile_filter,
        )

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return dict.fromkeys(PULLS, self.pull)

    def pull(self, connection: Connection, request: RemotingCommand) -> Reply:
        """Answer PULL_MESSAGE (11), LITE_PULL_MESSAGE (361)."""
        header = request.header(PullMessageRequestHeader)
        return self._context.stored(partial(self._pull, connection, request, header))

    def answer(self, connection: Connection, requests: list[Frame], at: int) -> tuple[Reply, int]:
        """Answer the pull at an index, and those after it that native code answers with it.

        Native code answers pulls of one group and topic with one subscription that find messages; any other
        is a batch of one.

        Returns:
            What completes once all are answered or held, and how many they are.
        """
        first = requests[at]
        assert isinstance(first, NativePull)
        if count := self._answer_found(connection, requests, at, first):
            return None, count
        return self._context.stored(partial(self._pull, connection, first, first)), 1

    def _answer_found(self, connection: Connection, requests: list[Frame], at: int, first: NativePull) -> int:
        """Answer the next pulls of one subscription that find messages; return their number."""
        group, topic = first.consumer_group, first.topic
        context, offsets = self._context, self._context.tables.offsets
        if context.delivery.slave_read or (topic, group) in offsets.resets:
            return 0
        if context.tables.groups.known(group) is None:
            return 0
        now_ms = context.now_ms()
        plan = self.rules.check(checked_fields(first.code, first), now_ms)
        if isinstance(plan, Rejection) or not plan.subscription.by_tag:
            return 0
        config = context.tables.topics.topics[topic]
        batch = context.store.answer_pulls(
            requests,
            at,
            plan.subscription.expression,
            offsets.pulled.setdefault((topic, group), {}),
            queue_count=config.read_queue_count,
            topic_flags=config.sys_flag,
            group_flags=plan.group.sys_flag,
            record_bytes_max=RECORDS_MAX_BYTES,
            copied=context.config.transfer_by_heap,
            bytes_max=BATCH_BYTES,
        )
        if batch is None:
            return 0
        if first.sys_flag & PullFlag.COMMIT_OFFSET:
            for request in cast("list[NativePull]", requests[at : at + batch.request_count]):
                if request.commit_offset >= 0 and offsets.has_room(group, topic, request.queue_id):
                    offsets.commit(group, topic, request.queue_id, request.commit_offset, now_ms)
        context.counts.count_pull(topic, group, batch.message_count, batch.record_bytes, batch.request_count)
        connection.write(batch.parts)
        return batch.request_count

    def _pull(
        self,
        connection: Connection,
        request: RemotingCommand | NativePull,
        header: Header,
        *,
        may_hold: bool = True,
    ) -> None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        now_ms = self._context.now_ms()
        plan = self.rules.check(checked_fields(request.code, header), now_ms)
        if isinstance(plan, Rejection):
            answer(connection, request, plan)
            return
        offsets = self._context.tables.offsets
        commits = may_hold and header.sys_flag & PullFlag.COMMIT_OFFSET and header.commit_offset >= 0
        if commits and offsets.has_room(group, topic, queue_id):
            offsets.commit(group, topic, queue_id, header.commit_offset, now_ms)
        found = self._read(header, plan.subscription, offsets.take_reset(group, topic, queue_id))
        reply = answer_pull(
            found.status,
            header.queue_offset,
            found.next_offset,
            config=self._context.delivery,
            broker_state=self._context.broker_state,
            group=plan.group,
            suggest_slave=found.lags,
        )
        may_hold &= reply.code == ResponseCode.PULL_NOT_FOUND and bool(header.sys_flag & PullFlag.SUSPEND)
        if may_hold and self._context.held.hold(
            partial(self._pull, connection, request, header, may_hold=False),
            connection,
            topic=topic,
            queue_id=queue_id,
            offset=header.queue_offset,
            hold_ms=header.suspend_timeout_millis,
            wanted=wanted_of(plan.subscription),
        ):
            return
        found = found._replace(next_offset=reply.next_offset)
        offsets.note_pull(group, topic, queue_id, found.next_offset)
        size_bytes = sum(map(len, found.records))
        self._context.counts.count_pull(topic, group, found.message_count, size_bytes)
        known = self._context.tables.topics.find(topic)
        flags = known.sys_flag if known else 0
        answer(connection, request, PullReply(reply.code, reply.broker_id, found, flags, plan.group.sys_flag))

    def _read(self, header: Header, wanted: Subscription, reset: int | None) -> Found:
        store, topic, queue_id = self._context.store, header.topic, header.queue_id
        if reset is not None:
            held = store.queue_range(topic, queue_id)
            return Found(OFFSET_RESET, reset, held.min_offset, held.max_offset)
        count = max(1, header.max_msg_nums)
        serves = self._context.delivery.slave_read
        if not wanted.by_tag:
            filtered, places = self._read_filtered(header, wanted.expression, count)
            return filtered._replace(lags=serves and self._lags(places))
        found = store.get_ranges(
            topic,
            queue_id,
            header.queue_offset,
            max_count=count,
            max_bytes=RECORDS_MAX_BYTES,
            tags=wanted.expression,
        )
        records: list[Buffer] = [found.ranges[at] for at in range(len(found.ranges))]
        if self._context.config.transfer_by_heap:
            records = [b"".join(records)]
        return Found(
            found.status.name,
            found.next_offset,
            found.min_offset,
            found.max_offset,
            records,
            found.message_count,
            serves and self._lags(found.ranges.places),
        )

    def _lags(self, places: Sequence[Place]) -> bool:
        """Return whether the last record is not in memory, by upstream's rule of 40 %."""
        store = self._context.store
        return bool(places) and store.max_offset - places[-1][0] > self._resident_bytes

    def _read_filtered(self, header: Header, expression: str, count: int) -> tuple[Found, list[Place]]:
        """Read messages whose properties match an SQL92 expression, within the limits of one pull.

        Returns:
            What was found, and the offsets of the records in the log.
        """
        store, found_by = self._context.store, sql_filter(expression)
        wants = found_by.matches
        passed_max = min(self._context.config.filter_scan_max, FILTER_STEPS_MAX // found_by.node_count)
        records: list[memoryview] = []
        places: list[Place] = []
        passed = size_bytes = 0
        offset = header.queue_offset
        while True:
            page = store.get(header.topic, header.queue_id, offset, max_count=PAGE)
            if page.status is not GetStatus.FOUND:
                break
            for message in page.messages:
                if not wants(message.properties):
                    continue
                if records and (
                    len(records) >= count or size_bytes + message.store_size > FILTERED_BYTES_MAX
                ):
                    offset = message.queue_offset
                    return found_in(page, "FOUND", offset, records), places
                records.append(message.record_view)
                places.append((message.physical_offset, message.store_size))
                size_bytes += message.store_size
            passed += page.next_offset - offset
            offset = page.next_offset
            if passed >= passed_max or offset >= page.max_offset:
                break
        if records:
            return found_in(page, "FOUND", offset, records), places
        if passed:
            return found_in(page, "NO_MATCHED_MESSAGE", offset), places
        return found_in(page, page.status.name, page.next_offset), places


def found_in(page: GetResult, status: str, next_offset: int, records: Sequence[Buffer] = ()) -> Found:
    """Return what was found up to a page of a queue; the next pull continues at an offset (units) of it."""
    return Found(status, next_offset, page.min_offset, page.max_offset, records, len(records))


def answer(
    connection: Connection, request: RemotingCommand | NativePull, reply: PullReply | Rejection
) -> None:
    """Send the response to a pull; its records are not copied."""
    if isinstance(reply, Rejection):
        command = request if isinstance(request, RemotingCommand) else command_of(request)
        kind = reply.forbidden_type
        fields = None if kind is None else {"forbiddenType": str(int(kind))}
        if not request.is_oneway:
            connection.send(command.response(reply.code, reply.remark, ext_fields=fields))
        return
    if request.is_oneway:
        return
    found = reply.found
    head = encode_pull_response(
        request.serialize,
        request.opaque,
        reply.code,
        found.status,
        reply.broker_id,
        found.next_offset,
        found.min_offset,
        found.max_offset,
        reply.topic_flags,
        reply.group_flags,
        sum(map(len, found.records)),
    )
    connection.write([head, *found.records])


def checked_fields(code: int, header: Header) -> PullRequest:
    """Return the fields that the rules check."""
    return PullRequest(
        group=header.consumer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        flags=header.sys_flag,
        subscription=header.subscription,
        subscription_version=header.sub_version,
        expression_type=header.expression_type,
        lite_code=code == RequestCode.LITE_PULL_MESSAGE,
    )


def compile_filter(subscription: Subscription) -> object:
    """Return the filter of an SQL92 subscription.

    Raises:
        SubscriptionSyntaxError: the expression cannot be parsed.
    """
    return sql_filter(subscription.expression)


def wanted_of(subscription: Subscription) -> Wanted | None:
    """Return the messages that wake a held pull; None: all."""
    if not subscription.by_tag:
        matches = sql_filter(subscription.expression).matches
        return lambda _code, properties: properties is None or matches(properties)
    if subscription.expression == "*":
        return None
    return lambda code, _properties: subscription.wants_code(code)
