"""Administration of consumer and producer groups: 200 to 208, 225, 300, 343, 352.

Source: RocketMQ broker/.../AdminBrokerProcessor.java.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeVar

from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import LanguageCode, RequestCode, ResponseCode
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.large_answers import LargeAnswers
from pyledger.protocol.broker.client_channel import Client
from pyledger.protocol.broker.subscription import Subscription as Rule
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.processors.admin.topics import page_length, page_start
from pyledger.servers.broker.processors.query_message import store_time_ms
from pyledger.wire.remoting.bodies import membership
from pyledger.wire.remoting.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from pyledger.wire.remoting.bodies.json_body import encode_body
from pyledger.wire.remoting.bodies.statistics import BrokerConsumeStats, ConsumeOffset, ConsumeStats
from pyledger.wire.remoting.bodies.subscription import Subscription
from pyledger.wire.remoting.bodies.topic_config import (
    GroupList,
    SubscriptionGroupList,
    SubscriptionGroupTable,
    TopicList,
)
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers import admin as headers

E = TypeVar("E", bound=StrEnum)


class GroupProcessor:
    """Lists and changes groups, and lists their members and offsets."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._tables = context.tables
        self._large = LargeAnswers(lambda: context.tables.groups.version)

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods that read, by request code."""
        return {
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_one,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producers,
            RequestCode.GET_CONSUME_STATS: self.get_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.get_all_stats,
            RequestCode.GET_ALL_PRODUCER_INFO: self.get_all_producers,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.get_groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.get_topics_of_group,
        }

    def changes(self) -> Mapping[RequestCode, Method]:
        """Return the methods that change the broker, by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
        }

    # --- changes

    def update(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
        if not len(request.body):
            return request.response()
        wanted = request.body_as(SubscriptionGroup)
        return self._context.stored(partial(self._update, request, (wanted,)))

    def update_list(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""
        wanted = request.body_as(SubscriptionGroupList).group_config_list
        return self._context.stored(partial(self._update, request, wanted))

    def _update(self, request: RemotingCommand, wanted: Sequence[SubscriptionGroup]) -> Reply:
        for group in wanted:
            rejection = self._tables.groups.update(group, self._context.now_ms())
            if rejection is not None:
                return request.response(rejection.code, rejection.remark)
        return request.response()

    def delete(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer DELETE_SUBSCRIPTIONGROUP (207)."""
        header = request.header(headers.DeleteSubscriptionGroupRequestHeader)
        return self._context.stored(partial(self._delete, request, header))

    def _delete(
        self, request: RemotingCommand, header: headers.DeleteSubscriptionGroupRequestHeader
    ) -> Reply:
        rejection = self._tables.groups.delete(header.group_name, self._context.now_ms())
        if rejection is not None:
            return request.response(rejection.code, rejection.remark)
        if header.clean_offset:
            self._tables.offsets.delete_group(header.group_name)
        return request.response()

    # --- queries of the table

    def get_all(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """201: all groups, or a page of them."""
        return asyncio.ensure_future(self._get_all(request))

    async def _get_all(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(headers.GetAllSubscriptionGroupRequestHeader)
        table, answer, page = self._tables.groups, None, None
        page_fields = (header.group_seq, header.max_group_num, header.data_version)
        if any(one is not None for one in page_fields):
            answer = headers.GetAllSubscriptionGroupResponseHeader(total_group_num=len(table.groups))
            start = page_start(header.group_seq, header.data_version, table.version)
            page = start, page_length(header.max_group_num)
        return request.response(
            header=answer, body=await self._large.body(page, partial(self._encoded, page))
        )

    def _encoded(self, page: tuple[int, int] | None) -> Awaitable[bytes]:
        table = self._tables.groups
        names = table.groups if page is None else sorted(table.groups)[page[0] : sum(page)]
        body = SubscriptionGroupTable(
            subscription_group_table={name: table.groups[name] for name in names},
            forbidden_table={name: dict(table.forbidden[name]) for name in names if name in table.forbidden},
            data_version=table.version,
        )
        return asyncio.to_thread(body.encode)

    def get_one(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """352; creates the group where groups are created by their first use."""
        name = request.header(headers.GetSubscriptionGroupConfigRequestHeader).group
        return self._context.stored(partial(self._get_one, request, name))

    def _get_one(self, request: RemotingCommand, name: str) -> Reply:
        group = self._tables.groups.usable(name)
        if group is None:
            problem = f"No group in this broker. group: {name}"
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        self._tables.groups.keep(group, self._context.now_ms())
        return request.response(body=encode_body(group.document()))

    # --- queries of members

    def get_consumers(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_CONSUMER_CONNECTION_LIST (203)."""
        name = request.header(headers.GetConsumerConnectionListRequestHeader).consumer_group
        group = self._tables.consumers.groups.get(name)
        if group is None:
            problem = f"the consumer group[{name}] not online"
            return request.response(ResponseCode.CONSUMER_NOT_ONLINE, problem)
        body = membership.ConsumerConnection(
            connection_set=described(group.members.values()),
            subscription_table={topic: subscription_of(one) for topic, one in group.subscriptions.items()},
            consume_type=member_of(ConsumeType, group.state.consume_type),
            message_model=member_of(MessageModel, group.state.message_model),
            consume_from_where=member_of(ConsumeFromWhere, group.state.consume_from_where),
        )
        return request.response(body=body.encode())

    def get_producers(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_PRODUCER_CONNECTION_LIST (204)."""
        name = request.header(headers.GetProducerConnectionListRequestHeader).producer_group
        members = self._tables.producers.members(name)
        if not members:
            return request.response(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = membership.ProducerConnection(connection_set=described(members))
        return request.response(body=body.encode())

    def get_all_producers(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_ALL_PRODUCER_INFO (328)."""
        found = {
            group: tuple(
                membership.ProducerMember(
                    client_id=one.client_id,
                    remote_ip=address_of(one),
                    language=language_of(one),
                    version=one.version,
                    last_update_timestamp=one.seen_ms,
                )
                for one in members.values()
            )
            for group, members in self._tables.producers.groups.items()
        }
        return request.response(body=membership.ProducerMembers(data=found).encode())

    def get_groups_of_topic(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """300: groups that subscribe to a topic now, or have an offset for it."""
        topic = request.header(headers.QueryTopicConsumeByWhoRequestHeader).topic
        found = {
            *self._tables.consumers.groups_of_topic(topic),
            *self._tables.offsets.groups_of_topic(topic),
        }
        return request.response(body=GroupList(group_list=tuple(sorted(found))).encode())

    def get_topics_of_group(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer QUERY_TOPICS_BY_CONSUMER (343)."""
        group = request.header(headers.QueryTopicsByConsumerRequestHeader).group
        topics = tuple(self._tables.offsets.topics_of_group(group))
        return request.response(body=TopicList(topic_list=topics, broker_addr=self._context.address).encode())

    def get_stats(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """208: the offsets and lag of a group, for some topics or for all that it has offsets of."""
        header = request.header(headers.GetConsumeStatsRequestHeader)
        group = header.consumer_group
        topics = [one for one in (header.topic or header.topic_list or "").split(";") if one]
        stats = [self._stats(group, name) for name in topics or self._tables.offsets.topics_of_group(group)]
        table = {queue: offset for one in stats for queue, offset in one.offset_table.items()}
        body = ConsumeStats(offset_table=table, consume_tps=sum(one.consume_tps for one in stats))
        return request.response(body=body.encode())

    def get_all_stats(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """317: all groups with offsets, or only those that consume in order."""
        only_ordered = request.header(headers.GetConsumeStatsInBrokerHeader).is_order
        found = []
        waiting = in_flight = 0
        for name, group in self._tables.groups.groups.items():
            topics = self._tables.offsets.topics_of_group(name)
            if not topics or (only_ordered and not group.consume_orderly):
                continue
            stats = tuple(self._stats(name, topic) for topic in topics)
            found.append({name: stats})
            offsets = [offset for one in stats for offset in one.offset_table.values()]
            waiting += sum(one.broker_offset - one.consumer_offset for one in offsets)
            in_flight += sum(one.pull_offset - one.consumer_offset for one in offsets)
        body = BrokerConsumeStats(
            broker_addr=self._context.address,
            consume_stats_list=tuple(found),
            total_diff=waiting,
            total_inflight_diff=in_flight,
        )
        return request.response(body=body.encode())

    def _stats(self, group: str, name: str) -> ConsumeStats:
        """Return the offsets of a group in a topic; none where its members no longer subscribe."""
        topic = self._tables.topics.find(name)
        online = self._tables.consumers.groups.get(group)
        if topic is None or (online is not None and name not in online.subscriptions):
            return ConsumeStats()
        table = {
            MessageQueue(name, self._context.config.name, queue_id): self._progress(group, name, queue_id)
            for queue_id in range(topic.read_queue_count)
        }
        per_second = self._context.counts.given.per_second((name, group))
        return ConsumeStats(offset_table=table, consume_tps=per_second)

    def _progress(self, group: str, topic: str, queue_id: int) -> ConsumeOffset:
        store, offsets = self._context.store, self._tables.offsets
        consumed = max(0, offsets.committed(group, topic, queue_id) or 0)
        return ConsumeOffset(
            broker_offset=store.queue_range(topic, queue_id).max_offset,
            consumer_offset=consumed,
            pull_offset=max(consumed, offsets.pull_offset(group, topic, queue_id) or 0),
            last_timestamp=max(0, store_time_ms(store, topic, queue_id, consumed - 1)),
        )


def described(members: Iterable[Client]) -> tuple[membership.Connection, ...]:
    """Return clients in the form of the protocol."""
    return tuple(
        membership.Connection(
            client_id=one.client_id,
            client_addr=address_of(one),
            language=language_of(one),
            version=one.version,
        )
        for one in members
    )


def address_of(one: Client) -> str | None:
    """Return `ip:port` of a client."""
    return one.channel.remote_address if isinstance(one.channel, Connection) else None


def language_of(one: Client) -> str:
    """Return the language of a client; `OTHER` where its number is unknown, as tools require a name."""
    return LanguageCode(LanguageCode.OTHER if one.language is None else one.language).name


def subscription_of(rule: Rule) -> Subscription:
    """Return a subscription in the form of the protocol."""
    return Subscription(
        topic=rule.topic,
        sub_string=rule.expression,
        tags_set=rule.tags,
        code_set=tuple(sorted(rule.codes)),
        sub_version=rule.version,
        expression_type=rule.expression_type,
    )


def member_of(kind: type[E], text: str) -> E | None:
    """Return the member of an enumeration with a value; None for an unknown one."""
    return next((one for one in kind if one.value == text), None)
