"""The reader of a stream: its position, the end of each trigger, and the detection of lost data.

Spark keeps one instance in a process of the driver for all triggers of a query, and pickles another for the
tasks. A position is the next queue offset of every queue; see `offsets` for its JSON.

Source: PySpark's `pyspark.sql.datasource`, `DataSourceStreamReader` with admission control (4.2 and newer).
"""

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyledger.errors import ConfigError, DataLostError, QueueUnavailableError
from pyledger.model.message import QueueRange
from pyspark_pyledger.batch_reader import read_batches
from pyspark_pyledger.offsets import (
    Offsets,
    Positions,
    QueueKey,
    format_positions,
    label,
    parse_positions,
)
from pyspark_pyledger.options import LATEST, ReadOptions, is_wanted
from pyspark_pyledger.partitions import LedgerPartition
from pyspark_pyledger.stream_source import Tail, open_tail, start_of

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("pyledger.spark")

RETRIES = 20
RETRY_INTERVAL_S = 0.5
"""How often, and at which interval, a trigger that Spark repeats after a restart tries a missing source."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows folders or brokers from trigger to trigger."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        self._open_tail: Tail | None = None
        self._unavailable: set[str] = set()
        self._warned: set[tuple[QueueKey, str]] = set()
        self._target: Offsets | None = None

    @property
    def _tail(self) -> Tail:
        """The sources, opened on first use; tasks do not need them."""
        if self._open_tail is None:
            self._open_tail = open_tail(self._options)
        return self._open_tail

    def initialOffset(self) -> Positions:
        """Return where a query without a checkpoint begins.

        All sources must answer: one that appears later is treated as new and read from its first offset.
        """
        held = self._refresh()
        for error in self._tail.unavailable.values():
            raise error
        return format_positions(
            {key: start_of(self._tail, key, queue, self._options, LATEST) for key, queue in held.items()}
        )

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set on a trigger: rows if both are given; both are enforced."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Pin the end: later messages belong to the next run of the query."""
        self._target = _ends(self._refresh())

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:
        """Return where the trigger that begins at `start` ends.

        Raises:
            ConfigError: the checkpoint belongs to another source.
            DataLostError: the messages to read next are gone.
        """
        before = _position(start)
        held = self._refresh()
        starts = self._settle(before, held)
        ends = {key: max(offset, self._reach(key, held, offset)) for key, offset in starts.items()}
        if self._target is not None:
            known = self._target | {key: 0 for key in before if key not in self._target}
            starts = {key: offset for key, offset in starts.items() if key in known}
            ends = {key: max(offset, min(ends[key], known[key])) for key, offset in starts.items()}
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if rows is not None:
            size_bytes = self._options.max_bytes_per_trigger
        return format_positions(self._tail.limit(starts, ends, rows, size_bytes))

    def reportLatestOffset(self) -> Positions:
        """Return the ends of all queues, for `query.lastProgress`."""
        return format_positions(_ends(self._refresh()))

    def partitions(self, start: Positions, end: Positions) -> list[InputPartition]:
        """Split the range between two positions. After a restart this is the first call.

        Raises:
            DataLostError: part of the range is gone.
            QueueUnavailableError: part of the range cannot be read now, and may come back.
        """
        before, ends = _position(start), _position(end)
        wanted = {key: offset for key, offset in ends.items() if offset > before.get(key, 0)}
        held = self._refresh()
        for _retry in range(RETRIES):
            if not self._unseen(before, wanted, held):
                break
            time.sleep(RETRY_INTERVAL_S)
            held = self._refresh()
        if unseen := self._unseen(before, wanted, held):
            reason = self._tail.unavailable.get(unseen[0][1])
            raise QueueUnavailableError(label(unseen[0]), str(reason or "no source has it now"))
        reachable: Offsets = {}
        for key, offset in wanted.items():
            queue = held.get(key)
            if queue is None:
                self._lose(key, "is gone")
                continue
            if offset > queue.max_offset:
                self._lose(key, f"ends at {queue.max_offset}, below {offset}, which was seen before")
            reachable[key] = min(offset, queue.max_offset)
        starts = self._settle(before, held)
        return [LedgerPartition(part) for part in self._tail.plan(starts, reachable)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of one partition, in a task."""
        return read_batches(partition, self._schema, self._options)

    def stop(self) -> None:
        """Close the sources."""
        if self._open_tail is not None:
            self._open_tail.close()

    def _refresh(self) -> Mapping[QueueKey, QueueRange]:
        """Return the current ranges; log once when a source becomes unavailable and when it is back."""
        held = self._tail.refresh()
        unavailable = self._tail.unavailable
        for source in sorted(unavailable.keys() - self._unavailable):
            log.warning("%s; its queues keep their offsets until it is back", unavailable[source])
        for source in sorted(self._unavailable - unavailable.keys()):
            log.warning("%s is back", source or "the folder")
        self._unavailable = set(unavailable)
        return held

    def _settle(self, starts: Offsets, held: Mapping[QueueKey, QueueRange]) -> Offsets:
        """Return where to read each queue from; lost messages are an error, or skipped.

        A queue that is unavailable now keeps its offset. Without one it would count as new when it is back.
        """
        settled: Offsets = dict(starts)
        for key, offset in starts.items():
            queue = held.get(key)
            if not self._is_seen(key, held, offset):
                continue
            if queue is None:
                problem = "is gone" if is_wanted(self._options, key[0], key[2]) else "is not selected"
                if offset:
                    self._lose(key, f"{problem}, and was read up to {offset}")
                continue
            if offset > queue.max_offset:
                self._lose(key, f"ends at {queue.max_offset}, below {offset}, up to which it was read")
            if offset < queue.min_offset:
                self._lose(key, f"begins at {queue.min_offset}; [{offset}, {queue.min_offset}) was not read")
            if key[1] in self._tail.replaced:
                self._lose(key, "lost messages at its end that were seen before: its log was truncated")
            settled[key] = min(max(offset, queue.min_offset), queue.max_offset)
        self._tail.replaced.clear()
        for key, queue in held.items():
            if key not in settled:
                if queue.min_offset:
                    log.warning("%s is new here and begins at %d", label(key), queue.min_offset)
                settled[key] = queue.min_offset
        return settled

    def _is_seen(self, key: QueueKey, held: Mapping[QueueKey, QueueRange], offset: int) -> bool:
        """Return whether the current ranges prove that an offset of a queue can be read or is lost."""
        if not is_wanted(self._options, key[0], key[2]):
            return True
        queue = held.get(key)
        fits = queue is not None and queue.min_offset <= offset <= queue.max_offset
        return fits or self._tail.is_authoritative(key)

    def _unseen(self, starts: Offsets, ends: Offsets, held: Mapping[QueueKey, QueueRange]) -> list[QueueKey]:
        """Return the queues of a trigger that cannot be read now and are not proved to be lost."""
        return [
            key
            for key, end in ends.items()
            if not (self._is_seen(key, held, starts.get(key, 0)) and self._is_seen(key, held, end))
        ]

    def _reach(self, key: QueueKey, held: Mapping[QueueKey, QueueRange], offset: int) -> int:
        """Return the end of a queue, or `offset` if the queue cannot be read from there now."""
        queue = held.get(key)
        return offset if queue is None or offset < queue.min_offset else queue.max_offset

    def _lose(self, key: QueueKey, problem: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLostError(label(key), problem)
        if (key, problem) not in self._warned:
            self._warned.add((key, problem))
            log.warning("%s %s; reading the data that exists", label(key), problem)


def _position(table: Positions) -> Offsets:
    """Parse a position that Spark has stored."""
    try:
        return parse_positions(table)
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            "checkpointLocation",
            f"holds {table!r}, which is not a position in a stream of this source",
            "give each query a checkpoint of its own",
        ) from error


def _ends(held: Mapping[QueueKey, QueueRange]) -> Offsets:
    return {key: queue.max_offset for key, queue in held.items()}
