"""What is kept of a ledger outside the bookies: quorums, ensembles, state, digest, end.

Every change is a new value; whoever stores it compares and sets. State goes OPEN to IN_RECOVERY to CLOSED, or
OPEN to CLOSED.

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
"""Of new ledgers; a ledger that is changed keeps its own."""


class LedgerState(Enum):
    """Ledger state: who may change it; the value is the number in its metadata."""

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
        write_quorum: Copies of each entry.
        ack_quorum: Copies that are on disk when an add is confirmed.
        segments: By first entry, ascending; the first begins at entry 0.
        last_entry_id: -1 unless closed.
        length: Bytes of all payloads; 0 unless closed.
        digest: None where the metadata does not say, then readers have to know.
        password: None where the metadata does not say.
        ctime: Milliseconds since 1970, None where the metadata does not say.
        token: Tells a creator whether it was its own attempt that made the ledger; 0 later on.
        format_version: Of its bytes.
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
        """Itself, when its numbers agree with each other.

        Raises:
            LedgerMetadataError: They do not.
        """
        check_sizes(self.ensemble_size, self.write_quorum, self.ack_quorum)
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
        """Whether its end is fixed."""
        return self.state is LedgerState.CLOSED

    def segment_of(self, entry_id: int) -> Segment:
        """The segment that an entry belongs to.

        Raises:
            LedgerMetadataError: There is none.
        """
        at = bisect_right(self.segments, entry_id, key=lambda segment: segment.first_entry_id)
        if at == 0:
            raise LedgerMetadataError(f"no segment holds entry {entry_id}")
        return self.segments[at - 1]

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """Places in the ensemble that hold an entry; counted from the ledger's start, not the segment's."""
        return tuple((entry_id + at) % self.ensemble_size for at in range(self.write_quorum))

    # --- the next version; as upstream, without the token of this one

    def recovering(self) -> Self:
        """Nobody but whoever recovers it may go on.

        Raises:
            LedgerMetadataError: It is closed.
        """
        if self.closed:
            raise LedgerMetadataError("a closed ledger needs no recovery")
        return replace(self, token=0, state=LedgerState.IN_RECOVERY)

    def closing(self, last_entry_id: int, length: int) -> Self:
        """Its end is fixed; `length` is in bytes of payload.

        Raises:
            LedgerMetadataError: It is closed with another end.
        """
        if self.closed and (self.last_entry_id, self.length) != (last_entry_id, length):
            raise LedgerMetadataError(f"it is closed already, at entry {self.last_entry_id}")
        return replace(self, token=0, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)

    def with_ensemble(self, first_entry_id: int, ensemble: tuple[str, ...]) -> Self:
        """From `first_entry_id` on, other bookies; at the start of the last segment, in its place.

        Raises:
            LedgerMetadataError: It lies before the last segment's start.
        """
        kept = self.segments
        if kept and first_entry_id < kept[-1].first_entry_id:
            raise LedgerMetadataError(
                f"a segment from entry {first_entry_id} lies before the last, from {kept[-1].first_entry_id}"
            )
        if kept and first_entry_id == kept[-1].first_entry_id:
            kept = kept[:-1]
        return replace(self, token=0, segments=(*kept, Segment(first_entry_id, ensemble))).check()


def check_sizes(ensemble: int, write_quorum: int, ack_quorum: int) -> None:
    """Make sure that numbers of bookies agree with each other.

    Args:
        ensemble: Bookies that entries are spread over.
        write_quorum: Copies of each entry.
        ack_quorum: Copies that are on disk when an add is confirmed.

    Raises:
        LedgerMetadataError: They do not.
    """
    if not ensemble >= write_quorum >= ack_quorum >= 1:
        sizes = (ensemble, write_quorum, ack_quorum)
        raise LedgerMetadataError(f"ensemble, write and ack quorum {sizes} must fall, to 1 at least")
