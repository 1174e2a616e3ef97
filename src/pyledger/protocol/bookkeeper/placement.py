"""The choice of bookies for an ensemble.

Racks are paths, such as `/region/rack`; a bookie of an unknown rack has the default one. Neighbours in an
ensemble store the replicas of one entry, so they should be in different regions, or at least different racks.

Source: BookKeeper client/RackawareEnsemblePlacementPolicyImpl.java.
"""

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass

DEFAULT_RACK = "/default-region/default-rack"
Shuffle = Callable[[MutableSequence[str]], None]
RackOf = Callable[[str], str | None]
"""Returns the rack of a bookie, `/region/rack`; None: unknown."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Chooses bookies.

    Attributes:
        shuffle: Shuffles a list in place.
        rack_of: Returns the rack of a bookie.
        racks_min: Racks that the replicas of one entry should be spread over.
    """

    shuffle: Shuffle
    rack_of: RackOf = lambda _bookie: None
    racks_min: int = 2

    def ensemble(
        self, candidates: Sequence[str], count: int, write_quorum: int, avoid: Sequence[str] = ()
    ) -> tuple[str, ...] | None:
        """Choose the bookies of a new ledger; None: there are not enough.

        Args:
            candidates: All writable bookies.
            count: Size of the ensemble.
            write_quorum: Replicas of an entry.
            avoid: Chosen only if there are no others.
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
        """Choose replacements, by index in the ensemble, as many as are available.

        Bookies in the rack of the failed one come first, then those in a rack that the ensemble does not
        have.

        Args:
            ensemble: The current bookies.
            failed: Bookies to replace, by index in the ensemble.
            candidates: All writable bookies.
            avoid: Chosen only if there are no others.
        """
        left = [one for one in self._ordered(candidates, avoid) if one not in ensemble]
        stay = [bookie for index, bookie in enumerate(ensemble) if index not in failed]
        found: dict[int, str] = {}
        for index, bookie in sorted(failed.items()):
            if not left:
                break
            rack, taken = self._rack(bookie), self._racks_of([*stay, *found.values()])
            left.sort(key=lambda one: (one in avoid, self._rack(one) != rack, self._rack(one) in taken))
            found[index] = left.pop(0)
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
