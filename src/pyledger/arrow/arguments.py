"""The arguments of `pyledger.arrow` that select rows, and the forms of queue offsets that it accepts."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from pyledger.arrow.scan_plan import MAX_OFFSET, MIN_OFFSET, QueueSource
from pyledger.errors import ConfigError
from pyledger.model.times import Time

Offsets = Literal["earliest", "latest"] | int | Mapping[Any, Any]


class RowKeywords(TypedDict, total=False):
    """The arguments of `scan` that select rows."""

    topics: str | Iterable[str] | None
    topics_pattern: str | None
    queues: Iterable[int | tuple[str, int]] | None
    starting_offsets: Offsets | None
    ending_offsets: Offsets | None
    since: Time | None
    until: Time | None
    tags: str | None
    key: str | None
    include_unindexed: bool


def queue_offsets(
    field: str, value: Offsets | None, source: QueueSource
) -> dict[tuple[str, int], int] | int | None:
    """Return queue offsets by queue, with "earliest", "latest", -2 and -1 resolved.

    Raises:
        ConfigError: a value is not valid.
    """
    words = {"earliest": MIN_OFFSET, -2: MIN_OFFSET}
    if field == "ending_offsets":
        words |= {"latest": MAX_OFFSET, -1: MAX_OFFSET}
    if value is None or (isinstance(value, (str, int)) and value in words):
        return None if value is None else words[value]
    if value in ("latest", -1) and not isinstance(value, Mapping):
        return {name: held.max_offset for name, held in source.queues().items()}
    if isinstance(value, int) and value >= 0:
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(field, f"{value!r} is not an offset", "use earliest, latest, a number or a mapping")
    found: dict[tuple[str, int], int] = {}
    for name, inner in value.items():
        if not isinstance(inner, Mapping) and not (isinstance(name, tuple) and len(name) == 2):
            problem = f"{name!r}: {inner!r} names no queue"
            raise ConfigError(field, problem, "give {topic: {queue id: offset}}")
        for queue_id, offset in inner.items() if isinstance(inner, Mapping) else [(name[1], inner)]:
            topic = name if isinstance(inner, Mapping) else name[0]
            if not isinstance(offset, int) or offset < -2:
                raise ConfigError(field, f"{offset!r} of {topic} is not an offset", "use -2, -1, 0 or more")
            if offset == -1 and field == "starting_offsets":
                held = source.queues().get((topic, int(queue_id)))
                found[topic, int(queue_id)] = held.max_offset if held else MAX_OFFSET
            else:
                found[topic, int(queue_id)] = words.get(offset, offset)
    return found
