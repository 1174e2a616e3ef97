"""Timer messages: a time of delivery to the second, up to three days ahead.

They wait in one topic. The waiting messages follow from that topic and the progress of delivery
(`TimerProgress`), so a restart reads the topic again from the oldest waiting message.

Differs: upstream keeps a wheel and a log of its own on disk; here the waiting ones are a heap in memory, and
the only file is the progress. Upstream also delays records of popped messages here; they are due at once, so
that `pop` gets them.

Source: RocketMQ broker/.../HookUtils.java (transformTimerMessage); store/.../TimerMessageStore.java.
"""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyledger.config.delivery import DeliveryConfig
from pyledger.model import names
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.protocol.broker.ack_blocks import OffsetBlocks

AT_ONCE_MS = 0
"""Time of delivery of messages that upstream delays and PyLedger does not."""
WAYS = (names.TIMER_DELAY_SECONDS, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
"""Properties that set a time of delivery, in the order they are checked."""


@lazy_dataclass()
class TimerPlan:
    """When a message is to be delivered."""

    deliver_ms: int
    """Already floored to the precision."""


@lazy_dataclass()
class TimerProblem:
    """The requested time of delivery is invalid."""

    problem: str
    status: str = "WHEEL_TIMER_MSG_ILLEGAL"
    """Upstream's name of the status."""


def is_timed(topic: str, properties: Mapping[str, str], level: int) -> bool:
    """Whether a message has a time of delivery; a delay level takes precedence."""
    timed = (
        names.TIMER_DELAY_MS in properties
        or names.TIMER_DELIVER_MS in properties
        or names.TIMER_DELAY_SECONDS in properties
    )
    return timed and level <= 0 and topic != names.TIMER_TOPIC and names.TIMER_OUT_MS not in properties


def plan_timer(
    properties: Mapping[str, str], now_ms: int, config: DeliveryConfig
) -> TimerPlan | TimerProblem | None:
    """Return when a message is to be delivered; None: now, its time is past."""
    way = next(way for way in WAYS if way in properties)
    text = properties[way]
    if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) <= 19):
        return TimerProblem(f"{way} is {text!r}, not a number")
    number = int(text)
    if way == names.TIMER_DELAY_SECONDS:
        deliver_ms = now_ms + number * 1000
    else:
        deliver_ms = number if way == names.TIMER_DELIVER_MS else now_ms + number
    if deliver_ms <= now_ms:
        if names.TIMER_DELETE_UNIQUE_KEY in properties:
            return TimerProblem("the message to be recalled is due already")
        return None
    if deliver_ms - now_ms > config.timer_delay_max_ms:
        return TimerProblem(f"{way} is more than {config.timer_delay_max_ms} ms ahead")
    step = config.timer_precision_ms
    return TimerPlan(deliver_ms - step if deliver_ms % step == 0 else deliver_ms // step * step)


def timer_properties(
    properties: Mapping[str, str], topic: str, queue_id: int, plan: TimerPlan
) -> dict[str, str]:
    """The properties of a message in the timer topic, queue 0."""
    return {
        **properties,
        names.TIMER_OUT_MS: str(plan.deliver_ms),
        names.REAL_TOPIC: topic,
        names.REAL_QUEUE_ID: str(queue_id),
    }


@dataclass(frozen=True, slots=True, order=True)
class Timed:
    """One waiting message, ordered by time of delivery, then by offset."""

    deliver_ms: int
    offset: int
    """Queue offset in the timer topic, units."""
    unique_key: str
    topic: str = field(default="", compare=False)
    """Topic of its delivery."""
    physical_offset: int = field(default=-1, compare=False)
    """Of its record, bytes."""
    size_bytes: int = field(default=0, compare=False)
    """Of its record."""

    @property
    def key(self) -> tuple[str, str]:
        """Identifies it for a recall; with the topic, because a client may recall only where it may send."""
        return self.topic, self.unique_key

    def is_again(self, other: "Timed | None") -> bool:
        """Whether another message with the same key is the same one, stored again."""
        return other is not None and (self.deliver_ms, self.topic) == (other.deliver_ms, other.topic)


@lazy_dataclass()
class TimerProgress:
    """Progress of delivery; with the timer topic it determines the waiting messages.

    Messages are delivered in the order of (time, offset). So all known messages before the first waiting one
    are delivered, and no others.
    """

    restart_offset: int = 0
    """Queue offset, units: no waiting message is before it."""
    next_offset: int = 0
    """Queue offset, units: messages before it were known."""
    first_ms: int = 0
    """Time of delivery of the first message that waited."""
    first_offset: int = 0
    """Its queue offset, units."""
    foreign: bool = False
    """Whether upstream wrote it, which delivers by time alone, and records of popped messages late."""

    def delivered(self, deliver_ms: int, offset: int) -> bool:
        """Whether the message at a queue offset, units, was delivered."""
        return offset < self.next_offset and (deliver_ms, offset) < (self.first_ms, self.first_offset)


class TimerQueue:
    """The waiting messages of the timer topic."""

    def __init__(self, config: DeliveryConfig, progress: TimerProgress | None = None) -> None:
        """Start with the progress of delivery; then call `add` for all messages from `next_offset` on."""
        self.config = config
        self.precision_ms = config.timer_precision_ms
        self.start = progress or TimerProgress()
        self.heap: list[Timed] = []
        self.keys: dict[tuple[str, str], Timed] = {}
        self.recalled: set[tuple[str, str]] = set()
        self.blocks = OffsetBlocks()
        self.next_offset = self.start.restart_offset
        """Queue offset in the timer topic, units: all messages before it are known."""
        self.change_count = 0
        """Grows whenever `progress` changes."""
        self.adopted = False
        """Whether `progress` is that of another broker."""

    def adopt(self, progress: TimerProgress) -> None:
        """Adopt the progress of a master; a slave that does so reads no messages."""
        if progress != self.start:
            self.change_count += 1
        self.start = progress
        self.adopted = True

    def add(
        self, offset: int, properties: Mapping[str, str], physical_offset: int = -1, size_bytes: int = 0
    ) -> None:
        """Add the message at a queue offset, units, of the timer topic; call it in order.

        A message with `TIMER_DEL_UNIQKEY` recalls the one with that key and is not delivered itself. A
        message that upstream has stored again, because its time is far ahead, counts once.

        Args:
            offset: Its queue offset.
            properties: Its properties.
            physical_offset: Of its record, bytes.
            size_bytes: Of its record.
        """
        self.next_offset = offset + 1
        self.change_count += 1
        deliver = properties.get(names.TIMER_OUT_MS, "")
        if not (deliver.isascii() and deliver.isdecimal() and len(deliver) < 19):
            return
        topic = properties.get(names.REAL_TOPIC, "")
        if (recalls := properties.get(names.TIMER_DELETE_UNIQUE_KEY)) is not None:
            if (topic, recalls) in self.keys:
                self.recalled.add((topic, recalls))
            return
        unique_key = properties.get(names.UNIQUE_KEY, "")
        deliver_ms = AT_ONCE_MS if topic.startswith(names.REVIVE_PREFIX) else int(deliver)
        if self.start.delivered(int(deliver) if self.start.foreign else deliver_ms, offset):
            return
        one = Timed(deliver_ms, offset, unique_key, topic, physical_offset, size_bytes)
        if names.TIMER_ROLL_TIMES in properties and one.is_again(self.keys.get(one.key)):
            return
        heapq.heappush(self.heap, one)
        self.blocks.add(offset)
        if unique_key:
            self.keys[one.key] = one

    def skip_to(self, offset: int) -> None:
        """Skip the messages before a queue offset, units, which are deleted."""
        self.next_offset = max(self.next_offset, offset)

    def due(self, now_ms: int) -> Timed | None:
        """Return the next message whose time has come; it stays until `done`.

        Times are floored when a message is stored. It waits for one more step, so it is never early.
        """
        while self.heap and self.heap[0].key in self.recalled:
            self.done()
        deadline_ms = self.deadline_ms()
        return self.heap[0] if deadline_ms is not None and deadline_ms <= now_ms else None

    def done(self) -> None:
        """Remove the message that `due` returned: it is stored at its destination, or cannot be."""
        gone = heapq.heappop(self.heap)
        self.change_count += 1
        self.recalled.discard(gone.key)
        self.keys.pop(gone.key, None)
        self.blocks.remove(gone.offset)

    def plan(self, properties: Mapping[str, str], now_ms: int) -> TimerPlan | TimerProblem | None:
        """Return when a message is to be delivered; None: now."""
        plan = plan_timer(properties, now_ms, self.config)
        if isinstance(plan, TimerPlan) and len(self.heap) >= self.config.timer_messages_max:
            return TimerProblem("too many timer messages wait", "WHEEL_TIMER_FLOW_CONTROL")
        return plan

    @property
    def restart_offset(self) -> int:
        """Queue offset, units, from which a restart can read all waiting messages.

        Cost: one step for each 1,024 offsets with waiting messages.
        """
        return self.blocks.oldest(self.next_offset)

    @property
    def complete(self) -> bool:
        """Whether all messages are known that were known when `start` was written."""
        return self.next_offset >= self.start.next_offset

    @property
    def takes_over(self) -> bool:
        """Whether records of popped messages, which upstream stores here, may still wait."""
        waits = bool(self.heap) and self.heap[0].deliver_ms == AT_ONCE_MS
        return waits or (self.start.foreign and not self.complete)

    @property
    def progress(self) -> TimerProgress:
        """Return the progress of delivery; only while this is `complete` or `adopted`."""
        if self.adopted:
            return self.start
        if not self.heap:
            return TimerProgress(self.next_offset, self.next_offset)
        first = self.heap[0]
        return TimerProgress(self.restart_offset, self.next_offset, first.deliver_ms, first.offset)

    @property
    def waiting(self) -> list[Timed]:
        """The messages that wait, in no order."""
        return [one for one in self.heap if one.key not in self.recalled]

    @property
    def waiting_counts(self) -> Counter[str]:
        """Return the number of waiting messages by destination topic."""
        return Counter(one.topic for one in self.heap)

    def deadline_ms(self) -> int | None:
        """When the next message is due; None while nothing waits."""
        return self.heap[0].deliver_ms + self.precision_ms if self.heap else None

    def describe(self) -> str:
        """Return the waiting messages, soonest due first."""
        waiting = [
            f"{one.offset}@{one.deliver_ms}" + (" (recalled)" if one.key in self.recalled else "")
            for one in sorted(self.heap)
        ]
        return f"{' '.join(waiting) or 'nothing waits'}; restart from {self.restart_offset}"
