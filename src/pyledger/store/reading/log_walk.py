"""Selected messages in log order; damage is skipped or raised."""

from collections import deque
from collections.abc import Callable, Iterator

from pyledger._core import LogView, MessageScan, StoredMessage, find_next_record, scan
from pyledger.store.reading.log_end import FIRST_RECORD_BYTES, Damage
from pyledger.store.reading.recovered_queues import record_boundary
from pyledger.store.reading.selection import Selection
from pyledger.store.reading.wanted_ranges import wanted_ranges


class LogWalk:
    """A walk over a range of the log.

    Args:
        view: The log, up to the end of the last valid record.
        selection: Which messages are wanted.
        note: Called with damage. If it does not raise, the walk continues after the damage.
    """

    def __init__(self, view: LogView, selection: Selection, note: Callable[[Damage], None]) -> None:
        self.view = view
        self.selection = selection
        self.note = note

    def __call__(self, start: int | None = None, end: int | None = None) -> Iterator[StoredMessage]:
        """Messages that start in [start, end), physical offsets (bytes)."""
        for first, last in self._ranges(start, end):
            yield from self.selection.pick(self._records(first, last))

    def tail(self, start: int | None, end: int | None, count: int) -> Iterator[StoredMessage]:
        """The last `count` messages of [start, end); reads files from the last one backwards."""
        found: list[StoredMessage] = []
        for first, last in reversed(list(self._ranges(start, end))):
            records = self.selection.pick(self._records(first, last))
            found = [*deque(records, maxlen=count - len(found)), *found]
            if len(found) >= count:
                break
        return iter(found)

    def _ranges(self, start: int | None, end: int | None) -> Iterator[tuple[int, int]]:
        """Ranges to read: files, without the blocks of cold segments that hold no wanted message."""
        wanted = self.selection
        for first, last in self._file_ranges(start, end):
            yield from wanted_ranges(
                self.view,
                first,
                last,
                topics=wanted.topics,
                since_ms=wanted.since_ms,
                until_ms=wanted.until_ms,
            )

    def _file_ranges(self, start: int | None, end: int | None) -> Iterator[tuple[int, int]]:
        """The range, split at file borders, without files whose store times are not wanted."""
        low = self.view.start_offset if start is None else max(start, self.view.start_offset)
        high = self.view.end_offset if end is None else min(end, self.view.end_offset)
        starts = [file.start_offset for file in self.view.files if file.start_offset < high]
        since, until = self.selection.since_ms, self.selection.until_ms
        times = [self._first_time(at) if since is not None or until is not None else 0 for at in starts]
        for number, file_start in enumerate(starts):
            file_end = starts[number + 1] if number + 1 < len(starts) else high
            # Store times ascend from file to file, so the next file's first is the limit of this one.
            if since is not None and number + 1 < len(starts) and 0 < times[number + 1] < since:
                continue
            if until is not None and times[number] >= until:
                break
            if file_end > low:
                yield max(low, file_start), min(high, file_end)

    def _first_time(self, file_start: int) -> int:
        """Store time (ms) of a file's first record; 0 when that is damaged."""
        first_end = file_start + FIRST_RECORD_BYTES
        return scan(self.view, file_start, first_end, check=False).last_store_timestamp

    def _records(self, start: int, end: int) -> Iterator[StoredMessage]:
        where = record_boundary(self.view, start)
        while where < end:
            records = MessageScan(self.view, where, end)
            yield from records
            stop = records.stop
            if stop is None or stop.next_offset >= end:
                return
            where = find_next_record(self.view, stop.next_offset + 1, end) or end
            problem = stop.problem or "zeroes where a record should start"
            self.note(Damage(stop.next_offset, where - stop.next_offset, problem))
