"""How far groups have consumed: the next queue offset for each topic, group and queue.

A commit overwrites: it may decrease, as in upstream (only a consumer's own memory never does).
A reset waits here until the group's next pull of the queue takes it; until then commits of that queue are
ignored, so that a consumer that does not know of it yet cannot undo it.

Source: RocketMQ broker/.../ConsumerOffsetManager.java, ConsumerManageProcessor.java,
AdminBrokerProcessor.java.
"""

from collections.abc import Callable, Collection, Mapping

from pyledger.config.delivery import DeliveryConfig
from pyledger.model.ids import QueueId, QueueOffset
from pyledger.model.message import QueueRange
from pyledger.model.topic import NO_VERSION, DataVersion

INT64_MAX = (1 << 63) - 1
Offsets = dict[tuple[str, str], dict[QueueId, QueueOffset]]


class OffsetTable:
    """The offsets of all groups; `offsets` and `version` are what `consumerOffset.json` holds."""

    def __init__(
        self,
        config: DeliveryConfig,
        offsets: Mapping[tuple[str, str], Mapping[QueueId, QueueOffset]] | None = None,
        version: DataVersion = NO_VERSION,
    ) -> None:
        self.configure(config)
        self.offsets: Offsets = {key: dict(queues) for key, queues in (offsets or {}).items()}
        """By topic and group. Persisted."""
        self.queue_count = sum(map(len, self.offsets.values()))
        """How many offsets are persisted."""
        self.pulled: Offsets = {}
        """Queue offset of the next pull of each queue. Memory only."""
        self.resets: Offsets = {}
        """Resets that no pull has taken yet. Memory only."""
        self.version = version
        self.commit_count = 0
        self.change_count = 0
        """Changes of `offsets`: when it has moved, there is something new to store."""

    def configure(self, config: DeliveryConfig) -> None:
        """Go by other settings from now on."""
        self.version_step, self.max_count = config.offset_version_step, config.consumer_offsets_max

    def has_room(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a client may commit an offset: to a queue that has one, or while there are not too many."""
        return self.queue_count < self.max_count or self.committed(group, topic, queue_id) is not None

    def full_problem(self) -> str:
        """Return the rejection of a commit above the limit."""
        return (
            f"the broker keeps {self.queue_count} consumer offsets and takes no commit of further queues; "
            "delete groups that are not used, or raise consumer_offsets_max"
        )

    def commit(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int) -> bool:
        """Store an offset, forward or back.

        Returns:
            False when it was ignored because a reset of the queue is pending.
        """
        if queue_id in self.resets.get((topic, group), {}):
            return False
        if self.committed(group, topic, queue_id) != offset:
            self._store(group, topic, queue_id, offset)
        self.commit_count += 1
        if self.commit_count % self.version_step == 0:
            self.version = self.version.next(now_ms)
        return True

    def adopt(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take a queue offset, units, from a master's table."""
        if self.committed(group, topic, queue_id) != offset:
            self._store(group, topic, queue_id, offset)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next queue offset to consume; None where the group has none."""
        return self.offsets.get((topic, group), {}).get(QueueId(queue_id))

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note the queue offset, units, of the next pull."""
        self._put(self.pulled, group, topic, queue_id, offset)

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the queue offset of the next pull of a queue; None before the first."""
        return self.pulled.get((topic, group), {}).get(QueueId(queue_id))

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset the group to a queue offset, units: stored at once, and returned to its next pull."""
        self._store(group, topic, queue_id, offset)
        self._put(self.resets, group, topic, queue_id, offset)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Take the reset to return to a pull of this queue; only once."""
        waiting = self.resets.get((topic, group))
        if waiting is None:
            return None
        offset = waiting.pop(QueueId(queue_id), None)
        if not waiting:
            del self.resets[topic, group]
        return offset

    def topics_of_group(self, group: str) -> list[str]:
        """Topics that a group has offsets for, sorted."""
        return sorted(topic for topic, owner in self.offsets if owner == group)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Groups that have offsets for a topic, sorted."""
        return sorted(group for name, group in self.offsets if name == topic)

    def corrections(
        self, topic: str, group: str, *, without: Collection[str], min_offset: Callable[[int], int]
    ) -> dict[int, int]:
        """Return the lowest offset of all groups in each queue of a topic, units: a new group's position.

        Args:
            topic: The topic.
            group: The group to compare: a queue in which it has the lowest offset is omitted.
            without: Groups that do not count.
            min_offset: Lowest offset of a queue; offsets below it do not count.
        """
        least: dict[int, int] = {}
        for (name, owner), queues in self.offsets.items():
            if name == topic and owner not in without:
                for queue_id, offset in queues.items():
                    if offset >= min_offset(queue_id):
                        least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in self.offsets.get((topic, group), {}).items():
            if least.get(queue_id, INT64_MAX) > offset:
                least[queue_id] = INT64_MAX
        return least

    def delete_group(self, group: str) -> None:
        """Forget all of a group."""
        self._delete(lambda _, owner: owner == group)

    def delete_topic(self, topic: str) -> None:
        """Forget all of a topic."""
        self._delete(lambda name, _: name == topic)

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give a group the offsets that another has for a topic."""
        if (offsets := self.offsets.get((topic, source))) is not None:
            self.queue_count += len(offsets) - len(self.offsets.get((topic, target), ()))
            self.offsets[topic, target] = dict(offsets)
            self.change_count += 1

    def describe(self) -> str:
        """All offsets, a line for each topic and group."""
        lines = []
        for (topic, group), queues in sorted(self.offsets.items()):
            waiting = self.resets.get((topic, group), {})
            parts = [f"{q}={o}" + (" (reset)" if q in waiting else "") for q, o in sorted(queues.items())]
            lines.append(f"{topic}@{group}: {' '.join(parts)}")
        return "\n".join([*lines, f"version {self.version.counter}"])

    def _store(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.queue_count += self.committed(group, topic, queue_id) is None
        self._put(self.offsets, group, topic, queue_id, offset)
        self.change_count += 1

    @staticmethod
    def _put(table: Offsets, group: str, topic: str, queue_id: int, offset: int) -> None:
        table.setdefault((topic, group), {})[QueueId(queue_id)] = QueueOffset(offset)

    def _delete(self, gone: Callable[[str, str], bool]) -> None:
        self.change_count += 1
        for table in (self.offsets, self.pulled, self.resets):
            for key in [key for key in table if gone(*key)]:
                del table[key]
        self.queue_count = sum(map(len, self.offsets.values()))


def offset_to_answer(
    committed: int | None, *, set_zero_if_not_found: bool | None, min_offset: int, first_in_memory: bool
) -> int | None:
    """Return the response to a query for a consumer's offset; None: not found, the client decides.

    A group without an offset starts at 0 in a young queue, even if it requested the end: its first message is
    still in memory, so it is taken for one that the group was meant to see.

    Args:
        committed: The stored offset, units.
        set_zero_if_not_found: Field of the request; only an explicit False prevents 0.
        min_offset: Lowest offset of the queue, units.
        first_in_memory: Whether message 0 is still in the page cache.
    """
    if committed is not None and committed >= 0:
        return committed
    if set_zero_if_not_found is False:
        return None
    return 0 if min_offset <= 0 and first_in_memory else None


def reset_allowed(offset: int, held: QueueRange) -> bool:
    """Whether a queue can be reset to a queue offset, units: one past the end is allowed, as upstream."""
    return held.min_offset <= offset <= held.max_offset + 1
