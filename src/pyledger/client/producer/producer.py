"""Producers on asyncio.

Source: RocketMQ client/.../impl/producer/DefaultMQProducerImpl.java, impl/MQClientAPIImpl.java.
"""

import asyncio
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Unpack

from pyledger.client.identity import PROCESS_IDS
from pyledger.client.instance import OWN_CLIENT, ClientInstance, own_client
from pyledger.client.lifecycle import Lifecycle
from pyledger.client.producer import unclosed
from pyledger.client.producer.message_preparation import MessageEncoder, check_group, delayed
from pyledger.client.producer.send_result import SendResult
from pyledger.client.producer.sender import Select, Sender
from pyledger.client.tracing import Tracer
from pyledger.config.client import ClientConfig, ProducerConfig
from pyledger.config.fields import changed, checked_limit, checked_type
from pyledger.config.keywords import ProducerSettings
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import ClientStateError, IllegalMessageError, ReplyTimeoutError
from pyledger.model import names
from pyledger.model.message import WRONG_TYPES, Message, MessageQueue, check_all_types, check_types
from pyledger.model.tags import java_hash
from pyledger.protocol.client.send_retry import SendMode
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.headers.send import CheckTransactionStateRequestHeader
from pyledger.wire.remoting.native_codec import PendingSend

DEFAULT_GROUP = "DEFAULT_PRODUCER"


class AsyncProducer(Lifecycle):
    """Sends messages. Use it with `async with`, or `start` and `close` it. Belongs to one event loop."""

    def __init__(
        self,
        group: str,
        name_servers: str = "",
        *,
        config: ProducerConfig | None = None,
        client: ClientConfig | ClientInstance | None = None,
        net: NetConfig | None = None,
        tls: TlsConfig | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """A producer that connects once it is started.

        Args:
            group: Producer group; brokers check a transaction with any producer of the group.
            name_servers: `host:port;host:port`; empty: those of `ClientConfig.name_servers`.
            config: How to send; None: the defaults.
            client: Settings of the client, or a client to share with others.
            net: Limits of connections, for a client of its own.
            tls: Certificates, for a client of its own.
            settings: Single settings of `ProducerConfig`, over those of `config`.

        Raises:
            ConfigError: a setting is unknown or out of range.
            IllegalMessageError: the group name is invalid.
        """
        check_group(group, DEFAULT_GROUP)
        self.group = group
        self.config = changed(ProducerConfig, config, settings, OWN_CLIENT)
        self.client = own_client(name_servers, client, net, tls)
        self._sender = Sender(self.client, group, self.config)
        self._encoder = MessageEncoder(self.config, PROCESS_IDS.of(self.client.address))
        self._tracer = Tracer(self.client, group, "PRODUCE") if self.client.config.trace_enabled else None
        if self._tracer is not None:
            self._sender.traced = self._tracer.sent
        self._started = False

    async def start(self) -> None:
        """Connect as needed and register this producer with brokers.

        Raises:
            ClientStateError: the client has a producer of this group.
        """
        # A fork may have come since, and has ids of its own.
        self._encoder = MessageEncoder(self.config, PROCESS_IDS.of(self.client.address))
        await self.client.start()
        try:
            await self.client.add_producer(self)
        except BaseException:
            await self.client.close()
            raise
        if self._tracer is not None:
            self._tracer.start()
        unclosed.started(self._sender, self.group)
        self._started = True

    async def close(self) -> None:
        """Wait for sends in flight, then unregister. Idempotent."""
        if not self._started:
            return
        self._started = False
        await self._sender.settle()
        unclosed.closed(self._sender)
        if self._tracer is not None:
            await self._tracer.close()
        await self.client.remove_producer(self)
        await self.client.close()

    # --- sending

    async def send(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        sharding_key: str | None = None,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message and wait until it is stored. Its `queue_id` is ignored.

        Args:
            message: One message; several of one topic are sent as a batch, and stored together or not at all.
            queue: The queue; one attempt only. None: the queues of the topic, round robin.
            select: Chooses among the queues of the topic; one attempt only.
            sharding_key: Messages of one key go to one queue, in order; one attempt only.
            deliver_at_ms: Time when consumers get it, ms since 1970.
            delay_ms: Delay until consumers get it, in milliseconds.
            timeout_ms: For all attempts, in milliseconds; None: the setting `send_timeout_ms`. The wait while
                `sends_in_flight_max` sends are in flight does not count.

        Raises:
            IllegalMessageError: brokers would reject it.
            RecordTooLargeError: the body or the properties are too large.
            SendError: it was not stored, or its result is not known.

        Durability: as the broker is configured; `SendResult.status` reports which guarantee was not met.
        """
        return await self._start_send(
            message,
            queue=queue,
            select=select,
            sharding_key=sharding_key,
            deliver_at_ms=deliver_at_ms,
            delay_ms=delay_ms,
            timeout_ms=timeout_ms,
        )

    def submit(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        sharding_key: str | None = None,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        timeout_ms: int | None = None,
        wait: bool = True,
    ) -> asyncio.Future[SendResult]:
        """Start a send and return its future; a send that a broker rejects is not tried again.

        `sends_in_flight_max` sends are in flight at once. More wait in memory, in order; a program that sends
        without end should await some of the results, or use `send_many`. `close` waits for all.

        Args:
            message: One message; several of one topic are sent as a batch.
            queue: As in `send`.
            select: As in `send`.
            sharding_key: As in `send`.
            deliver_at_ms: As in `send`.
            delay_ms: As in `send`.
            timeout_ms: As in `send`.
            wait: True: wait while `sends_in_flight_max` sends are in flight; False: raise.

        Returns:
            A future with the result, or the error, of `send`.

        Raises:
            ClientStateError: the producer is not running.
            IllegalMessageError: brokers would reject the message.
            RecordTooLargeError: the body or the properties are too large.
            RemotingTooMuchRequestError: `sends_in_flight_max` sends are in flight, and `wait` is False.

        Cost: about 5 µs for a plain message to a broker that is connected; no task.
        """
        if not self._started:
            raise self._not_running()
        if deliver_at_ms is not None or delay_ms is not None:
            message = delayed(message, deliver_at_ms, delay_ms)
        # Called once per message at high rates: avoid every call that is not needed.
        encoder = self._encoder
        try:
            out = encoder.message(message) if isinstance(message, Message) else encoder.batch(message)
        except WRONG_TYPES:
            check_sent(message)
            raise
        if sharding_key is not None:
            select = selector(select, sharding_key)
        return self._sender.start(out, SendMode.ASYNC, queue, select, timeout_ms, wait=wait)

    async def send_many(
        self, messages: Iterable[Message | Sequence[Message]], *, timeout_ms: int | None = None
    ) -> list[SendResult]:
        """Send messages in order, up to `sends_in_flight_max` in flight, and wait for all results.

        Args:
            messages: Each a message, or several to be sent as a batch. Taken as earlier sends
                complete, so that few wait in memory.
            timeout_ms: As in `submit`, for each.

        Returns:
            The results, in the order of the messages.

        Raises:
            SendError: one was not stored, or its result is not known: the first such error. No later message
                is taken; sends in flight are awaited.
        """
        futures: list[asyncio.Future[SendResult]] = []
        checked = 0
        try:
            for message in messages:
                if not self._sender.has_capacity:
                    await self._sender.wait_for_capacity()
                    while checked < len(futures) and futures[checked].done():
                        futures[checked].result()
                        checked += 1
                futures.append(self.submit(message, timeout_ms=timeout_ms))
            return [await future for future in futures]
        except BaseException:
            await asyncio.gather(*futures, return_exceptions=True)
            raise

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send a message without waiting for a response. An overloaded broker drops such sends silently.

        Args:
            message: What to send.
            queue: As in `send`.
            select: As in `send`.
            sharding_key: As in `send`.

        Raises:
            IllegalMessageError: brokers would reject it.
            RecordTooLargeError: the body or the properties are too large.
            SendError: it could not be written to a connection.
        """
        out = self._prepare(message)
        await self._start(out, SendMode.ONEWAY, queue, selector(select, sharding_key))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the writable queues of a topic.

        Raises:
            NoRouteError: no name server knows the topic.
            RemotingError: no name server answered.
        """
        return await self._sender.queues(topic, self.config.send_timeout_ms)

    # --- request and reply

    async def request(self, message: Message, *, timeout_ms: int = 3000) -> ReceivedMessage:
        """Send a message and return the reply that one of its consumers sends.

        Args:
            message: The request.
            timeout_ms: Limit for the send and the reply together, in milliseconds.

        Raises:
            SendError: the request was not stored.
            ReplyTimeoutError: it was stored, and no consumer replied in time.
        """
        check_types(message)
        checked_limit("timeout_ms", timeout_ms, 1)
        correlation_id = secrets.token_hex(16)
        properties = {
            **message.properties,
            names.CORRELATION_ID: correlation_id,
            names.REPLY_TO_CLIENT: self.client.client_id,
            names.TIME_TO_LIVE: str(timeout_ms),
        }
        if not self.client.routes.writable_queues(message.topic):
            await self.queues(message.topic)
            await self.client.heartbeat()  # the broker needs our connection to send the reply
        replies = self.client.inbound.replies
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        replies[correlation_id] = future
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.send(replace(message, properties=properties), timeout_ms=timeout_ms)
                return await future
        except TimeoutError:
            raise ReplyTimeoutError(message.topic, timeout_ms) from None
        finally:
            del replies[correlation_id]

    async def reply(
        self, request: ReceivedMessage, body: bytes, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Answer a request that a consumer has received.

        Args:
            request: What was received.
            body: The answer.
            timeout_ms: As in `send`.

        Raises:
            IllegalMessageError: the message is not a request.
            SendError: the requester is gone, or the reply could not be sent.
        """
        cluster = request.properties.get(names.CLUSTER)
        carried = (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TIME_TO_LIVE)
        if cluster is None or not all(name in request.properties for name in carried):
            raise IllegalMessageError(
                f"{request} is not a request; only messages of `request` can be replied to"
            )
        properties = {name: request.properties[name] for name in carried}
        properties[names.MESSAGE_TYPE] = names.REPLY
        reply = Message(names.reply_topic(cluster), body, properties=properties)
        return await self.send(reply, timeout_ms=timeout_ms)

    # --- for the client instance

    def topics(self) -> Collection[str]:
        """Topics that it has sent to."""
        return self._sender.topics

    def check_transaction(
        self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage
    ) -> None:
        """Ignore the check: this producer sends no transactions."""

    # --- inside

    def _not_running(self) -> ClientStateError:
        return ClientStateError(f"producer {self.group}", "it does not run", "start it, or use `with`")

    def _start_send(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None,
        select: Select | None,
        sharding_key: str | None,
        deliver_at_ms: int | None,
        delay_ms: int | None,
        timeout_ms: int | None,
    ) -> asyncio.Future[SendResult]:
        """Start a send and return its future."""
        if deliver_at_ms is not None or delay_ms is not None:
            message = delayed(message, deliver_at_ms, delay_ms)
        out = self._prepare(message)
        return self._start(out, SendMode.SYNC, queue, selector(select, sharding_key), timeout_ms)

    def _prepare(self, message: Message | Sequence[Message]) -> PendingSend:
        try:
            if isinstance(message, Message):
                return self._encoder.message(message)
            return self._encoder.batch(message)
        except WRONG_TYPES:
            check_sent(message)
            raise

    def _start(
        self,
        out: PendingSend,
        mode: SendMode,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout_ms: int | None = None,
        *,
        wait: bool = True,
    ) -> "asyncio.Future[SendResult]":
        if not self._started:
            raise self._not_running()
        return self._sender.start(out, mode, queue, select, timeout_ms, wait=wait)


def check_sent(message: object) -> None:
    """Check the types of what is sent, a message or several.

    Raises:
        IllegalMessageError: something has a wrong type.
    """
    check_types(message) if isinstance(message, Message) else check_all_types(message)


def selector(select: Select | None, sharding_key: str | None) -> Select | None:
    """Return the queue selector: upstream's `SelectMessageQueueByHash` if there is a sharding key."""
    if sharding_key is None:
        return select
    checked_type("sharding_key", sharding_key, str)
    number = abs(java_hash(sharding_key))
    return lambda queues: queues[number % len(queues)]
