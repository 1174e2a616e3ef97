"""Which bookies a ledger is spread over.

Racks are paths, such as `/region/rack`; a bookie whose rack is not known has the default one. Neighbours in
an ensemble hold the copies of one entry, so that is where other regions, then other racks, are sought.

Source: BookKeeper client/RackawareEnsemblePlacementPolicyImpl.java.
"""

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass

DEFAULT_RACK = "/default-region/default-rack"
Shuffle = Callable[[MutableSequence[str]], None]
RackOf = Callable[[str], str | None]
"""Where a bookie stands, `/region/rack`; None: nobody knows."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Chooses bookies.

    Attributes:
        shuffle: Brings a list into an order by chance.
        rack_of: Where bookies stand.
        racks_min: Racks that one entry's copies should be spread over.
    """

    shuffle: Shuffle
    rack_of: RackOf = lambda _bookie: None
    racks_min: int = 2

    def ensemble(
        self, candidates: Sequence[str], count: int, write_quorum: int, avoid: Sequence[str] = ()
    ) -> tuple[str, ...] | None:
        """Bookies for a new ledger; None: there are not enough.

        Args:
            candidates: All that can be written to.
            count: How many are needed.
            write_quorum: Copies of an entry.
            avoid: Taken only when there are no others.
        """
        left = self._ordered(candidates, avoid)
        chosen: list[str] = []
        while left and len(chosen) < count:
            window = chosen[-max(write_quorum - 1, 1) :]
            # The last ones are neighbours of the first ones.
            if len(chosen) == count - 1:
                window = window + chosen[: max(write_quorum - 1, 1)]
            chosen.append(self._take(left, window, avoid, fill=len(self._racks_of(chosen)) >= self.racks_min))
        return tuple(chosen) if len(chosen) == count else None

    def replacements(
        self,
        ensemble: Sequence[str],
        failed: Mapping[int, str],
        candidates: Sequence[str],
        avoid: Sequence[str] = (),
    ) -> dict[int, str]:
        """Other bookies by place, as many as there are.

        First one of the failed bookie's rack, then one of a rack that the ensemble does not have, then any.

        Args:
            ensemble: As it is.
            failed: Bookies to replace, by place.
            candidates: All that can be written to.
            avoid: Taken only when there are no others.
        """
        left = [one for one in self._ordered(candidates, avoid) if one not in ensemble]
        stay = [bookie for place, bookie in enumerate(ensemble) if place not in failed]
        found: dict[int, str] = {}
        for place, bookie in sorted(failed.items()):
            if not left:
                break
            rack, taken = self._rack(bookie), self._racks_of([*stay, *found.values()])
            left.sort(key=lambda one: (one in avoid, self._rack(one) != rack, self._rack(one) in taken))
            found[place] = left.pop(0)
        return found

    def _ordered(self, candidates: Sequence[str], avoid: Sequence[str]) -> list[str]:
        order = sorted(candidates)
        self.shuffle(order)
        return sorted(order, key=lambda one: one in avoid)

    def _take(self, left: list[str], window: Sequence[str], avoid: Sequence[str], *, fill: bool) -> str:
        regions = {_region(self._rack(one)) for one in window}
        racks = self._racks_of(window)

        def cost(one: str) -> tuple[bool, bool, bool]:
            rack = self._rack(one)
            return one in avoid, _region(rack) in regions, rack in racks and not fill

        best = min(left, key=cost)
        left.remove(best)
        return best

    def _rack(self, bookie: str) -> str:
        return self.rack_of(bookie) or DEFAULT_RACK

    def _racks_of(self, bookies: Sequence[str]) -> dict[str, None]:
        return dict.fromkeys(map(self._rack, bookies))


def _region(rack: str) -> str:
    return rack.strip("/").partition("/")[0]
