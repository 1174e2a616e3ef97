"""The thread that builds queues and index from the log soon after each append.

Reads dispatch, too, so nothing waits for it; without reads it keeps the backlog short. If a queue cannot be
created or extended, only that queue waits and is tried again: its messages are in the log.
"""

import logging
from collections.abc import Callable

from pyledger._core import Dispatcher, LogView, MappedFileQueue
from pyledger.clock import Clock
from pyledger.errors import CorruptRecordError, StoreError
from pyledger.log_events import event, logger

log = logger("store")

IDLE_MS = 60_000
RETRY_MS = 1_000
REST_MS = 5
"""Pause after a round that found little, so that single messages are dispatched together: a round costs more
than an append. No reader waits for it, because readers dispatch what they need."""
LITTLE_BYTES = 64 << 10
WAITS = "dispatch waits"
LOGGED_MAX = 8
"""Queues that stall in one round and have a line each in the log."""
UNCONFIRMED_MS = 2
"""Pause while records wait for their flush, which does not wake this thread when there are few requests."""


class DispatchWork:
    """What the dispatch thread does in each round."""

    def __init__(
        self,
        log_queue: MappedFileQueue,
        dispatcher: Dispatcher,
        confirmed_where: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._log = log_queue
        self._dispatcher = dispatcher
        self._confirmed_where = confirmed_where
        self._clock = clock
        self._stuck_at = -1
        self._found_bytes = 0
        self._retry_at_ms = 0
        self._stalled: set[tuple[str, int]] = set()
        self._damage: CorruptRecordError | None = None

    @property
    def lag_bytes(self) -> int:
        """Bytes of the log that are confirmed and not yet dispatched."""
        return max(0, self._confirmed_where() - self._dispatcher.dispatched_where)

    @property
    def problem(self) -> StoreError | None:
        """Why dispatch, or that of a queue, cannot go on at the moment."""
        return self._damage or next((error for *_, error in self._dispatcher.stalled), None)

    def finish(self) -> None:
        """One round more, for the end."""
        self._retry_at_ms = 0
        self.work()

    def work(self) -> int:
        """Dispatch what is confirmed; the pause until the next round (ms) unless woken."""
        end = self._confirmed_where()
        view = self._log.view(end)
        self._found_bytes = end - self._dispatcher.dispatched_where
        try:
            self._dispatcher.dispatch(view, end)
        except CorruptRecordError as damage:
            self._report(damage)
            return RETRY_MS
        self._damage = None
        if (self._stalled or self._dispatcher.dispatched_where < end) and self._retry(view):
            return RETRY_MS
        return UNCONFIRMED_MS if self._log.wrote_where > self._dispatcher.dispatched_where else IDLE_MS

    def _retry(self, view: LogView) -> bool:
        """Try what is stalled, once a second; whether anything still is."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._retry_at_ms:
            self._retry_at_ms = now_ms + RETRY_MS
            self._dispatcher.retry(view)
        stalled = self._dispatcher.stalled
        fresh = [one for one in stalled if one[:2] not in self._stalled]
        for topic, queue_id, physical_offset, _, error in fresh[:LOGGED_MAX]:
            what = {"topic": topic, "queue_id": queue_id} if topic else {"part": "index"}
            event(log, logging.WARNING, WAITS, **what, physical_offset=physical_offset, reason=error)
        if len(fresh) > LOGGED_MAX:
            event(log, logging.WARNING, "dispatch waits for more queues", count=len(fresh) - LOGGED_MAX)
        if self._stalled and not stalled:
            event(log, logging.INFO, "dispatch continues", physical_offset=self._dispatcher.dispatched_where)
        self._stalled = {(topic, queue_id) for topic, queue_id, *_ in stalled}
        return bool(stalled)

    def rest_ms(self) -> int:
        """How long (ms) to leave what comes next alone."""
        return REST_MS if self._found_bytes < LITTLE_BYTES else 0

    def _report(self, damage: CorruptRecordError) -> None:
        """Log a problem once for each offset at which dispatch is stuck."""
        self._damage = damage
        if self._stuck_at != self._dispatcher.dispatched_where:
            self._stuck_at = self._dispatcher.dispatched_where
            event(log, logging.ERROR, "dispatch cannot go on", physical_offset=self._stuck_at, reason=damage)
