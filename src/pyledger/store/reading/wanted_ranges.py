"""The parts of a range of the log that must be read: blocks of cold segments may be skipped.

The index of a segment has the topics and store times of each block. Plain files, and segments whose index is
damaged, are always read.
"""

from collections.abc import Iterable, Iterator, Sequence

from pyledger._core import ColdIndex, LogView
from pyledger.errors import StoreFormatError


def wanted_ranges(
    view: LogView,
    start: int,
    end: int,
    *,
    topics: Iterable[str] | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> Iterator[tuple[int, int]]:
    """Yield the range [start, end) without blocks that hold no wanted record; each range starts at a record.

    Args:
        view: The log.
        start: Physical offset (bytes) of a record.
        end: Physical offset (bytes).
        topics: Wanted topics; None for all.
        since_ms: Stored at or after, ms.
        until_ms: Stored before, ms.

    Cost: reads the index of each cold segment, but no blocks.
    """
    if topics is None and since_ms is None and until_ms is None:
        yield start, end
        return
    names = None if topics is None else list(topics)
    at = start
    for skip_start, skip_end in _skipped(view, start, end, names, since_ms, until_ms):
        if at < min(skip_start, end):
            yield at, min(skip_start, end)
        at = max(at, skip_end)
    if at < end:
        yield at, end


def _skipped(
    view: LogView,
    start: int,
    end: int,
    topics: Sequence[str] | None,
    since_ms: int | None,
    until_ms: int | None,
) -> Iterator[tuple[int, int]]:
    """Ranges of cold segments between `start` and `end` (physical offsets) without a wanted record."""
    for file in view.files:
        file_end = file.start_offset + file.size_bytes
        if not file.is_cold or file_end <= start or file.start_offset >= end:
            continue
        try:
            wanted = ColdIndex(file).ranges(topics, since_ms, until_ms)
        except StoreFormatError:
            continue
        at = file.start_offset
        for block_start, block_end in [*wanted, (file_end, file_end)]:
            if at < block_start:
                yield at, block_start
            at = block_end
