"""Pulls: 11 and 361. Records go from the log to the socket without a copy.

Source: RocketMQ broker/.../PullMessageProcessor.java, DefaultPullMessageResultHandler.java.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pyledger.broker.parts import BrokerParts, Method, Reply
from pyledger.net.connection import Connection
from pyledger.protocol.delivery.long_poll import Wanted
from pyledger.protocol.delivery.pull_rules import PullFlag, PullPlan, PullRequest, PullRules, answer_pull
from pyledger.protocol.delivery.refusal import Refusal
from pyledger.protocol.delivery.subscription import Subscription
from pyledger.protocol.filter.sql92 import sql_filter
from pyledger.store.read_result import GetStatus
from pyledger.wire.codes import RequestCode, ResponseCode
from pyledger.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pyledger.wire.remoting import RemotingCommand

RECORDS_MAX_BYTES = 128 << 20
OFFSET_RESET = "OFFSET_RESET"
FILTERED_BYTES_MAX = 256 << 10
PAGE = 32


class Found(NamedTuple):
    """What the store has for a pull."""

    status: str
    """Upstream's word."""
    next_offset: int
    min_offset: int
    max_offset: int
    records: Sequence[memoryview] = ()
    message_count: int = 0


class PullProcessor:
    """Answers pulls, or holds them until there is something to answer."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        tables = parts.tables
        self.rules = PullRules(
            parts.delivery, parts.standing, tables.topics, tables.groups, tables.consumers, compile_filter
        )

    def methods(self) -> Mapping[RequestCode, Method]:
        """What it answers, by request code."""
        return dict.fromkeys((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), self.pull)

    def pull(self, connection: Connection, request: RemotingCommand) -> Reply:
        """11, 361."""
        header = request.header(PullMessageRequestHeader)
        return self._parts.stored(partial(self._pull, connection, request, header, may_hold=True))

    def _pull(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        *,
        may_hold: bool,
    ) -> RemotingCommand | None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        plan = self.rules.check(asked(request, header), self._parts.now_ms())
        if isinstance(plan, Refusal):
            kind = plan.forbidden_type
            fields = None if kind is None else {"forbiddenType": str(int(kind))}
            return request.response(plan.code, plan.remark, ext_fields=fields)
        offsets = self._parts.tables.offsets
        if may_hold and header.sys_flag & PullFlag.COMMIT_OFFSET and header.commit_offset >= 0:
            offsets.commit(group, topic, queue_id, header.commit_offset, self._parts.now_ms())
        found = self._read(header, plan.subscription, offsets.take_reset(group, topic, queue_id))
        answer = answer_pull(
            found.status,
            header.queue_offset,
            config=self._parts.delivery,
            standing=self._parts.standing,
            group=plan.group,
            suggest_slave=False,
        )
        may_hold &= answer.code == ResponseCode.PULL_NOT_FOUND and bool(header.sys_flag & PullFlag.SUSPEND)
        if may_hold and self._hold(connection, request, header, plan):
            return None
        offsets.note_pull(group, topic, queue_id, found.next_offset)
        size_bytes = sum(map(len, found.records))
        self._parts.counts.count_pull(topic, group, found.message_count, size_bytes)
        known = self._parts.tables.topics.find(topic)
        response = request.response(
            answer.code,
            found.status,
            PullMessageResponseHeader(
                suggest_which_broker_id=answer.broker_id,
                next_begin_offset=found.next_offset,
                min_offset=found.min_offset,
                max_offset=found.max_offset,
                topic_sys_flag=known.sys_flag if known else 0,
                group_sys_flag=plan.group.sys_flag,
            ),
        )
        if not found.records:
            return response
        if not request.is_oneway:
            connection.send(response, found.records)
        return None

    def _hold(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        plan: PullPlan,
    ) -> bool:
        return self._parts.held.hold(
            partial(self._again, connection, request, header),
            connection,
            topic=header.topic,
            queue_id=header.queue_id,
            offset=header.queue_offset,
            hold_ms=header.suspend_timeout_millis,
            wanted=wanted_of(plan.subscription),
        )

    def _again(
        self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> None:
        """Answer a pull that was held."""
        response = self._pull(connection, request, header, may_hold=False)
        if response is not None and not request.is_oneway:
            connection.send(response)

    def _read(self, header: PullMessageRequestHeader, wanted: Subscription, reset: int | None) -> Found:
        store, topic, queue_id = self._parts.store, header.topic, header.queue_id
        if reset is not None:
            held = store.queue_range(topic, queue_id)
            return Found(OFFSET_RESET, reset, held.min_offset, held.max_offset)
        count = max(1, header.max_msg_nums)
        if not wanted.by_tag:
            return self._read_filtered(header, wanted.expression, count)
        found = store.get_ranges(
            topic, queue_id, header.queue_offset, count, RECORDS_MAX_BYTES, wanted.expression
        )
        return Found(
            found.status.name,
            found.next_offset,
            found.min_offset,
            found.max_offset,
            [found.ranges[at] for at in range(len(found.ranges))],
            found.message_count,
        )

    def _read_filtered(self, header: PullMessageRequestHeader, expression: str, count: int) -> Found:
        """Read messages whose properties an SQL92 expression wants, within the bounds of one pull."""
        store, wants = self._parts.store, sql_filter(expression).matches
        records: list[memoryview] = []
        passed = size_bytes = 0
        offset = header.queue_offset
        while True:
            page = store.get(header.topic, header.queue_id, offset, PAGE)
            if page.status is not GetStatus.FOUND:
                break
            for message in page.messages:
                if not wants(message.properties):
                    continue
                if records and (
                    len(records) >= count or size_bytes + message.store_size > FILTERED_BYTES_MAX
                ):
                    offset = message.queue_offset
                    return Found("FOUND", offset, page.min_offset, page.max_offset, records, len(records))
                records.append(message.record_view)
                size_bytes += message.store_size
            passed += page.next_offset - offset
            offset = page.next_offset
            if passed >= self._parts.config.filter_scan_max or offset >= page.max_offset:
                break
        if records:
            return Found("FOUND", offset, page.min_offset, page.max_offset, records, len(records))
        if passed:
            return Found("NO_MATCHED_MESSAGE", offset, page.min_offset, page.max_offset)
        return Found(page.status.name, page.next_offset, page.min_offset, page.max_offset)


def asked(request: RemotingCommand, header: PullMessageRequestHeader) -> PullRequest:
    """What the rules look at."""
    return PullRequest(
        group=header.consumer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        flags=header.sys_flag,
        subscription=header.subscription,
        subscription_version=header.sub_version,
        expression_type=header.expression_type,
        lite_code=request.code == RequestCode.LITE_PULL_MESSAGE,
    )


def compile_filter(subscription: Subscription) -> object:
    """The filter of an SQL92 subscription.

    Raises:
        SubscriptionSyntaxError: it cannot be read.
    """
    return sql_filter(subscription.expression)


def wanted_of(subscription: Subscription) -> Wanted | None:
    """Which messages wake a held pull; None: all."""
    if not subscription.by_tag:
        matches = sql_filter(subscription.expression).matches
        return lambda _code, properties: properties is None or matches(properties)
    if subscription.expression == "*":
        return None
    return lambda code, _properties: subscription.wants_code(code)
