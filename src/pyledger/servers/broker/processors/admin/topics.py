"""Administration of topics: 17, 18, 21, 202, 215, 305, 351.

Differs: a deleted topic's messages stay until retention deletes them, and its queue offsets continue if the
topic is created again; upstream starts again at 0 and so uses an offset twice.

Source: RocketMQ broker/.../AdminBrokerProcessor.java.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial

from pyledger.errors import TopicAttributeError
from pyledger.model import names
from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.topic import DataVersion, Permission, TopicConfig
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.large_answers import LargeAnswers
from pyledger.protocol.broker.name_rules import SYSTEM_TOPICS
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.topic_attributes import parse_change
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.processors.query_message import store_time_ms
from pyledger.wire import fastjson
from pyledger.wire.remoting.bodies.json_body import encode_body
from pyledger.wire.remoting.bodies.statistics import TopicOffset, TopicStatsTable
from pyledger.wire.remoting.bodies.topic_config import TopicConfigList, TopicConfigTable, TopicList
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers import admin as headers

PAGE_TOPICS_MAX = 2000


class TopicProcessor:
    """Lists and changes topics."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._topics = context.tables.topics
        self._large = LargeAnswers(lambda: context.tables.topics.version)

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods that read, by request code."""
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all,
            RequestCode.GET_TOPIC_CONFIG: self.get_one,
            RequestCode.GET_TOPIC_STATS_INFO: self.get_stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topics,
        }

    def changes(self) -> Mapping[RequestCode, Method]:
        """Return the methods that change the broker, by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
        }

    # --- changes

    def update(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer UPDATE_AND_CREATE_TOPIC (17)."""
        header = request.header(headers.CreateTopicRequestHeader)
        try:
            change = parse_change(header.attributes or "")
        except TopicAttributeError as problem:
            return request.response(ResponseCode.SYSTEM_ERROR, str(problem))
        wanted = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            Permission(header.perm),
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
            change,
        )
        return self._context.stored(partial(self._update, request, (wanted,)))

    def update_list(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """18: changes nothing when one of the topics is unchanged, as upstream."""
        wanted = request.body_as(TopicConfigList).topic_config_list
        if any(self._topics.find(topic.name) == topic for topic in wanted):
            return request.response()
        return self._context.stored(partial(self._update, request, wanted))

    def _update(self, request: RemotingCommand, wanted: Sequence[TopicConfig]) -> Reply:
        for topic in wanted:
            rejection = self._topics.update(topic, self._context.now_ms())
            if rejection is not None:
                return request.response(rejection.code, rejection.remark)
        return request.response()

    def delete(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """215: the topic, the retries of its groups, their offsets."""
        topic = request.header(headers.DeleteTopicRequestHeader).topic
        return self._context.stored(partial(self._delete, request, topic))

    def _delete(self, request: RemotingCommand, topic: str) -> Reply:
        offsets = self._context.tables.offsets
        groups = offsets.groups_of_topic(topic)
        rejection = self._topics.delete(topic, self._context.now_ms())
        if isinstance(rejection, Rejection):
            return request.response(rejection.code, rejection.remark)
        offsets.delete_topic(topic)
        for group in groups:
            for joined in ("_", "+"):
                retry = f"{names.retry_topic(group)}{joined}{topic}"
                self._topics.delete(retry, self._context.now_ms())
                offsets.delete_topic(retry)
        return request.response()

    # --- queries

    def get_all(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """21: all topics, or a page of them."""
        return asyncio.ensure_future(self._get_all(request))

    async def _get_all(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(headers.GetAllTopicConfigRequestHeader)
        topics = self._topics.topics
        page_fields = (header.topic_seq, header.max_topic_num, header.data_version)
        answer, page = None, None
        if any(one is not None for one in page_fields):
            answer = headers.GetAllTopicConfigResponseHeader(total_topic_num=len(topics))
            start = page_start(header.topic_seq, header.data_version, self._topics.version)
            page = start, page_length(header.max_topic_num)
        return request.response(
            header=answer, body=await self._large.body(page, partial(self._encoded, page))
        )

    def _encoded(self, page: tuple[int, int] | None) -> Awaitable[bytes]:
        table = TopicConfigTable(
            topic_config_table=dict(self._topics.topics) if page is None else self._topics.page(*page),
            data_version=self._topics.version,
            mapping_data_version=DataVersion(),
        )
        return asyncio.to_thread(table.encode)

    def get_one(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_TOPIC_CONFIG (351)."""
        name = request.header(headers.GetTopicConfigRequestHeader).topic
        topic = self._topics.find(name)
        if topic is None:
            problem = f"No topic in this broker. topic: {name}"
            return request.response(ResponseCode.TOPIC_NOT_EXIST, problem)
        return request.response(body=encode_body(topic.document()))

    def get_stats(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_TOPIC_STATS_INFO (202)."""
        name = request.header(headers.GetTopicStatsInfoRequestHeader).topic
        topic = self._topics.find(name)
        if topic is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        store = self._context.store
        table = {}
        for queue_id in range(topic.write_queue_count):
            held = store.queue_range(name, queue_id)
            table[MessageQueue(name, self._context.config.name, queue_id)] = TopicOffset(
                min_offset=held.min_offset,
                max_offset=held.max_offset,
                last_update_timestamp=max(0, store_time_ms(store, name, queue_id, held.max_offset - 1)),
            )
        stats = TopicStatsTable(offset_table=table, topic_put_tps=self._context.counts.put.per_second(name))
        return request.response(body=stats.encode())

    def get_system_topics(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
        known = (name for name in self._topics.topics if self._topics.is_system(name))
        found = tuple(dict.fromkeys((*sorted(SYSTEM_TOPICS), *known)))
        return request.response(body=TopicList(topic_list=found).encode())


def page_start(start: int | None, version_text: str | None, version: DataVersion) -> int:
    """Return the start of a page: 0 when the table has changed since the caller's first page."""
    if version_text and DataVersion.parse(fastjson.parse(version_text)) != version:
        return 0
    return max(0, start or 0)


def page_length(length: int | None) -> int:
    """Return the number of entries of a page."""
    return PAGE_TOPICS_MAX if length is None else max(0, min(length, PAGE_TOPICS_MAX))
