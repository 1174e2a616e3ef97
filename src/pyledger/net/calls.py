"""Requests whose answer is awaited."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyledger.errors import RemotingError, RemotingTimeoutError
from pyledger.net.timers import Timer
from pyledger.wire.remoting import RemotingCommand

if TYPE_CHECKING:
    from pyledger.net.stream import Connection

Outcome = RemotingCommand | RemotingError
Done = Callable[[Outcome], None]


class PendingCall(Timer):
    """One request in flight. It ends once: by its answer, its timeout, the end of its connection, or a cancel."""

    __slots__ = ("_connection", "_done", "_opaque", "timeout_ms")

    def __init__(self, connection: "Connection", opaque: int, timeout_ms: int, done: Done) -> None:
        super().__init__()
        self._connection = connection
        self._opaque = opaque
        self._done = done
        self.timeout_ms = timeout_ms

    def finish(self, outcome: Outcome) -> None:
        """Hand the outcome to whoever waits; the table has forgotten the call already."""
        self.cancel()
        self._connection.endpoint.async_permits.give()
        self._done(outcome)

    def expire(self) -> None:
        """No answer came in time."""
        if self._connection.calls.pop(self._opaque, None) is self:
            self.finish(RemotingTimeoutError(self._connection.remote_address, self.timeout_ms))

    def abandon(self) -> None:
        """Nobody waits any more; an answer that still comes is dropped."""
        if self._connection.calls.pop(self._opaque, None) is self:
            self.cancel()
            self._connection.endpoint.async_permits.give()
