"""Topics that a new master makes, or gives more queues, as its log calls for them.

The last master may have made a topic just before it went: its messages have come, but not the table that
knows it. Messages that stood in the log before the table was last copied show nothing: a topic of theirs that
is missing was deleted.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyledger.protocol.delivery.delay import Destination
from pyledger.protocol.delivery.topics import BrokerTopics
from pyledger.store.message_store import MessageStore

if TYPE_CHECKING:
    from pyledger.broker.parts import BrokerParts


def restore_topics(parts: "BrokerParts", copied_where: int) -> None:
    """Let a new master have the topics and queues that its log shows, now and as it delivers what waits.

    Args:
        parts: The master's, not serving yet.
        copied_where: Physical offset (bytes): topics of all that stands before it are in its table.
    """
    restored = RestoredTopics(
        parts.tables.topics, copied_where, parts.store.confirmed_where, parts.now_ms, parts.tables_changed
    )
    restored.take_stock(parts.store)
    parts.puts.leave = restored.leave


class RestoredTopics:
    """What the messages of the last master show of its topics."""

    def __init__(
        self,
        topics: BrokerTopics,
        copied_where: int,
        end_where: int,
        now_ms: Callable[[], int],
        changed: Callable[[], object],
    ) -> None:
        """Take the table, and which messages show more than it has.

        Args:
            topics: The new master's.
            copied_where: Physical offset (bytes): topics of all that stands before it are known.
            end_where: Physical offset (bytes) where the last master's messages end.
            now_ms: The wall clock.
            changed: Told when the table has changed while the master serves.
        """
        self._topics = topics
        self._copied_where, self._end_where = copied_where, end_where
        self._now_ms, self._changed = now_ms, changed

    def take_stock(self, store: MessageStore) -> None:
        """Have the queues that hold messages."""
        for (topic, queue_id), held in store.queues().items():
            if held.max_offset > held.min_offset and self._topics.lacks_queue(topic, queue_id):
                last = store.get(topic, queue_id, held.max_offset - 1, 1).messages
                if last and last[0].physical_offset >= self._copied_where:
                    self._topics.add_queue(topic, queue_id, self._now_ms())

    def leave(self, physical_offset: int, meant_for: Destination) -> None:
        """Have the queue for which is meant what has waited at a physical offset (bytes) of the log."""
        if not self._copied_where <= physical_offset < self._end_where:
            return
        if self._topics.lacks_queue(meant_for.topic, meant_for.queue_id):
            self._topics.add_queue(meant_for.topic, meant_for.queue_id, self._now_ms())
            self._changed()
