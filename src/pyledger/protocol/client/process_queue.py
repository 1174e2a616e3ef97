"""The messages of one queue between their pull and the end of their consumption.

Invariant: every offset below `commit_offset` was consumed, or given back to the broker.

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
    """What must be known of a message."""

    @property
    def queue_offset(self) -> int:
        """Its place."""

    @property
    def body_length(self) -> int:
        """Bytes of its stored body."""


M = TypeVar("M", bound=Cached)


@lazy_dataclass()
class FlowLimits:
    """How much of one queue may wait."""

    count_max: int = 1000
    mib_max: int = 100
    span_max: int | None = 2000
    """None: orderly consumption, whose messages leave in order."""


class Run(Generic[M]):
    """Messages that were pulled together, by offset ascending, and which of them are gone."""

    __slots__ = ("first", "gone", "left", "messages", "offsets")

    def __init__(self, offsets: list[int], messages: Sequence[M]) -> None:
        self.offsets = offsets
        self.messages = list(messages)
        self.gone: set[int] = set()
        self.left = len(offsets)
        self.first = 0
        """Place of the first one that may be here; all before are gone."""

    def place(self, offset: int) -> int:
        """Place of an offset; -1 when it is none of them."""
        place = bisect_left(self.offsets, offset)
        return place if place < len(self.offsets) and self.offsets[place] == offset else -1

    @property
    def min_offset(self) -> int:
        """Offset of the first one that is here; one must be."""
        while self.offsets[self.first] in self.gone:
            self.first += 1
        return self.offsets[self.first]

    def here(self) -> list[M]:
        """What is here, in order."""
        if not self.gone:
            return self.messages
        pairs = zip(self.offsets, self.messages, strict=True)
        return [message for offset, message in pairs if offset not in self.gone]

    def remove_all(self, offsets: list[int]) -> bool:
        """Remove some that stand side by side and are all here; False: they do not."""
        place = self.place(offsets[0])
        if place < 0 or self.offsets[place : place + len(offsets)] != offsets:
            return False
        if self.gone and not self.gone.isdisjoint(offsets):
            return False
        self.left -= len(offsets)
        if self.left:
            self.gone.update(offsets)
        return True


class ProcessQueue(Generic[M]):
    """One queue as its consumer has it. Times are ms of a clock that does not go back.

    Cost: what is pulled, and consumed, side by side costs one step for all of it.
    """

    def __init__(self, now_ms: float) -> None:
        self._runs: list[Run[M]] = []
        """Ascending; none is empty, and none lies within another."""
        self._count = 0
        self._taken: dict[int, M] = {}
        """Orderly: what the listener has now, in order."""
        self._max_offset = 0
        self.cached_bytes = 0
        self.dropped = False
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.last_lock_ms: float | None = None
        """When the lock was last confirmed; None: it is not ours."""

    def __len__(self) -> int:
        return self._count + len(self._taken)

    @property
    def min_offset(self) -> int | None:
        """Offset of the first message that is here; None when there is none."""
        if self._taken:
            return min(self._taken)
        return self._runs[0].min_offset if self._runs else None

    @property
    def max_offset(self) -> int:
        """Offset of the last message that was ever here."""
        return self._max_offset

    @property
    def span(self) -> int:
        """Distance of the last message from the first one."""
        first = self.min_offset
        return 0 if first is None else self._max_offset - first

    @property
    def messages(self) -> tuple[M, ...]:
        """What waits, in order."""
        return tuple(message for run in self._runs for message in run.here())

    def is_locked(self, now_ms: float) -> bool:
        """Whether the lock is still ours for sure."""
        return self.last_lock_ms is not None and now_ms - self.last_lock_ms <= LOCK_VALID_MS

    def limit_reached(self, limits: FlowLimits) -> str | None:
        """Why no more is to be pulled now; None: nothing speaks against it."""
        if len(self) > limits.count_max:
            return "count"
        if self.cached_bytes // MIB > limits.mib_max:
            return "size"
        if limits.span_max is not None and self.span > limits.span_max:
            return "span"
        return None

    def put(self, messages: Sequence[M]) -> None:
        """Take what was pulled; a message that is here already is not taken twice."""
        if not messages:
            return
        offsets = [message.queue_offset for message in messages]
        last = self._runs[-1].offsets[-1] if self._runs else -1
        if self._taken:
            last = max(last, *self._taken)
        if offsets[0] > last and all(map(lt, offsets, offsets[1:])):
            self._runs.append(Run(offsets, messages))
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
        index = self._run_of(offset)
        if index < 0:
            return False
        run = self._runs[index]
        return offset not in run.gone and run.place(offset) >= 0

    def remove(self, messages: Sequence[M]) -> int:
        """Messages are consumed, in whatever order.

        Returns:
            Offset to go on at after a restart; `NOTHING_CONSUMED` when none of the queue was here.
        """
        if not self._count:
            return NOTHING_CONSUMED
        if messages:
            offsets = [message.queue_offset for message in messages]
            index = self._run_of(offsets[0])
            if index >= 0 and self._runs[index].remove_all(offsets):
                self._removed(index, len(offsets), sum([message.body_length for message in messages]))
            else:
                for offset, message in zip(offsets, messages, strict=True):
                    index = self._run_of(offset)
                    if index >= 0 and self._runs[index].remove_all([offset]):
                        self._removed(index, 1, message.body_length)
        return self.commit_offset

    def _removed(self, index: int, count: int, size_bytes: int) -> None:
        """Messages of a run are gone."""
        self._count -= count
        self.cached_bytes -= size_bytes
        if not self._runs[index].left:
            del self._runs[index]

    def _run_of(self, offset: int) -> int:
        """The run that an offset would be in; -1 when it is before all of them."""
        runs = self._runs
        if len(runs) == 1 or (runs and offset < runs[1].offsets[0]):
            return 0 if offset >= runs[0].offsets[0] else -1
        return bisect_right(runs, offset, key=lambda run: run.offsets[0]) - 1

    def _insert(self, offset: int, message: M) -> bool:
        """Take one message at its place among the others; False: it is here."""
        index = self._run_of(offset)
        if index >= 0:
            run = self._runs[index]
            place = run.place(offset)
            if place >= 0:
                if offset not in run.gone:
                    return False
                run.gone.remove(offset)
                run.messages[place] = message
                run.left += 1
                run.first = min(run.first, place)
                self._count += 1
                return True
            if offset < run.offsets[-1]:
                self._split(index, bisect_left(run.offsets, offset))
                index = self._run_of(offset)
        self._runs.insert(index + 1, Run([offset], [message]))
        self._count += 1
        return True

    def _split(self, index: int, place: int) -> None:
        """Make two runs of one; a half of which nothing is left goes."""
        run = self._runs[index]
        halves = []
        for part in (slice(0, place), slice(place, None)):
            half = Run(run.offsets[part], run.messages[part])
            half.gone = run.gone.intersection(half.offsets)
            half.left -= len(half.gone)
            halves.append(half)
        self._runs[index : index + 1] = [half for half in halves if half.left]

    @property
    def commit_offset(self) -> int:
        """Offset to go on at after a restart."""
        first = self.min_offset
        return self._max_offset + 1 if first is None else first

    # --- orderly

    def take(self, count: int) -> list[M]:
        """The next messages, for the one listener of the queue; what it has must be finished first."""
        found: list[M] = []
        while self._runs and len(found) < count:
            run = self._runs[0]
            here = run.here()[: count - len(found)]
            found += here
            run.left -= len(here)
            run.gone.update([message.queue_offset for message in here])
            self._count -= len(here)
            if not run.left:
                del self._runs[0]
        self._taken.update((message.queue_offset, message) for message in found)
        return found

    def commit(self) -> int:
        """What was taken is consumed. Returns the offset to go on at; `NOTHING_CONSUMED` for nothing."""
        if not self._taken:
            return NOTHING_CONSUMED
        last = max(self._taken)
        self.cached_bytes -= sum(message.body_length for message in self._taken.values())
        self._taken.clear()
        return last + 1

    def put_back(self) -> None:
        """What was taken shall be taken again."""
        for offset, message in self._taken.items():
            self._insert(offset, message)
        self._taken.clear()

    def clear(self) -> None:
        """Forget all messages."""
        self._runs.clear()
        self._count = 0
        self._taken.clear()
        self.cached_bytes = 0
