"""Times as callers give them."""

from datetime import datetime
from typing import overload

from pyledger.errors import ConfigError

Time = int | datetime
TIME_MAX_MS = (1 << 63) - 1


@overload
def time_ms(field: str, value: Time) -> int: ...


@overload
def time_ms(field: str, value: Time | None) -> int | None: ...


def time_ms(field: str, value: Time | None) -> int | None:
    """Return a time as ms since 1970.

    Args:
        field: Name of the argument, for the error.
        value: Ms since 1970, or a datetime with a time zone.

    Raises:
        ConfigError: the value has another type or is out of range, or a datetime has no time zone.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigError(field, f"{value} has no time zone", "give one, such as datetime.UTC")
        return round(value.timestamp() * 1000)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(field, f"{value!r} is not a time", "give ms since the epoch, or a datetime")
    if abs(value) > TIME_MAX_MS + 1:
        raise ConfigError(field, f"{value} ms is out of range", "give ms since the epoch, or a datetime")
    return max(-TIME_MAX_MS, min(value, TIME_MAX_MS))


def stored_between(since: Time | None, until: Time | None) -> tuple[int, int]:
    """Return the first and the last ms of the range from `since` up to, but not including, `until`."""
    since_ms, until_ms = time_ms("since", since), time_ms("until", until)
    return since_ms or 0, TIME_MAX_MS if until_ms is None else until_ms - 1
