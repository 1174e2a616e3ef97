"""Fragments of a ledger, and their missing replicas.

A fragment is the entries of one ensemble. A check reads the first and the last entry that each bookie should
have; if both are there, it takes the replica for complete. A full check reads every entry.

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
    """The entries of one ensemble; at least one.

    Attributes:
        first_entry_id: The first entry of its segment.
        last_entry_id: The last entry that is known to be confirmed.
        ensemble: Its bookies; their order matters.
        sealed: No entries are added to it any more.
    """

    first_entry_id: int
    last_entry_id: int
    ensemble: tuple[str, ...]
    sealed: bool

    @property
    def entry_ids(self) -> range:
        """The ids of its entries."""
        return range(self.first_entry_id, self.last_entry_id + 1)


@dataclass(frozen=True, slots=True)
class MissingReplicas:
    """The missing replicas of a fragment: indexes in its ensemble, each with the result that showed it."""

    fragment: Fragment
    indexes: Mapping[int, Result]

    @property
    def bookies(self) -> tuple[str, ...]:
        """The bookies that should have these replicas."""
        return tuple(self.fragment.ensemble[index] for index in self.indexes)


def fragments_of(metadata: LedgerMetadata, last_add_confirmed: int) -> tuple[Fragment, ...]:
    """Return the fragments that have confirmed entries, ascending.

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


def held_by(metadata: LedgerMetadata, fragment: Fragment, index: int) -> Iterator[int]:
    """Yield the entries of a fragment that one bookie of its ensemble should have, ascending."""
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    return (entry_id for entry_id in fragment.entry_ids if (index - entry_id) % size < quorum)


def ends_at(metadata: LedgerMetadata, fragment: Fragment, index: int) -> tuple[int, ...]:
    """Return the first and the last entry that one bookie should have; a short fragment has one or none."""
    size, quorum, ids = metadata.ensemble_size, metadata.write_quorum, fragment.entry_ids
    found = []
    for near in (ids[:size], ids[::-1][:size]):
        held = next((entry_id for entry_id in near if (index - entry_id) % size < quorum), None)
        if held is not None and held not in found:
            found.append(held)
    return tuple(found)


def named_in(metadata: LedgerMetadata, bookies: Collection[str]) -> tuple[str, ...]:
    """Return those of some bookies that are in ensembles of a ledger, sorted."""
    members = {bookie for segment in metadata.segments for bookie in segment.ensemble}
    return tuple(sorted(members.intersection(bookies)))


def keeps_entries(metadata: LedgerMetadata, bookie: str) -> bool:
    """Whether replicas of a bookie may be needed: not if no entry of a closed ledger belongs there."""
    if not metadata.closed:
        return bool(named_in(metadata, (bookie,)))
    return any(bookie in fragment.ensemble for fragment in fragments_of(metadata, metadata.last_entry_id))


class LedgerCheck:
    """Find the missing replicas of one ledger. The caller sends the reads of `ready` and reports results."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        last_add_confirmed: int,
        there: Collection[str],
        *,
        every_entry: bool = False,
    ) -> None:
        """A check that has sent nothing yet.

        Args:
            metadata: As stored.
            last_add_confirmed: Of a ledger that is not closed.
            there: Bookies that are registered; replicas of others count as missing without a read.
            every_entry: Read every entry, not only the first and the last one of each bookie.
        """
        self.metadata = metadata
        self.fragments = fragments_of(metadata, last_add_confirmed)
        self._missing: dict[int, dict[int, Result]] = {}
        self._there, self._every_entry = frozenset(there), every_entry
        self._waiting: set[tuple[str, int]] = set()
        self._reads = self._all_reads()
        self._sent_all = False

    def ready(self, count_max: int) -> list[SendRead]:
        """Return the next reads to send; at most `count_max` are in flight."""
        sends: list[SendRead] = []
        while not self._sent_all and len(self._waiting) < count_max:
            read = next(self._reads, None)
            if read is None:
                self._sent_all = True
            else:
                self._waiting.add((read.bookie, read.entry_id))
                sends.append(read)
        return sends

    def answered(self, bookie: str, entry_id: int, result: Result, entry: LedgerEntry | None) -> None:
        """Handle a response or a timeout; a good result without an entry means a wrong digest."""
        if (bookie, entry_id) not in self._waiting:
            return
        self._waiting.discard((bookie, entry_id))
        if result is Result.OK and entry is not None:
            return
        segment = self.metadata.segment_of(entry_id)
        index = segment.ensemble.index(bookie)
        found = Result.DIGEST_MATCH if result is Result.OK else result
        self._missing.setdefault(segment.first_entry_id, {}).setdefault(index, found)

    @property
    def done(self) -> bool:
        """Whether all results are known, after `ready` has returned the last reads."""
        return self._sent_all and not self._waiting

    @property
    def missing_replicas(self) -> tuple[MissingReplicas, ...]:
        """The missing replicas, by fragment."""
        return tuple(
            MissingReplicas(fragment, dict(sorted(self._missing[fragment.first_entry_id].items())))
            for fragment in self.fragments
            if fragment.first_entry_id in self._missing
        )

    def _all_reads(self) -> Iterator[SendRead]:
        for fragment in self.fragments:
            for index, bookie in enumerate(fragment.ensemble):
                if bookie not in self._there:
                    missing = self._missing.setdefault(fragment.first_entry_id, {})
                    missing[index] = Result.BOOKIE_NOT_AVAILABLE
                    continue
                entries_of = held_by if self._every_entry else ends_at
                for entry_id in entries_of(self.metadata, fragment, index):
                    if index in self._missing.get(fragment.first_entry_id, ()):
                        break
                    yield SendRead(bookie, entry_id)
