"""Producers for programs without asyncio: each call waits. Any thread may use them.

They run the asyncio clients on one thread of the process; arguments, results and errors are the same.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from pyledger.client.blocking.base import Blocking, background
from pyledger.client.producer.producer import AsyncProducer
from pyledger.client.producer.send_result import SendResult, TransactionResult
from pyledger.client.producer.sender import Select
from pyledger.client.producer.transaction_producer import AsyncTransactionProducer, Check, Execute
from pyledger.model.message import Message, MessageQueue
from pyledger.wire.record.record import ReceivedMessage


class Producer(Blocking[AsyncProducer]):
    """Sends messages. Use it with `with`, or `start` and `close` it."""

    def __init__(self, group: str, name_servers: str = "", **options: Any) -> None:
        """A producer that connects once it is started; takes what `AsyncProducer` takes."""
        super().__init__(self._made(group, name_servers, **options))

    def _made(self, group: str, name_servers: str, **options: Any) -> AsyncProducer:
        return AsyncProducer(group, name_servers, **options)

    def send(
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
        """Send a message and wait until it is stored; see `AsyncProducer.send`."""
        return background().wait_for(
            partial(
                self._inner.start_send,
                message,
                queue=queue,
                select=select,
                sharding_key=sharding_key,
                deliver_at_ms=deliver_at_ms,
                delay_ms=delay_ms,
                timeout_ms=timeout_ms,
            )
        )

    def send_soon(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
        wait: bool = True,
    ) -> "Future[SendResult]":
        """Send in the background; see `AsyncProducer.send_soon`. All errors come with the future."""
        return background().start(
            partial(
                self._inner.send_soon,
                message,
                queue=queue,
                select=select,
                sharding_key=sharding_key,
                timeout_ms=timeout_ms,
                wait=wait,
            )
        )

    def send_many(
        self, messages: Iterable[Message | Sequence[Message]], *, timeout_ms: int | None = None
    ) -> list[SendResult]:
        """Send one message after the other, many under way; see `AsyncProducer.send_many`.

        Messages are taken on the thread of the event loop, so an iterable that waits holds all clients back.
        """
        return background().wait(self._inner.send_many(messages, timeout_ms=timeout_ms))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request; see `AsyncProducer.send_batch`."""
        return self.send(
            messages, queue=queue, select=select, sharding_key=sharding_key, timeout_ms=timeout_ms
        )

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send a message and do not ask what became of it; see `AsyncProducer.send_oneway`."""
        background().wait(
            self._inner.send_oneway(message, queue=queue, select=select, sharding_key=sharding_key)
        )

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be sent to; see `AsyncProducer.queues`."""
        return background().wait(self._inner.queues(topic))

    def request(self, message: Message, *, timeout_ms: int = 3000) -> ReceivedMessage:
        """Send a message and wait for the reply; see `AsyncProducer.request`."""
        return background().wait(self._inner.request(message, timeout_ms=timeout_ms))

    def reply(self, request: ReceivedMessage, body: bytes, *, timeout_ms: int | None = None) -> SendResult:
        """Answer a request; see `AsyncProducer.reply`."""
        return background().wait(self._inner.reply(request, body, timeout_ms=timeout_ms))


class TransactionProducer(Producer):
    """A producer that can send messages in transactions, too."""

    _inner: AsyncTransactionProducer

    def __init__(self, group: str, name_servers: str = "", *, check: Check, **options: Any) -> None:
        """A producer that connects once it is started; takes what `AsyncTransactionProducer` takes."""
        super().__init__(group, name_servers, check=check, **options)

    def _made(self, group: str, name_servers: str, **options: Any) -> AsyncTransactionProducer:
        return AsyncTransactionProducer(group, name_servers, **options)

    def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message that consumers get if `execute` says so; see `AsyncTransactionProducer`."""
        return background().wait(self._inner.send_in_transaction(message, execute, timeout_ms=timeout_ms))
