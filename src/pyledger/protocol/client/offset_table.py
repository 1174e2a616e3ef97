"""Where a consumer stands in its queues, as far as it has not told anybody.

Source: RocketMQ client/.../consumer/store/RemoteBrokerOffsetStore.java, ControllableOffset.java.
"""

from collections.abc import Collection, Mapping

from pyledger.model.message import MessageQueue


class OffsetTable:
    """Queue offsets to go on at, by queue."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._told: dict[MessageQueue, int] = {}
        self._read: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int | None:
        """The offset of a queue; None when it is not known here."""
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Move to an offset; with `increase_only` never back."""
        known = self._offsets.get(queue)
        if known is None or not increase_only or offset > known:
            self._offsets[queue] = offset

    def known(self, queue: MessageQueue, offset: int) -> None:
        """An offset was read from where it is kept: it need not be told."""
        self._offsets[queue] = self._told[queue] = self._read[queue] = offset

    def untold(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Offsets of some queues that moved since they were told."""
        return {
            queue: offset
            for queue in queues
            if (offset := self._offsets.get(queue)) is not None and self._told.get(queue) != offset
        }

    def moved(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Offsets of some queues that moved since they were read, told or not."""
        return {
            queue: offset
            for queue in queues
            if (offset := self._offsets.get(queue)) is not None and self._read.get(queue) != offset
        }

    def told(self, queue: MessageQueue, offset: int) -> None:
        """An offset was told."""
        self._told[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """The queue is somebody else's now."""
        self._offsets.pop(queue, None)
        self._told.pop(queue, None)
        self._read.pop(queue, None)

    def of_topic(self, topic: str) -> Mapping[MessageQueue, int]:
        """The offsets of one topic."""
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}
