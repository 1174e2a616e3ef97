"""Delay levels: a delayed message waits in a topic of its own, in a queue for each level, in order of time.

Storing (`redirect_properties`) and delivering (`DelaySchedule`, `restore`) are here; the shell reads and
writes. A queue unit of that topic holds the time of delivery where others hold a tags code.

Source: RocketMQ broker/.../ScheduleMessageService.java, HookUtils.java; store/.../MessageStoreConfig.java.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from pyledger.model import names
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.message import Message, QueueRange
from pyledger.model.sys_flag import TRANSACTION_MASK, TransactionType
from pyledger.model.topic import NO_VERSION, DataVersion
from pyledger.protocol.broker.name_rules import is_internal_topic

DELAY_LEVELS_MS = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
"""Delay of levels 1 to 18."""
FIRST_PASS_MS = 1000
VERSION_STEP = 200
QUEUE_ID_MAX = 2**31 - 1
DIGITS_MAX = 10
"""Of a number of 32 bits."""
TIMER_PROPERTIES = frozenset({names.TIMER_DELAY_SECONDS, names.TIMER_DELIVER_MS, names.TIMER_DELAY_MS})


@lazy_dataclass()
class Destination:
    """A topic and a queue."""

    topic: str
    queue_id: int


class Rest(Enum):
    """Why a level pauses."""

    PASSED = auto()
    """All that is due is delivered."""
    PUT_FAILED = auto()
    """The store rejected a message: retry it."""
    BROKEN = auto()
    """Something else went wrong."""


PAUSE_MS = {Rest.PASSED: 100, Rest.PUT_FAILED: 100, Rest.BROKEN: 10_000}
LONGEST_PAUSE_MS = max(FIRST_PASS_MS, *PAUSE_MS.values())


@dataclass(slots=True)
class Level:
    """One level: the queue offset to deliver next, and the time of the next check."""

    offset: int
    """Queue offset, units."""
    next_ms: int


class DelaySchedule:
    """Delivery of all levels; `offsets` and `version` are what `delayOffset.json` holds."""

    def __init__(self, offsets: Mapping[int, int] | None = None, version: DataVersion = NO_VERSION) -> None:
        self.levels = {
            level: Level((offsets or {}).get(level, 0), 0) for level in range(1, len(DELAY_LEVELS_MS) + 1)
        }
        self.version = version
        self.delivered_count = 0

    @property
    def offsets(self) -> dict[int, int]:
        """Next queue offset to deliver, units, of each level that has delivered."""
        return {number: level.offset for number, level in self.levels.items() if level.offset}

    def adopt(self, offsets: Mapping[int, int], version: DataVersion) -> None:
        """Become a copy of a master's table: next queue offsets, units, by level."""
        changed = {
            number: offset
            for number, offset in offsets.items()
            if number in self.levels and self.levels[number].offset != offset
        }
        for number, offset in changed.items():
            self.levels[number].offset = offset
        self.delivered_count += bool(changed or version != self.version)
        self.version = version

    def start(self, ranges: Mapping[int, QueueRange], now_ms: int) -> None:
        """Begin: offsets that their queues do not hold are moved to the nearest that they do."""
        for number, level in self.levels.items():
            held = ranges.get(number, QueueRange(0, 0))
            level.offset = min(max(level.offset, held.min_offset), held.max_offset)
            level.next_ms = now_ms + FIRST_PASS_MS

    def due_levels(self, now_ms: int) -> list[int]:
        """Return the levels whose queues are due for a check.

        No pause is longer than `LONGEST_PAUSE_MS`: a level that would wait longer was put off by a clock
        that has been set back since.
        """
        latest_ms = now_ms + LONGEST_PAUSE_MS
        return [number for number, level in self.levels.items() if not now_ms < level.next_ms <= latest_ms]

    def is_due(self, level: int, deliver_ms: int, now_ms: int) -> bool:
        """Whether a message's time has come.

        A time that is further ahead than the level's delay comes from a clock that was set back: it is due.
        """
        return deliver_ms <= now_ms or deliver_ms > now_ms + DELAY_LEVELS_MS[level - 1]

    def delivered(self, level: int, next_offset: int, now_ms: int) -> None:
        """The message before a queue offset, units, is stored at its destination, or is gone."""
        self.levels[level].offset = next_offset
        self.delivered_count += 1
        if self.delivered_count % VERSION_STEP == 0:
            self.version = self.version.next(now_ms)

    def rest(self, level: int, why: Rest, now_ms: int) -> None:
        """Leave a level alone for a while."""
        self.levels[level].next_ms = now_ms + PAUSE_MS[why]

    def deadline_ms(self) -> int:
        """Return when a level is next due for a check."""
        return min(level.next_ms for level in self.levels.values())

    def describe(self) -> str:
        """Levels that have delivered."""
        return " ".join(f"{level}={offset}" for level, offset in self.offsets.items()) or "nothing delivered"


def delay_level(properties: Mapping[str, str]) -> int:
    """Return the delay level of a message, at most the highest; 0 for none."""
    text = properties.get(names.DELAY, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        return 0
    return min(int(text), len(DELAY_LEVELS_MS))


def redirect_delayed(message: Message) -> Message:
    """Return the message to store: one with a delay level in the schedule topic, queue = level - 1.

    Levels above 18 become 18. Prepared and rolled-back messages stay where they are.
    """
    if message.sys_flag & TRANSACTION_MASK not in (TransactionType.NONE, TransactionType.COMMIT):
        return message
    level = min(message.delay_level, len(DELAY_LEVELS_MS))
    properties = redirect_properties(message.properties, message.topic, message.queue_id, level)
    # Last, as its field comes last.
    properties[names.DELAY] = properties.pop(names.DELAY)
    return replace(
        message, topic=names.SCHEDULE_TOPIC, queue_id=level - 1, delay_level=level, properties=properties
    )


def redirect_properties(
    properties: Mapping[str, str], topic: str, queue_id: int, level: int
) -> dict[str, str]:
    """The properties of a message in the schedule topic: its destination, its level, and no timer's."""
    kept = {name: value for name, value in properties.items() if name not in TIMER_PROPERTIES}
    kept[names.DELAY] = str(min(level, len(DELAY_LEVELS_MS)))
    kept[names.REAL_TOPIC] = topic
    kept[names.REAL_QUEUE_ID] = str(queue_id)
    return kept


def restore(properties: Mapping[str, str]) -> Destination | None:
    """Return the destination of a due message; None: it has none, or one it must not have.

    Its properties stay as they are: the level is not a request to delay any more. A destination in a topic
    that the broker itself acts upon would send the message round for ever.
    """
    topic, queue_id = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QUEUE_ID, "")
    if not topic or is_internal_topic(topic):
        return None
    if not (queue_id.isascii() and queue_id.isdecimal() and len(queue_id) <= DIGITS_MAX):
        return None
    return Destination(topic, int(queue_id)) if int(queue_id) <= QUEUE_ID_MAX else None
