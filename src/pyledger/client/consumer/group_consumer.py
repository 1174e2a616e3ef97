"""Members of a consumer group: rebalance, pulls and offsets.

Source: RocketMQ client/.../impl/consumer/DefaultMQPushConsumerImpl.java, RebalancePushImpl.java.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from pyledger.client.consumer.assignment import Assignment
from pyledger.client.consumer.consume_message_service import ConsumeMessageService
from pyledger.client.consumer.offset_store import LocalOffsets, OffsetStore, RemoteOffsets, text
from pyledger.client.consumer.pull_api import PullResult
from pyledger.client.consumer.pull_message_service import PullMessageService
from pyledger.client.consumer.rebalance import Rebalance
from pyledger.client.identity import now_ms
from pyledger.client.instance import ClientInstance, own_client
from pyledger.client.lifecycle import Lifecycle
from pyledger.client.producer.message_preparation import check_group, check_topic_name
from pyledger.config.client import ClientConfig, ConsumerConfig
from pyledger.config.fields import checked_type
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import PyLedgerError, SubscriptionSyntaxError
from pyledger.log_events import event, logger
from pyledger.model.message import MessageQueue
from pyledger.protocol.broker.subscription import SQL92, TAG
from pyledger.protocol.client.consumer_stats import Rates, TopicRates
from pyledger.protocol.client.process_queue import ProcessQueue
from pyledger.protocol.rebalance.strategies import Averagely, Strategy
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerEntry,
    ConsumeType,
    MessageModel,
)
from pyledger.wire.remoting.bodies.statistics import (
    ConsumeMessageDirectlyResult,
    ConsumerRunning,
    ConsumeStatus,
)
from pyledger.wire.remoting.bodies.subscription import Subscription
from pyledger.wire.remoting.versions import CURRENT_VERSION, version_name

log = logger("client")

DEFAULT_GROUP = "DEFAULT_CONSUMER"
UNKNOWN_WAIT_MS = 1000
HANDOVER_WAIT_MS = 1500
"""Wait before the offset of a new queue is read: its previous owner is notified at the same time, and may
take a second to drop the queue and persist its offset. Messages after that offset are consumed again.
Upstream reads offsets immediately and waits before its first pull."""


class AsyncGroupConsumer(Lifecycle):
    """The base class of consumers that join a group; subclasses choose how messages are consumed."""

    _consume_service: ConsumeMessageService

    def __init__(
        self,
        group: str,
        name_servers: str,
        config: ConsumerConfig,
        *,
        orderly: bool,
        strategy: Strategy | None,
        client: ClientConfig | ClientInstance | None,
        net: NetConfig | None,
        tls: TlsConfig | None,
        lite: bool = False,
    ) -> None:
        check_group(group, DEFAULT_GROUP)
        checked_type("strategy", strategy, Strategy | None)
        self.group = group
        self.config = config
        self.is_orderly = orderly
        self.is_broadcasting = config.message_model == "broadcasting"
        if self.is_broadcasting and not isinstance(client, ClientInstance):
            checked_type("client", client, ClientConfig | None)
            given = client or ClientConfig()
            client = replace(given, instance_name=given.instance_name or "DEFAULT")
        self.client = own_client(name_servers, client, net, tls)
        self._offsets: OffsetStore = (
            LocalOffsets(self.client.config.offsets_folder, self.client.client_id, group)
            if self.is_broadcasting
            else RemoteOffsets(self.client, group)
        )
        self._rebalance = Rebalance(self.client, group, config, strategy or Averagely(), self._offsets)
        self._pull_service = PullMessageService(self.client, self, group, config, orderly=orderly, lite=lite)
        self._is_lite = lite
        self._subscriptions: dict[str, Subscription] = {}
        self._assignments: dict[MessageQueue, Assignment] = {}
        self._rates: dict[str, TopicRates] = defaultdict(TopicRates)
        self._started_ms = 0
        self._running = False
        self._suspended = False
        self._paused: set[MessageQueue] = set()
        self._locking: asyncio.Task[None] | None = None

    # --- subscriptions

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        """Subscribe to a topic; a running consumer sends the change with the next heartbeat.

        Args:
            topic: The topic.
            expression: `*`, or tags as in `A || B`.
            sql: The expression is SQL92 on properties; the broker must allow that.

        Raises:
            IllegalMessageError: the name of the topic is invalid.
            SubscriptionSyntaxError: the expression cannot be read.
        """
        check_topic_name(topic)
        kind = SQL92 if sql else TAG
        self._subscriptions[topic] = Subscription.of(topic, expression, now_ms(), kind)
        if self._running:
            self.client.inbound.spawn(self._subscriptions_changed(topic))

    def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic."""
        if self._subscriptions.pop(topic, None) is not None and self._running:
            self.client.inbound.spawn(self._subscriptions_changed(None))

    async def _subscriptions_changed(self, topic: str | None) -> None:
        if topic is not None:
            await self.client.routes.refresh_all([topic])
        await self.client.heartbeat()
        self.client.rebalance_soon()

    # --- start and close

    async def start(self) -> None:
        """Join the group.

        Raises:
            ClientStateError: the client has a consumer of this group.
            SubscriptionSyntaxError: a broker cannot filter by an expression.
        """
        await self.client.start()
        try:
            self._started_ms = now_ms()
            await self._check_expressions()
            # Before the heartbeat: the broker requests a rebalance before it answers the first one.
            self._running = True
            await self.client.add_consumer(self)
        except BaseException:
            self._running = False
            await self.client.remove_consumer(self)
            await self.client.close()
            raise
        if self._needs_locks:
            keep = self._rebalance.keep_locks(self._assignments, self._on_lock_lost)
            self._locking = asyncio.create_task(keep)
        self.client.rebalance_soon()

    async def close(self) -> None:
        """Stop pulling, let running listeners finish, commit all offsets, leave the group. Idempotent."""
        if not self._running:
            return
        self._running = False
        tasks = [a.pulling for a in self._assignments.values() if a.pulling is not None]
        for task in [*tasks, *([self._locking] if self._locking else [])]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stop_consuming()
        queues = tuple(queue for queue, one in self._assignments.items() if not one.is_lost)
        await self._offsets.persist(queues, last=True)
        await self._give_up(queues)
        self._assignments.clear()
        await self.client.remove_consumer(self)
        await self.client.close()

    async def _stop_consuming(self) -> None:
        """Give no more messages to the listener, and let calls in progress finish."""
        raise NotImplementedError

    def suspend(self) -> None:
        """Pause pulling until `resume`; messages already fetched are still consumed."""
        self._suspended = True

    def resume(self) -> None:
        """Continue pulling after `suspend`."""
        self._suspended = False

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues assigned to it now."""
        return tuple(queue for queue, one in self._assignments.items() if not one.is_closing)

    # --- for the client instance

    def topics(self) -> Collection[str]:
        """Topics that it subscribes to."""
        return tuple(self._subscriptions)

    @property
    def _consume_type(self) -> ConsumeType:
        return ConsumeType.ACTIVELY if self._is_lite else ConsumeType.PASSIVELY

    def entry(self) -> ConsumerEntry:
        """Return its entry in a heartbeat."""
        return ConsumerEntry(
            group_name=self.group,
            consume_type=self._consume_type,
            message_model=MessageModel[self.config.message_model.upper()],
            consume_from_where=ConsumeFromWhere[self.config.consume_from.upper()],
            subscription_data_set=tuple(self._subscriptions.values()),
        )

    async def rebalance(self) -> bool:
        """Take the assigned queues and drop the others; return whether all of that succeeded."""
        if not self._running:
            return True
        leaving = [
            queue
            for queue, one in self._assignments.items()
            if one.is_closing or queue.topic not in self._subscriptions
        ]
        balanced = await self._drop_all(leaving)
        for topic in tuple(self._subscriptions):
            held = {queue: one.messages.last_pull_ms for queue, one in self._assignments.items()}
            plan = await self._rebalance.plan(topic, held)
            if plan is None:
                balanced = False
                continue
            balanced &= await self._drop_all(plan.drop)
            wanted = [queue for queue in plan.take if queue not in self._assignments]
            balanced &= await self._take(wanted)
        return balanced

    async def persist_offsets(self) -> None:
        """Persist offsets, and send back messages whose listener takes too long."""
        for assignment in tuple(self._assignments.values()):
            if not assignment.is_closing and not self.is_broadcasting:
                await self._consume_service.expire(assignment)
        await self._offsets.persist(tuple(self._assignments))

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other queue offsets."""
        event(log, logging.INFO, "offsets reset", group=self.group, topic=topic, queues=len(offsets))
        for queue, offset in offsets.items():
            assignment = self._assignments.get(queue)
            if queue.topic == topic and assignment is not None and not assignment.is_closing:
                self.client.inbound.spawn(self._restart(assignment, offset))

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the queue offset from which it continues, for each queue of a topic."""
        return self._offsets.table.of_topic(topic)

    def running(self) -> ConsumerRunning:
        """Return its settings, subscriptions, queues and rates."""
        now, wall = self.client.monotonic_ms(), now_ms()
        return ConsumerRunning(
            properties={
                "PROP_NAMESERVER_ADDR": self.client.name_servers,
                "PROP_CONSUME_TYPE": self._consume_type.value,
                "PROP_CONSUMEORDERLY": str(self.is_orderly).lower(),
                "PROP_THREADPOOL_CORE_SIZE": str(self.config.threads),
                "PROP_CLIENT_VERSION": version_name(CURRENT_VERSION),
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            },
            subscription_set=tuple(self._subscriptions.values()),
            mq_table={
                queue: one.describe(self._offsets.table.get(queue) or 0, now, wall)
                for queue, one in self._assignments.items()
            },
            status_table={topic: status_of(one.rates(now)) for topic, one in self._rates.items()},
        )

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Consume one message now, regardless of flow control."""
        raise NotImplementedError

    # --- queues

    async def _take(self, queues: Collection[MessageQueue]) -> bool:
        """Take queues; return whether all of them were free."""
        if not queues:
            return True
        locked_ms = self.client.monotonic_ms()
        wait_ms = HANDOVER_WAIT_MS if self._rebalance.has_others else 0
        locked = dict.fromkeys(queues, True)
        if self._needs_locks:
            # No wait: a member persists its offset before it unlocks a queue.
            locked, wait_ms = await self._rebalance.lock(queues), 0
        ours = [queue for queue in queues if locked.get(queue)]
        if not self._running:
            await self._give_up(ours)
            return True
        for queue in ours:
            assignment = self._begin(queue, locked_ms)
            assignment.pulling = asyncio.create_task(self._pull_from_start(assignment, wait_ms))
        return len(ours) == len(queues)

    @property
    def _needs_locks(self) -> bool:
        return self.is_orderly and not self.is_broadcasting

    def _begin(self, queue: MessageQueue, locked_ms: float) -> Assignment:
        rates = self._rates[queue.topic]
        assignment = Assignment(queue, ProcessQueue(self.client.monotonic_ms()), rates)
        assignment.messages.last_lock_ms = locked_ms if self._needs_locks else None
        self._assignments[queue] = assignment
        self._consume_service.begin(assignment)
        return assignment

    async def _pull_from_start(self, assignment: Assignment, wait_ms: int) -> None:
        """Wait until the previous owner has persisted its offset, read it, then pull."""
        queue = assignment.queue
        await asyncio.sleep(wait_ms / 1000)
        while True:
            try:
                assignment.next_offset = await self._rebalance.start_offset(queue)
                break
            except PyLedgerError as error:
                event(log, logging.WARNING, "start unknown", queue=text(queue), error=error)
                await asyncio.sleep(UNKNOWN_WAIT_MS / 1000)
        offset = assignment.next_offset
        event(log, logging.INFO, "queue taken", group=self.group, queue=text(queue), offset=offset)
        await self._pull_service.run(assignment)

    async def _drop_all(self, queues: Iterable[MessageQueue]) -> bool:
        """Drop queues concurrently; return whether all of them are dropped."""
        leaving = [self._assignments[queue] for queue in queues if queue in self._assignments]
        return all(await asyncio.gather(*map(self._drop, leaving)))

    async def _drop(self, assignment: Assignment) -> bool:
        """Drop a queue; False: its listener is running, so it is kept until the next rebalance."""
        queue = assignment.queue
        assignment.is_closing = True
        self._stop_pulling(assignment)
        if not await self._consume_service.end(assignment):
            return False
        assignment.messages.dropped = True
        if not assignment.is_lost:
            await self._offsets.persist([queue], last=True)
        if self._assignments.get(queue) is assignment:
            self._offsets.table.forget(queue)
            del self._assignments[queue]
        if not assignment.is_lost:
            await self._give_up([queue])
        event(log, logging.INFO, "queue dropped", group=self.group, queue=text(queue))
        return True

    async def _give_up(self, queues: Collection[MessageQueue]) -> None:
        if self._needs_locks:
            await self._rebalance.unlock(queues)

    def _on_lock_lost(self, assignment: Assignment) -> None:
        """Drop a queue that another member has locked; a later rebalance may take it again."""
        assignment.is_closing = True
        self._stop_pulling(assignment)
        assignment.ended.set()
        assignment.moved.set()
        self.client.rebalance_soon()

    def _stop_pulling(self, assignment: Assignment) -> None:
        if assignment.pulling is not None and assignment.pulling is not asyncio.current_task():
            assignment.pulling.cancel()

    async def _restart(self, before: Assignment, offset: int) -> None:
        """Continue at another offset and drop the messages pulled before."""
        queue = before.queue
        before.messages.dropped = True
        self._stop_pulling(before)
        while not await self._consume_service.end(before):
            event(log, logging.INFO, "reset waits for listener", queue=text(queue))
        if self._assignments.get(queue) is not before or before.is_closing or not self._running:
            return
        assignment = self._begin(queue, before.messages.last_lock_ms or 0)
        assignment.next_offset = offset
        assignment.pulling = asyncio.create_task(self._pull_service.run(assignment))
        await self._continue_at(queue, offset)

    async def _continue_at(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset from which the group continues; it may be lower than before."""
        self._offsets.table.update(queue, offset, increase_only=False)
        await self._offsets.persist([queue])

    # --- for the pull service

    def wanted(self, assignment: Assignment) -> Subscription | None:
        """Return the subscription to pull with; None: do not pull now."""
        queue = assignment.queue
        if self._suspended or queue in self._paused:
            return None
        if self._needs_locks and not assignment.messages.is_locked(self.client.monotonic_ms()):
            return None
        return self._subscriptions.get(queue.topic)

    def commit_offset(self, assignment: Assignment) -> int | None:
        """Return the offset that a pull commits; None: pulls commit nothing."""
        commits = not self.is_broadcasting and not self._is_lite
        return (self._offsets.table.get(assignment.queue) or None) if commits else None

    def arrived(self, assignment: Assignment, result: PullResult) -> None:
        """Consume pulled messages."""
        self._consume_service.arrived(assignment, result.messages)

    def passed(self, assignment: Assignment, offset: int) -> None:
        """Continue at a queue offset: all messages before it were consumed, or do not match."""
        self._offsets.table.update(assignment.queue, offset)

    def on_offset_illegal(self, assignment: Assignment, offset: int) -> None:
        """Continue at a queue offset: the minimum or maximum offset of the queue."""
        assignment.messages.dropped = True
        self.client.inbound.spawn(self._restart(assignment, offset))

    async def _check_expressions(self) -> None:
        """Let a broker check the expressions that are not tags."""
        for topic, subscription in self._subscriptions.items():
            if subscription.expression_type == TAG:
                continue
            problem = await self._rebalance.expression_problem(subscription)
            if problem is not None:
                raise SubscriptionSyntaxError(subscription.sub_string or "", f"{topic}: {problem}")


def status_of(rates: Rates) -> ConsumeStatus:
    """Return rates as the protocol encodes them."""
    return ConsumeStatus(
        pull_rt=rates.pull_ms,
        pull_tps=rates.pulled_per_s,
        consume_rt=rates.consume_ms,
        consume_ok_tps=rates.consumed_per_s,
        consume_failed_tps=rates.failed_per_s,
        consume_failed_msgs=rates.failed_in_hour,
    )
