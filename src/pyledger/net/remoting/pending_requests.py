"""Requests whose answer is awaited."""

import asyncio
from array import array
from collections.abc import Callable
from typing import Protocol

from pyledger.errors import RemotingError, RemotingTimeoutError
from pyledger.net.request_limits import Permits
from pyledger.net.timers import Timer
from pyledger.wire.remoting.command import RemotingCommand

Outcome = RemotingCommand | RemotingError
Done = Callable[[Outcome], None]

TOGETHER_S = 0.01
"""A moment: so much later than the others a call may be told that it is late."""


class Call(Protocol):
    """Told once what became of its request."""

    def finish(self, outcome: Outcome | None) -> None:
        """Take the answer, or the error; None: it was handed over already."""


class ResponseFuture(Timer):
    """One request in flight. It ends once: answered, late, cut off with its connection, or abandoned."""

    __slots__ = ("_address", "_done", "_opaque", "_permits", "_table", "_timeout_ms")

    def __init__(
        self,
        table: dict[int, Call],
        opaque: int,
        permits: Permits,
        address: str,
        timeout_ms: int,
        done: Done,
    ) -> None:
        """Enter the call into the `table` of its connection. It holds one of the `permits`.

        Args:
            table: Calls of the connection, by opaque.
            opaque: Ties the answer to this call.
            permits: Where the permit goes back to.
            address: Of the peer.
            timeout_ms: What the caller gave it; the timer may be armed with less.
            done: Told the outcome.
        """
        super().__init__()
        self._table = table
        self._opaque = opaque
        self._permits = permits
        self._address = address
        self._timeout_ms = timeout_ms
        self._done = done
        table[opaque] = self

    def finish(self, outcome: Outcome | None) -> None:
        """Hand the outcome to whoever waits; the table has forgotten the call already."""
        assert outcome is not None
        self.cancel()
        self._permits.give()
        self._done(outcome)

    def expire(self) -> None:
        """No answer came in time."""
        if self.forget():
            self.finish(RemotingTimeoutError(self._address, self._timeout_ms))

    def abandon(self) -> None:
        """Nobody waits any more; an answer that still comes is dropped."""
        if self.forget():
            self.cancel()
            self._permits.give()

    def forget(self) -> bool:
        """Take the call out of its table; False when it has ended."""
        return self._table.pop(self._opaque, None) is not None


class TimeoutBucket(Timer):
    """Calls of one moment with one limit of time: one timer for all of them."""

    __slots__ = ("_late", "closes_at", "opaques", "sent_at", "timeout_ms")

    def __init__(self, sent_at: float, timeout_ms: int, late: Callable[["TimeoutBucket"], None]) -> None:
        """Begin with none.

        Args:
            sent_at: Now, by the clock of the event loop.
            timeout_ms: What the calls have.
            late: Called when their time is over.
        """
        super().__init__()
        self.sent_at = sent_at
        self.closes_at = sent_at + TOGETHER_S
        self.timeout_ms = timeout_ms
        self.opaques = array("i")
        self._late = late

    def expire(self) -> None:
        """Their time is over."""
        self._late(self)


def settle(future: asyncio.Future[RemotingCommand], outcome: Outcome) -> None:
    """Give a future what became of its call."""
    if future.done():
        return
    if isinstance(outcome, RemotingError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
