"""A pull consumer on asyncio: the program chooses queues and offsets, and stores or commits offsets itself.

Source: RocketMQ client/.../impl/consumer/DefaultMQPullConsumerImpl.java.
"""

from typing import Unpack

from pyledger.client.consumer.group_consumer import DEFAULT_GROUP
from pyledger.client.consumer.offset_store import RemoteOffsets
from pyledger.client.consumer.pull_api import PullApi, PullResult
from pyledger.client.identity import now_ms
from pyledger.client.instance import OWN_CLIENT, ClientInstance, own_client
from pyledger.client.lifecycle import Lifecycle
from pyledger.client.producer.message_preparation import check_group
from pyledger.config.client import ClientConfig, ConsumerConfig
from pyledger.config.fields import changed, checked_type
from pyledger.config.keywords import ConsumerSettings
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.model.message import MessageQueue
from pyledger.model.times import Time, time_ms
from pyledger.protocol.broker.subscription import SQL92, TAG
from pyledger.wire.remoting.bodies.subscription import Subscription


class AsyncPullConsumer(Lifecycle):
    """Reads queues in the name of a group, without joining it. Use it with `async with`."""

    def __init__(
        self,
        group: str,
        name_servers: str = "",
        *,
        config: ConsumerConfig | None = None,
        client: ClientConfig | ClientInstance | None = None,
        net: NetConfig | None = None,
        tls: TlsConfig | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """A consumer that connects once it is started.

        Args:
            group: The group whose offsets are read and committed.
            name_servers: `host:port;host:port`; empty: those of `ClientConfig.name_servers`.
            config: How to pull; None: the defaults.
            client: Settings of the client, or a client to share with others.
            net: Limits of connections, for a client of its own.
            tls: Certificates, for a client of its own.
            settings: Single settings of `ConsumerConfig`, over those of `config`.

        Raises:
            ConfigError: a setting is unknown or out of range.
            IllegalMessageError: the group name is invalid.
        """
        check_group(group, DEFAULT_GROUP)
        self.group = group
        self.config = changed(ConsumerConfig, config, settings, OWN_CLIENT)
        self.client = own_client(name_servers, client, net, tls)
        self._pull_api = PullApi(self.client, group, self.config)
        self._offsets = RemoteOffsets(self.client, group)
        self._version = now_ms()

    async def start(self) -> None:
        """Connect as needed."""
        await self.client.start()

    async def close(self) -> None:
        """Close the client, unless others use it."""
        await self.client.close()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic, as a name server lists them now.

        Raises:
            NoRouteError: no name server knows the topic.
            RemotingError: none answered.
        """
        return await self.client.routes.current_queues(topic)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = "*",
        *,
        sql: bool = False,
        count_max: int | None = None,
        wait: bool = False,
        broker_id: int | None = None,
    ) -> PullResult:
        """Pull messages of a queue.

        Args:
            queue: One of `queues`.
            offset: Queue offset of the first one.
            expression: `*`, or tags as in `A || B`.
            sql: The expression is SQL92 on properties.
            count_max: Messages; None: the setting `pull_batch_count`. Brokers give fewer when they are large.
            wait: Let the broker hold the pull up to `suspend_timeout_ms` until a message arrives.
            broker_id: Broker of that name to pull from: 0 is the master; None: the one that the last response
                suggested.

        Returns:
            The messages, and the next offset to pull.

        Raises:
            SubscriptionSyntaxError: the expression cannot be parsed.
            BrokerError: the broker rejects the request.
            RemotingError: it cannot be reached, or does not answer in time.
        """
        checked_type("offset", offset, int)
        await self._address(queue)
        subscription = Subscription.of(queue.topic, expression, self._version, SQL92 if sql else TAG)
        return await self._pull_api.pull(
            queue,
            offset,
            subscription,
            count_max=count_max,
            suspend=wait,
            with_expression=True,
            broker_id=broker_id,
        )

    async def committed_offset(self, queue: MessageQueue) -> int:
        """Return the committed offset of the group; -1: none.

        Raises:
            OffsetUnknownError: no broker could be queried.
        """
        await self._address(queue)
        return await self._offsets.read(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit a queue offset: the next one that the group reads.

        Raises:
            BrokerError: the broker rejects the request.
            RemotingError: it cannot be reached, or does not answer in time.
        """
        address = await self._address(queue)
        await self.client.calls.update_consumer_offset(address, self.group, queue, offset, oneway=False)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the first message.

        Raises:
            RemotingError: the broker cannot be reached, or rejects the request.
        """
        return await self.client.calls.min_offset(await self._address(queue), queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the next message to be stored.

        Raises:
            RemotingError: the broker cannot be reached, or rejects the request.
        """
        return await self.client.calls.max_offset(await self._address(queue), queue)

    async def offset_by_time(self, queue: MessageQueue, time: Time) -> int:
        """Return the queue offset of the first message stored at or after a time.

        Args:
            queue: One queue.
            time: Ms since 1970, or a datetime with a time zone.

        Raises:
            RemotingError: the broker cannot be reached, or rejects the request.
        """
        address = await self._address(queue)
        return await self.client.calls.offset_by_time(address, queue, time_ms("time", time))

    async def _address(self, queue: MessageQueue) -> str:
        """Return the address of a queue's broker; fetch the route if it is not known."""
        checked_type("queue", queue, MessageQueue)
        if queue.broker_name not in self.client.routes.addresses:
            await self.client.routes.refresh(queue.topic)
        address, _ = self.client.routes.reader(queue.broker_name)
        return address
