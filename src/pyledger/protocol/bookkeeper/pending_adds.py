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
    asked_ms: int
    acknowledged: set[int] = field(default_factory=set)
    """Places whose present bookie has it."""
    failed: set[int] = field(default_factory=set)
    """Places whose present bookie did not take it."""


@dataclass(slots=True)
class PendingBatch:
    """Entries that were added together, while nothing has failed and bookies acknowledge them in order.

    Attributes:
        first_entry_id: Of those that are not confirmed yet.
        lengths: Of each, as `PendingAdd.length`.
    """

    first_entry_id: int
    payloads: list[bytes]
    lengths: list[int]
    last_add_confirmed: int
    asked_ms: int

    def confirm(self, count: int) -> None:
        """Forget the first ones."""
        self.first_entry_id += count
        del self.payloads[:count], self.lengths[:count]

    def entries(self, next_acknowledged: Sequence[int]) -> Iterator[PendingAdd]:
        """Each on its own.

        Args:
            next_acknowledged: Of each bookie of the ensemble, the entry that it acknowledges next.
        """
        size = len(next_acknowledged)
        for entry_id, (payload, length) in enumerate(
            zip(self.payloads, self.lengths, strict=True), self.first_entry_id
        ):
            having = {at for at, following in enumerate(next_acknowledged) if following > entry_id}
            write_set = tuple((entry_id + at) % size for at in range(size))
            yield PendingAdd(
                entry_id, payload, length, self.last_add_confirmed, write_set, self.asked_ms, having
            )
