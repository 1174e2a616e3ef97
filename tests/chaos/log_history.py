"""Check that the results of clients are possible for a single log (linearizable).

The order in the log is the order of operations, so there is nothing to search for. An append takes effect at
its index. A read that returned `index` takes effect after that entry and before the next one. It remains
to compare this order with the clock: no operation may begin after a later one in the log has ended.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

NEVER = float("inf")


class Outcome(Enum):
    """The result that a client got."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Append(NamedTuple):
    """A client appended a body that no other client appends. `end` is the time of the response (s)."""

    body: bytes
    begin: float
    end: float
    outcome: Outcome
    index: int = -1


class Read(NamedTuple):
    """A client requested the read index, and got it."""

    begin: float
    end: float
    index: int


class Effect(NamedTuple):
    """An operation with its position in the order: (index, 0) of an append, (index, 1) of a read."""

    place: tuple[int, int]
    begin: float
    end: float
    what: str


def violations(appends: Sequence[Append], reads: Sequence[Read], log: Mapping[int, bytes]) -> Iterator[str]:
    """Yield violations.

    Args:
        appends: All appends of all clients, each body once.
        reads: All reads that were answered.
        log: What every member holds in the end: bodies by index.
    """
    places: dict[bytes, int] = {}
    sent = {one.body: one for one in appends}
    for index, body in log.items():
        if body in places:
            yield f"{body!r} is at {places[body]} and at {index}"
        elif body not in sent:
            yield f"no client appended {body!r}, which is at {index}"
        places[body] = index
    for one in appends:
        place = places.get(one.body)
        if one.outcome is Outcome.DONE and place != one.index:
            yield f"{one.body!r} was acknowledged at {one.index} and is at {place}"
        elif one.outcome is Outcome.REFUSED and place is not None:
            yield f"{one.body!r} was rejected and is at {place}"
    yield from _disorder(sorted(_effects(appends, reads, places)))


def _effects(
    appends: Sequence[Append], reads: Sequence[Read], places: Mapping[bytes, int]
) -> Iterator[Effect]:
    for one in appends:
        if one.outcome is Outcome.DONE:
            yield Effect((one.index, 0), one.begin, one.end, f"append of {one.body!r}")
        elif one.body in places:  # it took effect at some time after it began
            yield Effect((places[one.body], 0), one.begin, NEVER, f"append of {one.body!r}")
    for read in reads:
        yield Effect((read.index, 1), read.begin, read.end, f"read up to {read.index}")


def _disorder(effects: Sequence[Effect]) -> Iterator[str]:
    """Yield operations that take effect after one that began only when they had ended."""
    latest: Effect | None = None
    for one in effects:
        if latest is not None and one.place != latest.place and one.end < latest.begin:
            yield f"{one.what} at {one.place[0]} ended before the {latest.what} began, and follows it"
        if latest is None or one.begin > latest.begin:
            latest = one
