"""Popping in order: what a group took from a queue locks it, until all of it is done or its time is over.

A pop does not move the group's offset, its acknowledgements do: to the first message that is not done. So
messages that were not acknowledged are delivered again from the queue itself, in order, and not before their
time.

Differs: an acknowledgement of a batch that is not known here, as after a crash, counts only for the message
that is next in the queue; upstream takes any, and passes over those before it.

Source: RocketMQ broker/.../offset/ConsumerOrderInfoManager.java, ConsumerOrderInfoLockManager.java.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

FORGET_AFTER_MS = 24 * 3600 * 1000
"""Time without a pop or acknowledgement after which a batch is removed."""


class Refused(Enum):
    """Why an acknowledgement moves no offset."""

    STALE = "popped again since"
    UNKNOWN = "not of what was popped"


@dataclass(slots=True, kw_only=True)
class OrderedBatch:
    """What a group popped last from a queue."""

    attempt: str | None
    """Named by the client: who names it again has not received the answer."""
    pop_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    """Queue offsets of its messages, units."""
    touched_ms: int
    done: set[int] = field(default_factory=set)
    """Queue offsets of those that are acknowledged, units."""
    visible_ms: dict[int, int] = field(default_factory=dict)
    """When a message may be popped again, by queue offset, where that was changed."""
    times: dict[int, int] = field(default_factory=dict)
    """How often a message was popped before, by queue offset; only what is not 0."""

    def locked_until_ms(self, now_ms: int) -> int | None:
        """Until when others have to wait; None: they need not.

        Determined by the first message that is still hidden: there may be more of them after it.
        """
        for offset in self.offsets:
            if offset not in self.done:
                until_ms = self.visible_ms.get(offset, self.pop_ms + self.invisible_ms)
                if now_ms < until_ms:
                    return until_ms
        return None

    @property
    def next_offset(self) -> int:
        """Queue offset, units, of the first message that is not done."""
        return next((one for one in self.offsets if one not in self.done), self.offsets[-1] + 1)


class OrderedPops:
    """The last batch of each group and queue; `batches` is what `consumerOrderInfo.json` holds."""

    def __init__(self, batches: Mapping[tuple[str, str], Mapping[int, OrderedBatch]] | None = None) -> None:
        self.batches = {key: dict(queues) for key, queues in (batches or {}).items()}
        """By topic and group, then by queue id."""
        self.change_count = 0

    def locked_until_ms(
        self, topic: str, group: str, queue_id: int, *, attempt: str | None, now_ms: int
    ) -> int | None:
        """Return until when a pop must wait; None: not at all, or it requests the same batch again."""
        batch = self.batches.get((topic, group), {}).get(queue_id)
        if batch is None or (batch.attempt is not None and batch.attempt == attempt):
            return None
        return batch.locked_until_ms(now_ms)

    def take(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offsets: Sequence[int],
        *,
        attempt: str | None,
        invisible_ms: int,
        now_ms: int,
    ) -> Mapping[int, int]:
        """Lock a queue for the messages at some queue offsets, units, that a group is given now.

        Returns:
            How often each was popped before, by queue offset, where that is not 0.
        """
        queues = self.batches.setdefault((topic, group), {})
        batch = OrderedBatch(
            attempt=attempt,
            pop_ms=now_ms,
            invisible_ms=invisible_ms,
            offsets=tuple(offsets),
            touched_ms=now_ms,
        )
        if (old := queues.get(queue_id)) is not None:
            if old.attempt is not None and old.attempt == attempt:
                batch.times = old.times
            else:
                again = set(old.offsets).intersection(offsets)
                batch.times = {one: old.times.get(one, 0) + 1 for one in offsets if one in again}
        queues[queue_id] = batch
        self.change_count += 1
        return batch.times

    def acknowledge(
        self, topic: str, group: str, queue_id: int, offset: int, *, pop_ms: int, committed: int
    ) -> int | Refused:
        """A message is done.

        Args:
            topic: Its topic.
            group: Who has consumed it.
            queue_id: Its queue.
            offset: Its queue offset, units.
            pop_ms: When it was popped.
            committed: The group's offset in the queue, units.

        Returns:
            The group's new offset, units.
        """
        batch = self.batches.get((topic, group), {}).get(queue_id)
        if batch is None:
            return offset + 1 if offset == committed else Refused.STALE
        if pop_ms != batch.pop_ms:
            return Refused.STALE
        if offset not in batch.offsets:
            return Refused.UNKNOWN
        batch.done.add(offset)
        self.change_count += 1
        return batch.next_offset

    def hide(self, topic: str, group: str, queue_id: int, offset: int, *, pop_ms: int, until_ms: int) -> bool:
        """Change until when a message is hidden; False when it was popped again since."""
        batch = self.batches.get((topic, group), {}).get(queue_id)
        if batch is None or batch.pop_ms != pop_ms or offset not in batch.offsets:
            return False
        batch.visible_ms[offset] = until_ms
        self.change_count += 1
        return True

    def unlock(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the batch of a queue: the group was sent elsewhere in it."""
        if self.batches.get((topic, group), {}).pop(queue_id, None) is not None:
            self.change_count += 1

    def clean(self, queue_count: Callable[[str], int], groups: Iterable[str], now_ms: int) -> None:
        """Forget batches of topics, queues and groups that are gone, and old ones.

        Args:
            queue_count: How many queues a topic has; 0: there is no such topic.
            groups: Those that there are.
            now_ms: The time.
        """
        known = set(groups)
        for (topic, group), queues in list(self.batches.items()):
            count = queue_count(topic) if group in known else 0
            for queue_id, batch in list(queues.items()):
                if queue_id >= count or now_ms - batch.touched_ms > FORGET_AFTER_MS:
                    self.unlock(topic, group, queue_id)
            if not queues:
                del self.batches[topic, group]

    def describe(self) -> str:
        """All batches, a line for each queue."""
        lines = []
        for (topic, group), queues in sorted(self.batches.items()):
            for queue_id, batch in sorted(queues.items()):
                left = [one for one in batch.offsets if one not in batch.done]
                changed = "".join(f", {one} until {ms}" for one, ms in sorted(batch.visible_ms.items()))
                times = "".join(f", {one} for the {n + 1}. time" for one, n in sorted(batch.times.items()))
                until_ms = batch.pop_ms + batch.invisible_ms
                lines.append(f"{topic}/{queue_id}@{group}: {left} until {until_ms}{changed}{times}")
        return "\n".join(lines) or "nothing is popped"
