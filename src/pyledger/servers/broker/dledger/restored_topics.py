"""Topics that a new master makes, or gives more queues, as its log calls for them.

The last master may have made a topic just before it went: its messages have come, but not the table that
knows it. Messages that stood in the log before the table was last copied show nothing: a topic of theirs that
is missing was deleted.
"""

from typing import TYPE_CHECKING

from pyledger.protocol.broker.delay_levels import Destination

if TYPE_CHECKING:
    from pyledger.servers.broker.context import BrokerContext


def restore_topics(context: "BrokerContext", copied_where: int) -> None:
    """Let a new master have the topics and queues that its log shows, now and as it delivers what waits.

    Args:
        context: The master's, not serving yet.
        copied_where: Physical offset (bytes): topics of all that stands before it are in its table.
    """
    restored = RestoredTopics(context, copied_where)
    restored.take_stock()
    context.puts.leave = restored.leave


class RestoredTopics:
    """What the messages of the last master show of its topics; arguments as `restore_topics` takes them."""

    def __init__(self, context: "BrokerContext", copied_where: int) -> None:
        self._context, self._topics = context, context.tables.topics
        self._shown = range(copied_where, context.store.confirmed_where)

    def take_stock(self) -> None:
        """Have the queues that hold messages."""
        store = self._context.store
        for (topic, queue_id), held in store.queues().items():
            if held.max_offset > held.min_offset and self._topics.lacks_queue(topic, queue_id):
                last = store.get(topic, queue_id, held.max_offset - 1, 1).messages
                if last and last[0].physical_offset in self._shown:
                    self._topics.add_queue(topic, queue_id, self._context.now_ms())

    def leave(self, physical_offset: int, meant_for: Destination) -> None:
        """Have the queue for which is meant what has waited at a physical offset (bytes) of the log."""
        lacks = self._topics.lacks_queue(meant_for.topic, meant_for.queue_id)
        if lacks and physical_offset in self._shown:
            self._topics.add_queue(meant_for.topic, meant_for.queue_id, self._context.now_ms())
            self._context.tables_changed()
