"""Requests to name servers and brokers as functions: each signs, sends and checks the response code."""

from collections.abc import Collection

from pyledger.config.client import ClientConfig
from pyledger.errors import BrokerError, NoRouteError
from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.route import ClusterRoutes, TopicRoute
from pyledger.net.remoting.client import RemotingClient
from pyledger.wire.record.record import ReceivedMessage, decode_records
from pyledger.wire.remoting.bodies.heartbeat import Heartbeat
from pyledger.wire.remoting.bodies.membership import ConsumerIds, LockBatchRequest, LockBatchResponse
from pyledger.wire.remoting.bodies.route import decode_clusters, decode_route
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from pyledger.wire.remoting.headers.namesrv import GetRouteInfoRequestHeader
from pyledger.wire.remoting.headers.query import (
    BoundaryType,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from pyledger.wire.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from pyledger.wire.remoting.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, sign

SEND_BACK_TIMEOUT_MS = 5000
OFFSET_TIMEOUT_MS = 5000
LOCK_TIMEOUT_MS = 1000
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class Calls:
    """The requests of a client. Each may raise the errors of `RemotingClient.call`, and `BrokerError`."""

    def __init__(self, remoting: RemotingClient, config: ClientConfig) -> None:
        self.remoting = remoting
        self._config = config

    def sign(self, command: RemotingCommand) -> None:
        """Sign a request if an access key is configured; the request must not be changed afterwards."""
        config = self._config
        if not config.access_key:
            return
        command.ext_fields.pop(SIGNATURE, None)
        command.ext_fields[ACCESS_KEY] = config.access_key
        if config.security_token:
            command.ext_fields[SECURITY_TOKEN] = config.security_token
        command.ext_fields[SIGNATURE] = sign(command.ext_fields, command.body, config.secret_key)

    async def call(
        self, address: str | None, command: RemotingCommand, timeout_ms: int | None = None
    ) -> RemotingCommand:
        """Send a request and return the response, whatever its code.

        Args:
            address: `host:port`; None: a name server.
            command: The request.
            timeout_ms: None: the setting `api_timeout_ms`.
        """
        self.sign(command)
        return await self.remoting.call(address, command, timeout_ms or self._config.api_timeout_ms)

    async def request(
        self, address: str | None, command: RemotingCommand, timeout_ms: int | None = None
    ) -> RemotingCommand:
        """Send a request and return the response.

        Raises:
            BrokerError: the response code is not SUCCESS.
        """
        answer = await self.call(address, command, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address or self.remoting.name_server or "")
        return answer

    async def call_oneway(
        self, address: str, command: RemotingCommand, timeout_ms: int | None = None
    ) -> None:
        """Send a one-way request."""
        self.sign(command)
        await self.remoting.call_oneway(address, command, timeout_ms or self._config.api_timeout_ms)

    # --- name server

    async def route(self, topic: str, timeout_ms: int | None = None) -> TopicRoute:
        """Return the route of a topic.

        Raises:
            NoRouteError: no name server knows the topic.
        """
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        answer = await self.call(None, command, timeout_ms)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRouteError(topic)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, self.remoting.name_server or "")
        return decode_route(answer.body)

    async def clusters(self) -> ClusterRoutes:
        """Return all clusters and brokers."""
        command = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode_clusters((await self.request(None, command)).body)

    # --- membership

    async def heartbeat(self, address: str, heartbeat: Heartbeat) -> int:
        """Send a heartbeat; return the version of the broker."""
        command = RemotingCommand.request(RequestCode.HEART_BEAT, body=heartbeat.encode())
        return (await self.request(address, command)).version

    async def unregister(
        self, address: str, client_id: str, producer_group: str | None, consumer_group: str | None
    ) -> None:
        """Leave a group."""
        header = UnregisterClientRequestHeader(
            client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        await self.request(address, RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, header))

    async def consumer_ids(self, address: str, group: str) -> tuple[str, ...]:
        """Return the client ids of a group."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        answer = await self.request(
            address, RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        )
        return ConsumerIds.decode(answer.body).consumer_id_list

    async def lock(
        self, address: str, client_id: str, group: str, queues: Collection[MessageQueue]
    ) -> set[MessageQueue]:
        """Lock queues of one broker; return those that this client holds now."""
        body = LockBatchRequest(client_id=client_id, consumer_group=group, mq_set=tuple(queues)).encode()
        command = RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=body)
        answer = await self.request(address, command, LOCK_TIMEOUT_MS)
        return set(LockBatchResponse.decode(answer.body).lock_ok_mq_set)

    async def unlock(
        self, address: str, client_id: str, group: str, queues: Collection[MessageQueue]
    ) -> None:
        """Release locks; one-way."""
        body = LockBatchRequest(client_id=client_id, consumer_group=group, mq_set=tuple(queues)).encode()
        command = RemotingCommand.request(RequestCode.UNLOCK_BATCH_MQ, body=body, oneway=True)
        await self.call_oneway(address, command, LOCK_TIMEOUT_MS)

    # --- offsets

    async def consumer_offset(self, address: str, group: str, queue: MessageQueue) -> int:
        """Return the consumer offset of a group; -1 if it has none."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        command = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = await self.call(address, command, OFFSET_TIMEOUT_MS)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return -1
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return answer.header(QueryConsumerOffsetResponseHeader).offset

    async def update_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int, *, oneway: bool = True
    ) -> None:
        """Store the consumer offset of a group: the queue offset from which it continues."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        command = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=oneway)
        if oneway:
            await self.call_oneway(address, command, OFFSET_TIMEOUT_MS)
        else:
            await self.request(address, command, OFFSET_TIMEOUT_MS)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the queue offset of the next message to be stored."""
        header = GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        answer = await self.request(address, RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header))
        return answer.header(GetMaxOffsetResponseHeader).offset

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the queue offset of the first message."""
        header = GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        answer = await self.request(address, RemotingCommand.request(RequestCode.GET_MIN_OFFSET, header))
        return answer.header(GetMinOffsetResponseHeader).offset

    async def offset_by_time(
        self, address: str, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """Return the queue offset for a store time (ms since 1970)."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type=BoundaryType.UPPER if upper else BoundaryType.LOWER,
            bname=queue.broker_name,
        )
        command = RemotingCommand.request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return (await self.request(address, command)).header(SearchOffsetResponseHeader).offset

    # --- messages

    async def view_message(self, address: str, topic: str, physical_offset: int) -> ReceivedMessage:
        """Return the message at a physical offset (bytes)."""
        header = ViewMessageRequestHeader(topic=topic, offset=physical_offset)
        answer = await self.request(address, RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, header))
        return decode_records(answer.body)[0]

    async def query_messages(
        self,
        address: str,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        *,
        unique: bool = False,
    ) -> list[ReceivedMessage]:
        """Return the messages that one broker finds by a key; some may have another key of the same hash."""
        header = QueryMessageRequestHeader(
            topic=topic, key=key, max_num=max_count, begin_timestamp=begin_ms, end_timestamp=end_ms
        )
        fields = {UNIQUE_KEY_QUERY: "true"} if unique else {}
        command = RemotingCommand.request(RequestCode.QUERY_MESSAGE, header, ext_fields=fields)
        answer = await self.call(address, command)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return decode_records(answer.body)

    async def send_back(
        self,
        address: str,
        group: str,
        message: ReceivedMessage,
        delay_level: int,
        reconsume_times_max: int,
    ) -> None:
        """Send a message back for a retry; after too many retries it becomes a dead letter."""
        properties = message.properties
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=group,
            delay_level=delay_level,
            origin_msg_id=properties.get("ORIGIN_MESSAGE_ID") or message.unique_key or message.msg_id,
            origin_topic=message.topic,
            max_reconsume_times=reconsume_times_max,
            bname=message.broker_name,
        )
        command = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await self.request(address, command, SEND_BACK_TIMEOUT_MS)
