"""Fragments of a ledger, and which of their copies are missing.

A fragment is what the entries of one ensemble are. Its copies at a bookie are taken for whole when the first
and the last entry are there that the bookie should have; a full check reads every entry.

Source: BookKeeper client/LedgerChecker.java, LedgerFragment.java.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyledger.protocol.bookkeeper.entry import LedgerEntry
from pyledger.protocol.bookkeeper.entry_reader import SendRead
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.protocol.bookkeeper.result_codes import Result


@dataclass(frozen=True, slots=True)
class Fragment:
    """Entries that one ensemble holds; at least one.

    Attributes:
        first_entry_id: Where its segment begins.
        last_entry_id: The last one that is known to be confirmed.
        ensemble: Its bookies, by place.
        sealed: Nobody adds to it any more.
    """

    first_entry_id: int
    last_entry_id: int
    ensemble: tuple[str, ...]
    sealed: bool

    @property
    def entry_ids(self) -> range:
        """All of its entries."""
        return range(self.first_entry_id, self.last_entry_id + 1)


@dataclass(frozen=True, slots=True)
class MissingReplicas:
    """Places of a fragment without their copies, and how that was seen."""

    fragment: Fragment
    places: Mapping[int, Result]

    @property
    def bookies(self) -> tuple[str, ...]:
        """The bookies at those places."""
        return tuple(self.fragment.ensemble[place] for place in self.places)


def fragments_of(metadata: LedgerMetadata, last_add_confirmed: int) -> tuple[Fragment, ...]:
    """Fragments with entries that are confirmed, by their first entry.

    Args:
        metadata: Of the ledger.
        last_add_confirmed: Of a ledger that is not closed.
    """
    end = metadata.last_entry_id if metadata.closed else last_add_confirmed
    found = []
    for one, following in pairwise((*metadata.segments, None)):
        assert one is not None
        last = end if following is None else following.first_entry_id - 1
        sealed = metadata.closed or (following is not None and last <= end)
        if one.first_entry_id <= min(last, end):
            found.append(Fragment(one.first_entry_id, min(last, end), one.ensemble, sealed))
    return tuple(found)


def held_by(metadata: LedgerMetadata, fragment: Fragment, place: int) -> Iterator[int]:
    """Entries of a fragment that belong to a place, ascending."""
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    return (entry_id for entry_id in fragment.entry_ids if (place - entry_id) % size < quorum)


def ends_at(metadata: LedgerMetadata, fragment: Fragment, place: int) -> tuple[int, ...]:
    """The first and the last entry of a fragment that belong to a place; one or none in a short fragment."""
    size, quorum, ids = metadata.ensemble_size, metadata.write_quorum, fragment.entry_ids
    found = []
    for near in (ids[:size], ids[::-1][:size]):
        held = next((entry_id for entry_id in near if (place - entry_id) % size < quorum), None)
        if held is not None and held not in found:
            found.append(held)
    return tuple(found)


def named_in(metadata: LedgerMetadata, bookies: Collection[str]) -> tuple[str, ...]:
    """Those of some bookies that a ledger is spread over, sorted."""
    members = {bookie for segment in metadata.segments for bookie in segment.ensemble}
    return tuple(sorted(members.intersection(bookies)))


def keeps_entries(metadata: LedgerMetadata, bookie: str) -> bool:
    """Whether copies at a bookie may be needed: a ledger without an entry there can do without it."""
    if not metadata.closed:
        return bool(named_in(metadata, (bookie,)))
    return any(bookie in fragment.ensemble for fragment in fragments_of(metadata, metadata.last_entry_id))


class LedgerCheck:
    """Which copies of one ledger are missing. A shell sends what `ready` gives, and tells the answers."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        last_add_confirmed: int,
        there: Collection[str],
        *,
        every_entry: bool = False,
    ) -> None:
        """Nobody was asked yet.

        Args:
            metadata: As stored.
            last_add_confirmed: Of a ledger that is not closed.
            there: Bookies that are registered; copies at others are missing without a question.
            every_entry: Not the first and the last of each place alone.
        """
        self.metadata = metadata
        self.fragments = fragments_of(metadata, last_add_confirmed)
        self._lacking: dict[int, dict[int, Result]] = {}
        self._there, self._every_entry = frozenset(there), every_entry
        self._waiting: set[tuple[str, int]] = set()
        self._questions = self._all_questions()
        self._asked_all = False

    def ready(self, count_max: int) -> list[SendRead]:
        """What to ask next; `count_max` reads may wait for their answers in all."""
        sends: list[SendRead] = []
        while not self._asked_all and len(self._waiting) < count_max:
            read = next(self._questions, None)
            if read is None:
                self._asked_all = True
            else:
                self._waiting.add((read.bookie, read.entry_id))
                sends.append(read)
        return sends

    def answered(self, bookie: str, entry_id: int, result: Result, entry: LedgerEntry | None) -> None:
        """A bookie answered, or did not in time; a good answer without an entry had a wrong digest."""
        if (bookie, entry_id) not in self._waiting:
            return
        self._waiting.discard((bookie, entry_id))
        if result is Result.OK and entry is not None:
            return
        segment = self.metadata.segment_of(entry_id)
        place = segment.ensemble.index(bookie)
        found = Result.DIGEST_MATCH if result is Result.OK else result
        self._lacking.setdefault(segment.first_entry_id, {}).setdefault(place, found)

    @property
    def done(self) -> bool:
        """Whether all answers are there, once `ready` gave nothing more."""
        return self._asked_all and not self._waiting

    @property
    def lacking(self) -> tuple[MissingReplicas, ...]:
        """Fragments without some of their copies."""
        return tuple(
            MissingReplicas(fragment, dict(sorted(self._lacking[fragment.first_entry_id].items())))
            for fragment in self.fragments
            if fragment.first_entry_id in self._lacking
        )

    def _all_questions(self) -> Iterator[SendRead]:
        for fragment in self.fragments:
            for place, bookie in enumerate(fragment.ensemble):
                if bookie not in self._there:
                    missing = self._lacking.setdefault(fragment.first_entry_id, {})
                    missing[place] = Result.BOOKIE_NOT_AVAILABLE
                    continue
                asked = held_by if self._every_entry else ends_at
                for entry_id in asked(self.metadata, fragment, place):
                    if place in self._lacking.get(fragment.first_entry_id, ()):
                        break
                    yield SendRead(bookie, entry_id)
