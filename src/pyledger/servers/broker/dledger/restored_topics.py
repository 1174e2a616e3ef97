"""Topics and queues that a new master creates because its log has messages of them.

The last master may have created a topic just before it failed: its messages were replicated, but the table
with the topic was not copied. Messages from before the last copy restore nothing: if their topic is missing,
it was deleted.
"""

from typing import TYPE_CHECKING

from pyledger.protocol.broker.delay_levels import Destination

if TYPE_CHECKING:
    from pyledger.servers.broker.context import BrokerContext


def restore_topics(context: "BrokerContext", copied_where: int) -> None:
    """Create the topics and queues of messages in a new master's log, now and as it delivers delayed ones.

    Args:
        context: The context of the master, which does not serve yet.
        copied_where: Physical offset (bytes): the topics of all messages below it are in its table.
    """
    restored = RestoredTopics(context, copied_where)
    restored.add_queues()
    context.puts.leave = restored.leave


class RestoredTopics:
    """Restores queues from messages of the last master; takes the arguments of `restore_topics`."""

    def __init__(self, context: "BrokerContext", copied_where: int) -> None:
        self._context, self._topics = context, context.tables.topics
        self._shown = range(copied_where, context.store.confirmed_where)

    def add_queues(self) -> None:
        """Create the missing queues that have messages."""
        store = self._context.store
        for (topic, queue_id), held in store.queues().items():
            if held.max_offset > held.min_offset and self._topics.is_without_queue(topic, queue_id):
                last = store.get(topic, queue_id, held.max_offset - 1, max_count=1).messages
                if last and last[0].physical_offset in self._shown:
                    self._topics.add_queue(topic, queue_id, self._context.now_ms())

    def leave(self, physical_offset: int, meant_for: Destination) -> None:
        """Create the missing destination of a delayed message at a physical offset (bytes) of the log."""
        missing = self._topics.is_without_queue(meant_for.topic, meant_for.queue_id)
        if missing and physical_offset in self._shown:
            self._topics.add_queue(meant_for.topic, meant_for.queue_id, self._context.now_ms())
            self._context.tables_changed()
