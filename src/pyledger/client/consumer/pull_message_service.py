"""Pulling a queue again and again, for as long as a consumer has it.

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
AT_ONCE_MS = 20
FAILURE_WAIT_MS = 3000
UNKNOWN_WAIT_MS = 1000
UNKNOWN_TO_BROKER = {ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST}


class PullingConsumer(Protocol):
    """Whom queues are pulled for."""

    def wanted(self, assignment: Assignment) -> Subscription | None:
        """What to pull of a queue; None: nothing now."""

    def commit_offset(self, assignment: Assignment) -> int | None:
        """Where the group stands, for the broker to keep; None: not with a pull."""

    def arrived(self, assignment: Assignment, result: PullResult) -> None:
        """A pull found messages; they are in the process queue."""

    def passed(self, assignment: Assignment, offset: int) -> None:
        """All messages below a queue offset were consumed, or are not wanted."""

    def misplaced(self, assignment: Assignment, offset: int) -> None:
        """The queue does not reach to where it was pulled; it does to `offset`."""


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
        self._puller = PullApi(client, group, config, lite=lite)
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
        """One pull, or none. Returns how long (ms) to wait before the next one."""
        messages, queue = assignment.messages, assignment.queue
        # Also where a limit forbids to pull: the queue is looked after, and must not be taken for forgotten.
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
            result = await self._puller.pull(
                queue,
                assignment.next_offset,
                subscription,
                commit_offset=self._consumer.commit_offset(assignment),
                with_expression=self._is_lite,
            )
        except BrokerError as error:
            return await self._refused(assignment, error)
        except PyLedgerError as error:
            event(log, logging.WARNING, "pull failed", queue=text(queue), error=error)
            if isinstance(error, RemotingConnectError):
                # The route of a dead master leaves the name server at once; a slave may take over.
                await self._client.routes.refresh_all([queue.topic])
            return FAILURE_WAIT_MS
        return 0 if messages.dropped else self._pulled(assignment, result, started_ms)

    def _pulled(self, assignment: Assignment, result: PullResult, started_ms: float) -> float:
        asked, assignment.next_offset = assignment.next_offset, result.next_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            queue = text(assignment.queue)
            event(
                log, logging.WARNING, "offset corrected", queue=queue, asked=asked, offset=result.next_offset
            )
            if result.next_offset == asked:
                return FAILURE_WAIT_MS
            self._consumer.misplaced(assignment, result.next_offset)
            return 0
        if result.messages:
            now_ms = self._client.monotonic_ms()
            assignment.rates.pulled(len(result.messages), now_ms - started_ms, now_ms)
            assignment.messages.put(result.messages)
            self._consumer.arrived(assignment, result)
            return self._interval_ms
        if not len(assignment.messages):
            self._consumer.passed(assignment, result.next_offset)
        # Some answer at once that there is nothing, such as a slave that lags.
        is_idle = result.next_offset == asked and self._client.monotonic_ms() - started_ms < AT_ONCE_MS
        return FLOW_CONTROL_WAIT_MS if is_idle else 0

    async def _refused(self, assignment: Assignment, error: BrokerError) -> float:
        if error.response_code == ResponseCode.FLOW_CONTROL:
            return BUSY_WAIT_MS
        event(log, logging.WARNING, "pull refused", queue=text(assignment.queue), error=error)
        if error.response_code in UNKNOWN_TO_BROKER:
            await self._client.heartbeat()
            return UNKNOWN_WAIT_MS
        return FAILURE_WAIT_MS
