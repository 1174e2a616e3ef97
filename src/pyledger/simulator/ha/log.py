"""A commit log in memory: records that begin with their size, and the end of what is on disk."""

import struct
from bisect import bisect_right
from random import Random

HEAD = struct.Struct(">I")
"""Size of a record (bytes), including this head."""


class SimulatedLog:
    """The log of one broker; it begins at physical offset 0."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends: list[int] = []
        """Physical offsets (bytes) where its whole records end."""
        self.durable_end = 0
        """All before this physical offset (bytes) survives a power failure."""

    @property
    def end(self) -> int:
        """Physical offset (bytes) of the next byte."""
        return len(self.data)

    @property
    def whole_end(self) -> int:
        """Physical offset (bytes) where the last whole record ends."""
        return self.ends[-1] if self.ends else 0

    def put(self, body: bytes) -> int:
        """Append a record; return the physical offset (bytes) of its end."""
        self.write(HEAD.pack(HEAD.size + len(body)) + body)
        return self.end

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes, which may end within a record."""
        self.data += data
        at = self.whole_end
        while len(self.data) - at >= HEAD.size:
            at += HEAD.unpack_from(self.data, at)[0]
            if at > len(self.data):
                return
            self.ends.append(at)

    def message(self, number: int) -> bytes:
        """The record at a queue offset; there is one queue."""
        return bytes(self.data[self.ends[number - 1] if number else 0 : self.ends[number]])

    def record_at(self, offset: int) -> bytes:
        """The record at a physical offset (bytes); empty where none begins."""
        if offset + HEAD.size > self.end:
            return b""
        size = HEAD.unpack_from(self.data, offset)[0]
        return bytes(self.data[offset : offset + size])

    def count_before(self, end: int) -> int:
        """Whole records that end at a physical offset (bytes) or before."""
        return bisect_right(self.ends, end)

    def truncate(self, end: int) -> None:
        """Remove all from a physical offset (bytes) on."""
        del self.data[end:]
        del self.ends[self.count_before(end) :]
        self.durable_end = min(self.durable_end, end)

    def lose_power(self, random: Random) -> None:
        """Lose bytes that are not on disk, from a random one on."""
        self.truncate(random.randint(self.durable_end, self.end))
        self.truncate(self.whole_end)
