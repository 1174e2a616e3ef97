"""Reads of a ledger that wait until more of it is confirmed.

Source: BookKeeper bookie/Watchable and LongPollReadEntryProcessorV3.java; there each add checks every reader.
"""

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

R = TypeVar("R")

SPARE_NUMBERS = 64


class HeldReads(Generic[R]):
    """The held reads of one ledger, by the last add confirmed that each knows.

    An add only visits the reads that it completes, plus the logarithm of the number of different LACs.
    Invariant: each number in `_reads` is in the heap `_known`, which may also have other numbers, and
        duplicates.
    """

    def __init__(self) -> None:
        self._reads: dict[int, dict[int, R]] = {}
        self._known: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._reads)

    def __iter__(self) -> Iterator[R]:
        for reads in self._reads.values():
            yield from reads.values()

    def add(self, known: int, key: int, read: R) -> None:
        """Hold a read whose client knows entries up to `known` as confirmed."""
        if known not in self._reads:
            self._reads[known] = {}
            heapq.heappush(self._known, known)
        self._reads[known][key] = read
        if len(self._known) > 2 * len(self._reads) + SPARE_NUMBERS:
            self._known = sorted(self._reads)

    def drop(self, known: int, key: int) -> R:
        """Remove and return a held read."""
        reads = self._reads[known]
        read = reads.pop(key)
        if not reads:
            del self._reads[known]
        return read

    def take(self, confirmed: int) -> list[R]:
        """Remove and return the reads whose known LAC is below `confirmed`."""
        taken: list[R] = []
        while self._known and self._known[0] < confirmed:
            taken.extend(self._reads.pop(heapq.heappop(self._known), {}).values())
        return taken

    def take_all(self) -> list[R]:
        """Remove and return all reads."""
        taken = list(self)
        self._reads.clear()
        self._known.clear()
        return taken
