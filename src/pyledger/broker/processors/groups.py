"""Consumer and producer groups, as an operator sees and changes them: 200 to 208, 225, 300, 343, 352.

Source: RocketMQ broker/.../AdminBrokerProcessor.java.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeVar

from pyledger.broker.parts import BrokerParts, Method, Reply
from pyledger.broker.processors.query import store_time_ms
from pyledger.broker.processors.topics import page_length, page_start
from pyledger.group import SubscriptionGroup
from pyledger.message import MessageQueue
from pyledger.net.connection import Connection
from pyledger.protocol.delivery.clients import Client
from pyledger.protocol.delivery.subscription import Subscription as Rule
from pyledger.wire import membership
from pyledger.wire.body import decode_body, encode_body
from pyledger.wire.codes import LanguageCode, RequestCode, ResponseCode
from pyledger.wire.headers import admin as headers
from pyledger.wire.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from pyledger.wire.remoting import RemotingCommand
from pyledger.wire.statistics import ConsumeOffset, ConsumeStats
from pyledger.wire.subscription import Subscription
from pyledger.wire.topic_config import GroupList, SubscriptionGroupList, SubscriptionGroupTable, TopicList

E = TypeVar("E", bound=StrEnum)


class GroupProcessor:
    """Shows and changes the table of groups, and shows who is in them."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._tables = parts.tables

    def methods(self) -> Mapping[RequestCode, Method]:
        """What anybody may ask, by request code."""
        return {
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_one,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producers,
            RequestCode.GET_CONSUME_STATS: self.get_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.get_groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.get_topics_of_group,
        }

    def changes(self) -> Mapping[RequestCode, Method]:
        """What an operator changes, by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
        }

    # --- changes

    def update(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """200."""
        if not len(request.body):
            return request.response()
        wanted = decode_body(SubscriptionGroup, request.body)
        return self._parts.stored(partial(self._update, request, (wanted,)))

    def update_list(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """225."""
        wanted = SubscriptionGroupList.decode(request.body).group_config_list
        return self._parts.stored(partial(self._update, request, wanted))

    def _update(self, request: RemotingCommand, wanted: Sequence[SubscriptionGroup]) -> Reply:
        for group in wanted:
            refusal = self._tables.groups.update(group, self._parts.now_ms())
            if refusal is not None:
                return request.response(refusal.code, refusal.remark)
        return request.response()

    def delete(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """207."""
        header = request.header(headers.DeleteSubscriptionGroupRequestHeader)
        return self._parts.stored(partial(self._delete, request, header))

    def _delete(
        self, request: RemotingCommand, header: headers.DeleteSubscriptionGroupRequestHeader
    ) -> Reply:
        self._tables.groups.delete(header.group_name, self._parts.now_ms())
        if header.clean_offset:
            self._tables.offsets.delete_group(header.group_name)
        return request.response()

    # --- questions about the table

    def get_all(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """201: all groups, or a page of them."""
        header = request.header(headers.GetAllSubscriptionGroupRequestHeader)
        table = self._tables.groups
        groups, forbidden, answer = table.groups, table.forbidden, None
        asked = (header.group_seq, header.max_group_num, header.data_version)
        if any(one is not None for one in asked):
            answer = headers.GetAllSubscriptionGroupResponseHeader(total_group_num=len(groups))
            start = page_start(header.group_seq, header.data_version, table.version)
            page = sorted(groups)[start : start + page_length(header.max_group_num)]
            groups = {name: groups[name] for name in page}
            forbidden = {name: forbidden[name] for name in page if name in forbidden}
        body = SubscriptionGroupTable(
            subscription_group_table=groups, forbidden_table=forbidden, data_version=table.version
        )
        return request.response(header=answer, body=body.encode())

    def get_one(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """352; asking for a group creates it where groups are created by their first use."""
        name = request.header(headers.GetSubscriptionGroupConfigRequestHeader).group
        return self._parts.stored(partial(self._get_one, request, name))

    def _get_one(self, request: RemotingCommand, name: str) -> Reply:
        group = self._tables.groups.find(name, self._parts.now_ms())
        if group is None:
            problem = f"No group in this broker. group: {name}"
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        return request.response(body=encode_body(group.document()))

    # --- questions about members

    def get_consumers(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """203."""
        name = request.header(headers.GetConsumerConnectionListRequestHeader).consumer_group
        group = self._tables.consumers.groups.get(name)
        if group is None:
            problem = f"the consumer group[{name}] not online"
            return request.response(ResponseCode.CONSUMER_NOT_ONLINE, problem)
        body = membership.ConsumerConnection(
            connection_set=described(group.members.values()),
            subscription_table={topic: told(one) for topic, one in group.subscriptions.items()},
            consume_type=member_of(ConsumeType, group.state.consume_type),
            message_model=member_of(MessageModel, group.state.message_model),
            consume_from_where=member_of(ConsumeFromWhere, group.state.consume_from_where),
        )
        return request.response(body=body.encode())

    def get_producers(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """204."""
        name = request.header(headers.GetProducerConnectionListRequestHeader).producer_group
        members = self._tables.producers.members(name)
        if not members:
            return request.response(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = membership.ProducerConnection(connection_set=described(members))
        return request.response(body=body.encode())

    def get_groups_of_topic(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """300: groups that subscribe to a topic now, or have an offset for it."""
        topic = request.header(headers.QueryTopicConsumeByWhoRequestHeader).topic
        found = {
            *self._tables.consumers.groups_of_topic(topic),
            *self._tables.offsets.groups_of_topic(topic),
        }
        return request.response(body=GroupList(group_list=tuple(sorted(found))).encode())

    def get_topics_of_group(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """343."""
        group = request.header(headers.QueryTopicsByConsumerRequestHeader).group
        topics = tuple(self._tables.offsets.topics_of_group(group))
        return request.response(body=TopicList(topic_list=topics, broker_addr=self._parts.address).encode())

    def get_stats(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """208: how far is a group, for one topic, for some, or for all that it has offsets for."""
        header = request.header(headers.GetConsumeStatsRequestHeader)
        group = header.consumer_group
        topics = [one for one in (header.topic or header.topic_list or "").split(";") if one]
        online = self._tables.consumers.groups.get(group)
        table: dict[MessageQueue, ConsumeOffset] = {}
        per_second = 0.0
        for name in topics or self._tables.offsets.topics_of_group(group):
            topic = self._tables.topics.find(name)
            if topic is None or (online is not None and name not in online.subscriptions):
                continue
            for queue_id in range(topic.read_queue_count):
                queue = MessageQueue(name, self._parts.config.name, queue_id)
                table[queue] = self._progress(group, name, queue_id)
            per_second += self._parts.counts.given.per_second((name, group))
        return request.response(body=ConsumeStats(offset_table=table, consume_tps=per_second).encode())

    def _progress(self, group: str, topic: str, queue_id: int) -> ConsumeOffset:
        store, offsets = self._parts.store, self._tables.offsets
        consumed = max(0, offsets.committed(group, topic, queue_id) or 0)
        return ConsumeOffset(
            broker_offset=store.queue_range(topic, queue_id).max_offset,
            consumer_offset=consumed,
            pull_offset=max(consumed, offsets.pull_offset(group, topic, queue_id) or 0),
            last_timestamp=max(0, store_time_ms(store, topic, queue_id, consumed - 1)),
        )


def described(members: Iterable[Client]) -> tuple[membership.Connection, ...]:
    """Clients as they are told."""
    return tuple(
        membership.Connection(
            client_id=one.client_id,
            client_addr=one.channel.remote_address if isinstance(one.channel, Connection) else None,
            # A client in a language that has no number: tools need a name.
            language=LanguageCode(one.language if one.language is not None else LanguageCode.OTHER).name,
            version=one.version,
        )
        for one in members
    )


def told(rule: Rule) -> Subscription:
    """A subscription as it travels."""
    return Subscription(
        topic=rule.topic,
        sub_string=rule.expression,
        tags_set=rule.tags,
        code_set=tuple(sorted(rule.codes)),
        sub_version=rule.version,
        expression_type=rule.expression_type,
    )


def member_of(kind: type[E], text: str) -> E | None:
    """The member of an enumeration that a text names."""
    return next((one for one in kind if one.value == text), None)
