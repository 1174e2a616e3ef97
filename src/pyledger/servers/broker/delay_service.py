"""Delivers delayed messages when they are due.

A message is stored in its real topic before the offset of its level moves: a crash between the two delivers
it twice, never not at all.

Source: RocketMQ broker/.../ScheduleMessageService.java.
"""

import asyncio
import logging
from collections.abc import Callable

from pyledger.errors import PyLedgerError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.message import QueueRange
from pyledger.protocol.broker.delay_levels import PAUSE_MS, DelaySchedule, Rest, restore
from pyledger.servers.broker.message_puts import MessagePuts, copy_of, real_place
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.queues.get_result import GetStatus, StoredMessage

log = logger("broker")

MESSAGES_PER_POLL = 64
"""Messages that are delivered in one iteration of the event loop."""


class DelayDelivery:
    """Polls the queues of the schedule topic, one for each level."""

    def __init__(
        self, schedule: DelaySchedule, store: StoreEngine, puts: MessagePuts, now_ms: Callable[[], int]
    ) -> None:
        """Take the schedule, and the wall clock by which messages are due."""
        self._schedule = schedule
        self._store = store
        self._puts = puts
        self._now_ms = now_ms
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        """Start; the first poll is a second later."""
        ranges: dict[int, QueueRange] = {}
        for level in self._schedule.levels:
            ranges[level] = self._store.queue_range(names.SCHEDULE_TOPIC, level - 1)
        self._schedule.start(ranges, self._now_ms())
        self._poll_later()

    def close(self) -> None:
        """Stop delivering."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _poll_later(self) -> None:
        # Bounded, as the clock may have been set back.
        wait_ms = min(max(self._schedule.deadline_ms() - self._now_ms(), 0), PAUSE_MS[Rest.BROKEN])
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._poll)

    def _poll(self) -> None:
        left = MESSAGES_PER_POLL
        for level in self._schedule.due_levels(self._now_ms()):
            try:
                why, count = self._deliver(level, left)
            except PyLedgerError as problem:
                event(log, logging.ERROR, "delayed messages not delivered", level=level, problem=problem)
                why, count = Rest.BROKEN, 0
            left -= count
            if why is not None:
                self._schedule.rest(level, why, self._now_ms())
            if left <= 0:
                break
        self._poll_later()

    def _deliver(self, level: int, limit: int) -> tuple[Rest | None, int]:
        """Deliver due messages of a level; return why it pauses, None to continue at once, and the count."""
        count = 0
        while count < limit:
            offset = self._schedule.levels[level].offset
            found = self._store.get(names.SCHEDULE_TOPIC, level - 1, offset)
            if found.status is not GetStatus.FOUND:
                if found.status is GetStatus.OFFSET_TOO_SMALL:
                    self._schedule.delivered(level, found.next_offset, self._now_ms())
                    continue
                return Rest.PASSED, count
            for message in found.messages:
                now_ms = self._now_ms()
                if not self._schedule.is_due(level, message.tags_code, now_ms):
                    return Rest.PASSED, count
                if not self._put(message):
                    return Rest.PUT_FAILED, count
                self._schedule.delivered(level, message.queue_offset + 1, now_ms)
                count += 1
        return None, count

    def _put(self, message: StoredMessage) -> bool:
        """Store a message in its real topic; return False when the store does not take it now."""
        properties = message.properties
        target = restore(properties)
        if target is None:
            event(log, logging.ERROR, "delayed message has no destination", **real_place(message))
            return True
        self._puts.leave(message.physical_offset, target)
        copy = copy_of(message, target.topic, target.queue_id, properties)
        outcome = self._puts.put_as_it_is(copy).peek()
        if outcome is None:
            return True
        if outcome.status == "MESSAGE_ILLEGAL":
            event(log, logging.ERROR, "delayed message dropped", id=message.msg_id, problem=outcome.problem)
            return True
        return outcome.stored
