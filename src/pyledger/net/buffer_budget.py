"""The bytes that all connections of a server may hold together.

Incomplete frames count, as do frames and requests that wait to be handled or answered, and responses that
the kernel has not accepted. Above the limit, a connection that holds more than a fair share, the limit
divided by the number of connections, is not read from; the others are not affected. The largest holders
without progress are aborted after `STALL_S`; when the limit is exceeded by a quarter, the largest are
aborted at once.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from pyledger.log_events import event, logger

log = logger("net")

STALL_S = 1.0
"""Above the limit for this long, connections that made no progress meanwhile are aborted."""
PROGRESS_BYTES = 64 << 10
"""A connection that completed or read less since the last check has made no progress."""


class Holder(Protocol):
    """A connection."""

    held_bytes: int
    remote_address: str

    def work_bytes(self) -> int:
        """Bytes of its requests being processed, which end by themselves; the rest waits for the peer."""

    def done_bytes(self) -> int:
        """Whole frames received and bytes written since it was opened."""

    def stop_reading(self) -> bool:
        """Pause and call `BufferBudget.paused`; False when it is paused already, or never pauses."""

    def go_on(self) -> None:
        """Read on, unless the connection has reasons of its own to stay paused."""

    def abort(self) -> None:
        """Close at once."""


class BufferBudget:
    """The sum over all connections of one side.

    Invariant: a holder of no more than its share waits only while `total_bytes` is above `most_bytes`, and is
    never aborted.
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
        # Bytes that each had done at the last check.
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
        """A connection was paused. If it waits for memory, it is resumed once enough is free."""
        if not self.must_wait(holder):
            return
        self._paused[holder] = None
        if self.total_bytes > self.most_bytes and not self._overflowing:
            self._overflowing = True
            # Nothing more is read in this iteration of the event loop.
            for one in self._holders():
                one.stop_reading()
            self._loop.call_soon(lambda: self._abort_largest(self._holders()))
        if self._timer is None:
            event(log, logging.WARNING, "requests wait for memory", held_bytes=self.total_bytes)
            self._watch()

    def forget(self, holder: Holder, left_bytes: int) -> None:
        """A connection is gone; its requests being processed hold `left_bytes` until they end."""
        self._paused.pop(holder, None)
        self._done.pop(holder, None)
        difference, holder.held_bytes = left_bytes - holder.held_bytes, left_bytes
        self.change(difference)

    def close(self) -> None:
        """Stop watching for connections to abort."""
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
        self._timer = self._loop.call_later(STALL_S, self._check)

    def _check(self) -> None:
        """While more than `low_bytes` are held, abort connections without progress."""
        self._timer = None
        done, self._done = self._done, {}
        if self.total_bytes > self.low_bytes:
            self._abort_largest(
                [one for one, before in done.items() if one.done_bytes() - before < PROGRESS_BYTES]
            )
            self._watch()

    def _abort_largest(self, candidates: Collection[Holder]) -> None:
        """Abort the largest holders until what waits for peers is half the limit.

        Not one at a time: peers that reconnect would fill the freed memory at once.
        """
        stuck = {one: one.held_bytes - one.work_bytes() for one in self._holders()}
        left_bytes, share_bytes, aborted = sum(stuck.values()), self._share_bytes(), list[Holder]()
        for one in sorted(candidates, key=stuck.__getitem__, reverse=True):
            if left_bytes <= self.limit_bytes // 2 or stuck[one] <= share_bytes:
                break
            aborted.append(one)
            left_bytes -= stuck[one]
        if aborted:
            event(
                log,
                logging.WARNING,
                "connections aborted for memory",
                count=len(aborted),
                most=aborted[0].remote_address,
                held_bytes=aborted[0].held_bytes,
                limit_bytes=self.limit_bytes,
            )
        for one in aborted:
            one.abort()
