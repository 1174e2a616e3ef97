"""Many timeouts, one timer of the event loop.

Timers of one tick share a bucket. Starting and cancelling one costs a dictionary entry; the loop is woken
once per tick in which something may expire, and never when nothing is armed.
Invariant: `_ticks` holds every key of `_buckets` once; the loop's timer is armed for the lowest or earlier.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush


class Timer:
    """Something that expires. `expire` is called once, from the event loop."""

    __slots__ = ("bucket",)

    bucket: "dict[Timer, None] | None"

    def __init__(self) -> None:
        self.bucket = None

    def expire(self) -> None:
        """The time is over."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Do not expire. Nothing happens when it has, or was never armed."""
        if self.bucket is not None:
            self.bucket.pop(self, None)
            self.bucket = None


class Alarm(Timer):
    """A timer that calls a function."""

    __slots__ = ("_action",)

    _action: Callable[[], None] | None

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self._action = action

    def expire(self) -> None:
        """Call it."""
        if self._action is not None:
            self._action()

    def dispose(self) -> None:
        """Cancel it for good, and let go of the function: its owner may own this alarm."""
        self.cancel()
        self._action = None


class TimerWheel:
    """All timers of one process side."""

    __slots__ = ("_alarm", "_buckets", "_loop", "_ticks", "tick_ms")

    def __init__(self, loop: asyncio.AbstractEventLoop, tick_ms: int = 10) -> None:
        self._loop = loop
        self.tick_ms = tick_ms
        self._buckets: dict[int, dict[Timer, None]] = {}
        self._ticks: list[int] = []
        self._alarm: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def arm(self, timer: Timer, after_ms: float) -> None:
        """Let `timer` expire after `after_ms`, at most one tick late; it must not be armed yet.

        Cost: about 0.3 µs; O(log n) in the ticks in use when it is the first of its tick.
        """
        tick = int((self._loop.time() * 1000 + after_ms) // self.tick_ms) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._set_alarm(tick)
        bucket[timer] = None
        timer.bucket = bucket

    def close(self) -> None:
        """Forget all timers."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._buckets.clear()
        self._ticks.clear()

    def _set_alarm(self, tick: int) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(tick * self.tick_ms / 1000, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        # The loop may call a little early, within the resolution of its clock.
        now = self._loop.time() * 1000 + 0.5
        while self._ticks and self._ticks[0] * self.tick_ms <= now:
            bucket = self._buckets.pop(heappop(self._ticks))
            for timer in tuple(bucket):
                if timer in bucket:
                    del bucket[timer]
                    timer.bucket = None
                    timer.expire()
        # Ticks whose timers were all cancelled need no wake-up.
        while self._ticks and not self._buckets[self._ticks[0]]:
            del self._buckets[heappop(self._ticks)]
        if self._ticks:
            self._set_alarm(self._ticks[0])
