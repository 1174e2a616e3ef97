"""The oldest of many queue offsets, without an order among them."""

BLOCK = 1024


class OffsetBlocks:
    """Counts offsets by blocks of 1,024: where the oldest is, to a block, is enough to start reading from."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, offset: int) -> None:
        """Take in an offset."""
        self.counts[offset // BLOCK] = self.counts.get(offset // BLOCK, 0) + 1

    def remove(self, offset: int) -> None:
        """Take out an offset that was added."""
        block = offset // BLOCK
        self.counts[block] -= 1
        if not self.counts[block]:
            del self.counts[block]

    def oldest(self, default: int) -> int:
        """An offset at or before all of them; the default when there is none.

        Cost: one step for each block.
        """
        return min(self.counts) * BLOCK if self.counts else default
