"""Warnings that may come with every request: a disk that is full, a peer whose log does not fit."""

import logging

from pyledger.log_events import event

ALARMS_MAX = 10
"""Different log lines in `ALARM_INTERVAL_MS`; the rest is counted."""
ALARM_INTERVAL_MS = 60_000


class Alarms:
    """Log lines of what goes wrong, perhaps for hours: each once in an interval, so many at most."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._begin_ms = self._left_out = 0
        self._said: set[str] = set()

    def warn(self, what: str, now_ms: int) -> None:
        """Log a line, unless it was logged of late, or too many were."""
        if now_ms - self._begin_ms >= ALARM_INTERVAL_MS:
            if self._left_out:
                event(self._log, logging.WARNING, "alarms left out", count=self._left_out)
            self._begin_ms, self._left_out = now_ms, 0
            self._said.clear()
        if what in self._said or len(self._said) >= ALARMS_MAX:
            self._left_out += 1
        else:
            self._said.add(what)
            event(self._log, logging.WARNING, "alarm", what=what)
