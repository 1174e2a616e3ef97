"""The consumer offsets of a consumer's queues, and which of them are persisted.

Source: RocketMQ client/.../consumer/store/RemoteBrokerOffsetStore.java, ControllableOffset.java.
"""

from collections.abc import Collection, Mapping

from pyledger.model.message import MessageQueue


class OffsetTable:
    """The queue offset from which to continue, by queue."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._persisted: dict[MessageQueue, int] = {}
        self._read: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue, or None."""
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Set an offset; with `increase_only` a lower one is ignored."""
        known = self._offsets.get(queue)
        if known is None or not increase_only or offset > known:
            self._offsets[queue] = offset

    def known(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset that was read from the offset store."""
        self._offsets[queue] = self._persisted[queue] = self._read[queue] = offset

    def unpersisted(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offsets of some queues that changed since they were persisted."""
        return {
            queue: offset
            for queue in queues
            if (offset := self._offsets.get(queue)) is not None and self._persisted.get(queue) != offset
        }

    def changed(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offsets of some queues that changed since they were read, persisted or not."""
        return {
            queue: offset
            for queue in queues
            if (offset := self._offsets.get(queue)) is not None and self._read.get(queue) != offset
        }

    def on_persisted(self, queue: MessageQueue, offset: int) -> None:
        """Note that an offset was persisted."""
        self._persisted[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset of a queue that is no longer assigned."""
        self._offsets.pop(queue, None)
        self._persisted.pop(queue, None)
        self._read.pop(queue, None)

    def of_topic(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the offsets of one topic."""
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}
