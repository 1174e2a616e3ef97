"""Warnings that may come with every request: a disk that is full, a peer whose log does not fit."""

import logging

from pyledger.log import event

ALARMS_MAX = 10
"""Log lines in `ALARM_INTERVAL_MS`; the rest is counted."""
ALARM_INTERVAL_MS = 10_000


class Alarms:
    """Log lines of what goes wrong, perhaps with every request: so many in a time, the rest is counted."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._begin_ms = self._count = 0

    def warn(self, what: str, now_ms: int) -> None:
        """Log a line, unless there were too many of late."""
        if now_ms - self._begin_ms >= ALARM_INTERVAL_MS:
            if self._count > ALARMS_MAX:
                event(self._log, logging.WARNING, "alarms left out", count=self._count - ALARMS_MAX)
            self._begin_ms, self._count = now_ms, 0
        self._count += 1
        if self._count <= ALARMS_MAX:
            event(self._log, logging.WARNING, "alarm", what=what)
