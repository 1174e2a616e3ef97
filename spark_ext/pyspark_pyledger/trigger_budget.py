"""Divide the row limit of a trigger among sources or queues."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def shares(waiting: Mapping[K, int], limit: int) -> dict[K, int]:
    """Return the rows that each may take: in proportion to its lag, and at least one if the limit allows.

    Args:
        waiting: Lag in rows, by source or queue.
        limit: Rows of all together, at least 1. The shares add up to it if the total lag reaches it.
    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    first = 1 if limit >= sum(count > 0 for count in waiting.values()) else 0
    ahead = {key: min(first, count) for key, count in waiting.items()}
    spare, rest = limit - sum(ahead.values()), total - sum(ahead.values())
    taken, passed = {}, 0
    for key, count in waiting.items():
        # Rounded so that the sum is the limit.
        before, passed = passed, passed + count - ahead[key]
        taken[key] = ahead[key] + passed * spare // rest - before * spare // rest
    return taken
