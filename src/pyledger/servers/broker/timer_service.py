"""Delivers timer messages when they are due.

The service reads the timer topic, keeps the waiting messages in memory, and stores each in its real topic.
Its progress is written after the delivered messages are durable: a crash between the two delivers messages
twice, never not at all.

Source: RocketMQ store/.../TimerMessageStore.java.
"""

import asyncio
import logging
from collections.abc import Callable

from pyledger.errors import PyLedgerError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.protocol.broker.delay_levels import restore
from pyledger.protocol.broker.timer_messages import TimerQueue
from pyledger.servers.broker.message_puts import MessagePuts, copy_of, real_place
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.queues.get_result import GONE, StoredMessage

log = logger("broker")

TIMER_QUEUE = 0
PAGES_PER_POLL = 8
MESSAGES_PER_POLL = 64
"""Messages that are delivered in one iteration of the event loop."""
RETRY_MS = 100
"""Pause after the store has rejected a message."""
PAUSE_MAX_MS = 1000
"""Longest pause between two polls: the clock may be set forward, and not every put is notified."""


class TimerDelivery:
    """Reads the timer topic and delivers from it."""

    def __init__(
        self,
        queue: TimerQueue,
        store: StoreEngine,
        puts: MessagePuts,
        now_ms: Callable[[], int],
        forward: Callable[[StoredMessage], bool],
    ) -> None:
        """Deliver nothing yet.

        Args:
            queue: The waiting messages.
            store: The store that messages are read from.
            puts: Stores delivered messages.
            now_ms: The wall clock.
            forward: Stores records of popped messages; returns False when the store does not take them now.
        """
        self._forward = forward
        self._queue = queue
        self._store = store
        self._puts = puts
        self._now_ms = now_ms
        self._handle: asyncio.Handle | None = None
        self._woken = self._closed = False

    def start(self) -> None:
        """Start reading and delivering."""
        self._puts.timer_stored = self._wake
        self._poll_after(0)

    def close(self) -> None:
        """Stop delivering."""
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()

    def _poll_after(self, pause_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_later(pause_ms / 1000, self._poll)

    def _wake(self) -> None:
        """Poll at once: a timer message is stored."""
        if not self._closed and not self._woken:
            self._woken = True
            self._poll_after(0)

    def _poll(self) -> None:
        self._woken = False
        try:
            pause_ms = self._read_and_deliver()
        except PyLedgerError as problem:
            event(log, logging.ERROR, "timer messages not delivered", problem=problem)
            pause_ms = PAUSE_MAX_MS
        self._poll_after(pause_ms)

    def _read_and_deliver(self) -> int:
        """Read and deliver some messages; return the pause in ms until the next poll."""
        if not self._read():
            return 0
        count = 0
        while (one := self._queue.due(self._now_ms())) is not None:
            if count == MESSAGES_PER_POLL:
                return 0
            if not self._deliver(one.offset):
                return RETRY_MS
            self._queue.done()
            count += 1
        deadline_ms = self._queue.deadline_ms()
        if deadline_ms is None:
            return PAUSE_MAX_MS
        return min(max(deadline_ms - self._now_ms(), 1), PAUSE_MAX_MS)

    def _read(self) -> bool:
        """Read new messages of the timer topic; return False when there are more."""
        for _ in range(PAGES_PER_POLL):
            found = self._store.get(names.TIMER_TOPIC, TIMER_QUEUE, self._queue.next_offset)
            for message in found.messages:
                self._queue.add(
                    message.queue_offset, message.properties, message.physical_offset, message.store_size
                )
            if found.status in GONE and found.next_offset > self._queue.next_offset:
                self._queue.skip_to(found.next_offset)
            elif not found.messages:
                return True
        return False

    def _deliver(self, offset: int) -> bool:
        """Store a message in its real topic; return False when the store does not take it now."""
        found = self._store.get(names.TIMER_TOPIC, TIMER_QUEUE, offset, max_count=1).messages
        if not found or found[0].queue_offset != offset:
            event(log, logging.ERROR, "timer message is gone", offset=offset)
            return True
        message: StoredMessage = found[0]
        if message.properties.get(names.REAL_TOPIC, "").startswith(names.REVIVE_PREFIX):
            return self._forward(message)
        target = restore(message.properties)
        if target is None:
            event(log, logging.ERROR, "timer message has no destination", **real_place(message))
            return True
        self._puts.leave(message.physical_offset, target)
        outcome = self._puts.put_as_it_is(copy_of(message, target.topic, target.queue_id)).peek()
        if outcome is None or outcome.stored:
            return True
        if outcome.status == "MESSAGE_ILLEGAL":
            event(log, logging.ERROR, "timer message dropped", id=message.msg_id, problem=outcome.problem)
            return True
        return False
