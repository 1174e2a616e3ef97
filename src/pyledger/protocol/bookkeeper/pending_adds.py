"""Entries of a ledger's writer that are not confirmed yet.

Source: BookKeeper client/PendingAddOp.java.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class PendingAdd:
    """An entry that is not confirmed yet."""

    entry_id: int
    payload: bytes
    length: int
    last_add_confirmed: int
    write_set: tuple[int, ...]
    added_ms: int
    acknowledged: set[int] = field(default_factory=set)
    """Indexes in the ensemble; the bookies there have the entry."""
    failed: set[int] = field(default_factory=set)
    """Indexes in the ensemble; the adds to the bookies there failed."""


@dataclass(slots=True)
class PendingBatch:
    """Entries that were added together; no bookie has failed, and all acknowledge in order.

    Attributes:
        first_entry_id: The first one that is not confirmed yet.
        lengths: Of each, as `PendingAdd.length`.
    """

    first_entry_id: int
    payloads: list[bytes]
    lengths: list[int]
    last_add_confirmed: int
    added_ms: int

    def confirm(self, count: int) -> None:
        """Remove the first `count` entries: they are confirmed."""
        self.first_entry_id += count
        del self.payloads[:count], self.lengths[:count]

    def entries(self, next_acknowledged: Sequence[int]) -> Iterator[PendingAdd]:
        """Yield each entry on its own.

        Args:
            next_acknowledged: Of each bookie of the ensemble: the entry that it acknowledges next.
        """
        size = len(next_acknowledged)
        for entry_id, (payload, length) in enumerate(
            zip(self.payloads, self.lengths, strict=True), self.first_entry_id
        ):
            having = {at for at, following in enumerate(next_acknowledged) if following > entry_id}
            write_set = tuple((entry_id + at) % size for at in range(size))
            yield PendingAdd(
                entry_id, payload, length, self.last_add_confirmed, write_set, self.added_ms, having
            )
