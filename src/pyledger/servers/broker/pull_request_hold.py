"""Held pulls: runs `LongPollTable` with the clock and the event loop.

Source: RocketMQ broker/.../PullRequestHoldService.java, NotifyMessageArrivingListener.java.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pyledger.config.delivery import DeliveryConfig
from pyledger.errors import PyLedgerError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.tags import java_hash
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.long_poll import LongPollTable, ParkedPull, QueueKey, Wanted
from pyledger.wire.record.properties import decode_properties

log = logger("broker")

POLL_AFTER_S = 0.002
"""Delay of a poll: what a master sends meanwhile is found together."""
ITERATION_MS = 5
"""Time for woken pulls in one iteration of the event loop; the others wait for the next."""
Again = Callable[[], None]
"""Answers a held pull, without holding it again."""


class PullRequestHold:
    """The held pulls of a broker."""

    def __init__(
        self, config: DeliveryConfig, now_ms: Callable[[], int], max_offset: Callable[[str, int], int]
    ) -> None:
        """Hold nothing yet.

        Args:
            config: How long to hold, and how many.
            now_ms: A monotonic clock.
            max_offset: Returns the end of a queue (units), by topic and queue id.
        """
        self._table = LongPollTable(config)
        self._now_ms = now_ms
        self._max_offset = max_offset
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._closed = self._polls = False
        # No longer in the table; a callback for them is scheduled while there are any.
        self._woken: deque[ParkedPull] = deque()

    @property
    def count(self) -> int:
        """Pulls that are held now."""
        return self._table.parked_count

    def hold(
        self,
        again: Again,
        connection: Connection,
        *,
        topic: str,
        queue_id: int,
        offset: int,
        hold_ms: int,
        wanted: Wanted | None,
    ) -> bool:
        """Hold a pull; return False when it must be answered now.

        Args:
            again: Called when there is a message, or the time is over.
            connection: The client's connection.
            topic: Topic that it reads.
            queue_id: Queue that it reads.
            offset: Queue offset (units) that it waits for.
            hold_ms: How long it may be held, in ms.
            wanted: Which messages wake it; None: all.
        """
        if self._closed:
            return False
        held = self._table.park(
            again,
            channel=connection,
            topic=topic,
            queue_id=queue_id,
            offset=offset,
            hold_ms=hold_ms,
            now_ms=self._now_ms(),
            wanted=wanted,
        )
        if held is not None:
            self._set_timer()
        return held is not None

    def hold_any(
        self,
        again: Again,
        connection: Connection,
        *,
        group: str,
        label: object,
        ends: Mapping[tuple[str, int], int],
        hold_ms: int,
        wanted: Wanted | None,
    ) -> bool:
        """Hold a request at several queues until one grows; return False when it must be answered now.

        Args:
            again: Called once, when there is a message in a queue, or the time is over.
            connection: The client's connection.
            group: The client's group; see `unlocked`.
            label: Key for `count_held`.
            ends: The queue offset (units) that each queue must pass, by topic and queue id.
            hold_ms: How long it may be held, in ms.
            wanted: Which messages wake it; None: all.
        """
        held = HeldOnce(self._table, again, group, label)
        for (topic, queue_id), end in ends.items():
            pull = None
            if not self._closed:
                pull = self._table.park(
                    held,
                    channel=connection,
                    topic=topic,
                    queue_id=queue_id,
                    offset=end,
                    hold_ms=hold_ms,
                    now_ms=self._now_ms(),
                    wanted=wanted,
                )
            if pull is None:
                self._table.release(held.places)
                return False
            held.places.append((pull.queue, pull.number))
        self._set_timer()
        return bool(held.places)

    def count_held(self, topic: str, queue_id: int, label: object) -> int:
        """Return how many requests with a label are held at a queue."""
        parked = self._table.queues.get((topic, queue_id), {}).values()
        return sum(isinstance(one.request, HeldOnce) and one.request.label == label for one in parked)

    def unlocked(self, topic: str, queue_id: int, group: str) -> None:
        """Wake a group's requests at a queue: its ordered messages have an ack or a new timeout."""
        asyncio.get_running_loop().call_soon(self._unlock, topic, queue_id, group)

    def _unlock(self, topic: str, queue_id: int, group: str) -> None:
        parked = self._table.queues.get((topic, queue_id), {}).values()
        self._run([one for one in parked if isinstance(one.request, HeldOnce) and one.request.group == group])

    def arrived(
        self, topic: str, queue_id: int, max_offset: int, properties: Mapping[str, str] | bytes | None
    ) -> None:
        """Wake the pulls at a queue that now ends at `max_offset` (units).

        `properties` are those of a single new message; None for several.
        Cost: one lookup in a table unless a pull is held at the queue.
        """
        if (topic, queue_id) in self._table.queues:
            if isinstance(properties, bytes):
                properties = decode_properties(properties)
            code = None if properties is None else java_hash(properties.get(names.TAGS, ""))
            asyncio.get_running_loop().call_soon(
                partial(self._arrive, topic, queue_id, max_offset, code, properties)
            )

    def poll_soon(self) -> None:
        """Poll the queues with held pulls soon: some may have grown, it is not known which."""
        if self._table.parked_count and not self._polls:
            self._polls = True
            asyncio.get_running_loop().call_later(POLL_AFTER_S, self._poll)

    def _poll(self) -> None:
        self._polls = False
        if not self._closed:
            self._run(self._table.sweep(self._now_ms(), self._max_offset))

    def configure(self, config: DeliveryConfig) -> None:
        """Apply changed settings; held pulls keep the old ones."""
        self._table.config = config

    def close_channel(self, connection: Connection) -> None:
        """Drop the pulls of a closed connection."""
        self._table.drop_channel(connection)

    def close(self) -> None:
        """Answer all held pulls as if their time were over, and hold no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._woken.extend(self._table.tick(1 << 62))
        while self._woken:
            self._run_one()

    def _arrive(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        code: int | None,
        properties: Mapping[str, str] | None,
    ) -> None:
        self._run(self._table.arrive(topic, queue_id, max_offset, code, properties))

    def _tick(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        sweep_ms = self._table.next_sweep_ms
        if sweep_ms is not None and sweep_ms <= now_ms:
            self._run(self._table.sweep(now_ms, self._max_offset))
        else:
            self._run(self._table.tick(now_ms))
        self._set_timer()

    def _set_timer(self) -> None:
        deadline_ms = self._table.deadline_ms()
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer_at_ms = deadline_ms
        self._timer = loop.call_later(max(1, deadline_ms - self._now_ms()) / 1000, self._tick)

    def _run(self, pulls: Iterable[ParkedPull]) -> None:
        """Answer woken pulls, after those woken before, for `ITERATION_MS` in each iteration of the loop."""
        waited = bool(self._woken)
        self._woken.extend(pulls)
        if not waited:
            self._run_woken()

    def _run_woken(self) -> None:
        until_ms = self._now_ms() + ITERATION_MS
        try:
            while self._woken and self._now_ms() < until_ms:
                self._run_one()
        finally:
            if self._woken:
                asyncio.get_running_loop().call_soon(self._run_woken)

    def _run_one(self) -> None:
        pull = self._woken.popleft()
        again = pull.request
        assert callable(again)
        try:
            again()
        except PyLedgerError as problem:
            event(log, logging.WARNING, "held pull not answered", queue=pull.queue, problem=problem)


class HeldOnce:
    """A request that is held at several queues; the first with a message ends the wait at all."""

    def __init__(self, table: LongPollTable, again: Again, group: str, label: object) -> None:
        """Hold the request at no queue yet."""
        self.group, self.label = group, label
        # Keys, not pulls: pulls refer to this object, and a reference cycle would need the garbage collector.
        self.places: list[tuple[QueueKey, int]] = []
        self._table = table
        self._again: Again | None = again

    def __call__(self) -> None:
        """Answer the request, unless it was answered before."""
        again, self._again = self._again, None
        if again is not None:
            self._table.release(self.places)
            again()
