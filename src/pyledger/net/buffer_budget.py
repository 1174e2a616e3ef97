"""What all connections of a server may hold together.

Counted are frames that have begun, frames and requests that wait for their turn or their answer, and answers
that the kernel has not taken. With more than the limit a connection that holds more than a fair share, the
limit divided by the number of connections, is not read from; the others go on as if nothing were. Who holds
most without getting on is cut after a time, or at once where even a quarter more is held.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from pyledger.log_events import event, logger

log = logger("net")

STALL_S = 1.0
"""Over the limit for so long: those are cut that have not got on meanwhile."""
PROGRESS_BYTES = 64 << 10
"""A connection that completed or read less since the last check has made no progress."""


class Holder(Protocol):
    """A connection."""

    held_bytes: int
    remote_address: str

    def work_bytes(self) -> int:
        """Size of its requests in work, which end by themselves; the rest waits for the peer."""

    def done_bytes(self) -> int:
        """Whole frames received and bytes written since it was opened."""

    def stop_reading(self) -> bool:
        """Pause, and say so by `BufferBudget.paused`; False where it is paused already, or is never."""

    def go_on(self) -> None:
        """Read on, unless there are reasons of its own not to."""

    def abort(self) -> None:
        """Close at once."""


class BufferBudget:
    """The sum over all connections of one side.

    Invariant: a holder of no more than its share waits only while `total_bytes` is above `most_bytes`, and is
    never cut.
    """

    __slots__ = (
        "_done",
        "_holders",
        "_loop",
        "_overflowing",
        "_paused",
        "_timer",
        "limit_bytes",
        "low_bytes",
        "most_bytes",
        "total_bytes",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit_bytes: int, holders: Callable[[], Collection[Holder]]
    ) -> None:
        """Nothing is held yet.

        Args:
            loop: The event loop of the connections.
            limit_bytes: What they may hold together.
            holders: All of them.
        """
        self.limit_bytes = limit_bytes
        self.most_bytes = limit_bytes // 4 * 5
        self.low_bytes = limit_bytes // 4 * 3
        self.total_bytes = 0
        self._loop = loop
        self._holders = holders
        self._paused: dict[Holder, None] = {}
        self._overflowing = False
        self._timer: asyncio.TimerHandle | None = None
        # What each had done at the last look.
        self._done: dict[Holder, int] = {}

    def must_wait(self, holder: Holder) -> bool:
        """Whether nothing more should be read from a connection."""
        total = self.total_bytes
        if total <= self.limit_bytes:
            return False
        return holder.held_bytes > self._share_bytes() or total > self.most_bytes

    def change(self, difference_bytes: int) -> None:
        """A connection holds more, or less."""
        total = self.total_bytes = self.total_bytes + difference_bytes
        if self._overflowing and total <= self.most_bytes:
            self._overflowing = False
            self._resume()
        elif self._paused and total <= self.limit_bytes:
            self._resume()

    def paused(self, holder: Holder) -> None:
        """A connection is paused: where it waits for memory, it goes on when there is some."""
        if not self.must_wait(holder):
            return
        self._paused[holder] = None
        if self.total_bytes > self.most_bytes and not self._overflowing:
            self._overflowing = True
            # What is ready to be read is not read any more in this turn of the event loop.
            for one in self._holders():
                one.stop_reading()
            self._loop.call_soon(lambda: self._cut(self._holders()))
        if self._timer is None:
            event(log, logging.WARNING, "requests wait for memory", held_bytes=self.total_bytes)
            self._watch()

    def forget(self, holder: Holder, left_bytes: int) -> None:
        """A connection is gone; its requests in work hold `left_bytes` until they end."""
        self._paused.pop(holder, None)
        self._done.pop(holder, None)
        difference, holder.held_bytes = left_bytes - holder.held_bytes, left_bytes
        self.change(difference)

    def close(self) -> None:
        """Cut nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _share_bytes(self) -> int:
        return self.limit_bytes // max(1, len(self._holders()))

    def _resume(self) -> None:
        paused, self._paused = self._paused, {}
        for one in paused:
            self._loop.call_soon(one.go_on)

    def _watch(self) -> None:
        self._done = {one: one.done_bytes() for one in self._holders()}
        self._timer = self._loop.call_later(STALL_S, self._look)

    def _look(self) -> None:
        """Cut those that have not got on, until there is room again: a few bytes less are not enough."""
        self._timer = None
        done, self._done = self._done, {}
        if self.total_bytes > self.low_bytes:
            self._cut([one for one, before in done.items() if one.done_bytes() - before < PROGRESS_BYTES])
            self._watch()

    def _cut(self, candidates: Collection[Holder]) -> None:
        """Cut who holds most until what waits for peers is half the limit.

        Not one at a time: those that come back would fill its room at once.
        """
        stuck = {one: one.held_bytes - one.work_bytes() for one in self._holders()}
        left_bytes, share_bytes, cut = sum(stuck.values()), self._share_bytes(), list[Holder]()
        for one in sorted(candidates, key=stuck.__getitem__, reverse=True):
            if left_bytes <= self.limit_bytes // 2 or stuck[one] <= share_bytes:
                break
            cut.append(one)
            left_bytes -= stuck[one]
        if cut:
            event(
                log,
                logging.WARNING,
                "connections cut for memory",
                count=len(cut),
                most=cut[0].remote_address,
                held_bytes=cut[0].held_bytes,
                limit_bytes=self.limit_bytes,
            )
        for one in cut:
            one.abort()
