"""The reader of a stream: where it stands, where a trigger ends, and what of its rest is gone.

Spark keeps one instance in a process of the driver for all triggers of a query, and pickles another for the
tasks. A position is the next queue offset of every queue; see `positions` for its JSON.

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
"""How long a logged trigger, which Spark gives out again after a restart, waits for a source that is away."""


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
        """Opened when it is first needed: tasks never do."""
        if self._open_tail is None:
            self._open_tail = open_tail(self._options)
        return self._open_tail

    def initialOffset(self) -> Positions:
        """Where a query without a checkpoint begins. All sources must answer: one that comes later is new."""
        held = self._refresh()
        for error in self._tail.unavailable.values():
            raise error
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
        self._target = _ends(self._refresh())

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:
        """Where the trigger that begins at `start` ends.

        Raises:
            ConfigError: the checkpoint is of another source.
            DataLostError: what was to be read next is gone.
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
        return format_positions(self._tail.cut(starts, ends, rows, size_bytes))

    def reportLatestOffset(self) -> Positions:
        """Where the queues end, for `query.lastProgress`."""
        return format_positions(_ends(self._refresh()))

    def partitions(self, start: Positions, end: Positions) -> list[InputPartition]:
        """Cut what stands between two places; after a restart, before anything else was asked.

        Raises:
            DataLostError: some of it is gone.
            QueueUnavailableError: some of it cannot be seen now, and may come back.
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
            raise QueueUnavailableError(label(unseen[0]), str(reason or "no source shows it now"))
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
        """Let go of what is open."""
        if self._open_tail is not None:
            self._open_tail.close()

    def _refresh(self) -> Mapping[QueueKey, QueueRange]:
        """What the sources show now; says once of each when it is away and when it is back."""
        held = self._tail.refresh()
        unavailable = self._tail.unavailable
        for place in sorted(unavailable.keys() - self._unavailable):
            log.warning("%s; its queues keep their offsets until it is back", unavailable[place])
        for place in sorted(self._unavailable - unavailable.keys()):
            log.warning("%s is back", place or "the folder")
        self._unavailable = set(unavailable)
        return held

    def _settle(self, starts: Offsets, held: Mapping[QueueKey, QueueRange]) -> Offsets:
        """Where to read each queue from; what is lost is an error, or passed over.

        A queue that is not seen now keeps its offset: without one it would count as new when it is back.
        """
        settled: Offsets = dict(starts)
        for key, offset in starts.items():
            queue = held.get(key)
            if not self._is_seen(key, held, offset):
                continue
            if queue is None:
                problem = "is gone" if is_wanted(self._options, key[0], key[2]) else "is not asked for"
                if offset:
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

    def _is_seen(self, key: QueueKey, held: Mapping[QueueKey, QueueRange], offset: int) -> bool:
        """Whether what is shown of a queue says what becomes of it: what proves nothing is no loss."""
        if not is_wanted(self._options, key[0], key[2]):
            return True
        queue = held.get(key)
        fits = queue is not None and queue.min_offset <= offset <= queue.max_offset
        return fits or self._tail.is_authoritative(key)

    def _unseen(self, starts: Offsets, ends: Offsets, held: Mapping[QueueKey, QueueRange]) -> list[QueueKey]:
        """Queues of a logged trigger that cannot be read now, and of which no loss is proved."""
        return [
            key
            for key, end in ends.items()
            if not (self._is_seen(key, held, starts.get(key, 0)) and self._is_seen(key, held, end))
        ]

    def _reach(self, key: QueueKey, held: Mapping[QueueKey, QueueRange], offset: int) -> int:
        """Where a queue ends; one that cannot be read from an offset on does not go on now."""
        queue = held.get(key)
        return offset if queue is None or offset < queue.min_offset else queue.max_offset

    def _lose(self, key: QueueKey, problem: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLostError(label(key), problem)
        if (key, problem) not in self._warned:
            self._warned.add((key, problem))
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
