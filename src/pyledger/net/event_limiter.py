"""Bounded rates of log lines: neither a peer nor a fault that lasts can fill a disk with a server's log."""

import asyncio
import logging
from dataclasses import dataclass

from pyledger.log_events import event

PERIOD_S = 60
KINDS_MAX = 256
"""Kinds that are counted apart; one more is counted with all others of the same message."""

ALARMS_MAX = 10
"""Different log lines in `ALARM_INTERVAL_MS`; the rest is counted."""
ALARM_INTERVAL_MS = 60_000

Kind = tuple[str, str]
"""Message, and the source of its events: a line of code or a host."""


@dataclass(slots=True)
class _Period:
    """A minute in which further events of a kind are only counted."""

    target: logging.Logger
    level: int
    timer: asyncio.TimerHandle
    count: int = 0


class EventLimiter:
    """Logs the first event of a kind as it is, then once a minute how many more there were.

    Events are of one kind if their message is the same and, with an exception, the line of code that raised
    it, else the host of the peer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._periods: dict[Kind, _Period] = {}

    def event(
        self,
        target: logging.Logger,
        level: int,
        message: str,
        error: BaseException | None = None,
        /,
        *,
        peer: str,
        **fields: object,
    ) -> None:
        """Log an event of a peer (`ip:port`), with the traceback of an `error`; see `log_events.event`."""
        kind = message, peer.rpartition(":")[0] if error is None else _source_of(error)
        if kind not in self._periods and len(self._periods) >= KINDS_MAX:
            kind = message, "others"
        if (period := self._periods.get(kind)) is not None:
            period.count += 1
            return
        event(target, level, message, error, peer=peer, **fields)
        self._begin(target, level, kind)

    def _begin(self, target: logging.Logger, level: int, kind: Kind) -> None:
        self._periods[kind] = _Period(target, level, self._loop.call_later(PERIOD_S, self._end, kind))

    def _end(self, kind: Kind) -> None:
        period = self._periods.pop(kind)
        if period.count:
            _log_count(kind, period)
            self._begin(period.target, period.level, kind)

    def close(self) -> None:
        """Log the counts that are left."""
        for kind, period in self._periods.items():
            period.timer.cancel()
            if period.count:
                _log_count(kind, period)
        self._periods.clear()


def _log_count(kind: Kind, period: _Period) -> None:
    message, source = kind
    event(period.target, period.level, f"{message} again", source=source, count=period.count)


def _source_of(error: BaseException) -> str:
    """Type of an exception and the line of code that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}"


class Alarms:
    """Logs faults that may last for hours: each once in an interval, `ALARMS_MAX` of them at most."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._interval_start_ms = self._left_out = 0
        self._logged: set[str] = set()

    def warn(self, what: str, now_ms: int) -> None:
        """Log a line, unless it was logged in this interval already, or too many were."""
        if now_ms - self._interval_start_ms >= ALARM_INTERVAL_MS:
            if self._left_out:
                event(self._log, logging.WARNING, "alarms left out", count=self._left_out)
            self._interval_start_ms, self._left_out = now_ms, 0
            self._logged.clear()
        if what in self._logged or len(self._logged) >= ALARMS_MAX:
            self._left_out += 1
        else:
            self._logged.add(what)
            event(self._log, logging.WARNING, "alarm", what=what)
