"""The only module that reads the system clock. All other code takes a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time for a store's services."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970 UTC; it may jump."""

    def monotonic_ms(self) -> int:
        """Return milliseconds of the monotonic clock; for intervals only."""

    def monotonic_ns(self) -> int:
        """Return the monotonic clock in nanoseconds."""

    def hour_of_day(self) -> int:
        """Return the local hour, 0 to 23, as `deleteWhen` uses it."""


class SystemClock:
    """The system clock."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the monotonic clock in milliseconds."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Return the monotonic clock in nanoseconds."""
        return time.monotonic_ns()

    def hour_of_day(self) -> int:
        """Return the local hour, 0 to 23."""
        return time.localtime().tm_hour
