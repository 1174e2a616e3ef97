"""Consumption of pulled messages by a listener: concurrently, or in the order of each queue.

Source: RocketMQ client/.../impl/consumer/ConsumeMessageConcurrentlyService.java,
ConsumeMessageOrderlyService.java.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from pyledger.client.consumer.assignment import Assignment, ListenerCall
from pyledger.client.consumer.offset_store import OffsetStore, text
from pyledger.client.consumer.pull_api import delivered
from pyledger.client.consumer.send_message_back import SendMessageBack
from pyledger.client.instance import ClientInstance
from pyledger.client.listener import SKIPPED, ListenerRunner, ReconsumeLater
from pyledger.config.client import ConsumerConfig
from pyledger.log_events import event, logger
from pyledger.protocol.client.consume_rules import suspend_ms, times_max
from pyledger.protocol.client.process_queue import NOTHING_CONSUMED
from pyledger.wire.record.record import ReceivedMessage

log = logger("client")

AGAIN_HERE_MS = 5000
LISTENER_WAIT_MS = 500
LOCKED_RETRY_MS = 10
UNLOCKED_RETRY_MS = 3000
EXPIRED_DELAY_LEVEL = 3
EXPIRED_PER_ROUND_MAX = 16

RenewLock = Callable[[Assignment], Awaitable[None]]
"""Renews the lock of a queue; drops the queue if another member has the lock."""


class ConsumeMessageService(Protocol):
    """Consumes the messages of all queues of a consumer."""

    def begin(self, assignment: Assignment) -> None:
        """Start with a queue that was assigned."""

    def arrived(self, assignment: Assignment, messages: Sequence[ReceivedMessage]) -> None:
        """Consume messages that were pulled and are in the process queue."""

    async def end(self, assignment: Assignment) -> bool:
        """Stop consuming a queue; False: its listener is still running, so the queue must be kept."""

    async def expire(self, assignment: Assignment) -> None:
        """Send back messages whose listener takes too long."""


class ListenerService:
    """The base class of both ways of consumption."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        config: ConsumerConfig,
        runner: ListenerRunner,
        offsets: OffsetStore,
    ) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._runner = runner
        self._offsets = offsets
        self._send_message_back = SendMessageBack(client, group, config.reconsume_times_max)
        self._is_broadcasting = config.message_model == "broadcasting"
        self._batch_count = config.batch_count_max if runner.is_batch else 1


class Concurrent(ListenerService):
    """Consumes the messages of all queues concurrently. Failed messages are sent back to the broker."""

    def begin(self, assignment: Assignment) -> None:
        """Do nothing: messages are submitted when they are pulled."""

    def arrived(self, assignment: Assignment, messages: Sequence[ReceivedMessage]) -> None:
        """Submit messages to the listener; see `ConsumeMessageService`."""
        for at in range(0, len(messages), self._batch_count):
            self._submit(assignment, messages[at : at + self._batch_count])

    async def end(self, assignment: Assignment) -> bool:
        """Wait up to `LISTENER_WAIT_MS` for calls in progress; see `ConsumeMessageService`."""
        assignment.moved.set()
        if assignment.in_flight and not assignment.messages.dropped:
            await assignment.pause(LISTENER_WAIT_MS)
        return True

    async def expire(self, assignment: Assignment) -> None:
        """Send back the first messages while their listener takes longer than `consume_timeout_minutes`."""
        now_ms = self._client.monotonic_ms()
        limit_ms = self._config.consume_timeout_minutes * 60_000
        for _ in range(EXPIRED_PER_ROUND_MAX):
            first = assignment.messages.min_offset
            started = None if first is None else assignment.started_ms(first)
            if first is None or started is None or now_ms - started <= limit_ms:
                return
            message = assignment.messages.messages[0]
            event(log, logging.WARNING, "listener takes too long", queue=text(assignment.queue), offset=first)
            if not await self._send_message_back.send_back(message, EXPIRED_DELAY_LEVEL):
                return
            self._leave(assignment, [message])

    def _submit(self, assignment: Assignment, batch: Sequence[ReceivedMessage]) -> None:
        if assignment.is_retry:
            for message in batch:
                delivered(message)
        assignment.in_flight += 1
        self._runner.run(
            batch, partial(self._begin, assignment, batch), partial(self._finished, assignment, batch)
        )

    def _begin(self, assignment: Assignment, batch: Sequence[ReceivedMessage]) -> bool:
        """Record the start of a call; runs on the listener's thread."""
        if assignment.messages.dropped or assignment.is_closing:
            return False
        assignment.calls[batch[0].queue_offset] = ListenerCall(self._client.monotonic_ms(), batch)
        return True

    def _finished(
        self,
        assignment: Assignment,
        batch: Sequence[ReceivedMessage],
        outcome: Any,
        error: BaseException | None,
    ) -> None:
        if error is not None:
            log.warning("listener failed group=%s message=%s", self._group, batch[0], exc_info=error)
        if outcome is SKIPPED:
            self._over(assignment)
            return
        later = (
            ReconsumeLater()
            if error is not None
            else outcome
            if isinstance(outcome, ReconsumeLater)
            else None
        )
        now_ms = self._client.monotonic_ms()
        call = assignment.calls.pop(batch[0].queue_offset, None)
        took_ms = 0.0 if call is None else now_ms - call.begun_ms
        assignment.rates.consumed(len(batch), took_ms, now_ms, failed=later is not None)
        if later is None or self._is_broadcasting or assignment.messages.dropped:
            self._leave(assignment, batch)
            self._over(assignment)
            return
        done = later.done
        self._leave(assignment, batch[:done])
        self._client.inbound.spawn(self._send_back(assignment, batch[done:], later.delay_level))

    def _over(self, assignment: Assignment) -> None:
        """Count one batch less in flight."""
        assignment.in_flight -= 1
        if assignment.is_closing and not assignment.in_flight:
            assignment.ended.set()

    def _leave(self, assignment: Assignment, batch: Sequence[ReceivedMessage]) -> None:
        if not batch or assignment.messages.dropped:
            return
        offset = assignment.messages.remove(batch)
        assignment.messages.last_consume_ms = self._client.monotonic_ms()
        if offset != NOTHING_CONSUMED:
            self._offsets.table.update(assignment.queue, offset)
        assignment.moved.set()

    async def _send_back(
        self,
        assignment: Assignment,
        batch: Sequence[ReceivedMessage],
        delay_level: int,
    ) -> None:
        """Send messages back; consume those again here that no broker accepted."""
        again = []
        try:
            for message in batch:
                if message not in assignment.messages:
                    continue  # `expire` has sent it back
                if await self._send_message_back.send_back(message, delay_level):
                    self._leave(assignment, [message])
                else:
                    message.reconsume_times += 1
                    if assignment.is_retry:
                        message.topic = assignment.queue.topic
                    again.append(message)
        finally:
            self._over(assignment)
        if again:
            await assignment.pause(AGAIN_HERE_MS)
            if not assignment.is_closing and not assignment.messages.dropped:
                self.arrived(assignment, again)


class Orderly(ListenerService):
    """Consumes the messages of each queue in order; a failed message blocks its queue."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        config: ConsumerConfig,
        runner: ListenerRunner,
        offsets: OffsetStore,
        renew_locks: RenewLock,
    ) -> None:
        super().__init__(client, group, config, runner, offsets)
        self._renew_lock = renew_locks
        self._times_max = times_max(config.reconsume_times_max, orderly=True)

    def begin(self, assignment: Assignment) -> None:
        """Start the task that consumes the messages of a queue."""
        assignment.consuming = asyncio.get_running_loop().create_task(self._consume(assignment))

    def arrived(self, assignment: Assignment, messages: Sequence[ReceivedMessage]) -> None:  # noqa: ARG002
        """Wake the task of the queue."""
        assignment.moved.set()

    async def end(self, assignment: Assignment) -> bool:
        """Wait up to `LISTENER_WAIT_MS` for the listener; see `ConsumeMessageService`."""
        assignment.moved.set()
        assignment.ended.set()
        task = assignment.consuming
        if task is not None and not task.done():
            await asyncio.wait([task], timeout=LISTENER_WAIT_MS / 1000)
            if not task.done():
                return False
        return True

    async def expire(self, assignment: Assignment) -> None:
        """Do nothing: an orderly listener has no time limit."""

    async def _consume(self, assignment: Assignment) -> None:
        messages = assignment.messages
        while not messages.dropped and not assignment.is_closing:
            if not self._is_broadcasting and not messages.is_locked(self._client.monotonic_ms()):
                await self._renew_and_pause(assignment)
                continue
            batch = messages.take(self._batch_count)
            if not batch:
                assignment.moved.clear()
                await assignment.moved.wait()
                continue
            begun_ms = self._client.monotonic_ms()
            outcome, error = await self._runner.process(
                [delivered(message) for message in batch] if assignment.is_retry else batch
            )
            messages.last_consume_ms = now_ms = self._client.monotonic_ms()
            failed = error is not None or isinstance(outcome, ReconsumeLater)
            assignment.rates.consumed(len(batch), now_ms - begun_ms, now_ms, failed=failed)
            if error is not None:
                log.warning("listener failed group=%s message=%s", self._group, batch[0], exc_info=error)
            if failed:
                await self._failed(
                    assignment, batch, outcome if isinstance(outcome, ReconsumeLater) else ReconsumeLater()
                )
            else:
                self._commit(assignment)

    def _commit(self, assignment: Assignment) -> None:
        offset = assignment.messages.commit()
        # A closing queue still commits: this member holds the lock until it is dropped.
        if offset != NOTHING_CONSUMED and not assignment.is_lost and not assignment.messages.dropped:
            self._offsets.table.update(assignment.queue, offset, increase_only=False)
        assignment.moved.set()

    async def _failed(
        self, assignment: Assignment, batch: Sequence[ReceivedMessage], outcome: ReconsumeLater
    ) -> None:
        """Give up messages that failed too often; consume the rest again after a pause."""
        if assignment.is_lost:
            return
        again = False
        for message in batch[outcome.done :]:
            if message.reconsume_times < self._times_max or not await self._give_up(message):
                message.reconsume_times += 1
                again = True
        if not again:
            self._commit(assignment)
            return
        assignment.messages.put_back()
        await assignment.pause(suspend_ms(outcome.suspend_ms, self._config.suspend_ms))

    async def _give_up(self, message: ReceivedMessage) -> bool:
        """Make a message a dead letter; False: the broker did not accept it. Broadcasting drops it."""
        if not self._is_broadcasting:
            return await self._send_message_back.send_dead_letter(message)
        event(log, logging.WARNING, "message given up", group=self._group, message=message)
        return True

    async def _renew_and_pause(self, assignment: Assignment) -> None:
        """Renew the lock, then pause."""
        await self._renew_lock(assignment)
        is_locked = assignment.messages.is_locked(self._client.monotonic_ms())
        await assignment.pause(LOCKED_RETRY_MS if is_locked else UNLOCKED_RETRY_MS)
