"""The messages of one queue between their pull and the end of their consumption.

Invariant: every offset below `commit_offset` was consumed, or given back to the broker.

Source: RocketMQ client/.../impl/consumer/ProcessQueue.java, DefaultMQPushConsumerImpl.java (pullMessage).
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from pyledger.value_type import value_type

MIB = 1 << 20
LOCK_VALID_MS = 30_000
NOTHING_CONSUMED = -1


class Cached(Protocol):
    """What must be known of a message."""

    queue_offset: int
    stored_body: bytes


M = TypeVar("M", bound=Cached)


@value_type()
class FlowLimits:
    """How much of one queue may wait."""

    count_max: int = 1000
    mib_max: int = 100
    span_max: int | None = 2000
    """None: orderly consumption, whose messages leave in order."""


class ProcessQueue(Generic[M]):
    """One queue as its consumer has it. Times are ms of a clock that does not go back."""

    def __init__(self, now_ms: float) -> None:
        self._messages: dict[int, M] = {}
        self._order: deque[int] = deque()
        """Offsets, ascending; those that left from the middle are still in it."""
        self._taken: dict[int, M] = {}
        """Orderly: what the listener has now."""
        self._max_offset = 0
        self.cached_bytes = 0
        self.dropped = False
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.last_lock_ms: float | None = None
        """When the lock was last confirmed; None: it is not ours."""

    def __len__(self) -> int:
        return len(self._messages) + len(self._taken)

    @property
    def min_offset(self) -> int | None:
        """Offset of the first message that is here; None when there is none."""
        if self._taken:
            return min(self._taken)
        while self._order and self._order[0] not in self._messages:
            self._order.popleft()
        return self._order[0] if self._order else None

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
        return tuple(self._messages[offset] for offset in self._order if offset in self._messages)

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

    def put(self, messages: Iterable[M]) -> None:
        """Take what was pulled; a message that is here already is not taken twice."""
        for message in messages:
            offset = message.queue_offset
            if offset not in self._messages and offset not in self._taken:
                self._messages[offset] = message
                if not self._order or offset > self._order[-1]:
                    self._order.append(offset)
                elif offset not in self._order:
                    insort(self._order, offset)
                self.cached_bytes += len(message.stored_body)
                self._max_offset = max(self._max_offset, offset)

    def __contains__(self, message: M) -> bool:
        return message.queue_offset in self._messages

    def remove(self, messages: Sequence[M]) -> int:
        """Messages are consumed, in whatever order.

        Returns:
            Offset to go on at after a restart; `NOTHING_CONSUMED` when none of the queue was here.
        """
        if not self._messages:
            return NOTHING_CONSUMED
        for message in messages:
            if self._messages.pop(message.queue_offset, None) is not None:
                self.cached_bytes -= len(message.stored_body)
        return self.commit_offset

    @property
    def commit_offset(self) -> int:
        """Offset to go on at after a restart."""
        first = self.min_offset
        return self._max_offset + 1 if first is None else first

    # --- orderly

    def take(self, count: int) -> list[M]:
        """The next messages, for the one listener of the queue; what it has must be finished first."""
        found: list[M] = []
        while self._order and len(found) < count:
            message = self._messages.pop(self._order.popleft(), None)
            if message is not None:
                found.append(message)
                self._taken[message.queue_offset] = message
        return found

    def commit(self) -> int:
        """What was taken is consumed. Returns the offset to go on at; `NOTHING_CONSUMED` for nothing."""
        if not self._taken:
            return NOTHING_CONSUMED
        last = max(self._taken)
        self.cached_bytes -= sum(len(message.stored_body) for message in self._taken.values())
        self._taken.clear()
        return last + 1

    def put_back(self) -> None:
        """What was taken shall be taken again."""
        for offset in sorted(self._taken, reverse=True):
            self._messages[offset] = self._taken[offset]
            self._order.appendleft(offset)
        self._taken.clear()

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()
        self._order.clear()
        self._taken.clear()
        self.cached_bytes = 0
