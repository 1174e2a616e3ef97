"""The folders or brokers that a stream follows, and the offsets at which a queue begins and ends."""

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from pyledger.errors import ConfigError, PyLedgerError
from pyledger.model.message import QueueRange
from pyspark_pyledger.folder_tail import FolderTail
from pyspark_pyledger.offsets import Offsets, QueueKey, label, offset_for
from pyspark_pyledger.options import EARLIEST, OFFSET_EARLIEST, OFFSET_LATEST, ReadOptions
from pyspark_pyledger.partitions import AnyPartition

log = logging.getLogger("pyledger.spark")


class TimeSearch(Protocol):
    """Finds queue offsets by time."""

    def offset_by_time(self, key: QueueKey, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at a time (ms) or later, or the queue's end."""


def start_of(search: TimeSearch, key: QueueKey, held: QueueRange, options: ReadOptions, default: str) -> int:
    """Return the queue offset of the first selected row of a queue."""
    if options.starting_timestamp_ms is not None:
        return search.offset_by_time(key, options.starting_timestamp_ms)
    wanted = options.starting_offsets or default
    return _bound("startingOffsets", wanted, key, held, held.min_offset, options)


def end_of(search: TimeSearch, key: QueueKey, held: QueueRange, options: ReadOptions) -> int:
    """Return the queue offset after the last selected row of a queue."""
    if options.ending_timestamp_ms is not None:
        return search.offset_by_time(key, options.ending_timestamp_ms)
    return _bound("endingOffsets", options.ending_offsets, key, held, held.max_offset, options)


def _bound(
    name: str, wanted: str | Offsets, key: QueueKey, held: QueueRange, default: int, options: ReadOptions
) -> int:
    if isinstance(wanted, str):
        return held.min_offset if wanted == EARLIEST else held.max_offset
    offset = offset_for(wanted, key)
    if offset is None:
        return default
    if offset in (OFFSET_EARLIEST, OFFSET_LATEST):
        return held.min_offset if offset == OFFSET_EARLIEST else held.max_offset
    if not held.min_offset <= offset <= held.max_offset:
        problem = f"{label(key)} holds [{held.min_offset}, {held.max_offset}), not {offset}"
        if options.fail_on_data_loss:
            raise ConfigError(name, problem, "set failOnDataLoss=false to read the data that exists")
        log.warning("%s: %s; reading the data that exists", name, problem)
    return min(max(offset, held.min_offset), held.max_offset)


class Tail(Protocol):
    """The sources of a stream: folders or brokers."""

    replaced: set[str]
    """Sources whose log was truncated or replaced."""
    unavailable: dict[str, PyLedgerError]
    """Sources that could not be read at the last refresh, and why."""

    def refresh(self) -> Mapping[QueueKey, QueueRange]:
        """Return the current range of each selected queue at the available sources."""

    def is_authoritative(self, key: QueueKey) -> bool:
        """Return whether the last refresh is proof: a queue or message missing from it is lost."""

    def offset_by_time(self, key: QueueKey, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at a time (ms) or later, or the queue's end."""

    def limit(self, starts: Offsets, ends: Offsets, rows: int | None, size_bytes: int | None) -> Offsets:
        """Return where a trigger of at most `rows` rows or `size_bytes` bytes ends."""

    def plan(self, starts: Offsets, ends: Offsets) -> Sequence[AnyPartition]:
        """Return partitions of the range between two positions."""

    def close(self) -> None:
        """Close the sources."""


def open_tail(options: ReadOptions) -> Tail:
    """Open the folders or brokers of the options."""
    return FolderTail(options) if options.name_servers is None else _broker_tail(options)


def _broker_tail(options: ReadOptions) -> Tail:
    """Import the client on first use: queries on folders do not need it."""
    from pyspark_pyledger.broker_tail import BrokerTail

    return BrokerTail(options)


def plan_brokers(options: ReadOptions) -> list[AnyPartition]:
    """Pin the ends of all queues and split the selected range into partitions, for a batch read.

    Raises:
        ConfigError: a topic does not exist, or offsets are out of range with failOnDataLoss.
        RemotingError: no name server, or neither a broker nor its slaves can be reached.
    """
    tail = _broker_tail(options)
    try:
        held = tail.refresh()
        for error in tail.unavailable.values():
            raise error
        known = {topic for topic, _broker_name, _queue_id in held}
        for topic in options.topics or ():
            if topic not in known:
                raise ConfigError("topics", f"there is no topic {topic!r}", f"at {options.name_servers}")
        starts = {key: start_of(tail, key, queue, options, EARLIEST) for key, queue in held.items()}
        ends = {key: end_of(tail, key, queue, options) for key, queue in held.items()}
        return list(tail.plan(starts, ends))
    finally:
        tail.close()
