"""Which connection a server serves next, when more has arrived than one iteration of the loop should handle.

The cost of a request is its bytes, received and answered, and a fixed sum for the call of its handler. Once
an iteration has reached its limit, other frames wait, and the loop polls its sockets before it continues.
Connections then continue in the order of start-time fair queuing, with a credit for those that have used
little: a client that uses less than its share does not wait for those that read megabytes, however many.

Source: Goyal, Vin, Cheng: Start-time Fair Queuing, SIGCOMM 1996; the credit is that of Linux' CFS.
"""

import asyncio
import itertools
from heapq import heappop, heappush
from typing import Protocol

ITERATION_BYTES = 1 << 20
"""What one iteration of the event loop may cost; one request may cost more."""
REQUEST_BYTES = 8 << 10
"""Cost of a call of a handler, in addition to the bytes: copying this many takes about as long."""
CREDIT_BYTES = 4 << 20
"""How far a connection may lead the others, or lag: older use does not count."""


class Flow(Protocol):
    """A connection."""

    finish_tag: int

    def handle_queued(self) -> None:
        """Handle frames that waited."""

    def abort(self) -> None:
        """Close at once: it could not handle them."""


class FairQueue:
    """Connections of a server with frames that wait for another iteration.

    Invariant: while a connection waits, a run of the queue is scheduled.
    """

    __slots__ = ("_loop", "_numbers", "_scheduled", "_spent", "_virtual", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """No connection waits.

        Args:
            loop: The event loop of the connections.
        """
        self._loop = loop
        self._waiting: list[tuple[int, int, Flow]] = []
        self._numbers = itertools.count()
        self._spent = 0
        self._scheduled = False
        # Virtual time: the highest start tag of the connections that have waited.
        self._virtual = 0

    @property
    def exhausted(self) -> bool:
        """Whether this iteration has cost its limit."""
        return self._spent > ITERATION_BYTES

    def charge(self, flow: Flow, cost_bytes: int) -> bool:
        """Charge a connection for what was handled; return whether the rest waits for another iteration.

        Costs of earlier iterations count as well, until together they reach the limit: so a server with
        little to do schedules nothing.
        """
        # Written out: once for every request. It is min(start tag + cost, virtual time + credit).
        lag_bytes = flow.finish_tag - self._virtual
        if -CREDIT_BYTES <= lag_bytes <= CREDIT_BYTES - cost_bytes:
            flow.finish_tag += cost_bytes
        else:
            flow.finish_tag = self._virtual + min(max(lag_bytes, -CREDIT_BYTES) + cost_bytes, CREDIT_BYTES)
        spent = self._spent = self._spent + cost_bytes
        if spent <= ITERATION_BYTES:
            return False
        self._schedule()
        return True

    def wait(self, flow: Flow) -> None:
        """Let a connection continue in another iteration."""
        heappush(self._waiting, (self._start_tag(flow), next(self._numbers), flow))
        self._schedule()

    def _start_tag(self, flow: Flow) -> int:
        return max(flow.finish_tag, self._virtual - CREDIT_BYTES)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        self._spent = 0
        waiting = self._waiting
        try:
            while waiting and not self.exhausted:
                start_tag, _, flow = heappop(waiting)
                self._virtual = max(self._virtual, start_tag)
                try:
                    flow.handle_queued()
                except BaseException:
                    flow.abort()
                    raise
        finally:
            if waiting:
                self._schedule()
