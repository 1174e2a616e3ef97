"""Allocation of queues to the members of a group, and their start offsets.

Source: RocketMQ client/.../impl/consumer/RebalanceImpl.java, RebalancePushImpl.java.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from pyledger.client.consumer.assignment import Assignment
from pyledger.client.consumer.offset_store import OffsetStore, text
from pyledger.client.identity import now_ms
from pyledger.client.instance import ClientInstance
from pyledger.config.client import ConsumerConfig
from pyledger.errors import BrokerError, NoRouteError, PyLedgerError, RemotingError
from pyledger.log_events import event, logger
from pyledger.model.message import MessageQueue
from pyledger.model.names import RETRY_PREFIX
from pyledger.model.remoting_codes import RequestCode
from pyledger.protocol.client.consume_rules import StartPoint, start_point
from pyledger.protocol.rebalance.planner import Plan, plan, share
from pyledger.protocol.rebalance.strategies import Strategy
from pyledger.wire.remoting.bodies.subscription import CheckClientConfig, Subscription
from pyledger.wire.remoting.command import RemotingCommand

log = logger("client")

LOCK_INTERVAL_MS = 20_000
HALF_AN_HOUR_MS = 1_800_000


class Rebalance:
    """Plans, locks and start offsets of one consumer."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        config: ConsumerConfig,
        strategy: Strategy,
        offsets: OffsetStore,
    ) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._strategy = strategy
        self._offsets = offsets
        self._created_ms = now_ms()
        self.has_others = False
        """Whether the group had other members when it was last queried."""

    async def plan(self, topic: str, held: Mapping[MessageQueue, float]) -> Plan | None:
        """Return which queues of a topic to take and to drop.

        Args:
            topic: The topic.
            held: Queues with the time of their last pull, ms of `ClientInstance.monotonic_ms`.

        Returns:
            None if routes or members are not known now: nothing changes.
        """
        try:
            queues = await self._client.routes.subscribe_queues(topic)
        except NoRouteError:
            # The retry topic is created with the first failure; any other topic may be created later.
            return Plan() if topic.startswith(RETRY_PREFIX) else None
        except RemotingError as error:
            event(log, logging.WARNING, "route unknown", topic=topic, error=error)
            return None
        wanted: Collection[MessageQueue] | None = queues
        if self._config.message_model != "broadcasting":
            ids = await self._consumer_ids(queues)
            if ids and self._client.client_id not in ids:
                # The broker does not know this client, as after a restart, so others would get all queues.
                await self._client.heartbeat()
                ids = await self._consumer_ids(queues)
            self.has_others = bool(ids) and set(ids or ()) != {self._client.client_id}
            wanted = share(self._strategy, self._client.client_id, queues, ids)
        if wanted is None:
            return None
        pulled = {queue: int(moment_ms) for queue, moment_ms in held.items()}
        return plan(topic, pulled, wanted, int(self._client.monotonic_ms()))

    async def _consumer_ids(self, queues: Iterable[MessageQueue]) -> tuple[str, ...] | None:
        """Return the members of the group from any broker of a topic; None if no broker answers."""
        brokers = list(dict.fromkeys(queue.broker_name for queue in queues))
        self._client.random.shuffle(brokers)
        for broker_name in brokers:
            try:
                address, _ = self._client.routes.reader(broker_name)
                return await self._client.calls.consumer_ids(address, self._group)
            except RemotingError as error:
                event(log, logging.INFO, "members unknown", group=self._group, error=error)
        return None

    async def start_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset to start at.

        Raises:
            OffsetUnknownError: the consumer offset of the group cannot be read.
            RemotingError: the end of the queue cannot be queried.
        """
        self._offsets.table.forget(queue)
        offset = await self._offsets.read(queue)
        if offset >= 0:
            return offset
        point = start_point(self._config.consume_from, queue.topic)
        if point is StartPoint.BEGIN:
            return 0
        address = self._client.routes.master(queue.broker_name)
        if point is StartPoint.END:
            return await self._client.calls.max_offset(address, queue)
        moment_ms = self._config.consume_timestamp_ms or self._created_ms - HALF_AN_HOUR_MS
        return await self._client.calls.offset_by_time(address, queue, moment_ms)

    # --- locks of orderly consumption

    async def lock(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, bool]:
        """Lock queues; return whether each is locked by this client, without those whose broker failed."""
        answers = [self._lock(name, part) for name, part in by_broker(queues).items()]
        return {queue: ours for found in await asyncio.gather(*answers) for queue, ours in found.items()}

    async def _lock(self, broker_name: str, queues: Collection[MessageQueue]) -> dict[MessageQueue, bool]:
        try:
            address = self._client.routes.master(broker_name)
            locked = await self._client.calls.lock(address, self._client.client_id, self._group, queues)
        except PyLedgerError as error:
            event(log, logging.WARNING, "queues not locked", broker=broker_name, error=error)
            return {}
        return {queue: queue in locked for queue in queues}

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Release locks; one that cannot be released expires."""
        for broker_name, part in by_broker(queues).items():
            try:
                address = self._client.routes.master(broker_name)
                await self._client.calls.unlock(address, self._client.client_id, self._group, part)
            except PyLedgerError as error:
                event(log, logging.INFO, "queues not unlocked", broker=broker_name, error=error)

    async def keep_locks(
        self, assignments: Mapping[MessageQueue, Assignment], lost: Callable[[Assignment], None]
    ) -> None:
        """Renew the locks of all queues every `LOCK_INTERVAL_MS`, until cancelled.

        Args:
            assignments: The queues, including those whose listener must still finish.
            lost: Called with a queue that another member has locked.
        """
        while True:
            await asyncio.sleep(LOCK_INTERVAL_MS / 1000)
            await self.renew_locks(list(assignments.values()), lost)

    async def renew_locks(
        self, assignments: Collection[Assignment], lost: Callable[[Assignment], None]
    ) -> None:
        """Renew the locks of queues; see `keep_locks`."""
        # The time of the request, not of the response: the broker's lock expires no earlier than ours.
        locked_ms = self._client.monotonic_ms()
        answers = await self.lock([one.queue for one in assignments])
        for assignment in assignments:
            ours = answers.get(assignment.queue)
            if ours:
                assignment.messages.last_lock_ms = locked_ms
            elif ours is not None and not assignment.is_lost:
                event(log, logging.WARNING, "lock lost", group=self._group, queue=text(assignment.queue))
                assignment.is_lost = True
                lost(assignment)

    # --- expressions

    async def expression_problem(self, subscription: Subscription) -> str | None:
        """Return why a broker of the topic rejects an expression; None if it does not, or none answered."""
        try:
            queues = await self._client.routes.subscribe_queues(subscription.topic or "")
            for queue in queues[:1]:
                address, _ = self._client.routes.reader(queue.broker_name)
                body = CheckClientConfig(
                    client_id=self._client.client_id, group=self._group, subscription_data=subscription
                ).encode()
                command = RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=body)
                await self._client.calls.request(address, command)
        except BrokerError as error:
            return str(error)
        except RemotingError as error:
            event(log, logging.WARNING, "expression not checked", topic=subscription.topic, error=error)
        return None


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Return queues by broker name."""
    found: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        found[queue.broker_name].append(queue)
    return found
