"""Where options say that each queue begins and ends."""

import logging
from typing import Protocol

from pyledger.errors import ConfigError
from pyledger.model.message import QueueRange
from pyspark_pyledger.options import EARLIEST, OFFSET_EARLIEST, OFFSET_LATEST, ReadOptions
from pyspark_pyledger.positions import Offsets, QueueKey, label, offset_for

log = logging.getLogger("pyledger.spark")


class TimeSearch(Protocol):
    """What knows times."""

    def offset_by_time(self, key: QueueKey, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at a time (ms) or later, or the queue's end."""


def start_of(search: TimeSearch, key: QueueKey, held: QueueRange, options: ReadOptions, default: str) -> int:
    """Queue offset of the first wanted row of a queue."""
    if options.starting_timestamp_ms is not None:
        return search.offset_by_time(key, options.starting_timestamp_ms)
    wish = options.starting_offsets or default
    return _bound("startingOffsets", wish, key, held, held.min_offset, options)


def end_of(search: TimeSearch, key: QueueKey, held: QueueRange, options: ReadOptions) -> int:
    """Queue offset behind the last wanted row of a queue."""
    if options.ending_timestamp_ms is not None:
        return search.offset_by_time(key, options.ending_timestamp_ms)
    return _bound("endingOffsets", options.ending_offsets, key, held, held.max_offset, options)


def _bound(
    name: str, wish: str | Offsets, key: QueueKey, held: QueueRange, default: int, options: ReadOptions
) -> int:
    if isinstance(wish, str):
        return held.min_offset if wish == EARLIEST else held.max_offset
    offset = offset_for(wish, key)
    if offset is None:
        return default
    if offset in (OFFSET_EARLIEST, OFFSET_LATEST):
        return held.min_offset if offset == OFFSET_EARLIEST else held.max_offset
    if not held.min_offset <= offset <= held.max_offset:
        problem = f"{label(key)} holds [{held.min_offset}, {held.max_offset}), not {offset}"
        if options.fail_on_data_loss:
            raise ConfigError(name, problem, "set failOnDataLoss=false to read the data that exists")
        log.warning("%s: %s; reading what is there", name, problem)
    return min(max(offset, held.min_offset), held.max_offset)
