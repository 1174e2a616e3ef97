"""Reading messages of a live store: by queue, offset, id, key and time. A read sees all confirmed messages.

The dispatch thread may lag, so a read first dispatches what is confirmed: a message can be read as soon as it
was put. With sync flush, confirmed means on disk.
"""

import contextlib
import os
from collections.abc import Callable
from functools import lru_cache
from mmap import PAGESIZE

from pyledger._core import (
    ConsumeQueue,
    DecodedRequest,
    Dispatcher,
    IndexFileSet,
    LogView,
    MappedFileQueue,
    MessageScan,
    PullBatch,
    PullLimits,
    RecordRanges,
    StoredMessage,
    answer_pulls,
    count_tagged_units,
    pull,
    read_message,
)  # fmt: skip
from pyledger.errors import CorruptRecordError, OffsetOutOfRangeError
from pyledger.model.ids import QueueId, QueueOffset
from pyledger.model.message import QueueRange
from pyledger.model.tags import java_hash, parse_tags
from pyledger.store.queues.get_result import STATUSES, GetRanges, GetResult, GetStatus
from pyledger.store.queues.queue_set import EMPTY, ConsumeQueueSet, range_of
from pyledger.wire.record.message_id import decode_message_id

RESIDENT_PERCENT = 40
"""Share of the machine's memory that the newest part of the log is taken to occupy, as upstream."""
NO_TAG = "\x02"
"""For an expression without tags. It separates properties, so no message has it as a tag."""
ESTIMATE_UNITS_MAX = 20_000
ESTIMATE_MATCHES_MAX = 5_000
INDEX_STEP_MS = 1_000
"""Resolution of the times in the index."""


def default_limits() -> PullLimits:
    """Upstream's limits of one pull, for this machine's memory."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * PAGESIZE
    return PullLimits(resident_bytes=memory_bytes * RESIDENT_PERCENT // 100)


@lru_cache(maxsize=1024)
def tag_codes(expression: str | None) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
    """Codes and UTF-8 of the tags of an expression; empty when all pass."""
    tags = parse_tags(expression)
    if tags is None:
        return (), ()
    tags = tags or (NO_TAG,)
    return tuple(map(java_hash, tags)), tuple(tag.encode("utf-8", "surrogatepass") for tag in tags)


class QueueReader:
    """The read half of a store."""

    def __init__(
        self,
        log: MappedFileQueue,
        queues: ConsumeQueueSet,
        index: IndexFileSet | None,
        dispatcher: Dispatcher,
        confirmed_where: Callable[[], int],
        limits: PullLimits,
    ) -> None:
        self._log = log
        self._set = queues
        self._queues = queues.queues
        self._index = index
        self._dispatcher = dispatcher
        self._confirmed_where = confirmed_where
        self._limits = limits

    def catch_up(self, topic: str | None = None, queue_id: int = -1) -> LogView:
        """Dispatch what is confirmed and return a view of it.

        Dispatch stops at damage, and readers use what was dispatched before. The dispatch thread reports
        damage and queues that cannot be created. The given queue (topic "": the index) is tried again.
        """
        end = self._confirmed_where()
        view = self._log.view(end)
        dispatcher = self._dispatcher
        if dispatcher.dispatched_where < end:
            with contextlib.suppress(CorruptRecordError):
                lags = dispatcher.dispatch(view, end) < end
                if lags and any(one[:2] == (topic, queue_id) for one in dispatcher.stalled):
                    dispatcher.retry(view)
        return view

    def get(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, tags: str | None
    ) -> GetResult:
        """Messages of a queue from an offset (units) on."""
        view = self.catch_up(topic, queue_id)
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [])
        codes, wanted = tag_codes(tags)
        status, next_offset, least, end, messages, _ = pull(
            queue, view, offset, max_count, max_bytes, self._limits, codes, wanted
        )
        return GetResult(STATUSES[status], next_offset, least, end, messages)

    def get_ranges(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, tags: str | None
    ) -> GetRanges:
        """The same, from a queue offset (units) on, as ranges of the log."""
        view = self.catch_up(topic, queue_id)
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return GetRanges(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, RecordRanges(view, 1), 0)
        codes, wanted = tag_codes(tags)
        status, next_offset, least, end, ranges, count = pull(
            queue, view, offset, max_count, max_bytes, self._limits, codes, wanted, as_ranges=True
        )
        return GetRanges(STATUSES[status], next_offset, least, end, ranges, count)

    def answer_pulls(
        self,
        frames: list[memoryview | DecodedRequest],
        begin: int,
        tags: str,
        next_offsets: dict[QueueId, QueueOffset],
        *,
        queue_count: int,
        topic_flags: int,
        group_flags: int,
        record_bytes_max: int,
        copied: bool,
        bytes_max: int,
    ) -> PullBatch | None:
        """Answer pulls that find messages; arguments as `pyledger._core.answer_pulls`."""
        codes, _ = tag_codes(tags)
        view = self.catch_up()
        return answer_pulls(
            frames,
            begin,
            self._queues,
            view,
            self._limits,
            codes,
            next_offsets,
            queue_count=queue_count,
            topic_flags=topic_flags,
            group_flags=group_flags,
            record_bytes_max=record_bytes_max,
            copied=copied,
            bytes_max=bytes_max,
        )

    def message_at(self, physical_offset: int) -> StoredMessage:
        """Return the message at a physical offset (bytes)."""
        view = self._log.view(self._confirmed_where())
        if not view.start_offset <= physical_offset < view.end_offset:
            raise OffsetOutOfRangeError(physical_offset, view.start_offset, view.end_offset)
        return read_message(view, physical_offset, check=False)

    def message_by_id(self, msg_id: str) -> StoredMessage:
        """The message with RocketMQ's offset message id, whatever host the id names."""
        return self.message_at(decode_message_id(msg_id).physical_offset)

    def query(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[StoredMessage]:
        """Messages that have a key, oldest first; the index knows hashes only, the messages decide."""
        view = self.catch_up("")
        if self._index is None:
            return []
        found = []
        for offset in self._index.query(topic, key, max(begin_ms, 0) - INDEX_STEP_MS, end_ms):
            if not view.start_offset <= offset < view.end_offset:
                continue
            message = read_message(view, offset, check=False)
            if (
                begin_ms <= message.store_timestamp <= end_ms
                and message.topic == topic
                and (message.unique_key == key or key in (message.keys or "").split(" "))
            ):
                found.append(message)
        return found[-limit:] if limit > 0 else []

    def index_end(self) -> tuple[int, int]:
        """Store time (ms) and physical offset (bytes) of the last message that the index has; 0, 0: none."""
        if self._index is None or self._index.end_physical_offset < 0:
            return 0, 0
        return self._index.end_timestamp, self._index.end_physical_offset

    def messages(self, start_offset: int | None) -> MessageScan:
        """All messages in log order, from a physical offset (bytes) on."""
        view = self.catch_up()
        return MessageScan(view, view.start_offset if start_offset is None else start_offset)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool) -> int:
        """Queue offset for a store time (ms)."""
        view = self.catch_up(topic, queue_id)
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.offset_by_time(view, timestamp_ms, upper=upper)

    def queue_range(self, topic: str, queue_id: int) -> QueueRange:
        """Offsets that a queue holds; empty for one that never got a message."""
        self.catch_up(topic, queue_id)
        queue = self._queues.get((topic, queue_id))
        return EMPTY if queue is None else range_of(queue)

    def ranges(self) -> dict[tuple[str, int], QueueRange]:
        """Offsets of all queues."""
        self.catch_up()
        return self._set.ranges()

    def count_messages(
        self, topic: str, queue_id: int, start_offset: int, end_offset: int, tags: str | None
    ) -> int:
        """Messages in a range of a queue; with tags an estimate for long ranges, as upstream."""
        span = self.queue_range(topic, queue_id)
        start, end = max(start_offset, span.min_offset), min(end_offset, span.max_offset)
        codes, _ = tag_codes(tags)
        queue = self._queues.get((topic, queue_id))
        if end <= start or queue is None:
            return 0
        if not codes or not isinstance(queue, ConsumeQueue):
            return end - start
        passed, matched = count_tagged_units(
            queue, start, end, codes, ESTIMATE_UNITS_MAX, ESTIMATE_MATCHES_MAX
        )
        return matched if passed in (0, end - start) else matched * (end - start) // passed
