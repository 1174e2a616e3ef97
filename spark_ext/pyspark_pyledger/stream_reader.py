"""The reader of a stream: where it stands, where a trigger ends, and what of its rest is gone.

Spark keeps one instance in a process of the driver for all triggers of a query, and pickles another for the
tasks. A position is the next queue offset of every queue; see `positions` for its JSON.

Source: PySpark's `pyspark.sql.datasource`, `DataSourceStreamReader` with admission control (4.2 and newer).
"""

import logging
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

from pyledger.errors import ConfigError, DataLostError
from pyledger.message import QueueRange
from pyspark_pyledger.batch_reader import read_batches
from pyspark_pyledger.bounds import start_of
from pyspark_pyledger.following import Tail, open_tail
from pyspark_pyledger.options import LATEST, ReadOptions, is_wanted
from pyspark_pyledger.partitions import LedgerPartition
from pyspark_pyledger.positions import (
    Offsets,
    Positions,
    QueueKey,
    format_positions,
    label,
    parse_positions,
)

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("pyledger.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows folders or brokers from trigger to trigger."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        self._open_tail: Tail | None = None
        self._target: Offsets | None = None

    @property
    def _tail(self) -> Tail:
        """Opened when it is first needed: tasks never do."""
        if self._open_tail is None:
            self._open_tail = open_tail(self._options)
        return self._open_tail

    def initialOffset(self) -> Positions:
        """Where a query without a checkpoint begins."""
        held = self._tail.refresh()
        return format_positions(
            {key: start_of(self._tail, key, queue, self._options, LATEST) for key, queue in held.items()}
        )

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that options set on a trigger. With both, rows are told to Spark, bytes are kept, too."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Pin the end: what comes later is for the next run."""
        self._target = _ends(self._tail.refresh())

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:
        """Where the trigger that begins at `start` ends.

        Raises:
            ConfigError: the checkpoint is of another source.
            DataLostError: what was to be read next is gone.
        """
        held = self._tail.refresh()
        before = _position(start)
        starts = self._settle(before, held)
        ends = _ends(held)
        if self._target is not None:
            known = self._target | {key: 0 for key in before if key not in self._target}
            starts = {key: offset for key, offset in starts.items() if key in known}
            ends = {key: max(offset, min(ends[key], known[key])) for key, offset in starts.items()}
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if rows is not None:
            size_bytes = self._options.max_bytes_per_trigger
        return format_positions(self._tail.cut(starts, ends, rows, size_bytes))

    def reportLatestOffset(self) -> Positions:
        """Where the queues end, for `query.lastProgress`."""
        return format_positions(_ends(self._tail.refresh()))

    def partitions(self, start: Positions, end: Positions) -> list[InputPartition]:
        """Cut what stands between two places; after a restart, before anything else was asked.

        Raises:
            DataLostError: some of it is gone.
        """
        held = self._tail.refresh()
        ends = _position(end)
        reachable: Offsets = {}
        for key, offset in ends.items():
            queue = held.get(key)
            if queue is None:
                self._lose(key, "is gone")
                continue
            if offset > queue.max_offset:
                self._lose(key, f"ends at {queue.max_offset}, below {offset}, which was seen before")
            reachable[key] = min(offset, queue.max_offset)
        starts = self._settle(_position(start), held)
        return [LedgerPartition(part) for part in self._tail.plan(starts, reachable)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of one partition, in a task."""
        return read_batches(partition, self._schema, self._options)

    def stop(self) -> None:
        """Let go of what is open."""
        if self._open_tail is not None:
            self._open_tail.close()

    def _settle(self, starts: Offsets, held: Mapping[QueueKey, QueueRange]) -> Offsets:
        """Where to read each queue from; what is not there any more is an error, or passed over."""
        settled: Offsets = {}
        for key, offset in starts.items():
            queue = held.get(key)
            if queue is None:
                if offset:
                    problem = "is gone" if is_wanted(self._options, key[0], key[2]) else "is not asked for"
                    self._lose(key, f"{problem}, and was read up to {offset}")
                continue
            if offset > queue.max_offset:
                self._lose(key, f"ends at {queue.max_offset}, below {offset}, up to which it was read")
            if offset < queue.min_offset:
                self._lose(key, f"begins at {queue.min_offset}; [{offset}, {queue.min_offset}) was not read")
            if key[1] in self._tail.replaced:
                self._lose(key, "lost messages at its end that were seen before: its log was cut")
            settled[key] = min(max(offset, queue.min_offset), queue.max_offset)
        self._tail.replaced.clear()
        for key, queue in held.items():
            if key not in settled:
                if queue.min_offset:
                    log.warning("%s is new here and begins at %d", label(key), queue.min_offset)
                settled[key] = queue.min_offset
        return settled

    def _lose(self, key: QueueKey, problem: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLostError(label(key), problem)
        log.warning("%s %s; going on with what is there", label(key), problem)


def _position(table: Positions) -> Offsets:
    """A place of a query as Spark keeps it."""
    try:
        return parse_positions(table)
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            "checkpointLocation",
            f"holds {table!r}, which is no place in a stream of this source",
            "give each query a checkpoint of its own",
        ) from error


def _ends(held: Mapping[QueueKey, QueueRange]) -> Offsets:
    return {key: queue.max_offset for key, queue in held.items()}
