"""Connected clients: 34, 35, 38, 46.

Source: RocketMQ broker/.../ClientManageProcessor.java, ConsumerManageProcessor.java.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.client_channel import Client
from pyledger.protocol.broker.consumer_registry import CLUSTERING, FROM_LAST_OFFSET, PASSIVELY, ConsumerState
from pyledger.protocol.broker.pull_rules import check_subscription
from pyledger.servers.broker.context import BrokerContext, Method, Reply
from pyledger.servers.broker.processors.pull_message import compile_filter
from pyledger.wire.remoting.bodies.heartbeat import ConsumerEntry, Heartbeat, ProducerEntry
from pyledger.wire.remoting.bodies.membership import ConsumerIds
from pyledger.wire.remoting.bodies.subscription import CheckClientConfig
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    HeartbeatResponseHeader,
    UnregisterClientRequestHeader,
)

GROUPS_AT_ONCE = 256
GROUPS_OF_CONNECTION_MAX = 10_000
"""As consumer or as producer; kept until the connection closes or sends no heartbeat for 2 min."""
SUBSCRIPTIONS_MAX = 10_000
"""Of one group in one heartbeat; they are processed in one iteration of the event loop."""
FINGERPRINT = "broker.fingerprint"
"""Key in the data of a connection: the heartbeat that its subscriptions come from."""

Entry = ConsumerEntry | ProducerEntry


class MemberProcessor:
    """Keeps the tables of consumers and producers."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def methods(self) -> Mapping[RequestCode, Method]:
        """Return its methods by request code."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_members,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
        }

    def heartbeat(self, connection: Connection, request: RemotingCommand) -> Reply:
        """34, of both kinds: the second leaves out unchanged subscriptions."""
        body = request.body_as(Heartbeat)
        now_ms = self._context.now_ms()
        member = Client(connection, body.client_id or "", request.language, request.version, now_ms)
        for one in body.consumer_data_set:
            if (count := len(one.subscription_data_set)) > SUBSCRIPTIONS_MAX:
                problem = f"a group has {count} subscriptions, of {SUBSCRIPTIONS_MAX} at most"
                return request.response(ResponseCode.SYSTEM_ERROR, problem)
        for stated, kept in (
            (body.consumer_data_set, self._context.tables.consumers),
            (body.producer_data_set, self._context.tables.producers),
        ):
            joined = kept.channels.get(connection, {})
            new = {name for one in stated if (name := one.group_name) and name not in joined}
            if new and len(joined) + len(new) > GROUPS_OF_CONNECTION_MAX:
                problem = f"a connection may be in {GROUPS_OF_CONNECTION_MAX} groups at most"
                return request.response(ResponseCode.SYSTEM_ERROR, problem)
        entries: list[Entry] = [*body.consumer_data_set, *body.producer_data_set]
        if len(entries) > GROUPS_AT_ONCE:
            return asyncio.ensure_future(self._heartbeat_in_parts(connection, request, member, entries))
        return self._context.stored(partial(self._heartbeat, connection, request, member, entries))

    def _heartbeat(
        self, connection: Connection, request: RemotingCommand, member: Client, entries: Sequence[Entry]
    ) -> RemotingCommand:
        body = request.body_as(Heartbeat)
        self._take_entries(member, entries, without_subscriptions=body.without_sub)
        changed = True
        if body.heartbeat_fingerprint:
            changed = connection.data.get(FINGERPRINT) != body.heartbeat_fingerprint
            if not body.without_sub:
                connection.data[FINGERPRINT] = body.heartbeat_fingerprint
        return request.response(header=HeartbeatResponseHeader(is_sub_change=changed))

    async def _heartbeat_in_parts(
        self, connection: Connection, request: RemotingCommand, member: Client, entries: Sequence[Entry]
    ) -> Answer:
        """A heartbeat of many groups: other connections are served between them."""
        body = request.body_as(Heartbeat)
        take = partial(self._take_entries, member, without_subscriptions=body.without_sub)
        for start in range(0, len(entries), GROUPS_AT_ONCE):
            if connection.closed:
                return None
            stored = self._context.stored(partial(take, entries[start : start + GROUPS_AT_ONCE]))
            if stored is not None:
                await stored
            await asyncio.sleep(0)
        return self._heartbeat(connection, request, member, ())

    def _take_entries(self, member: Client, entries: Sequence[Entry], *, without_subscriptions: bool) -> None:
        for one in entries:
            if not one.group_name:
                continue
            if isinstance(one, ConsumerEntry):
                self._take_consumer(member, one, without_subscriptions=without_subscriptions)
            else:
                self._context.tables.producers.heartbeat(one.group_name, member)

    def _take_consumer(self, member: Client, body: ConsumerEntry, *, without_subscriptions: bool) -> None:
        tables = self._context.tables
        name = body.group_name or ""
        group = tables.groups.usable(name)
        if group is None:
            return
        tables.groups.keep(group, member.seen_ms)
        tables.topics.create_for_group(names.retry_topic(name), group.retry_queue_count, member.seen_ms)
        state = ConsumerState(
            str(body.consume_type or PASSIVELY),
            str(body.message_model or CLUSTERING),
            str(body.consume_from_where or FROM_LAST_OFFSET),
        )
        wanted = [one.rule() for one in body.subscription_data_set if one.topic]
        notice = tables.consumers.heartbeat(
            name,
            member,
            state,
            None if without_subscriptions else wanted,
            notify=group.notify_changes,
        )
        if notice is not None:
            self._context.notify([notice])

    def unregister(self, connection: Connection, request: RemotingCommand) -> Reply:
        """Answer UNREGISTER_CLIENT (35)."""
        header = request.header(UnregisterClientRequestHeader)
        tables = self._context.tables
        if header.producer_group:
            tables.producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            group = tables.groups.known(header.consumer_group)
            notify = group is None or group.notify_changes
            notice = tables.consumers.unregister(header.consumer_group, connection, notify=notify)
            if notice is not None:
                self._context.notify([notice])
        return request.response()

    def list_members(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer GET_CONSUMER_LIST_BY_GROUP (38)."""
        group = request.header(GetConsumerListByGroupRequestHeader).consumer_group
        ids = self._context.tables.consumers.client_ids(group)
        if not ids:
            return request.response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return request.response(body=ConsumerIds(consumer_id_list=tuple(ids)).encode())

    def check_config(self, _connection: Connection, request: RemotingCommand) -> Reply:
        """Answer CHECK_CLIENT_CONFIG (46)."""
        wanted = request.body_as(CheckClientConfig).subscription_data
        if wanted is None:
            return request.response()
        rejection = check_subscription(self._context.delivery, wanted.rule(), compile_filter)
        return request.response() if rejection is None else request.response(rejection.code, rejection.remark)
