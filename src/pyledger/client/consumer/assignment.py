"""A queue that a consumer has now."""

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


class Turn(NamedTuple):
    """Messages that a listener is at."""

    begun_ms: float
    messages: Sequence[ReceivedMessage]


@dataclass(slots=True, eq=False)
class Assignment:
    """The messages of a queue, and who works on them."""

    queue: MessageQueue
    messages: ProcessQueue[ReceivedMessage]
    rates: TopicRates
    """Of all queues of the topic together."""
    next_offset: int = 0
    """Queue offset of the next pull."""
    begun: dict[int, Turn] = field(default_factory=dict)
    """What listeners are at, by the first queue offset."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Messages came or went."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """The queue is dropped."""
    is_closing: bool = False
    """No listener begins with a message any more; those that run may finish."""
    is_lost: bool = False
    """Orderly: somebody else has the lock; what happened here since does not count."""
    turns: int = 0
    """Concurrent: turns of the listener that are not over, and messages on their way back."""
    pulling: asyncio.Task[None] | None = None
    consuming: asyncio.Task[None] | None = None
    """Orderly: the one who takes the messages."""

    @property
    def is_retry(self) -> bool:
        """Whether its messages are those that were given back."""
        return self.queue.topic.startswith(names.RETRY_PREFIX)

    def started_ms(self, offset: int) -> float | None:
        """When the listener began with the message of a queue offset; None: it has not, or is done."""
        # Listeners on threads begin meanwhile.
        for turn in tuple(self.begun.values()):
            if any(message.queue_offset == offset for message in turn.messages):
                return turn.begun_ms
        return None

    async def pause(self, wait_ms: float) -> None:
        """Sleep so long (ms), or until the queue is dropped."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self.ended.wait()
        except TimeoutError:
            pass

    def describe(self, commit_offset: int, now_ms: float, now_wall_ms: int) -> ProcessQueueState:
        """What operators are told of it; `commit_offset` is the queue offset to go on at."""
        messages = self.messages
        behind_ms = now_wall_ms - now_ms

        def wall(moment_ms: float) -> int:
            return int(moment_ms + behind_ms)

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
