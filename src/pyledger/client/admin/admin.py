"""Administration over the network, on asyncio: topics, groups, consumer offsets, brokers.

Source: RocketMQ tools/.../admin/DefaultMQAdminExtImpl.java.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pyledger.client.instance import ClientInstance, own_client
from pyledger.client.lifecycle import Lifecycle
from pyledger.config.client import ClientConfig
from pyledger.config.fields import checked_type
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import BrokerError, ConfigError, NoRouteError, NotFoundError, RemotingError
from pyledger.model import names
from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.route import MASTER_ID, ClusterRoutes, TopicRoute
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.times import Time, stored_between, time_ms
from pyledger.model.topic import TopicConfig
from pyledger.protocol.client.topic_route_view import addresses_of
from pyledger.wire.record.message_id import decode_message_id
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.bodies.json_body import decode_body, encode_body
from pyledger.wire.remoting.bodies.membership import ConsumerConnection, ProducerConnection
from pyledger.wire.remoting.bodies.offsets import QueueOffsets
from pyledger.wire.remoting.bodies.statistics import (
    ConsumeOffset,
    ConsumeStats,
    TopicOffset,
    TopicStatsTable,
)
from pyledger.wire.remoting.bodies.topic_config import GroupList, KVTable, SubscriptionGroupTable, TopicList
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.admin import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from pyledger.wire.remoting.headers.client import ResetOffsetRequestHeader
from pyledger.wire.remoting.headers.codec import Header
from pyledger.wire.remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader

T = TypeVar("T", ConsumerConnection, ProducerConnection)

ADMIN_TIMEOUT_MS = 10_000
NOT_CONNECTED = {ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR}


@dataclass(frozen=True, slots=True)
class Progress:
    """The consumer offsets of a group, and its rate."""

    group: str
    queues: Mapping[MessageQueue, ConsumeOffset] = field(default_factory=dict)
    consume_tps: float = 0.0

    @property
    def lag(self) -> int:
        """The lag of the group: stored messages that it has not consumed."""
        return sum(one.broker_offset - max(0, one.consumer_offset) for one in self.queues.values())


class AsyncAdmin(Lifecycle):
    """Queries and changes topics, groups and offsets. Use it with `async with`, or `start` and `close` it.

    Each method raises `BrokerError` when a broker rejects the request, and another `RemotingError` when it
    cannot be reached. Brokers may demand the keys of `ClientConfig`.
    """

    def __init__(
        self,
        name_servers: str = "",
        *,
        client: ClientConfig | ClientInstance | None = None,
        net: NetConfig | None = None,
        tls: TlsConfig | None = None,
        timeout_ms: int = ADMIN_TIMEOUT_MS,
    ) -> None:
        """An administrator that connects once it is started.

        Args:
            name_servers: `host:port;host:port`; empty: those of `ClientConfig.name_servers`.
            client: Settings of the client, or a client to share with others.
            net: Limits of connections, for a client of its own.
            tls: Certificates, for a client of its own.
            timeout_ms: Of each request.
        """
        self.client = own_client(name_servers, client, net, tls)
        self._timeout_ms = timeout_ms

    async def start(self) -> None:
        """Connect as needed."""
        await self.client.start()

    async def close(self) -> None:
        """Close the client, unless others use it."""
        await self.client.close()

    # --- clusters and brokers

    async def clusters(self) -> ClusterRoutes:
        """Return all clusters and brokers that a name server knows."""
        return await self.client.calls.clusters()

    async def broker_status(self, address: str) -> Mapping[str, str]:
        """Return the runtime values that a broker reports, by name."""
        answer = await self.request(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(answer.body).table

    # --- topics

    async def topics(self) -> tuple[str, ...]:
        """Return the names of all topics, sorted."""
        answer = await self.request(None, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return tuple(sorted(TopicList.decode(answer.body).topic_list))

    async def topic_route(self, topic: str) -> TopicRoute:
        """Return the brokers and queues of a topic.

        Raises:
            NoRouteError: no name server knows the topic.
        """
        return await self.client.calls.route(topic)

    async def topic_configs(self, topic: str) -> dict[str, TopicConfig]:
        """Return the configuration of a topic at each broker, by broker name.

        Raises:
            NoRouteError: no name server knows the topic.
        """
        header = GetTopicConfigRequestHeader(topic=topic)
        found = {}
        for broker_name, address in masters(await self.topic_route(topic)).items():
            answer = await self.request(address, RequestCode.GET_TOPIC_CONFIG, header)
            found[broker_name] = decode_body(TopicConfig, answer.body)
        return found

    async def topic_offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the first and next offset of each queue of a topic, and when it was last written.

        Raises:
            NoRouteError: no name server knows the topic.
        """
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        found: dict[MessageQueue, TopicOffset] = {}
        for address in masters(await self.topic_route(topic)).values():
            answer = await self.request(address, RequestCode.GET_TOPIC_STATS_INFO, header)
            found |= TopicStatsTable.decode(answer.body).offset_table
        return dict(sorted(found.items()))

    async def topic_groups(self, topic: str) -> tuple[str, ...]:
        """Return the groups that consume a topic, sorted.

        Raises:
            NoRouteError: no name server knows the topic.
        """
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        found: set[str] = set()
        for address in masters(await self.topic_route(topic)).values():
            answer = await self.request(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            found.update(GroupList.decode(answer.body).group_list)
        return tuple(sorted(found))

    async def create_topic(
        self, topic: TopicConfig, *, cluster: str | None = None, address: str | None = None
    ) -> tuple[str, ...]:
        """Create or change a topic.

        Args:
            topic: Its name, queues, permissions and attributes.
            cluster: At all masters of this cluster; None: of every cluster.
            address: At this broker alone.

        Returns:
            Addresses of the brokers that have it now.

        Raises:
            NotFoundError: the cluster does not exist, or no broker is registered.
        """
        checked_type("topic", topic, TopicConfig)
        attributes = ",".join(f"+{name}={value}" for name, value in topic.attributes.items())
        header = topic_header(topic, attributes or None)
        targets = (address,) if address else await self.master_addresses(cluster)
        for target in targets:
            await self.request(target, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        return targets

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic at brokers and name servers; what is stored is deleted when its time comes.

        Raises:
            NotFoundError: the cluster does not exist, or no broker is registered.
        """
        for target in await self.master_addresses(cluster):
            header = DeleteTopicRequestHeader(topic=topic)
            await self.request(target, RequestCode.DELETE_TOPIC_IN_BROKER, header)
        known = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        for server in self.client.name_server_addresses:
            await self.request(server, RequestCode.DELETE_TOPIC_IN_NAMESRV, known)

    # --- groups

    async def groups(self) -> dict[str, SubscriptionGroup]:
        """Return all groups that masters know, by name, sorted."""
        found: dict[str, SubscriptionGroup] = {}
        for address in await self.master_addresses():
            answer = await self.request(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            found |= SubscriptionGroupTable.decode(answer.body).subscription_group_table
        return dict(sorted(found.items()))

    async def create_group(self, group: SubscriptionGroup, *, cluster: str | None = None) -> tuple[str, ...]:
        """Create or change a group; return the addresses of the brokers that have it now.

        Raises:
            NotFoundError: the cluster does not exist, or no broker is registered.
        """
        checked_type("group", group, SubscriptionGroup)
        targets = await self.master_addresses(cluster)
        for target in targets:
            await self.request(
                target, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(group)
            )
        return targets

    async def delete_group(
        self, group: str, *, cluster: str | None = None, forget_offsets: bool = True
    ) -> None:
        """Delete a group and, with `forget_offsets`, its offsets.

        Raises:
            NotFoundError: the cluster does not exist, or no broker is registered.
        """
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=forget_offsets)
        for target in await self.master_addresses(cluster):
            await self.request(target, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def progress(self, group: str, topic: str | None = None) -> Progress:
        """Return the offsets of a group, in all queues or in those of one topic."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        queues: dict[MessageQueue, ConsumeOffset] = {}
        tps = 0.0
        for address in await self.brokers_of(group, topic):
            answer = await self.request(address, RequestCode.GET_CONSUME_STATS, header)
            stats = ConsumeStats.decode(answer.body)
            queues |= stats.offset_table
            tps += stats.consume_tps
        return Progress(group, dict(sorted(queues.items())), tps)

    async def members(self, group: str) -> ConsumerConnection | None:
        """Return the connected consumers of a group; None when there are none."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        return await self._connected(
            ConsumerConnection, group, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, None
        )

    async def producers(self, group: str, topic: str) -> ProducerConnection | None:
        """Return the producers of a group that are connected to brokers of a topic; None: there are none."""
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        return await self._connected(
            ProducerConnection, group, RequestCode.GET_PRODUCER_CONNECTION_LIST, header, topic
        )

    async def reset_offset(
        self, group: str, topic: str, time: Time, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Move the offsets of a group to a time, in all queues of a topic.

        Args:
            group: Consumer group.
            topic: Topic; all its queues.
            time: Ms since 1970, or a datetime with a time zone; -1 is the end of each queue, 0 its beginning.
            force: Also move forward, over messages that were not consumed. Brokers that move offsets
                themselves, as ours and RocketMQ's from 5.0 do, always move both ways.

        Returns:
            The next queue offset to consume, by queue.

        Raises:
            NoRouteError: no name server knows the topic.
            ConfigError: the time is before 1970 and not -1.
        """
        timestamp = time_ms("time", time)
        if timestamp < -1:
            raise ConfigError("time", f"{time} is before 1970", "give 0 for the beginning, -1 for the end")
        header = ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=timestamp, is_force=force, offset=-1
        )
        found: dict[MessageQueue, int] = {}
        for address in masters(await self.topic_route(topic)).values():
            answer = await self.request(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            found |= QueueOffsets.decode(answer.body).offset_table
        return dict(sorted(found.items()))

    # --- messages

    async def message(self, msg_id: str, topic: str | None = None) -> ReceivedMessage:
        """Return the message with an id, or with the unique key of a producer.

        Args:
            msg_id: 32 or 56 hex digits.
            topic: Needed for a unique key.

        Raises:
            NotFoundError: no broker has the message.
            MalformedMessageIdError: `msg_id` is not an id.
        """
        if topic is not None:
            for found in await self.query(topic, msg_id, unique=True):
                if found.unique_key == msg_id:
                    return found
        place = decode_message_id(msg_id)
        host = f"[{place.host}]" if ":" in place.host else place.host
        try:
            return await self.client.calls.view_message(
                f"{host}:{place.port}", topic or "", place.physical_offset
            )
        except RemotingError as error:
            remedy = "name the topic, too" if topic is None else "query by its key"
            raise NotFoundError("message", msg_id, remedy) from error

    async def query(
        self,
        topic: str,
        key: str,
        *,
        since: Time | None = None,
        until: Time | None = None,
        limit: int = 64,
        unique: bool = False,
    ) -> list[ReceivedMessage]:
        """Return the messages of a topic with a key, by the time they were stored.

        Args:
            topic: The topic.
            key: One of the words of `keys`, or with `unique` the unique key.
            since: Stored at or after this time: ms since 1970, or a datetime with a time zone.
            until: Stored before this time.
            limit: Most messages of each broker, the newest.
            unique: Query by unique key instead.

        Raises:
            NoRouteError: no name server knows the topic.
        """
        begin_ms, end_ms = stored_between(since, until)
        route = await self.topic_route(topic)
        calls = [
            self.client.calls.query_messages(address, topic, key, limit, begin_ms, end_ms, unique=unique)
            for address in masters(route).values()
        ]
        # The index knows hashes only: others may share one.
        found = [
            message
            for part in await asyncio.gather(*calls)
            for message in part
            if message.topic == topic
            and (message.unique_key == key if unique else key in (message.keys or "").split(" "))
        ]
        return sorted(found, key=lambda message: message.store_timestamp)

    # --- any request

    async def request(
        self, address: str | None, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request for which there is no method, and return its response.

        Args:
            address: `host:port`; None: a name server.
            code: Request code.
            header: Fields of the request.
            body: Body of the request.

        Raises:
            BrokerError: the response code is not SUCCESS.
        """
        command = RemotingCommand.request(code, header, body)
        return await self.client.calls.request(address, command, self._timeout_ms)

    async def master_addresses(self, cluster: str | None = None) -> tuple[str, ...]:
        """Return the addresses of the masters of a cluster, or of all.

        Raises:
            NotFoundError: the cluster does not exist, or no broker is registered.
        """
        known = await self.clusters()
        if cluster is not None and cluster not in known.clusters:
            there = ", ".join(sorted(known.clusters)) or "none"
            raise NotFoundError("cluster", cluster, f"there is {there}")
        chosen = known.brokers if cluster is None else known.clusters[cluster]
        addresses = [known.brokers[name].broker_addrs.get(MASTER_ID) for name in chosen]
        found = tuple(sorted(address for address in addresses if address))
        if not found:
            raise NotFoundError("broker", cluster or "", "start one that registers with this name server")
        return found

    async def brokers_of(self, group: str, topic: str | None = None) -> tuple[str, ...]:
        """Return the addresses of the brokers that have a group's retry topic, else of all masters."""
        for one in (names.retry_topic(group), topic):
            if one is not None:
                try:
                    return tuple(masters(await self.topic_route(one)).values())
                except NoRouteError:
                    continue
        return await self.master_addresses()

    async def _connected(
        self, kind: type[T], group: str, code: RequestCode, header: Header, topic: str | None
    ) -> T | None:
        for address in await self.brokers_of(group, topic):
            try:
                return kind.decode((await self.request(address, code, header)).body)
            except BrokerError as error:
                if error.response_code not in NOT_CONNECTED:
                    raise
        return None


def masters(route: TopicRoute) -> dict[str, str]:
    """Return the addresses of masters by broker name."""
    return {
        name: by_id[MASTER_ID] for name, by_id in sorted(addresses_of(route).items()) if MASTER_ID in by_id
    }


def topic_header(topic: TopicConfig, attributes: str | None) -> CreateTopicRequestHeader:
    """Return the request that creates or changes a topic; `attributes` are `+name=value,-name`."""
    return CreateTopicRequestHeader(
        topic=topic.name,
        default_topic=names.DEFAULT_TOPIC,
        read_queue_nums=topic.read_queue_count,
        write_queue_nums=topic.write_queue_count,
        perm=int(topic.permission),
        topic_filter_type=topic.filter_type,
        topic_sys_flag=topic.sys_flag,
        order=topic.order,
        attributes=attributes,
    )
