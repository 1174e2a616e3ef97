"""Where the log of a slave and that of its master part.

A slave whose master was replaced, or lost its end in a power cut, may have records that the master never had.
Records are compared through their bytes, from the last one back: in steps that double until one is the same
in both logs, then by halves. All before a record that is the same are the same, for each names its place and
the times at which it came.
"""

from collections.abc import Sequence


class TailSearch:
    """Asks which of a slave's records to compare, until it knows the last that both logs have."""

    def __init__(self, offsets: Sequence[int]) -> None:
        """Take physical offsets (bytes) of the slave's last records, in order."""
        self._offsets = offsets
        self._same = -1
        self._other = len(offsets)
        self._step = 1

    @property
    def question(self) -> int | None:
        """Physical offset (bytes) of the record to compare next; None: the search is over."""
        if self._other - self._same <= 1:
            return None
        return self._offsets[self._next()]

    @property
    def last_common(self) -> int | None:
        """Physical offset (bytes) of the last record that both logs have; None: none of those given."""
        return None if self._same < 0 else self._offsets[self._same]

    def answer(self, same: bool) -> None:
        """Whether the record in question is the same in both logs."""
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
