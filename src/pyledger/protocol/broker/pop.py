"""Popped messages: invisible to their group until they are acknowledged, or until their time is over.

One record of a system topic names the messages that were popped together from a queue; other records name
those that were acknowledged or put back. So this topic alone determines what is invisible, and a restart
reads it from the oldest open record.

Differs: upstream delays these records in its timer wheel and pairs them when they are due; here they are
stored at once, in queue 0 of the same topic, and paired in memory. Records that upstream left in its wheel or
in the other queues are moved there. Ordered pops have no such records: see `pop_order`.

Source: RocketMQ broker/.../PopMessageProcessor.java, AckMessageProcessor.java, PopReviveService.java,
ChangeInvisibleTimeProcessor.java; common/.../KeyBuilder.java.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyledger.model import names
from pyledger.protocol.broker.ack_blocks import OffsetBlocks
from pyledger.protocol.broker.name_rules import group_problem, is_internal_topic, topic_problem

TOPIC_ITSELF, RETRY = "0", "1"
"""Kind of the topic that a message was popped from, in a handle."""


class PopKey(NamedTuple):
    """Identifies the messages that were popped together from one queue."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    """First queue offset, units."""
    pop_ms: int

    @property
    def problem(self) -> str | None:
        """Why its messages cannot be put back to a topic named after topic and group; None if they can."""
        if (wrong := topic_problem(self.topic) or group_problem(self.group)) is not None:
            return wrong
        if is_internal_topic(self.topic):
            return f"the topic[{self.topic}] is the broker's own"
        return None if self.queue_id >= 0 else f"queueId[{self.queue_id}] is negative"


@dataclass(eq=False, slots=True)
class Popped:
    """Messages of one queue that were popped together."""

    key: PopKey
    due_ms: int
    """When messages without an acknowledgement are put back."""
    open: set[int]
    """Queue offsets of those that are not acknowledged, units."""
    number: int = field(default=-1)
    """Queue offset of their record, units."""


class PoppedMessages:
    """All invisible messages of a broker."""

    def __init__(self, restart_offset: int = 0) -> None:
        """Start without messages; then call `add` for all records from a queue offset, units, on."""
        self.by_key: dict[PopKey, Popped] = {}
        self.heap: list[tuple[int, int, Popped]] = []
        self.blocks = OffsetBlocks()
        self.next_offset = restart_offset
        """Queue offset, units: all records before it are known."""
        self.early: dict[PopKey, set[int]] = {}
        """Acknowledgements without a record as yet; see `keep_early`."""
        self.keep_early = False
        """Whether records may come after their acknowledgements: those that upstream stored elsewhere."""

    def add(self, popped: Popped, number: int) -> None:
        """Add the messages of the record at a queue offset, units."""
        self.next_offset = max(self.next_offset, number + 1)
        popped.number = number
        popped.open -= self.early.pop(popped.key, set())
        if popped.key in self.by_key or not popped.open:
            return
        self.by_key[popped.key] = popped
        self.blocks.add(number)
        heapq.heappush(self.heap, (popped.due_ms, number, popped))

    def acknowledge(self, key: PopKey, offsets: Iterable[int]) -> bool:
        """Acknowledge messages by queue offset, units; return False if none of them was open."""
        popped, taken = self.by_key.get(key), set(offsets)
        if popped is None and self.keep_early:
            self.early.setdefault(key, set()).update(taken)
        if popped is None or popped.open.isdisjoint(taken):
            return False
        popped.open -= taken
        if not popped.open:
            del self.by_key[key]
            self.blocks.remove(popped.number)
        return True

    def is_open(self, key: PopKey, offset: int) -> bool:
        """Whether the message at a queue offset, units, waits for its acknowledgement."""
        popped = self.by_key.get(key)
        return popped is not None and offset in popped.open

    def due(self, now_ms: int) -> Popped | None:
        """Return the next messages to put back; they stay until all of them are acknowledged."""
        deadline_ms = self.deadline_ms()
        return self.heap[0][2] if deadline_ms is not None and deadline_ms <= now_ms else None

    def deadline_ms(self) -> int | None:
        """When messages are put back next; None while none are open."""
        while self.heap and not self.heap[0][2].open:
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    @property
    def restart_offset(self) -> int:
        """Queue offset, units, of the oldest record that a restart must read."""
        return self.blocks.oldest(self.next_offset)

    def describe(self) -> str:
        """Return the open messages, soonest due first."""
        open_ones = sorted(self.by_key.values(), key=lambda one: (one.due_ms, one.number))
        lines = [
            f"{one.key.topic}/{one.key.queue_id}@{one.key.group}: {sorted(one.open)} until {one.due_ms}"
            for one in open_ones
        ]
        return "\n".join([*lines, f"restart from {self.restart_offset}"])


def pop_retry_topic(topic: str, group: str) -> str:
    """Return the topic to which messages are put back for a group; those of a retry topic stay in it."""
    return topic if topic.startswith(names.RETRY_PREFIX) else f"{names.RETRY_PREFIX}{group}_{topic}"


def put_back_properties(properties: Mapping[str, str], group: str, pop_ms: int) -> dict[str, str]:
    """The properties of a message that is put back."""
    return {
        names.FIRST_POP_TIME: str(pop_ms),
        **properties,
        names.ORIGIN_GROUP: group,
    }


def first_offset(init_mode: int, min_offset: int, max_offset: int, *, first_in_memory: bool) -> int:
    """Return the queue offset, units, at which a group without an offset starts.

    Args:
        init_mode: 0: at the first message; else at the last.
        min_offset: Lowest offset of the queue, units.
        max_offset: Its end, units.
        first_in_memory: Whether message 0 is still in the page cache; if so, the group starts with it.
    """
    if init_mode == 0:
        return min_offset
    if min_offset <= 0 and first_in_memory:
        return 0
    return max(max_offset - 1, 0)
