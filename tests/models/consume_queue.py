"""A consume queue as a list: what upstream's rules leave in it, in the plainest words."""

import struct
from dataclasses import dataclass, field
from itertools import takewhile

UNIT = struct.Struct(">qiq")
FILL = (0, 0x7FFFFFFF, 0)


@dataclass
class QueueModel:
    """Units by queue offset; `first` is the offset of the first unit in the files."""

    file_units: int
    first: int = 0
    units: list[tuple[int, int, int]] = field(default_factory=list)
    min_offset: int = 0

    @property
    def next_offset(self) -> int:
        return self.first + len(self.units)

    @property
    def end_physical(self) -> int:
        real = [unit for unit in self.units if unit != FILL]
        return real[-1][0] + real[-1][1] if real else -1

    def put(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> bool:
        if physical_offset + size <= self.end_physical or queue_offset < self.next_offset:
            return False
        if queue_offset > self.next_offset:
            if not self.units:
                self.first = queue_offset - queue_offset % self.file_units
                self.min_offset = queue_offset
            self.units += [FILL] * (queue_offset - self.next_offset)
        self.units.append((physical_offset, size, tags_code))
        return True

    def truncate(self, physical_offset: int) -> None:
        while self.units and (self.units[-1] == FILL or sum(self.units[-1][:2]) > physical_offset):
            self.units.pop()
        self.min_offset = min(self.min_offset, self.next_offset)

    def recover(self, end_physical: int) -> None:
        """Keep units up to the first that names no place below `end_physical`, after its predecessor's."""
        highest = -1

        def good(unit: tuple[int, int, int]) -> bool:
            nonlocal highest
            if unit == FILL:
                return True
            if unit[0] < max(highest, 0) or unit[1] <= 0 or sum(unit[:2]) > end_physical:
                return False
            highest = sum(unit[:2])
            return True

        self.units = list(takewhile(good, self.units))

    def correct_min(self, min_physical: int) -> None:
        """The first unit from `min_offset` on whose record is still there."""
        offsets = range(max(self.min_offset, self.first), self.next_offset)
        real = ((n, self.units[n - self.first]) for n in offsets)
        self.min_offset = next(
            (n for n, unit in real if unit != FILL and unit[0] >= min_physical), self.next_offset
        )

    def encode(self) -> bytes:
        return b"".join(UNIT.pack(*unit) for unit in self.units)


def first_at_or_after(times: list[int], timestamp: int) -> int:
    """Index of the first time that is not before `timestamp`; their number without one."""
    return next((n for n, time in enumerate(times) if time >= timestamp), len(times))


def last_at(times: list[int], timestamp: int) -> int:
    """Index of the last of some equal times."""
    return max(n for n, time in enumerate(times) if time == timestamp)
