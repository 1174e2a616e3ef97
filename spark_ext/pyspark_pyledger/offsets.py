"""Queue offsets in the form of options and checkpoints: `{"orders": {"0": 23}}`.

If one folder is read, a queue is named by its id. With several folders, or with brokers, the name of the
folder or broker comes first: `{"orders": {"broker-a:0": 23}}`.
"""

from collections.abc import Mapping
from operator import index

QueueKey = tuple[str, str, int]
"""Topic, source (the name of a folder or broker; "" for the only one, or for all), queue id."""

Offsets = dict[QueueKey, int]
"""Queue offset by queue; in options -2 means the earliest, -1 the latest."""

Positions = dict[str, dict[str, int]]
"""The form of options and checkpoints."""


def parse_positions(table: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Read the form of options and checkpoints.

    Raises:
        ValueError: a queue id is not a number.
        TypeError: an offset is not a number.
        AttributeError: the table is not a mapping of mappings.
    """
    offsets: Offsets = {}
    for topic, queues in table.items():
        for label, offset in queues.items():
            source, _, queue_id = label.rpartition(":")
            offsets[topic, source, int(queue_id)] = index(offset)
    return offsets


def format_positions(offsets: Offsets) -> Positions:
    """Write the form of options and checkpoints, sorted: Spark compares it as text."""
    table: Positions = {}
    for (topic, source, queue_id), offset in sorted(offsets.items()):
        table.setdefault(topic, {})[f"{source}:{queue_id}" if source else str(queue_id)] = offset
    return table


def label(key: QueueKey) -> str:
    """A queue as messages name it."""
    topic, source, queue_id = key
    return f"{topic}/{queue_id} of {source}" if source else f"{topic}/{queue_id}"


def offset_for(offsets: Offsets, key: QueueKey) -> int | None:
    """Return the offset given for a queue at its source, or else for that queue at every source."""
    topic, _source, queue_id = key
    return offsets.get(key, offsets.get((topic, "", queue_id)))
