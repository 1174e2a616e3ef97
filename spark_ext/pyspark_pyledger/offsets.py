"""Places in queues, as options and checkpoints say them: `{"orders": {"0": 23}}`.

A queue is named by its id where one folder is read. With several folders, or brokers, the name of the folder
or broker stands before it: `{"orders": {"broker-a:0": 23}}`.
"""

from collections.abc import Mapping
from operator import index

QueueKey = tuple[str, str, int]
"""Topic, the folder or broker ("" where there is but one, or for all), queue id."""

Offsets = dict[QueueKey, int]
"""Queue offset by queue; in options -2 stands for the earliest, -1 for the latest."""

Positions = dict[str, dict[str, int]]
"""The form of options and checkpoints."""


def parse_positions(table: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Read the form of options and checkpoints.

    Raises:
        ValueError: a queue id is no number.
        TypeError: an offset is none.
        AttributeError: it is not a mapping of mappings.
    """
    offsets: Offsets = {}
    for topic, queues in table.items():
        for label, offset in queues.items():
            place, _, queue_id = label.rpartition(":")
            offsets[topic, place, int(queue_id)] = index(offset)
    return offsets


def format_positions(offsets: Offsets) -> Positions:
    """Write the form of options and checkpoints, sorted: Spark compares it as text."""
    table: Positions = {}
    for (topic, place, queue_id), offset in sorted(offsets.items()):
        table.setdefault(topic, {})[f"{place}:{queue_id}" if place else str(queue_id)] = offset
    return table


def label(key: QueueKey) -> str:
    """A queue as messages name it."""
    topic, place, queue_id = key
    return f"{topic}/{queue_id} of {place}" if place else f"{topic}/{queue_id}"


def offset_for(offsets: Offsets, key: QueueKey) -> int | None:
    """What is said of a queue: of it at its place, or of it at every place."""
    topic, _place, queue_id = key
    return offsets.get(key, offsets.get((topic, "", queue_id)))
