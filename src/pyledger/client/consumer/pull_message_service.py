"""The pull loop of each queue that is assigned to a consumer.

Source: RocketMQ client/.../impl/consumer/DefaultMQPushConsumerImpl.java (pullMessage).
"""

import asyncio
import contextlib
import logging
from typing import Protocol

from pyledger.client.consumer.assignment import Assignment
from pyledger.client.consumer.offset_store import text
from pyledger.client.consumer.pull_api import PullApi, PullResult, PullStatus
from pyledger.client.instance import ClientInstance
from pyledger.config.client import ConsumerConfig
from pyledger.errors import BrokerError, PyLedgerError, RemotingConnectError
from pyledger.log_events import event, logger
from pyledger.model.remoting_codes import ResponseCode
from pyledger.protocol.client.process_queue import FlowLimits
from pyledger.wire.remoting.bodies.subscription import Subscription

log = logger("client")

FLOW_CONTROL_WAIT_MS = 50
BUSY_WAIT_MS = 20
IMMEDIATE_MS = 20
FAILURE_WAIT_MS = 3000
UNKNOWN_WAIT_MS = 1000
UNKNOWN_TO_BROKER = {ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST}


class PullingConsumer(Protocol):
    """The consumer for which queues are pulled."""

    def wanted(self, assignment: Assignment) -> Subscription | None:
        """Return the subscription to pull with; None: do not pull now."""

    def commit_offset(self, assignment: Assignment) -> int | None:
        """Return the offset that a pull commits; None: pulls commit nothing."""

    def arrived(self, assignment: Assignment, result: PullResult) -> None:
        """Consume messages that were pulled and are in the process queue."""

    def passed(self, assignment: Assignment, offset: int) -> None:
        """Continue at a queue offset: all messages before it were consumed, or do not match."""

    def on_offset_illegal(self, assignment: Assignment, offset: int) -> None:
        """Continue at `offset`: the queue does not contain the offset that was pulled."""


class PullMessageService:
    """Pulls the queues of one consumer."""

    def __init__(
        self,
        client: ClientInstance,
        consumer: PullingConsumer,
        group: str,
        config: ConsumerConfig,
        *,
        orderly: bool,
        lite: bool,
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._pull_api = PullApi(client, group, config, lite=lite)
        self._limits = FlowLimits(
            config.cached_count_max, config.cached_mib_max, None if orderly else config.span_max
        )
        self._interval_ms = config.pull_interval_ms
        self._is_lite = lite

    async def run(self, assignment: Assignment) -> None:
        """Pull a queue until it is dropped."""
        while not assignment.messages.dropped:
            try:
                wait_ms = await self._pull(assignment)
            except Exception:
                log.exception("pull failed queue=%s", text(assignment.queue))
                wait_ms = FAILURE_WAIT_MS
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)

    async def _pull(self, assignment: Assignment) -> float:
        """Pull once, unless a limit is reached; return the wait (ms) before the next pull."""
        messages, queue = assignment.messages, assignment.queue
        # Set before the limits are checked: rebalance drops a queue that has not been pulled for long.
        messages.last_pull_ms = started_ms = self._client.monotonic_ms()
        if messages.limit_reached(self._limits) is not None:
            assignment.moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLOW_CONTROL_WAIT_MS / 1000):
                    await assignment.moved.wait()
            return 0
        subscription = self._consumer.wanted(assignment)
        if subscription is None:
            return UNKNOWN_WAIT_MS
        try:
            result = await self._pull_api.pull(
                queue,
                assignment.next_offset,
                subscription,
                commit_offset=self._consumer.commit_offset(assignment),
                with_expression=self._is_lite,
            )
        except BrokerError as error:
            return await self._rejected(assignment, error)
        except PyLedgerError as error:
            event(log, logging.WARNING, "pull failed", queue=text(queue), error=error)
            if isinstance(error, RemotingConnectError):
                # The name server removes a dead master immediately; a slave may serve the queue.
                await self._client.routes.refresh_all([queue.topic])
            return FAILURE_WAIT_MS
        return 0 if messages.dropped else self._pulled(assignment, result, started_ms)

    def _pulled(self, assignment: Assignment, result: PullResult, started_ms: float) -> float:
        pulled, assignment.next_offset = assignment.next_offset, result.next_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            queue = text(assignment.queue)
            event(
                log,
                logging.WARNING,
                "offset corrected",
                queue=queue,
                pulled=pulled,
                offset=result.next_offset,
            )
            if result.next_offset == pulled:
                return FAILURE_WAIT_MS
            self._consumer.on_offset_illegal(assignment, result.next_offset)
            return 0
        if result.messages:
            now_ms = self._client.monotonic_ms()
            assignment.rates.pulled(len(result.messages), now_ms - started_ms, now_ms)
            assignment.messages.put(result.messages)
            self._consumer.arrived(assignment, result)
            return self._interval_ms
        if not len(assignment.messages):
            self._consumer.passed(assignment, result.next_offset)
        # Some brokers do not hold a pull without messages, such as a slave that lags.
        is_idle = result.next_offset == pulled and self._client.monotonic_ms() - started_ms < IMMEDIATE_MS
        return FLOW_CONTROL_WAIT_MS if is_idle else 0

    async def _rejected(self, assignment: Assignment, error: BrokerError) -> float:
        if error.response_code == ResponseCode.FLOW_CONTROL:
            return BUSY_WAIT_MS
        event(log, logging.WARNING, "pull rejected", queue=text(assignment.queue), error=error)
        if error.response_code in UNKNOWN_TO_BROKER:
            await self._client.heartbeat()
            return UNKNOWN_WAIT_MS
        return FAILURE_WAIT_MS
