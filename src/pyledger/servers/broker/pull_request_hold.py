"""Pulls that wait for a message: the clock and the event loop around `LongPollTable`.

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

LOOK_AFTER_S = 0.002
"""What a master sends meanwhile is looked for together."""
TURN_MS = 5
"""What woken pulls may take of one iteration of the event loop; the others wait for the next."""
Again = Callable[[], None]
"""Runs a held pull again, without holding it."""


class PullRequestHold:
    """The held pulls of a broker."""

    def __init__(
        self, config: DeliveryConfig, now_ms: Callable[[], int], max_offset: Callable[[str, int], int]
    ) -> None:
        """Hold nothing yet.

        Args:
            config: How long to hold, and how many.
            now_ms: A clock that never goes back.
            max_offset: End of a queue, units, by topic and queue id.
        """
        self._table = LongPollTable(config)
        self._now_ms = now_ms
        self._max_offset = max_offset
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._closed = self._looks = False
        # No longer in the table; while there are any, a turn for them is scheduled.
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
        """Hold a pull; False when it has to be answered now.

        Args:
            again: Called when there is a message, or the time is over.
            connection: Where it came from.
            topic: Topic that it reads.
            queue_id: Queue that it reads.
            offset: Queue offset that it waits for, units.
            hold_ms: How long it may be held.
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
        """Hold one request at many queues, until one of them grows; False when it has to be answered now.

        Args:
            again: Called once, when there is a message in a queue, or the time is over.
            connection: Where the request came from.
            group: Who asks; see `unlocked`.
            label: What `count_held` finds it by.
            ends: The queue offset, units, that each queue has to pass, by topic and queue id.
            hold_ms: How long it may be held.
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
        """Requests with a label that are held at a queue."""
        parked = self._table.queues.get((topic, queue_id), {}).values()
        return sum(isinstance(one.request, HeldOnce) and one.request.label == label for one in parked)

    def unlocked(self, topic: str, queue_id: int, group: str) -> None:
        """What a group popped in order from a queue is done, or hidden for another time: look again soon."""
        asyncio.get_running_loop().call_soon(self._unlock, topic, queue_id, group)

    def _unlock(self, topic: str, queue_id: int, group: str) -> None:
        parked = self._table.queues.get((topic, queue_id), {}).values()
        self._run([one for one in parked if isinstance(one.request, HeldOnce) and one.request.group == group])

    def arrived(
        self, topic: str, queue_id: int, max_offset: int, properties: Mapping[str, str] | bytes | None
    ) -> None:
        """Messages can be read in a queue that now ends at `max_offset`, units; properties of a lone one.

        Cost: one look into a table unless a pull is held at the queue.
        """
        if (topic, queue_id) in self._table.queues:
            if isinstance(properties, bytes):
                properties = decode_properties(properties)
            code = None if properties is None else java_hash(properties.get(names.TAGS, ""))
            asyncio.get_running_loop().call_soon(
                partial(self._arrive, topic, queue_id, max_offset, code, properties)
            )

    def look_soon(self) -> None:
        """Queues may have grown, nobody knows which: look at those that pulls are held at."""
        if self._table.parked_count and not self._looks:
            self._looks = True
            asyncio.get_running_loop().call_later(LOOK_AFTER_S, self._look)

    def _look(self) -> None:
        self._looks = False
        if not self._closed:
            self._run(self._table.sweep(self._now_ms(), self._max_offset))

    def configure(self, config: DeliveryConfig) -> None:
        """Go by other settings from now on; what is held stays as it is."""
        self._table.config = config

    def close_channel(self, connection: Connection) -> None:
        """Forget the pulls of a connection that is gone."""
        self._table.drop_channel(connection)

    def close(self) -> None:
        """Answer all that are held, as if their time were over, and hold no more."""
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
        """Run woken pulls again: now, but after those that were woken before and no longer than a turn."""
        waited = bool(self._woken)
        self._woken.extend(pulls)
        if not waited:
            self._take_turn()

    def _take_turn(self) -> None:
        until_ms = self._now_ms() + TURN_MS
        try:
            while self._woken and self._now_ms() < until_ms:
                self._run_one()
        finally:
            if self._woken:
                asyncio.get_running_loop().call_soon(self._take_turn)

    def _run_one(self) -> None:
        pull = self._woken.popleft()
        again = pull.request
        assert callable(again)
        try:
            again()
        except PyLedgerError as problem:
            event(log, logging.WARNING, "held pull not answered", queue=pull.queue, problem=problem)


class HeldOnce:
    """A request that is held at many queues: the first that has something for it ends the others."""

    def __init__(self, table: LongPollTable, again: Again, group: str, label: object) -> None:
        """Hold at no queue yet."""
        self.group, self.label = group, label
        # Not the pulls: they refer to this, and nothing of a request should wait for the cycle collector.
        self.places: list[tuple[QueueKey, int]] = []
        self._table = table
        self._again: Again | None = again

    def __call__(self) -> None:
        """Run the request again, unless it was."""
        again, self._again = self._again, None
        if again is not None:
            self._table.release(self.places)
            again()
