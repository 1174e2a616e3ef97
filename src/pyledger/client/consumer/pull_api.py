"""Pulling messages of one queue.

Source: RocketMQ client/.../impl/consumer/PullAPIWrapper.java, impl/MQClientAPIImpl.java.
"""

import asyncio
from dataclasses import dataclass
from enum import Enum

from pyledger.client.instance import ClientInstance
from pyledger.config.client import ConsumerConfig
from pyledger.errors import BrokerError
from pyledger.model import names
from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.pull_rules import PullFlag
from pyledger.wire.record.record import ReceivedMessage, decode_records
from pyledger.wire.remoting.bodies.subscription import Subscription
from pyledger.wire.remoting.command import Buffer, RemotingCommand
from pyledger.wire.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pyledger.wire.remoting.native_codec import PullFuture, PullHead

COMMIT_OFFSET, SUSPEND = int(PullFlag.COMMIT_OFFSET), int(PullFlag.SUSPEND)
SUBSCRIPTION, LITE = int(PullFlag.SUBSCRIPTION), int(PullFlag.LITE)
OWN_FIELDS = {"queueOffset": 1, "sysFlag": 1, "commitOffset": 2}
"""Fields that differ from pull to pull, and the part of the head to which the fields after them belong."""
HEADS_MAX = 10_000
"""Number of encoded heads to keep."""


class PullStatus(Enum):
    """The result of a pull."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED
    """The queue does not contain the offset; `next_offset` is the nearest one that it does."""


STATUS_OF_CODE: dict[int, PullStatus] = {int(status.value): status for status in PullStatus}


@dataclass(frozen=True, slots=True)
class PullResult:
    """The messages of a pull, and the offset of the next one."""

    status: PullStatus
    next_offset: int
    """Queue offset of the next pull."""
    min_offset: int
    max_offset: int
    messages: tuple[ReceivedMessage, ...] = ()


class PullApi:
    """Pulls for one group; remembers the broker id that was suggested for each queue."""

    def __init__(
        self, client: ClientInstance, group: str, config: ConsumerConfig, *, lite: bool = False
    ) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._lite = lite
        self._broker_ids: dict[MessageQueue, int] = {}
        self._heads: dict[tuple[object, ...], PullHead] = {}
        self._old_brokers: set[str] = set()
        """Addresses of brokers older than 5.0, which do not know the request code of lite pulls."""

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        *,
        count_max: int | None = None,
        commit_offset: int | None = None,
        suspend: bool = True,
        with_expression: bool = False,
        timeout_ms: int | None = None,
        broker_id: int | None = None,
    ) -> PullResult:
        """Pull messages.

        Args:
            queue: The queue.
            offset: Queue offset of the first message.
            subscription: The subscription to the topic.
            count_max: Most messages to return; None: the setting `pull_batch_count`.
            commit_offset: Consumer offset of the group, for the broker to store.
            suspend: Let the broker hold the pull until a message arrives.
            with_expression: Send the subscription; otherwise the broker uses the one of the heartbeats.
            timeout_ms: Limit of the call; None: the setting `pull_timeout_ms`.
            broker_id: Id of the broker to pull from; None: the one that the last response suggested.

        Raises:
            BrokerError: the broker rejects the request.
            RemotingError: it cannot be reached, or does not answer in time.
        """
        config = self._config
        wanted_id = self._broker_ids.get(queue, 0) if broker_id is None else broker_id
        address, is_slave = self._client.routes.reader(queue.broker_name, wanted_id)
        committed = commit_offset is not None and not is_slave
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count_max or config.pull_batch_count,
            sys_flag=(COMMIT_OFFSET if committed else 0)
            | (SUSPEND if suspend else 0)
            | (SUBSCRIPTION if with_expression else 0)
            | (LITE if self._lite else 0),
            commit_offset=(commit_offset or 0) if committed else 0,
            suspend_timeout_millis=config.suspend_timeout_ms,
            subscription=subscription.sub_string if with_expression else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            max_msg_bytes=config.pull_batch_bytes,
            bname=queue.broker_name,
        )
        answer = await self._request(address, header, timeout_ms or config.pull_timeout_ms)
        status = STATUS_OF_CODE.get(answer.code)
        if status is None:
            assert isinstance(answer, RemotingCommand)
            raise BrokerError(answer.code, answer.remark, address)
        found = answer if isinstance(answer, PullFuture) else answer.header(PullMessageResponseHeader)
        self._broker_ids[queue] = found.suggest_which_broker_id
        messages: tuple[ReceivedMessage, ...] = ()
        if status is PullStatus.FOUND:
            messages = self._received(queue, answer.body, found.offset_delta or 0, subscription)
        return PullResult(status, found.next_begin_offset, found.min_offset, found.max_offset, messages)

    async def _request(
        self, address: str, header: PullMessageRequestHeader, timeout_ms: int
    ) -> RemotingCommand | PullFuture:
        """Send a pull. Lite pulls have their own code; a broker that does not know it gets a normal pull."""
        if not self._lite and not self._client.config.access_key:
            connection = self._client.calls.remoting.ready(address)
            if connection is not None:
                answer = await self._request_on(connection, header, timeout_ms)
                if answer.code != ResponseCode.GO_AWAY:
                    return answer
                self._client.calls.remoting.retire(address)
        if self._lite and address not in self._old_brokers:
            command = RemotingCommand.request(RequestCode.LITE_PULL_MESSAGE, header)
            answer = await self._client.calls.call(address, command, timeout_ms)
            if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return answer
            self._old_brokers.add(address)
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        return await self._client.calls.call(address, command, timeout_ms)

    async def _request_on(
        self, connection: Connection, header: PullMessageRequestHeader, timeout_ms: int
    ) -> RemotingCommand | PullFuture:
        """Send a pull on a connection that accepts requests; the encoding of constant fields is cached."""
        common = (
            header.topic,
            header.bname,
            header.queue_id,
            header.max_msg_nums,
            header.sub_version,
            header.expression_type,
            header.subscription,
        )
        head = self._heads.get(common)
        if head is None:
            head = self._heads[common] = self._head(header)
            if len(self._heads) > HEADS_MAX:
                del self._heads[next(iter(self._heads))]
        endpoint = connection.endpoint
        opaque = endpoint.next_opaque()
        future: asyncio.Future[RemotingCommand | PullFuture] = endpoint.loop.create_future()
        frame = head.encode(opaque, header.queue_offset, header.sys_flag, header.commit_offset)
        connection.start(PullFuture(future), opaque, (frame,), timeout_ms)
        try:
            return await future
        except asyncio.CancelledError:
            connection.abandon(opaque)
            raise

    def _head(self, header: PullMessageRequestHeader) -> PullHead:
        parts: tuple[dict[str, str], ...] = ({}, {}, {})
        at = 0
        for name, value in header.encode().items():
            if name in OWN_FIELDS:
                at = OWN_FIELDS[name]
            else:
                parts[at][name] = value
        return PullHead(RequestCode.PULL_MESSAGE, self._client.config.header == "binary", *parts)

    def _received(
        self, queue: MessageQueue, body: Buffer, delta: int, subscription: Subscription
    ) -> tuple[ReceivedMessage, ...]:
        """Return the messages of a response whose tags match, not only the hash of their tags."""
        messages = decode_records(body, queue.broker_name, queue.queue_id, delta)
        wanted = set(subscription.tags_set)
        return tuple(message for message in messages if message.tags in wanted) if wanted else tuple(messages)


def delivered(message: ReceivedMessage) -> ReceivedMessage:
    """Return the message as listeners get it: a retried one has its original topic again."""
    if message.topic.startswith(names.RETRY_PREFIX):
        message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
    return message
