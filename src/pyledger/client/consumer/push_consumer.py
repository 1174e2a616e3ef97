"""Push consumers on asyncio: a listener is called with each message of a group.

Source: RocketMQ client/.../impl/consumer/DefaultMQPushConsumerImpl.java.
"""

import asyncio
from typing import Unpack

from pyledger.client.consumer.assignment import Assignment
from pyledger.client.consumer.consume_message_service import Concurrent, Orderly
from pyledger.client.consumer.group_consumer import AsyncGroupConsumer
from pyledger.client.consumer.pull_api import delivered
from pyledger.client.instance import OWN_CLIENT, ClientInstance
from pyledger.client.listener import BatchListener, Listener, ListenerRunner, ReconsumeLater
from pyledger.client.tracing import Tracer
from pyledger.config.client import ClientConfig, ConsumerConfig
from pyledger.config.fields import changed
from pyledger.config.keywords import ConsumerSettings
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.model import names
from pyledger.protocol.rebalance.strategies import Strategy
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.bodies.statistics import ConsumeMessageDirectlyResult, ConsumeResult


class AsyncPushConsumer(AsyncGroupConsumer):
    """A member of a consumer group. Use it with `async with`, or `start` and `close` it."""

    def __init__(
        self,
        group: str,
        name_servers: str = "",
        *,
        listener: Listener | None = None,
        batch_listener: BatchListener | None = None,
        orderly: bool = False,
        strategy: Strategy | None = None,
        config: ConsumerConfig | None = None,
        client: ClientConfig | ClientInstance | None = None,
        net: NetConfig | None = None,
        tls: TlsConfig | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """Create a consumer; `start` connects it.

        Args:
            group: The group; all its members must have the same subscriptions.
            name_servers: `host:port;host:port`; empty: those of `ClientConfig.name_servers`.
            listener: Processes a message: a coroutine function, or one that runs on a thread. A message is
                processed unless it returns `ReconsumeLater` or raises.
            batch_listener: Instead of `listener`; gets up to `batch_count_max` messages at once.
            orderly: Process the messages of each queue in order; a failed one blocks its queue.
            strategy: How members share queues; None: contiguous ranges of equal size.
            config: How to consume; None: the defaults.
            client: Settings of the client, or a client to share with others.
            net: Limits of connections, for a client of its own.
            tls: Certificates, for a client of its own.
            settings: Single settings of `ConsumerConfig`, over those of `config`.

        Raises:
            ConfigError: a setting is unknown or out of range.
            IllegalMessageError: the group name is invalid.
        """
        super().__init__(
            group,
            name_servers,
            changed(ConsumerConfig, config, settings, OWN_CLIENT),
            orderly=orderly,
            strategy=strategy,
            client=client,
            net=net,
            tls=tls,
        )
        self._runner = ListenerRunner(listener, batch_listener, self.config.threads, f"pyledger-{group}")
        self._tracer = Tracer(self.client, group, "CONSUME") if self.client.config.trace_enabled else None
        if self._tracer is not None:
            self._runner.watch = self._tracer.watch
        parts = (self.client, group, self.config, self._runner, self._offsets)
        self._consume_service = Orderly(*parts, self._renew_lock) if orderly else Concurrent(*parts)
        if not self.is_broadcasting:
            self.subscribe(names.retry_topic(group))

    async def start(self) -> None:
        """Join the group.

        Raises:
            ClientStateError: the client has a consumer of this group.
            SubscriptionSyntaxError: a broker cannot filter by an expression.
        """
        self._runner.start()
        try:
            await super().start()
        except BaseException:
            await self._runner.close(0)
            raise
        if self._tracer is not None:
            self._tracer.start()

    async def _stop_consuming(self) -> None:
        """Let calls of the listener finish, and start none."""
        for assignment in self._assignments.values():
            # Waiting messages are skipped; calls in progress can still commit.
            assignment.is_closing = True
            assignment.moved.set()
            if self.is_orderly:
                assignment.ended.set()
        await self._runner.close(self.config.shutdown_wait_ms)
        if self._tracer is not None:
            await self._tracer.close()
        await asyncio.gather(*map(self._consume_service.end, self._assignments.values()))
        # A copy: a lost lock may remove a queue while this waits for another.
        for assignment in tuple(self._assignments.values()):
            assignment.messages.dropped = True
            if assignment.consuming is not None:
                assignment.consuming.cancel()
                await asyncio.gather(assignment.consuming, return_exceptions=True)

    async def _renew_lock(self, assignment: Assignment) -> None:
        await self._rebalance.renew_locks([assignment], self._on_lock_lost)

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Consume one message now, regardless of flow control."""
        started = self.client.monotonic_ms()
        outcome, error = await self._runner.process([delivered(message)])
        result = ConsumeResult.SUCCESS
        if error is not None:
            result = ConsumeResult.THROW_EXCEPTION
        elif isinstance(outcome, ReconsumeLater):
            result = ConsumeResult.LATER
        return ConsumeMessageDirectlyResult(
            order=self.is_orderly,
            consume_result=result,
            remark=None if error is None else repr(error),
            spent_time_mills=int(self.client.monotonic_ms() - started),
        )
