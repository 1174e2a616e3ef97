"""How those for whom something waits share what a trigger may take."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def shares(waiting: Mapping[K, int], limit: int) -> dict[K, int]:
    """Rows that each may take: by what waits there, but one at least while there are enough.

    Args:
        waiting: Rows that wait, by whom.
        limit: Rows of all together, at least 1. They are all given away when so many wait.
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
