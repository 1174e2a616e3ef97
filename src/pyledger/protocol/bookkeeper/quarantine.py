"""Bookies that failed recently: which of them writers do not choose, and for how long.

A failed bookie is avoided for a time: it is chosen only if an entry could not get its quorum otherwise. Even
then it rests first, twice as long after each failure. Without a rest, dead bookies that are still registered
would replace each other endlessly, each time with a write to the metadata.

Source: BookKeeper client/BookieWatcherImpl.java (quarantined bookies), where a writer may choose one at once.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyledger.protocol.bookkeeper.ledger_writer import Replacements
from pyledger.protocol.bookkeeper.placement import Placement

REST_MS = 1_000
"""Rest after the first failure."""


@dataclass(slots=True)
class _Failed:
    at_ms: int
    rests_until_ms: int
    rest_ms: int


class Quarantine:
    """The failed bookies of one client. Time is an argument and never decreases."""

    def __init__(self, history_ms: int) -> None:
        """No bookie has failed.

        Args:
            history_ms: How long a failure counts, and the longest rest.
        """
        self._history_ms = history_ms
        self._failed: dict[str, _Failed] = {}

    def failed(self, bookie: str, now_ms: int) -> None:
        """Handle a failed request. Failures during a rest are those of earlier requests."""
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
        """Return those of them that are not chosen at all."""
        return [name for name in self.avoided(now_ms) if self._failed[name].rests_until_ms > now_ms]

    def rested_ms(self, bookies: Collection[str]) -> int:
        """Return when the first of some resting bookies may be chosen again."""
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
    """Choose replacements of failed bookies; see `ledger_writer.Replace`.

    Args:
        placement: Chooses among the candidates.
        quarantine: The bookies that failed recently.
        writable: All writable bookies.
        ensemble: The current bookies.
        failed: Bookies to replace, by index in the ensemble.
        now_ms: The time.
        needed: Without a replacement an entry cannot get its quorum.
    """
    avoided, resting = quarantine.avoided(now_ms), quarantine.resting(now_ms)
    excluded = resting if needed else avoided
    candidates = [one for one in writable if one not in excluded]
    others = placement.replacements(ensemble, failed, candidates, avoided)
    waits = [one for one in writable if one in resting and one not in ensemble]
    return Replacements(others, quarantine.rested_ms(waits) if needed and waits and not others else None)
