"""Finds the divergence of a slave's log from its master's.

A slave whose master was replaced, or lost the end of its log in a power failure, may have records that the
master never had. Records are compared by their bytes, from the last one back: in doubling steps until one is
equal in both logs, then by bisection. All records before an equal one are equal, because each contains its
offset and its timestamps.
"""

from collections.abc import Sequence


class TailSearch:
    """Searches a slave's records for the last one that both logs have."""

    def __init__(self, offsets: Sequence[int]) -> None:
        """Start with the physical offsets (bytes) of the slave's last records, in order."""
        self._offsets = offsets
        self._same = -1
        self._other = len(offsets)
        self._step = 1

    @property
    def next_offset(self) -> int | None:
        """Physical offset (bytes) of the record to compare next; None: the search has ended."""
        if self._other - self._same <= 1:
            return None
        return self._offsets[self._next()]

    @property
    def last_common(self) -> int | None:
        """Physical offset (bytes) of the last record that both logs have; None: none of those given."""
        return None if self._same < 0 else self._offsets[self._same]

    def answer(self, same: bool) -> None:
        """Take the comparison of the record at `next_offset`: whether both logs have it."""
        at = self._next()
        if same:
            self._same = at
        else:
            self._other = at
            self._step *= 2

    def _next(self) -> int:
        if self._same >= 0:
            return (self._same + self._other) // 2
        return max(0, self._other - self._step)
