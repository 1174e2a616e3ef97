"""What all connections of a server may hold together.

Counted are frames that have begun, frames and requests that wait for their turn or their answer, and answers
that the kernel has not taken. With more than the limit no connection is read from until some of it has gone;
where nothing goes, because frames do not end or answers are not read, who holds most is cut.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from pyledger.log_events import event, logger

log = logger("net")

STALL_S = 2.0
"""Over the limit, and nothing has gone for so long: somebody is cut."""


class Holder(Protocol):
    """A connection."""

    held_bytes: int
    remote_address: str

    def has_work(self) -> bool:
        """Whether requests are in work, which end by themselves."""

    def stop_reading(self) -> bool:
        """Pause; False where it is paused already, or is never."""

    def go_on(self) -> None:
        """Read on, unless there are reasons of its own not to."""

    def abort(self) -> None:
        """Close at once."""


class HeldMemory:
    """The sum over all connections of one side."""

    __slots__ = ("_holders", "_least", "_loop", "_paused", "_timer", "limit_bytes", "total_bytes")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit_bytes: int, holders: Callable[[], Iterable[Holder]]
    ) -> None:
        """Nothing is held yet.

        Args:
            loop: The event loop of the connections.
            limit_bytes: What they may hold together.
            holders: All of them.
        """
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self._loop = loop
        self._holders = holders
        self._paused: dict[Holder, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._least = 0

    @property
    def exhausted(self) -> bool:
        """Whether nothing more should be read."""
        return self.total_bytes > self.limit_bytes

    def change(self, difference_bytes: int) -> None:
        """A connection holds more, or less."""
        self.total_bytes += difference_bytes
        if self._paused and not self.exhausted:
            paused, self._paused = self._paused, {}
            for one in paused:
                self._loop.call_soon(one.go_on)

    def pause(self, holder: Holder) -> None:
        """Pause a connection that found memory exhausted, and with the first of them all others."""
        if not self._paused:
            # What is ready to be read is not read any more in this turn of the event loop.
            self._paused = {one: None for one in self._holders() if one.stop_reading()}
        self._paused[holder] = None
        if self._timer is None:
            event(log, logging.WARNING, "requests wait for memory", held_bytes=self.total_bytes)
            self._least = self.total_bytes
            self._timer = self._loop.call_later(STALL_S, self._look)

    def forget(self, holder: Holder, left_bytes: int) -> None:
        """A connection is gone; its requests in work hold `left_bytes` until they end."""
        self._paused.pop(holder, None)
        difference, holder.held_bytes = left_bytes - holder.held_bytes, left_bytes
        self.change(difference)

    def close(self) -> None:
        """Cut nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Cut who holds most, where nothing has gone since the last look."""
        self._timer = None
        if not self.exhausted:
            return
        # What no connection holds are requests in work whose connection is gone: they end by themselves, too.
        working = any(one.has_work() for one in self._holders())
        working = working or self.total_bytes > sum(one.held_bytes for one in self._holders())
        if self.total_bytes >= self._least and not working:
            most = max(self._holders(), key=lambda one: one.held_bytes)
            event(
                log,
                logging.WARNING,
                "connection cut for memory",
                peer=most.remote_address,
                held_bytes=most.held_bytes,
                limit_bytes=self.limit_bytes,
            )
            most.abort()
        self._least = self.total_bytes
        self._timer = self._loop.call_later(STALL_S, self._look)
