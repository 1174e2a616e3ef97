"""A log on a model disk; a crash loses unflushed data in any way that a real store allows."""

from collections.abc import Callable, Sequence
from random import Random

from pyledger.errors import CorruptRecordError, OffsetOutOfRangeError, StoreFullError, StoreIOError
from pyledger.protocol.dledger.messages import ENTRY_HEADER_BYTES, NO_INDEX, NO_TERM, Entry, TermState


class ModelLog:
    """The storage of a machine, in memory; `crash` leaves what a disk might.

    A truncation that was not flushed may be undone. Of the entries that were not flushed, a prefix survives;
    the next one may be torn, which counts as missing.
    """

    def __init__(self, random: Random, wrote: Callable[[Entry, int], None]) -> None:
        self.random = random
        self.wrote = wrote
        """Called with each new entry and the term of the entry before it."""
        self.log: list[Entry] = []
        self.durable_log: list[Entry] = []
        self.term_state = self.durable_term_state = TermState()
        self.committed_index = self.durable_committed_index = NO_INDEX
        self.lost_tail = self.durable_lost_tail = False
        self.durable_end = self.promised_index = NO_INDEX
        """What the file `durable-end` names; and what it named when the last start found fewer entries."""
        self.disk_full = False
        self.breaks = False
        """The next write of entries fails halfway."""
        self.term_lost = False
        """The term file is missing; an operator must set the term."""
        self.corrupt: set[int] = set()
        self.cleaned = 0
        """Entries that were deleted at the head."""
        self.flushing: tuple[list[Entry], bool] | None = None

    @property
    def begin_index(self) -> int:
        """Index of the first entry; -1 of an empty log."""
        return self.cleaned if self.log else NO_INDEX

    @property
    def end_index(self) -> int:
        """Index of the last entry."""
        return len(self.log) - 1

    @property
    def end_term(self) -> int:
        """Term of the last entry."""
        return self.log[-1].term if self.log else NO_TERM

    @property
    def end_position(self) -> int:
        """Bytes written."""
        return self.log[-1].pos + self.log[-1].size if self.log else 0

    def term_at(self, index: int) -> int:
        """Term of an entry."""
        return self.entry(index).term

    def entry(self, index: int) -> Entry:
        """One entry; raises when it is missing or damaged."""
        if not self.cleaned <= index < len(self.log):
            raise OffsetOutOfRangeError(index, self.begin_index, self.end_index)
        if index in self.corrupt:
            raise CorruptRecordError("model disk", self.log[index].pos, "its checksum is wrong")
        return self.log[index]

    def entries(self, index: int, count_max: int, size_bytes_max: int) -> Sequence[Entry]:
        """Entries from `index` on; the last one may exceed `size_bytes_max`."""
        found = [self.entry(index)]
        size_bytes = found[0].size
        while len(found) < count_max and size_bytes < size_bytes_max and index + len(found) < len(self.log):
            found.append(self.entry(index + len(found)))
            size_bytes += found[-1].size
        return tuple(found)

    def append_bodies(self, term: int, bodies: Sequence[bytes]) -> Sequence[int]:
        """Append entries, as leader; return their offsets (bytes)."""
        if self.disk_full:
            raise StoreFullError("model disk", "append to")
        first = len(self.log)
        for body in bodies:
            self._break()
            size = ENTRY_HEADER_BYTES + len(body)
            self._append(Entry(len(self.log), term, self.end_position, size, body))
        return [entry.pos for entry in self.log[first:]]

    def append_entries(self, entries: Sequence[Entry]) -> int:
        """Append entries of a leader."""
        if self.disk_full:
            raise StoreFullError("model disk", "append to")
        for entry in entries:
            assert entry.index == len(self.log), "the machine leaves no gap"
            assert entry.pos == self.end_position, "offsets are equal in equal logs"
            self._append(entry)
            self._break()
        return len(entries)

    def _break(self) -> None:
        if self.breaks:
            self.breaks = False
            raise StoreIOError("model disk", "write", "Input/output error")

    def _append(self, entry: Entry) -> None:
        self.wrote(entry, self.end_term)
        self.corrupt.discard(entry.index)
        self.log.append(entry)

    def truncate(self, entry: Entry) -> None:
        """Make this entry the last."""
        if self.disk_full:
            raise StoreFullError("model disk", "append to")
        assert entry.index <= len(self.log), "no leader misses the start of its log"
        kept = entry.index < len(self.log) and self.log[entry.index].same_as(entry)
        del self.log[entry.index + kept :]
        self.durable_end = min(self.durable_end, len(self.log) - 1)
        self._break()
        if not kept:
            self._append(entry)
        self.corrupt = {index for index in self.corrupt if index < len(self.log)}
        self.committed_index = min(self.committed_index, len(self.log) - 1)

    def set_committed(self, index: int) -> None:
        """Set the committed index."""
        self.committed_index = index

    def regained_tail(self) -> None:
        """Clear `lost_tail`; durable with the next flush."""
        self.lost_tail = False

    def start_flush(self) -> None:
        """Fix what the flush covers; later writes are not part of it."""
        self.flushing = (list(self.log), self.lost_tail)

    def flush(self) -> None:
        """Complete the started flush."""
        if self.flushing is None:
            self.start_flush()
        assert self.flushing is not None
        (self.durable_log, self.durable_lost_tail), self.flushing = self.flushing, None
        same = sum(a is b for a, b in zip(self.durable_log, self.log, strict=False))
        self.durable_end = min(same, len(self.durable_log)) - 1
        self.durable_committed_index = min(self.committed_index, len(self.durable_log) - 1)

    def save_term_state(self, state: TermState) -> None:
        """Replace the term file."""
        self.durable_term_state, self.term_lost = state, False

    def crash(self) -> None:
        """Lose what a power failure may lose."""
        durable, log, random = self.durable_log, self.log, self.random
        same = 0
        while same < min(len(durable), len(log)) and durable[same] is log[same]:
            same += 1
        if same == len(durable) or random.random() < 0.5:
            keep = random.randint(max(same, 0), len(log)) if random.random() < 0.7 else same
            self.log = log[:keep]
        else:
            self.log = list(durable)
        self.flushing = None
        self.lost_tail = self.durable_lost_tail
        self.recover()

    def holds(self, entry: Entry) -> bool:
        """Whether an entry is on the disk, or may have been before damage was found."""
        there = entry.index < len(self.durable_log) and self.durable_log[entry.index].same_as(entry)
        return there or self.durable_lost_tail

    def recover(self) -> None:
        """Recover: end the log before the first damaged entry."""
        bad = min((index for index in self.corrupt if index < len(self.log)), default=None)
        if bad is not None:
            del self.log[bad:]
        if self.durable_end >= len(self.log):
            self.lost_tail = self.durable_lost_tail = True
            self.promised_index = self.durable_end
        self.corrupt.clear()
        self.breaks = False
        self.durable_log = list(self.log)
        self.durable_end = len(self.log) - 1
        self.term_state = self.durable_term_state
        self.committed_index = min(self.durable_committed_index, len(self.log) - 1)
        self.durable_committed_index = self.committed_index
