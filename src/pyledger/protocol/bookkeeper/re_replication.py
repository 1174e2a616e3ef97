"""Re-replication of a ledger: which entries are copied to which bookies, and the metadata afterwards.

The number of replicas never falls: a bookie is replaced in the metadata only after its successor has all its
entries on disk, and only while the metadata still names it there. While a writer may still add entries, no
bookie is replaced: the writer gets time to replace it, then the ledger is closed first.

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
    """The re-replication of one fragment.

    Attributes:
        fragment: The fragment.
        successors: Bookies that get replicas, by index in the ensemble; a bookie may be its own successor.
    """

    fragment: Fragment
    successors: Mapping[int, str]

    def copies(self, metadata: LedgerMetadata) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the entries to copy, ascending, each with the bookies that get it."""
        size, quorum = metadata.ensemble_size, metadata.write_quorum
        # Which bookies get an entry depends only on `entry_id % size`.
        targets = [
            tuple(bookie for index, bookie in self.successors.items() if (index - at) % size < quorum)
            for at in range(size)
        ]
        for entry_id in self.fragment.entry_ids:
            if found := targets[entry_id % size]:
                yield entry_id, found

    def repaired(self, metadata: LedgerMetadata) -> LedgerMetadata | None:
        """Return the metadata with the successors; None: another client has changed these bookies.

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
        for index, successor in self.successors.items():
            if ensemble[index] != fragment.ensemble[index]:
                return None
            ensemble[index] = successor
        if len(set(ensemble)) < len(ensemble):
            return None
        segments = list(metadata.segments)
        segments[at] = Segment(fragment.first_entry_id, tuple(ensemble))
        # As upstream: only the creator knows the token.
        return replace(metadata, segments=tuple(segments), token=0).check()


def repair_of(
    missing: MissingReplicas, placement: Placement, writable: Sequence[str], avoid: Sequence[str] = ()
) -> Repair | None:
    """Choose the bookies that get the missing replicas of a fragment; None: there is none.

    Bookies outside the ensemble come first, and replace unavailable bookies before all. If there are too few,
    a writable bookie that lost its replicas gets them again.

    Args:
        missing: The missing replicas.
        placement: Chooses among the candidates.
        writable: Bookies that take entries.
        avoid: Chosen only if there are no others.
    """
    ensemble = missing.fragment.ensemble
    gone = dict(zip(missing.indexes, missing.bookies, strict=True))
    for_good = {index: one for index, one in gone.items() if one not in writable}
    chosen = placement.replacements(ensemble, for_good, writable, avoid)
    others = {index: one for index, one in gone.items() if one in writable}
    changed = tuple(chosen.get(index, one) for index, one in enumerate(ensemble))
    left = [one for one in writable if one not in ensemble]
    chosen |= others | placement.replacements(changed, others, left, avoid)
    return Repair(missing.fragment, dict(sorted(chosen.items()))) if chosen else None


class Step(Enum):
    """What to do with a ledger that may be under-replicated."""

    DONE = "done"
    COPY = "copy"
    """Re-replicate its sealed fragments."""
    WAIT = "wait"
    """Give its writer time to replace bookies."""
    CLOSE = "close"
    """The time is over: close the ledger, and check again."""


def next_step(
    metadata: LedgerMetadata,
    last_add_confirmed: int,
    found: Sequence[MissingReplicas],
    there: Collection[str],
    waited_for: Collection[str],
) -> Step:
    """Return what to do after a check.

    Args:
        metadata: As it was checked.
        last_add_confirmed: Of a ledger that is not closed.
        found: The missing replicas that the check found.
        there: Bookies that are registered.
        waited_for: Bookies that its writer had time to replace.
    """
    if any(one.fragment.sealed for one in found):
        return Step.COPY
    left = left_to_writer(metadata, last_add_confirmed, found, there)
    if left.intersection(waited_for):
        return Step.CLOSE
    return Step.WAIT if left else Step.DONE


def left_to_writer(
    metadata: LedgerMetadata,
    last_add_confirmed: int,
    found: Sequence[MissingReplicas],
    there: Collection[str],
) -> frozenset[str]:
    """Return the bookies that only the writer of a ledger can replace.

    They have missing replicas in the fragment that it adds to, or are gone from an ensemble that may have
    entries not confirmed yet. Upstream counts read-only bookies as gone; the writer replaces them at its next
    add.

    Args:
        metadata: As stored.
        last_add_confirmed: As bookies report it.
        found: The missing replicas that a check found.
        there: Bookies that are registered.
    """
    if metadata.closed or not metadata.segments:
        return frozenset()
    first = metadata.segments[-1].first_entry_id
    last = metadata.segments[-2:] if last_add_confirmed < first - 1 else metadata.segments[-1:]
    gone = {bookie for segment in last for bookie in segment.ensemble if bookie not in there}
    return frozenset(gone.union(*(one.bookies for one in found if not one.fragment.sealed)))
