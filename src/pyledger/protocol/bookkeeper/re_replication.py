"""Giving a ledger back the copies that it lacks: where to, what, and what its metadata says afterwards.

Copies are never fewer than before: a bookie is replaced in the metadata only after its successor has every
entry of its place on disk, and only while the metadata still names it there. Where a writer may still add,
nothing is replaced: the ledger is closed first, after a time in which its writer can help itself.

Source: BookKeeper client/LedgerFragmentReplicator.java, replication/ReplicationWorker.java.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from pyledger.protocol.bookkeeper.fragments import Fragment, MissingReplicas
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, Segment
from pyledger.protocol.bookkeeper.placement import Placement


@dataclass(frozen=True, slots=True)
class Repair:
    """Copies for one fragment.

    Attributes:
        fragment: Which.
        successors: Bookies that get copies, by place; one may be the bookie that is there already.
    """

    fragment: Fragment
    successors: Mapping[int, str]

    def copies(self, metadata: LedgerMetadata) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Entries to copy, ascending, each with the bookies that get it."""
        size, quorum = metadata.ensemble_size, metadata.write_quorum
        # Which bookies get an entry depends on its place in the stripe alone.
        targets = [
            tuple(bookie for place, bookie in self.successors.items() if (place - at) % size < quorum)
            for at in range(size)
        ]
        for entry_id in self.fragment.entry_ids:
            if found := targets[entry_id % size]:
                yield entry_id, found

    def repaired(self, metadata: LedgerMetadata) -> LedgerMetadata | None:
        """The metadata that names the successors; None: it is not as it was, so somebody else repairs it.

        Args:
            metadata: As stored now.
        """
        fragment = self.fragment
        at = next(
            (at for at, one in enumerate(metadata.segments) if one.first_entry_id == fragment.first_entry_id),
            None,
        )
        if at is None or (at == len(metadata.segments) - 1 and not metadata.closed):
            return None
        ensemble = list(metadata.segments[at].ensemble)
        for place, successor in self.successors.items():
            if ensemble[place] != fragment.ensemble[place]:
                return None
            ensemble[place] = successor
        if len(set(ensemble)) < len(ensemble):
            return None
        segments = list(metadata.segments)
        segments[at] = Segment(fragment.first_entry_id, tuple(ensemble))
        # As upstream: whoever changes a ledger does not know its token.
        return replace(metadata, segments=tuple(segments), token=0).check()


def repair_of(
    lack: MissingReplicas, placement: Placement, writable: Sequence[str], avoid: Sequence[str] = ()
) -> Repair | None:
    """Where a fragment's missing copies go; None: there is no bookie for any of them.

    Bookies outside the ensemble come first, for those that are gone before all. Where there are too few, one
    that lost its copies gets them again, if it can be written to.

    Args:
        lack: What is missing.
        placement: Chooses.
        writable: Bookies that take entries.
        avoid: Taken only when there are no others.
    """
    ensemble = lack.fragment.ensemble
    gone = dict(zip(lack.places, lack.bookies, strict=True))
    for_good = {place: one for place, one in gone.items() if one not in writable}
    chosen = placement.replacements(ensemble, for_good, writable, avoid)
    others = {place: one for place, one in gone.items() if one in writable}
    changed = tuple(chosen.get(place, one) for place, one in enumerate(ensemble))
    left = [one for one in writable if one not in ensemble]
    chosen |= others | placement.replacements(changed, others, left, avoid)
    return Repair(lack.fragment, dict(sorted(chosen.items()))) if chosen else None


class Step(Enum):
    """What to do with a ledger that may lack copies."""

    DONE = "done"
    COPY = "copy"
    """Copy the sealed fragments that lack some."""
    WAIT = "wait"
    """Its writer may replace what it lost."""
    CLOSE = "close"
    """It had its time: fence it off, and look again."""


def next_step(
    metadata: LedgerMetadata,
    last_add_confirmed: int,
    lacking: Sequence[MissingReplicas],
    there: Collection[str],
    waited_for: Collection[str],
) -> Step:
    """What to do after a check.

    Args:
        metadata: As it was checked.
        last_add_confirmed: Of a ledger that is not closed.
        lacking: What the check found.
        there: Bookies that are registered.
        waited_for: Bookies that its writer had time to replace.
    """
    if any(lack.fragment.sealed for lack in lacking):
        return Step.COPY
    left = left_to_writer(metadata, last_add_confirmed, lacking, there)
    if left.intersection(waited_for):
        return Step.CLOSE
    return Step.WAIT if left else Step.DONE


def left_to_writer(
    metadata: LedgerMetadata,
    last_add_confirmed: int,
    lacking: Sequence[MissingReplicas],
    there: Collection[str],
) -> frozenset[str]:
    """Bookies that only a ledger's writer can replace.

    They lack copies where it adds, or are gone where it adds or may have added what is not confirmed yet.
    Upstream takes bookies for gone that only read; their writer replaces them at its next add.

    Args:
        metadata: As stored.
        last_add_confirmed: As far as bookies tell.
        lacking: What a check found.
        there: Bookies that are registered.
    """
    if metadata.closed or not metadata.segments:
        return frozenset()
    first = metadata.segments[-1].first_entry_id
    last = metadata.segments[-2:] if last_add_confirmed < first - 1 else metadata.segments[-1:]
    gone = {bookie for segment in last for bookie in segment.ensemble if bookie not in there}
    return frozenset(gone.union(*(lack.bookies for lack in lacking if not lack.fragment.sealed)))
