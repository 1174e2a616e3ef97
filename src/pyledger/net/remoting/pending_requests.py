"""The timeout of requests that were sent at about the same time."""

from array import array
from collections.abc import Callable

from pyledger.net.timers import Timer

BUCKET_MS = 10
"""Requests sent within this time share one timer, so a timeout is noticed up to this much later."""


class TimeoutBucket(Timer):
    """Requests of one connection that were sent at about the same time with the same timeout: one timer."""

    __slots__ = ("_on_timeout", "closes_at", "opaques", "sent_at", "timeout_ms")

    def __init__(
        self, sent_at: float, timeout_ms: int, on_timeout: Callable[["TimeoutBucket"], None]
    ) -> None:
        """Create an empty bucket.

        Args:
            sent_at: Now, by the clock of the event loop.
            timeout_ms: Of each request.
            on_timeout: Called when the timeout is over, whether or not a request is still in flight.
        """
        super().__init__()
        self.sent_at = sent_at
        self.closes_at = sent_at + BUCKET_MS / 1000
        self.timeout_ms = timeout_ms
        self.opaques = array("i")
        self._on_timeout = on_timeout

    def expire(self) -> None:
        """Report the timeout."""
        self._on_timeout(self)
