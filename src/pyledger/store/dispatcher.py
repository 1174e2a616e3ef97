"""The thread that builds queues and index from the log, right behind the appends.

Reads help it, so nothing waits for it; without reads it keeps the backlog short. When the disk is full it
tries again later: the messages are in the log.
"""

import logging
from collections.abc import Callable

from pyledger._core import Dispatcher, MappedFileQueue
from pyledger.errors import CorruptRecordError, StoreFullError
from pyledger.log import event, logger

log = logger("store")

IDLE_MS = 60_000
RETRY_MS = 1_000
REST_MS = 5
"""After a round that found little: messages that come one by one are dispatched together, as a round costs
more than the append of one. Nobody waits for it: readers dispatch what they need."""
LITTLE_BYTES = 64 << 10
UNCONFIRMED_MS = 2
"""Pause while records wait for their flush: nobody wakes this thread for it when requests are few."""


class DispatchWork:
    """What the dispatch thread does in each round."""

    def __init__(
        self, log_queue: MappedFileQueue, dispatcher: Dispatcher, confirmed_where: Callable[[], int]
    ) -> None:
        self._log = log_queue
        self._dispatcher = dispatcher
        self._confirmed_where = confirmed_where
        self._stuck_at = -1
        self._found_bytes = 0
        self.problem: Exception | None = None
        """Why dispatch cannot go on at the moment."""

    @property
    def behind_bytes(self) -> int:
        """Bytes of the log that are confirmed and not yet dispatched."""
        return max(0, self._confirmed_where() - self._dispatcher.dispatched_where)

    def work(self) -> int:
        """Dispatch what is confirmed; the pause until the next round (ms) unless woken."""
        end = self._confirmed_where()
        self._found_bytes = end - self._dispatcher.dispatched_where
        try:
            self._dispatcher.dispatch(self._log.view(end), end)
        except (StoreFullError, CorruptRecordError) as problem:
            self._report(problem)
            return RETRY_MS
        self.problem = None
        return UNCONFIRMED_MS if self._log.wrote_where > self._dispatcher.dispatched_where else IDLE_MS

    def rest_ms(self) -> int:
        """How long (ms) to leave what comes next alone."""
        return REST_MS if self._found_bytes < LITTLE_BYTES else 0

    def _report(self, problem: Exception) -> None:
        """Log a problem once for each place where dispatch is stuck."""
        self.problem = problem
        if self._stuck_at != self._dispatcher.dispatched_where:
            self._stuck_at = self._dispatcher.dispatched_where
            full = isinstance(problem, StoreFullError)
            level = logging.WARNING if full else logging.ERROR
            event(log, level, "dispatch cannot go on", physical_offset=self._stuck_at, reason=problem)
