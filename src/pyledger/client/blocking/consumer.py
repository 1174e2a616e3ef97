"""Consumers for programs without asyncio. Any thread may use them.

They run the asyncio clients on one thread of the process; arguments, results and errors are the same.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pyledger.client.blocking.base import Blocking, background
from pyledger.client.consumer.group_consumer import GroupConsumer
from pyledger.client.consumer.lite_pull_consumer import (
    POLL_COUNT_MAX,
    POLL_TIMEOUT_MS,
    AsyncLitePullConsumer,
)
from pyledger.client.consumer.pull_api import PullResult
from pyledger.client.consumer.pull_consumer import AsyncPullConsumer
from pyledger.client.consumer.push_consumer import AsyncPushConsumer
from pyledger.model.message import MessageQueue
from pyledger.wire.record.record import ReceivedMessage

G = TypeVar("G", AsyncPushConsumer, AsyncLitePullConsumer)


class BlockingMember(Blocking[G]):
    """A member of a group."""

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        """Want messages of a topic; see `GroupConsumer.subscribe`."""
        consumer: GroupConsumer = self._inner

        async def subscribe() -> None:
            consumer.subscribe(topic, expression, sql=sql)

        background().wait(subscribe())

    def unsubscribe(self, topic: str) -> None:
        """Want no more messages of a topic; see `GroupConsumer.unsubscribe`."""
        consumer: GroupConsumer = self._inner

        async def unsubscribe() -> None:
            consumer.unsubscribe(topic)

        background().wait(unsubscribe())

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that it has now."""
        return self._inner.queues

    def suspend(self) -> None:
        """Pull nothing until `resume`; what is here is still consumed."""
        self._inner.suspend()

    def resume(self) -> None:
        """Pull again."""
        self._inner.resume()


class PushConsumer(BlockingMember[AsyncPushConsumer]):
    """A member of a group whose messages come to a listener; takes what `AsyncPushConsumer` takes."""

    def __init__(self, group: str, name_servers: str = "", listener: Any = None, **options: Any) -> None:
        super().__init__(AsyncPushConsumer(group, name_servers, listener, **options))


class LitePullConsumer(BlockingMember[AsyncLitePullConsumer]):
    """A member of a group that polls; takes what `AsyncLitePullConsumer` takes. Iterates over messages."""

    def __init__(self, group: str, name_servers: str = "", **options: Any) -> None:
        super().__init__(AsyncLitePullConsumer(group, name_servers, **options))

    def poll(
        self, timeout_ms: int = POLL_TIMEOUT_MS, count_max: int = POLL_COUNT_MAX
    ) -> list[ReceivedMessage]:
        """The next messages; see `AsyncLitePullConsumer.poll`."""
        return background().wait(self._inner.poll(timeout_ms, count_max))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages, one after the other, for ever. Each counts as consumed when the next one is taken."""
        while True:
            yield from self.poll(count_max=1)

    def commit(self) -> None:
        """Let the group stand behind what was returned; see `AsyncLitePullConsumer.commit`."""
        background().wait(self._inner.commit())

    def committed_offset(self, queue: MessageQueue) -> int:
        """Where the group stands in a queue; -1 when it was never there."""
        return background().wait(self._inner.committed_offset(queue))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, whoever else is in the group; see `AsyncLitePullConsumer.assign`."""
        background().wait(self._inner.assign(queues))

    def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read."""
        return background().wait(self._inner.fetch_queues(topic))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at a queue offset; see `AsyncLitePullConsumer.seek`."""
        background().wait(self._inner.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message of a queue."""
        background().wait(self._inner.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the last message of a queue."""
        background().wait(self._inner.seek_to_end(queue))


class PullConsumer(Blocking[AsyncPullConsumer]):
    """Reads queues in the name of a group; takes what `AsyncPullConsumer` takes."""

    def __init__(self, group: str, name_servers: str = "", **options: Any) -> None:
        super().__init__(AsyncPullConsumer(group, name_servers, **options))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read."""
        return background().wait(self._inner.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = "*",
        *,
        sql: bool = False,
        count_max: int | None = None,
        wait: bool = False,
    ) -> PullResult:
        """Read messages of a queue at an offset; see `AsyncPullConsumer.pull`."""
        return background().wait(
            self._inner.pull(queue, offset, expression, sql=sql, count_max=count_max, wait=wait)
        )

    def committed_offset(self, queue: MessageQueue) -> int:
        """Where the group stands; -1 when it was never there."""
        return background().wait(self._inner.committed_offset(queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Let the group stand at a queue offset; see `AsyncPullConsumer.commit`."""
        background().wait(self._inner.commit(queue, offset))

    def min_offset(self, queue: MessageQueue) -> int:
        """Queue offset of the first message."""
        return background().wait(self._inner.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Queue offset that the next message will have."""
        return background().wait(self._inner.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at a time (ms since 1970) or later."""
        return background().wait(self._inner.offset_by_time(queue, timestamp_ms))
