"""Entries of a ledger's writer that are not confirmed yet.

Source: BookKeeper client/PendingAddOp.java.
"""

from collections.abc import Iterator
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
    """Entries that were given together, as long as nothing goes wrong and answers come in order.

    Attributes:
        first_entry_id: Of those that are not confirmed yet.
        lengths: Of each, as `PendingAdd.length`.
        acknowledged: How many of the first ones each place has.
    """

    first_entry_id: int
    payloads: list[bytes]
    lengths: list[int]
    last_add_confirmed: int
    asked_ms: int
    acknowledged: list[int]

    def confirm(self, count: int) -> None:
        """Forget the first ones."""
        self.first_entry_id += count
        del self.payloads[:count], self.lengths[:count]
        self.acknowledged = [max(0, one - count) for one in self.acknowledged]

    def entries(self) -> Iterator[PendingAdd]:
        """Each by itself."""
        places = tuple(range(len(self.acknowledged)))
        for at, (payload, length) in enumerate(zip(self.payloads, self.lengths, strict=True)):
            having = {place for place in places if self.acknowledged[place] > at}
            write_set = tuple((self.first_entry_id + at + place) % len(places) for place in places)
            yield PendingAdd(
                self.first_entry_id + at,
                payload,
                length,
                self.last_add_confirmed,
                write_set,
                self.asked_ms,
                having,
            )
