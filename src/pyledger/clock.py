"""The one place of the store that reads a clock. Everything else takes a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where the store's services get the time from."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970 UTC; may step."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; for intervals only."""

    def monotonic_ns(self) -> int:
        """The same clock in nanoseconds."""

    def hour_of_day(self) -> int:
        """Local hour, 0 to 23: what `deleteWhen` names."""


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """The same clock in nanoseconds."""
        return time.monotonic_ns()

    def hour_of_day(self) -> int:
        """Local hour, 0 to 23."""
        return time.localtime().tm_hour
