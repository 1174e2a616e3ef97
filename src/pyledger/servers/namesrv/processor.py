"""Answers the requests to a name server by the rules of `protocol/namesrv`.

Differs: requests that change something, except those of brokers about themselves, are rejected with code 16
unless `admin_enabled` is set.

Source: RocketMQ namesrv/.../DefaultRequestProcessor.java, ClientRequestProcessor.java, ZoneRouteRPCHook.java.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from pyledger.config import properties
from pyledger.config.fields import settings_of
from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import NetConfig
from pyledger.config.runtime import changed_settings, settings_text
from pyledger.log_events import event, logger
from pyledger.model.digest import body_crc
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.route import (
    ORDER_TOPIC_NAMESPACE,
    BrokerIdentity,
    MinBrokerIdChange,
    Registration,
    TopicRoute,
)
from pyledger.model.topic import DataVersion
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.large_answers import LargeAnswers
from pyledger.net.remoting.request_table import HandlerTable
from pyledger.protocol.namesrv.route_rules import in_zone
from pyledger.protocol.namesrv.route_table import RouteTable
from pyledger.servers.namesrv.kv_config import KVConfig
from pyledger.servers.namesrv.registration import (
    LARGE_BYTES,
    LAST,
    Content,
    decoded_content,
    key_of,
    remembered,
)
from pyledger.servers.namesrv.topic_list import topic_list
from pyledger.wire.remoting.bodies.json_body import decode_body, encode_body
from pyledger.wire.remoting.bodies.route import (
    BrokerMembers,
    BrokerMembersResponse,
    decode_route,
    encode_clusters,
    encode_route,
    reads_standard_json,
)
from pyledger.wire.remoting.bodies.topic_config import KVTable, TopicList
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers import namesrv as headers

log = logger("namesrv")

CHANGEABLE = frozenset(
    {
        "delete_topic_with_broker_registration",
        "enable_all_topic_list",
        "enable_topic_list",
        "need_wait_for_service",
        "notify_min_broker_id_changed",
        "order_message_enable",
        "return_order_topic_config_to_broker",
        "scan_interval_ms",
        "support_acting_master",
        "wait_for_service_seconds",
    }
)
"""Settings of a running name server that an operator may change.

Differs: other settings cannot be changed, whatever the black list, and changes are not stored in a file."""

Answer = RemotingCommand | None | Awaitable[RemotingCommand | None]
Method = Callable[[Connection, RemotingCommand], Answer]

ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"
FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
REJECTED = "changes to the name server are rejected; set admin_enabled = true to allow them"


class RequestProcessor:
    """One method for each request code."""

    def __init__(
        self,
        routes: RouteTable,
        kv: KVConfig,
        net: NetConfig,
        *,
        now_ms: Callable[[], int],
        notify: Callable[[Iterable[MinBrokerIdChange]], None],
        removals_due: Callable[[], None],
    ) -> None:
        """Create a processor, ready for requests.

        Args:
            routes: The table; its `config` is the name server's.
            kv: The KV config.
            net: Limits of connections, to be displayed.
            now_ms: A monotonic clock.
            notify: Notifies brokers of a new smallest id.
            removals_due: Called when a removal was queued.
        """
        self.routes = routes
        self.kv = kv
        self._net = net
        self._now_ms = now_ms
        self._notify = notify
        self._removals_due = removals_due
        self._started_ms = now_ms()
        # Encoded routes by topic and form, of one generation of the table.
        self._encoded: dict[tuple[str, bool], bytes] = {}
        self._encoded_generation = -1
        self._large = LargeAnswers(lambda: routes.generation)

    def handlers(self) -> HandlerTable:
        """Methods by request code."""
        table = HandlerTable()
        for code, method in self._broker_and_client_methods().items():
            table.register(code, method)
        for code, method in self._changing().items():
            table.register(code, self._guarded(method))
        return table

    def _broker_and_client_methods(self) -> Mapping[RequestCode, Method]:
        """Return the methods for requests of brokers and queries of clients."""
        return {
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_clusters,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_members,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_KV_CONFIG: self.get_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }

    def _changing(self) -> Mapping[RequestCode, Method]:
        """Return the methods for an operator's changes."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
        }

    def _guarded(self, method: Method) -> Method:
        def handle(connection: Connection, request: RemotingCommand) -> Answer:
            if not self.routes.config.admin_enabled:
                connection.report(log, logging.WARNING, "change rejected", code=request.code)
                return request.response(ResponseCode.NO_PERMISSION, REJECTED)
            place = {"code": request.code, "peer": connection.remote_address}
            event(log, logging.INFO, "change requested", **place, fields=request.ext_fields)
            return method(connection, request)

        return handle

    # --- requests of brokers

    def register_broker(self, connection: Connection, request: RemotingCommand) -> Answer:
        """103."""
        header = request.header(headers.RegisterBrokerRequestHeader)
        if header.body_crc32 and header.body_crc32 != body_crc(request.body):
            return request.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        key = key_of(request, header.broker_name, header.compressed)
        content = remembered(connection.data, key)
        if content is None:
            if len(request.body) > LARGE_BYTES or header.compressed:
                return self._register_later(connection, request, header, key)
            content = decoded_content(request, header.broker_name, header.compressed)
            connection.data[LAST] = (key, content)
        return self._register(connection, request, header, content)

    async def _register_later(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: headers.RegisterBrokerRequestHeader,
        key: object,
    ) -> RemotingCommand | None:
        """Register after a large body is read, unless the broker has disconnected meanwhile."""
        content = await asyncio.to_thread(decoded_content, request, header.broker_name, header.compressed)
        if connection.closed:
            return None
        connection.data[LAST] = (key, content)
        return self._register(connection, request, header, content)

    def _register(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: headers.RegisterBrokerRequestHeader,
        content: Content,
    ) -> RemotingCommand:
        broker = BrokerIdentity(header.cluster_name, header.broker_name, header.broker_addr, header.broker_id)
        said = Registration(
            broker,
            content.topics,
            content.data_version,
            ha_server_addr=header.ha_server_addr,
            queue_mappings=content.queue_mappings,
            filter_servers=content.filter_servers,
            heartbeat_timeout_ms=header.heartbeat_timeout_millis,
            enable_acting_master=header.enable_acting_master,
            zone_name=request.ext_fields.get(ZONE_NAME),
        )
        is_new = self.routes.data_version(broker.cluster, broker.broker_addr) is None
        answer = self.routes.register(said, connection, self._now_ms())
        if answer is None:
            return request.response(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if is_new:
            where = {"name": broker.broker_name, "id": broker.broker_id, "address": broker.broker_addr}
            event(log, logging.INFO, "broker registered", cluster=broker.cluster, **where)
        self._notify(answer.notices)
        return request.response(
            header=headers.RegisterBrokerResponseHeader(
                ha_server_addr=answer.ha_server_addr, master_addr=answer.master_addr
            ),
            body=self._order_topics() if self.routes.config.return_order_topic_config_to_broker else b"",
        )

    def _order_topics(self) -> bytes:
        table = self.kv.table.table(ORDER_TOPIC_NAMESPACE)
        return b"" if table is None else KVTable(table=table).encode()

    def unregister_broker(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """104."""
        header = request.header(headers.UnRegisterBrokerRequestHeader)
        broker = BrokerIdentity(header.cluster_name, header.broker_name, header.broker_addr, header.broker_id)
        if not self.routes.unregister(broker):
            return request.response(ResponseCode.SYSTEM_ERROR)
        event(log, logging.INFO, "broker leaves", name=broker.broker_name, address=broker.broker_addr)
        self._removals_due()
        return request.response()

    def broker_heartbeat(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """904."""
        header = request.header(headers.BrokerHeartbeatRequestHeader)
        self.routes.refresh(header.cluster_name, header.broker_addr, self._now_ms())
        return request.response()

    def query_data_version(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """322; counts as a heartbeat."""
        header = request.header(headers.QueryDataVersionRequestHeader)
        place = header.cluster_name, header.broker_addr
        is_changed = self.routes.is_changed(*place, decode_body(DataVersion, request.body))
        self.routes.refresh(*place, self._now_ms())
        known = self.routes.data_version(*place)
        return request.response(
            header=headers.QueryDataVersionResponseHeader(changed=is_changed),
            body=b"" if known is None else encode_body(known),
        )

    def register_topic(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """217; sent by brokers that register topics one by one."""
        header = request.header(headers.RegisterTopicRequestHeader)
        queues = decode_route(request.body).queues
        if self.routes.register_topic(header.topic, queues):
            event(log, logging.INFO, "topic registered", topic=header.topic)
        return request.response()

    # --- queries

    def get_route(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """105."""
        config = self.routes.config
        if config.need_wait_for_service:
            waited_ms = self._now_ms() - self._started_ms
            if waited_ms < config.wait_for_service_seconds * 1000:
                return request.response(ResponseCode.SYSTEM_ERROR, "name server not ready")
        header = request.header(headers.GetRouteInfoRequestHeader)
        is_standard = reads_standard_json(request.version, header.accept_standard_json_only)
        zone = request.ext_fields.get(ZONE_NAME, "")
        if zone.strip() and request.ext_fields.get(ZONE_MODE, "").lower() == "true":
            route = self._route(header.topic)
            body = b"" if route is None else encode_route(in_zone(route, zone), standard=False)
        else:
            body = self._encoded_route(header.topic, is_standard)
        if not body:
            unknown = f"No topic route info in name server for the topic: {header.topic}\n{FAQ}"
            return request.response(ResponseCode.TOPIC_NOT_EXIST, unknown)
        return request.response(body=body)

    def _route(self, topic: str) -> TopicRoute | None:
        is_ordered = self.routes.config.order_message_enable
        return self.routes.route(
            topic, self.kv.table.get(ORDER_TOPIC_NAMESPACE, topic) if is_ordered else None
        )

    def _encoded_route(self, topic: str, is_standard: bool) -> bytes:
        """Return the body for a topic, cached until a route changes; empty for an unknown topic.

        Routes with the configuration of ordered topics also depend on the KV config and are not cached.
        """
        if self._encoded_generation != self.routes.generation:
            self._encoded.clear()
            self._encoded_generation = self.routes.generation
        body = self._encoded.get((topic, is_standard))
        if body is None:
            route = self._route(topic)
            if route is None:
                return b""
            body = encode_route(route, standard=is_standard)
            if not self.routes.config.order_message_enable:
                self._encoded[topic, is_standard] = body
        return body

    async def get_clusters(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """106."""
        return request.response(
            body=await self._large.body(
                "clusters", lambda: asyncio.to_thread(encode_clusters, self.routes.clusters())
            )
        )

    def get_members(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """901."""
        header = request.header(headers.GetBrokerMemberGroupRequestHeader)
        members = BrokerMembers(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=self.routes.member_group(header.broker_name),
        )
        return request.response(body=BrokerMembersResponse(broker_member_group=members).encode())

    async def get_all_topics(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """206."""
        if not self.routes.config.enable_all_topic_list:
            return request.response(ResponseCode.SYSTEM_ERROR, "disable")
        return request.response(body=await self._large.body("all", lambda: topic_list(self.routes.topics())))

    async def get_topics_of_cluster(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """224."""
        if not self.routes.config.enable_topic_list:
            return request.response(ResponseCode.SYSTEM_ERROR, "disable")
        header = request.header(headers.GetTopicsByClusterRequestHeader)
        return request.response(
            body=await self._large.body(
                ("cluster", header.cluster),
                lambda: topic_list(self.routes.topics_of_cluster(header.cluster)),
            )
        )

    def get_system_topics(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """304."""
        topics, broker_addr = self.routes.system_topics()
        return request.response(body=TopicList(topic_list=topics, broker_addr=broker_addr).encode())

    async def get_unit_topics(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """311, 312 and 313."""
        if not self.routes.config.enable_topic_list:
            return request.response(ResponseCode.SYSTEM_ERROR, "disable")
        if request.code == RequestCode.GET_UNIT_TOPIC_LIST:
            wanted = {"unit": True}
        elif request.code == RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST:
            wanted = {"subscription": True}
        else:
            wanted = {"unit": False, "subscription": True}
        return request.response(
            body=await self._large.body(request.code, lambda: topic_list(self.routes.unit_topics(**wanted)))
        )

    def get_kv(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """101."""
        header = request.header(headers.GetKVConfigRequestHeader)
        value = self.kv.table.get(header.namespace, header.key)
        if value is None:
            missing = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return request.response(ResponseCode.QUERY_NOT_FOUND, missing)
        return request.response(header=headers.GetKVConfigResponseHeader(value=value))

    def get_kv_list(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """219."""
        header = request.header(headers.GetKVListByNamespaceRequestHeader)
        table = self.kv.table.table(header.namespace)
        if table is None:
            missing = f"No config item, Namespace: {header.namespace}"
            return request.response(ResponseCode.QUERY_NOT_FOUND, missing)
        return request.response(body=KVTable(table=table).encode())

    def get_config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """319."""
        config = self.routes.config
        text = settings_text((config, self._net), {}, with_paths=config.admin_enabled)
        return request.response(body=text.encode())

    # --- an operator's changes

    async def put_kv(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """100."""
        header = request.header(headers.PutKVConfigRequestHeader)
        await self.kv.put(header.namespace, header.key, header.value)
        return request.response()

    async def delete_kv(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """102."""
        header = request.header(headers.DeleteKVConfigRequestHeader)
        await self.kv.delete(header.namespace, header.key)
        return request.response()

    def wipe_write_perm(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """205."""
        header = request.header(headers.WipeWritePermOfBrokerRequestHeader)
        count = self.routes.wipe_write_perm(header.broker_name)
        return request.response(header=headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def add_write_perm(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """327."""
        header = request.header(headers.AddWritePermOfBrokerRequestHeader)
        count = self.routes.add_write_perm(header.broker_name)
        return request.response(header=headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count))

    def delete_topic(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """216."""
        header = request.header(headers.DeleteTopicFromNamesrvRequestHeader)
        self.routes.delete_topic(header.topic, header.cluster_name)
        return request.response()

    def update_config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """318; in effect until the name server stops."""
        config = self.routes.config
        wanted = properties.parse(str(request.body, "utf-8", "replace"))
        if rejection := rejected_setting(config, wanted):
            return request.response(ResponseCode.NO_PERMISSION, rejection)
        self.routes.config = changed_settings(config, wanted, CHANGEABLE)
        self._encoded_generation = -1
        return request.response()


def rejected_setting(config: NamesrvConfig, wanted: Mapping[str, str]) -> str | None:
    """Return why a change by upstream's names is rejected, or None."""
    changeable = {one.upstream for one in settings_of(type(config)) if one.name in CHANGEABLE}
    for name in wanted:
        if name in config.config_black_list.split(";"):
            return "Can not update config in black list."
        if name not in changeable:
            return f"{name} cannot be changed while the name server runs"
    return None
