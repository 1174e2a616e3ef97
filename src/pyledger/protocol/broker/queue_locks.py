"""Locks on queues, for groups that consume in order: one client at a time has a queue of a group.

Memory only, one table for each broker: a restart forgets them.

Source: RocketMQ broker/.../RebalanceLockManager.java.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pyledger.config.delivery import DeliveryConfig
from pyledger.model.message import MessageQueue


@dataclass(slots=True)
class QueueLock:
    """The owner of a queue lock, and when it last refreshed it."""

    client_id: str
    updated_ms: int


class QueueLocks:
    """The locks of all groups."""

    def __init__(self, config: DeliveryConfig) -> None:
        self.timeout_ms = config.queue_lock_timeout_ms
        self.groups: dict[str, dict[MessageQueue, QueueLock]] = {}

    def lock(
        self, group: str, queues: Iterable[MessageQueue], client_id: str, now_ms: int
    ) -> list[MessageQueue]:
        """Take queues that are free, expired or the client's own already; returns those it now has."""
        held = self.groups.setdefault(group, {})
        taken = []
        for queue in queues:
            lock = held.get(queue)
            if lock is None or lock.client_id == client_id or self._expired(lock, now_ms):
                held[queue] = QueueLock(client_id, now_ms)
                taken.append(queue)
        return taken

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Free queues, where the client has them."""
        held = self.groups.get(group, {})
        for queue in queues:
            if (lock := held.get(queue)) is not None and lock.client_id == client_id:
                del held[queue]
        if not held:
            self.groups.pop(group, None)

    def expire(self, now_ms: int) -> None:
        """Forget locks that are free again, so that dead names do not gather."""
        for group, held in list(self.groups.items()):
            for queue in [queue for queue, lock in held.items() if self._expired(lock, now_ms)]:
                del held[queue]
            if not held:
                del self.groups[group]

    def owner(self, group: str, queue: MessageQueue, now_ms: int) -> str | None:
        """The client that has a queue; None: it is free."""
        lock = self.groups.get(group, {}).get(queue)
        return None if lock is None or self._expired(lock, now_ms) else lock.client_id

    def holds_any(self, group: str, now_ms: int) -> bool:
        """Whether a group has a lock that is not expired: then it consumes in order."""
        return any(not self._expired(lock, now_ms) for lock in self.groups.get(group, {}).values())

    def describe(self, now_ms: int) -> str:
        """All locks, a line for each."""
        lines = [
            f"{group} {queue.topic}/{queue.broker_name}/{queue.queue_id}: {lock.client_id}"
            + (" (expired)" if self._expired(lock, now_ms) else "")
            for group, held in sorted(self.groups.items())
            for queue, lock in sorted(held.items())
        ]
        return "\n".join(lines) or "no locks"

    def _expired(self, lock: QueueLock, now_ms: int) -> bool:
        return now_ms - lock.updated_ms > self.timeout_ms
