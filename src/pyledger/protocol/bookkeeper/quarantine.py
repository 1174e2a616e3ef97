"""Bookies that failed lately: which of them writers do not choose, and for how long.

A bookie that failed is avoided for a time: it is chosen only where an entry lacks its quorum otherwise. Even
then it rests first, twice as long after each failure: bookies that are dead but still registered would be
changed for each other without end, each time with a write to the metadata.

Source: BookKeeper client/BookieWatcherImpl.java (quarantined bookies), which lets a writer change at once.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyledger.protocol.bookkeeper.ledger_writer import Replacements
from pyledger.protocol.bookkeeper.placement import Placement

REST_MS = 1_000
"""After the first failure."""


@dataclass(slots=True)
class _Failed:
    at_ms: int
    rests_until_ms: int
    rest_ms: int


class Quarantine:
    """Failures of bookies, as one client saw them. Time is an argument and never goes back."""

    def __init__(self, history_ms: int) -> None:
        """No bookie has failed.

        Args:
            history_ms: How long a failure counts, and the longest rest.
        """
        self._history_ms = history_ms
        self._failed: dict[str, _Failed] = {}

    def failed(self, bookie: str, now_ms: int) -> None:
        """A bookie did not do what it was asked. Failures while it rests are those of earlier requests."""
        known = self._failed.get(bookie)
        if known is not None and now_ms < known.rests_until_ms:
            known.at_ms = now_ms
            return
        rest_ms = REST_MS if known is None or self._is_over(known, now_ms) else 2 * known.rest_ms
        rest_ms = min(rest_ms, self._history_ms)
        self._failed[bookie] = _Failed(now_ms, now_ms + rest_ms, rest_ms)

    def avoided(self, now_ms: int) -> list[str]:
        """Return the bookies that failed recently."""
        if not self._failed:
            return []
        self._failed = {name: one for name, one in self._failed.items() if not self._is_over(one, now_ms)}
        return list(self._failed)

    def resting(self, now_ms: int) -> list[str]:
        """Those of them that are not chosen at all."""
        return [name for name in self.avoided(now_ms) if self._failed[name].rests_until_ms > now_ms]

    def rested_ms(self, bookies: Collection[str]) -> int:
        """When the first of some bookies that rest may be chosen again."""
        return min(self._failed[name].rests_until_ms for name in bookies)

    def _is_over(self, one: _Failed, now_ms: int) -> bool:
        return one.at_ms + self._history_ms < now_ms


def replacements(
    placement: Placement,
    quarantine: Quarantine,
    writable: Sequence[str],
    ensemble: tuple[str, ...],
    failed: Mapping[int, str],
    now_ms: int,
    *,
    needed: bool,
) -> Replacements:
    """Other bookies for those that failed; see `writer.Replace`.

    Args:
        placement: Chooses among those that may be chosen.
        quarantine: Who failed lately.
        writable: All that can be written to.
        ensemble: As it is.
        failed: Bookies to replace, by place.
        now_ms: The time.
        needed: An entry lacks its quorum without others.
    """
    avoided, resting = quarantine.avoided(now_ms), quarantine.resting(now_ms)
    left_out = resting if needed else avoided
    candidates = [one for one in writable if one not in left_out]
    others = placement.replacements(ensemble, failed, candidates, avoided)
    waits = [one for one in writable if one in resting and one not in ensemble]
    return Replacements(others, quarantine.rested_ms(waits) if needed and waits and not others else None)
