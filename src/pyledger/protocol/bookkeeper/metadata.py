"""The metadata of a ledger: quorums, ensembles, state, digest, end.

Every change is a new value, which is stored with compare-and-set. The state changes from OPEN to IN_RECOVERY
to CLOSED, or from OPEN to CLOSED.

Source: BookKeeper client/LedgerMetadataImpl.java, LedgerMetadataBuilder.java.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Self

from pyledger.errors import LedgerMetadataError
from pyledger.protocol.bookkeeper.entry import DigestType

INVALID_ENTRY_ID = -1
FORMAT_VERSION = 3
"""Format of new ledgers; others keep theirs."""


class LedgerState(Enum):
    """State of a ledger; the value is the number in its metadata."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class Segment:
    """From `first_entry_id` on, entries are spread over these bookies; their order matters."""

    first_entry_id: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """One version of a ledger's metadata.

    Attributes:
        ensemble_size: Bookies that entries are spread over.
        write_quorum: Replicas of each entry.
        ack_quorum: Replicas that are on disk when an add is confirmed.
        segments: By first entry, ascending; the first begins at entry 0.
        last_entry_id: -1 unless closed.
        length: Bytes of all payloads; 0 unless closed.
        digest: None if the metadata does not contain it; then readers have to know.
        password: None if the metadata does not contain it.
        ctime: Milliseconds since 1970; None if the metadata does not contain it.
        token: Shows a creator whether its own attempt made the ledger; 0 after the first change.
        format_version: Format of its bytes.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    segments: tuple[Segment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry_id: int = INVALID_ENTRY_ID
    length: int = 0
    digest: DigestType | None = None
    password: bytes | None = None
    ctime: int | None = None
    custom: Mapping[str, bytes] = field(default_factory=dict)
    token: int = 0
    format_version: int = FORMAT_VERSION

    def check(self) -> Self:
        """Return itself if its numbers are consistent.

        Raises:
            LedgerMetadataError: They are not.
        """
        if not are_sizes(self.ensemble_size, self.write_quorum, self.ack_quorum):
            sizes = (self.ensemble_size, self.write_quorum, self.ack_quorum)
            raise LedgerMetadataError(f"ensemble, write and ack quorum {sizes} must fall, to 1 at least")
        starts = [segment.first_entry_id for segment in self.segments]
        if starts and (starts[0] != 0 or starts != sorted(set(starts))):
            raise LedgerMetadataError(f"segments begin at entries {starts}; they must ascend from 0")
        for segment in self.segments:
            if len(segment.ensemble) != self.ensemble_size:
                raise LedgerMetadataError(
                    f"the segment from entry {segment.first_entry_id} has {len(segment.ensemble)} bookies "
                    f"instead of {self.ensemble_size}"
                )
        return self

    @property
    def closed(self) -> bool:
        """Whether the ledger has a fixed end."""
        return self.state is LedgerState.CLOSED

    def segment_of(self, entry_id: int) -> Segment:
        """Return the segment of an entry.

        Raises:
            LedgerMetadataError: There is none.
        """
        at = bisect_right(self.segments, entry_id, key=lambda segment: segment.first_entry_id)
        if at == 0:
            raise LedgerMetadataError(f"no segment contains entry {entry_id}")
        return self.segments[at - 1]

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """Return the indexes in the ensemble of the bookies that store an entry."""
        return tuple((entry_id + at) % self.ensemble_size for at in range(self.write_quorum))

    # --- the next version; as upstream, without the token of this one

    def recovering(self) -> Self:
        """Return the metadata in recovery: from now on only a recovery may change it.

        Raises:
            LedgerMetadataError: It is closed.
        """
        if self.closed:
            raise LedgerMetadataError("a closed ledger needs no recovery")
        return replace(self, token=0, state=LedgerState.IN_RECOVERY)

    def closing(self, last_entry_id: int, length: int) -> Self:
        """Return the closed metadata; `length` is in bytes of payload.

        Raises:
            LedgerMetadataError: It is closed with another end.
        """
        if self.closed and (self.last_entry_id, self.length) != (last_entry_id, length):
            raise LedgerMetadataError(f"it is closed already, at entry {self.last_entry_id}")
        return replace(self, token=0, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)

    def with_ensemble(self, first_entry_id: int, ensemble: tuple[str, ...]) -> Self:
        """Return the metadata with another ensemble from `first_entry_id` on.

        It replaces a last segment that begins there.

        Raises:
            LedgerMetadataError: The last segment begins after `first_entry_id`.
        """
        kept = self.segments
        if kept and first_entry_id < kept[-1].first_entry_id:
            raise LedgerMetadataError(
                f"a segment from entry {first_entry_id} is before the last, from {kept[-1].first_entry_id}"
            )
        if kept and first_entry_id == kept[-1].first_entry_id:
            kept = kept[:-1]
        return replace(self, token=0, segments=(*kept, Segment(first_entry_id, ensemble))).check()


def are_sizes(ensemble: int, write_quorum: int, ack_quorum: int) -> bool:
    """Return whether the numbers of bookies are consistent.

    Args:
        ensemble: Bookies that entries are spread over.
        write_quorum: Replicas of each entry.
        ack_quorum: Replicas that are on disk when an add is confirmed.
    """
    return ensemble >= write_quorum >= ack_quorum >= 1
