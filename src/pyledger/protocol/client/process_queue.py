"""The messages of one queue that were pulled and are not yet consumed.

Invariant: every message before `commit_offset` was consumed, or sent back to the broker.

Source: RocketMQ client/.../impl/consumer/ProcessQueue.java, DefaultMQPushConsumerImpl.java (pullMessage).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import lt
from typing import Generic, Protocol, TypeVar

from pyledger.model.lazy_dataclass import lazy_dataclass

MIB = 1 << 20
LOCK_VALID_MS = 30_000
NOTHING_CONSUMED = -1


class Cached(Protocol):
    """The attributes of a message that a process queue needs."""

    @property
    def queue_offset(self) -> int:
        """Its queue offset."""

    @property
    def body_length(self) -> int:
        """Size of its stored body in bytes."""


M = TypeVar("M", bound=Cached)


@lazy_dataclass()
class FlowLimits:
    """Limits of the messages of one queue that wait for consumption."""

    count_max: int = 1000
    mib_max: int = 100
    span_max: int | None = 2000
    """Largest distance of offsets; None for orderly consumption, which leaves no gaps."""


class Batch(Generic[M]):
    """Messages of one pull by ascending offset, and which of them were removed."""

    __slots__ = ("first", "gone", "left", "messages", "offsets")

    def __init__(self, offsets: list[int], messages: Sequence[M]) -> None:
        self.offsets = offsets
        self.messages = list(messages)
        self.gone: set[int] = set()
        self.left = len(offsets)
        self.first = 0
        """Index of the first message that may be left; all before it were removed."""

    def index_of(self, offset: int) -> int:
        """Return the index of an offset; -1 if the batch does not contain it."""
        index = bisect_left(self.offsets, offset)
        return index if index < len(self.offsets) and self.offsets[index] == offset else -1

    @property
    def min_offset(self) -> int:
        """Offset of the first message left; there must be one."""
        while self.offsets[self.first] in self.gone:
            self.first += 1
        return self.offsets[self.first]

    def remaining(self) -> list[M]:
        """Return the messages that are left, in order."""
        if not self.gone:
            return self.messages
        pairs = zip(self.offsets, self.messages, strict=True)
        return [message for offset, message in pairs if offset not in self.gone]

    def remove_all(self, offsets: list[int]) -> bool:
        """Remove adjacent messages; False if they are not adjacent or not all left."""
        first = self.index_of(offsets[0])
        if first < 0 or self.offsets[first : first + len(offsets)] != offsets:
            return False
        if self.gone and not self.gone.isdisjoint(offsets):
            return False
        self.left -= len(offsets)
        if self.left:
            self.gone.update(offsets)
        return True


class ProcessQueue(Generic[M]):
    """The pulled messages of one queue. Times are ms of a monotonic clock.

    Cost: one step per batch if messages are removed in the batches in which they were pulled.
    """

    def __init__(self, now_ms: float) -> None:
        self._batches: list[Batch[M]] = []
        """Ascending; no batch is empty, and their ranges do not overlap."""
        self._count = 0
        self._taken: dict[int, M] = {}
        """Orderly: the messages that the listener is processing, in order."""
        self._max_offset = 0
        self.cached_bytes = 0
        self.dropped = False
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.last_lock_ms: float | None = None
        """When the lock was last confirmed; None: this member does not have it."""

    def __len__(self) -> int:
        return self._count + len(self._taken)

    @property
    def min_offset(self) -> int | None:
        """Offset of the first message left; None if there is none."""
        if self._taken:
            return min(self._taken)
        return self._batches[0].min_offset if self._batches else None

    @property
    def max_offset(self) -> int:
        """Highest offset that was ever added."""
        return self._max_offset

    @property
    def span(self) -> int:
        """Distance from the first message left to `max_offset`."""
        first = self.min_offset
        return 0 if first is None else self._max_offset - first

    @property
    def messages(self) -> tuple[M, ...]:
        """The messages that are left and not taken, in order."""
        return tuple(message for batch in self._batches for message in batch.remaining())

    def is_locked(self, now_ms: float) -> bool:
        """Whether this member certainly still has the lock."""
        return self.last_lock_ms is not None and now_ms - self.last_lock_ms <= LOCK_VALID_MS

    def limit_reached(self, limits: FlowLimits) -> str | None:
        """Return the limit that is exceeded, so that no more should be pulled; None if none is."""
        if len(self) > limits.count_max:
            return "count"
        if self.cached_bytes // MIB > limits.mib_max:
            return "size"
        if limits.span_max is not None and self.span > limits.span_max:
            return "span"
        return None

    def put(self, messages: Sequence[M]) -> None:
        """Add pulled messages, except those that are already in the queue."""
        if not messages:
            return
        offsets = [message.queue_offset for message in messages]
        last = self._batches[-1].offsets[-1] if self._batches else -1
        if self._taken:
            last = max(last, *self._taken)
        if offsets[0] > last and all(map(lt, offsets, offsets[1:])):
            self._batches.append(Batch(offsets, messages))
            self._count += len(offsets)
            self.cached_bytes += sum([message.body_length for message in messages])
            self._max_offset = max(self._max_offset, offsets[-1])
            return
        for offset, message in zip(offsets, messages, strict=True):
            if offset not in self._taken and self._insert(offset, message):
                self.cached_bytes += message.body_length
                self._max_offset = max(self._max_offset, offset)

    def __contains__(self, message: M) -> bool:
        offset = message.queue_offset
        index = self._batch_of(offset)
        if index < 0:
            return False
        batch = self._batches[index]
        return offset not in batch.gone and batch.index_of(offset) >= 0

    def remove(self, messages: Sequence[M]) -> int:
        """Remove consumed messages, in any order.

        Returns:
            Offset from which to continue after a restart; `NOTHING_CONSUMED` if the queue was empty.
        """
        if not self._count:
            return NOTHING_CONSUMED
        if messages:
            offsets = [message.queue_offset for message in messages]
            index = self._batch_of(offsets[0])
            if index >= 0 and self._batches[index].remove_all(offsets):
                self._removed(index, len(offsets), sum([message.body_length for message in messages]))
            else:
                for offset, message in zip(offsets, messages, strict=True):
                    index = self._batch_of(offset)
                    if index >= 0 and self._batches[index].remove_all([offset]):
                        self._removed(index, 1, message.body_length)
        return self.commit_offset

    def _removed(self, index: int, count: int, size_bytes: int) -> None:
        """Update the counts after a removal, and drop an empty batch."""
        self._count -= count
        self.cached_bytes -= size_bytes
        if not self._batches[index].left:
            del self._batches[index]

    def _batch_of(self, offset: int) -> int:
        """Return the index of the batch whose range would contain an offset; -1 if it is before all."""
        batches = self._batches
        if len(batches) == 1 or (batches and offset < batches[1].offsets[0]):
            return 0 if offset >= batches[0].offsets[0] else -1
        return bisect_right(batches, offset, key=lambda batch: batch.offsets[0]) - 1

    def _insert(self, offset: int, message: M) -> bool:
        """Insert one message by its offset; False if it is already in the queue."""
        index = self._batch_of(offset)
        if index >= 0:
            batch = self._batches[index]
            at = batch.index_of(offset)
            if at >= 0:
                if offset not in batch.gone:
                    return False
                batch.gone.remove(offset)
                batch.messages[at] = message
                batch.left += 1
                batch.first = min(batch.first, at)
                self._count += 1
                return True
            if offset < batch.offsets[-1]:
                self._split(index, bisect_left(batch.offsets, offset))
                index = self._batch_of(offset)
        self._batches.insert(index + 1, Batch([offset], [message]))
        self._count += 1
        return True

    def _split(self, index: int, at: int) -> None:
        """Split a batch in two, without a half that has no message left."""
        batch = self._batches[index]
        halves = []
        for part in (slice(0, at), slice(at, None)):
            half = Batch(batch.offsets[part], batch.messages[part])
            half.gone = batch.gone.intersection(half.offsets)
            half.left -= len(half.gone)
            halves.append(half)
        self._batches[index : index + 1] = [half for half in halves if half.left]

    @property
    def commit_offset(self) -> int:
        """Offset from which to continue after a restart."""
        first = self.min_offset
        return self._max_offset + 1 if first is None else first

    # --- orderly

    def take(self, count: int) -> list[M]:
        """Return the next messages for the listener; those taken before must be committed or put back."""
        found: list[M] = []
        while self._batches and len(found) < count:
            batch = self._batches[0]
            here = batch.remaining()[: count - len(found)]
            found += here
            batch.left -= len(here)
            batch.gone.update([message.queue_offset for message in here])
            self._count -= len(here)
            if not batch.left:
                del self._batches[0]
        self._taken.update((message.queue_offset, message) for message in found)
        return found

    def commit(self) -> int:
        """Remove the taken messages; return the offset after them, `NOTHING_CONSUMED` if there were none."""
        if not self._taken:
            return NOTHING_CONSUMED
        last = max(self._taken)
        self.cached_bytes -= sum(message.body_length for message in self._taken.values())
        self._taken.clear()
        return last + 1

    def put_back(self) -> None:
        """Put the taken messages back, to be taken again."""
        for offset, message in self._taken.items():
            self._insert(offset, message)
        self._taken.clear()

    def clear(self) -> None:
        """Remove all messages."""
        self._batches.clear()
        self._count = 0
        self._taken.clear()
        self.cached_bytes = 0
