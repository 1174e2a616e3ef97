"""A queue that is assigned to a consumer."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyledger.model import names
from pyledger.model.message import MessageQueue
from pyledger.protocol.client.consumer_stats import TopicRates
from pyledger.protocol.client.process_queue import ProcessQueue
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.bodies.statistics import ProcessQueueState


class ListenerCall(NamedTuple):
    """A listener's call in progress: its start (ms, monotonic) and its messages."""

    begun_ms: float
    messages: Sequence[ReceivedMessage]


@dataclass(slots=True, eq=False)
class Assignment:
    """The messages of a queue and the tasks that pull and consume them."""

    queue: MessageQueue
    messages: ProcessQueue[ReceivedMessage]
    rates: TopicRates
    """The rates of all queues of the topic together."""
    next_offset: int = 0
    """Queue offset of the next pull."""
    calls: dict[int, ListenerCall] = field(default_factory=dict)
    """Calls in progress, by the queue offset of their first message."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when messages were added or removed."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the queue is dropped."""
    is_closing: bool = False
    """Whether no more messages are given to the listener; calls in progress may finish."""
    is_lost: bool = False
    """Orderly: whether another member has the lock, so that later results do not count."""
    in_flight: int = 0
    """Concurrent: batches that wait for the listener, are being processed or are being sent back."""
    pulling: asyncio.Task[None] | None = None
    consuming: asyncio.Task[None] | None = None
    """Orderly: the task that consumes the messages."""

    @property
    def is_retry(self) -> bool:
        """Whether it is a queue of the group's retry topic."""
        return self.queue.topic.startswith(names.RETRY_PREFIX)

    def started_ms(self, offset: int) -> float | None:
        """Return when the listener got the message at a queue offset; None if it is not being processed."""
        # A copy: listeners on threads start calls meanwhile.
        for call in tuple(self.calls.values()):
            if any(message.queue_offset == offset for message in call.messages):
                return call.begun_ms
        return None

    async def pause(self, wait_ms: float) -> None:
        """Sleep for `wait_ms`, or until the queue is dropped."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self.ended.wait()
        except TimeoutError:
            pass

    def describe(self, commit_offset: int, now_ms: float, now_wall_ms: int) -> ProcessQueueState:
        """Return its state for operators; `commit_offset` is the consumer offset of the group."""
        messages = self.messages
        wall_offset_ms = now_wall_ms - now_ms

        def wall(monotonic_ms: float) -> int:
            return int(monotonic_ms + wall_offset_ms)

        return ProcessQueueState(
            commit_offset=commit_offset,
            cached_msg_min_offset=messages.min_offset or 0,
            cached_msg_max_offset=messages.max_offset if len(messages) else 0,
            cached_msg_count=len(messages),
            cached_msg_size_in_mib=messages.cached_bytes >> 20,
            locked=messages.is_locked(now_ms),
            last_lock_timestamp=wall(messages.last_lock_ms or now_ms),
            droped=messages.dropped,
            last_pull_timestamp=wall(messages.last_pull_ms),
            last_consume_timestamp=wall(messages.last_consume_ms),
        )
