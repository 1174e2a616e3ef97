"""Delivers timer messages when their time has come.

It reads the timer topic, keeps what waits in memory, and stores each message again where it was meant to go.
Where it stands is written after what it has delivered is durable: a crash between the two delivers messages
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
PAGES_PER_TURN = 8
MESSAGES_PER_TURN = 64
"""After so many messages other work of the event loop has its turn."""
RETRY_MS = 100
"""Pause after the store refused a message."""
PAUSE_MAX_MS = 1000
"""Longest time between two looks: the clock may be set forward, and not every put is told of."""


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
            queue: What waits.
            store: Where messages are read.
            puts: Where they are put.
            now_ms: The wall clock by which they are due.
            forward: Takes records of popped messages; False when the store does not take them now.
        """
        self._forward = forward
        self._queue = queue
        self._store = store
        self._puts = puts
        self._now_ms = now_ms
        self._handle: asyncio.Handle | None = None
        self._woken = self._closed = False

    def start(self) -> None:
        """Begin to read and to deliver."""
        self._puts.timer_stored = self._wake
        self._look_after(0)

    def close(self) -> None:
        """Deliver nothing any more."""
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()

    def _look_after(self, pause_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_later(pause_ms / 1000, self._look)

    def _wake(self) -> None:
        """A timer message is stored."""
        if not self._closed and not self._woken:
            self._woken = True
            self._look_after(0)

    def _look(self) -> None:
        self._woken = False
        try:
            pause_ms = self._turn()
        except PyLedgerError as problem:
            event(log, logging.ERROR, "timer messages not delivered", problem=problem)
            pause_ms = PAUSE_MAX_MS
        self._look_after(pause_ms)

    def _turn(self) -> int:
        """Read and deliver some; how long to pause then."""
        if not self._read():
            return 0
        count = 0
        while (one := self._queue.due(self._now_ms())) is not None:
            if count == MESSAGES_PER_TURN:
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
        """Take in what has come to the timer topic; False when there is more."""
        for _ in range(PAGES_PER_TURN):
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
        """Store a message where it was meant to go; False when the store does not take it now."""
        found = self._store.get(names.TIMER_TOPIC, TIMER_QUEUE, offset, 1).messages
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
