"""Puts that wait for slaves, and whether the slaves have received enough.

A put of a SYNC_MASTER waits until enough brokers, including the master, have its record. Waiting puts are
checked only when a slave reports; one report may complete many.

Source: RocketMQ store/.../ha/GroupTransferService.java, DefaultHAService.java (isSlaveOK,
inSyncReplicasNums); store/.../CommitLog.java (calcNeedAckNums).
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pyledger.config.ha import HaConfig

PUT_OK = "PUT_OK"
FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
MASTER_ALONE = 1
ONE_SLAVE = 2
"""The common case: the master and one slave."""


class Waiting(NamedTuple):
    """A waiting put."""

    end_offset: int
    """Physical offset (bytes) at the end of its record."""
    deadline_ms: int
    answer: Callable[[str], None]
    """Called once, with upstream's name of the result."""


class GroupTransfer:
    """The connected slaves, the offset of each, and the puts that wait for them."""

    def __init__(self, config: HaConfig) -> None:
        """Start without slaves and waiting puts."""
        self._config = config
        self.acks: dict[int, int] = {}
        """Acknowledged physical offset (bytes) of each slave, by connection number."""
        self.push_offset = -1
        """Highest acknowledged physical offset (bytes); -1 without slaves."""
        self._doubted: dict[int, int] = {}
        # By the number of required brokers, in order of offsets, which is also that of deadlines.
        self._waiting: dict[int, deque[Waiting]] = {}

    @property
    def waiting_count(self) -> int:
        """Number of waiting puts."""
        return sum(map(len, self._waiting.values()))

    @property
    def anyone_waits(self) -> bool:
        """Whether a put waits."""
        return any(self._waiting.values())

    def in_sync_count(self, end_offset: int) -> int:
        """Return the number of brokers in sync with a physical offset (bytes), including the master."""
        gap = self._config.gap_max_bytes
        return MASTER_ALONE + sum(end_offset - ack < gap for ack in self.acks.values())

    def rejection(self, end_offset: int) -> str | None:
        """Return why puts are rejected when the log ends at a physical offset (bytes), or None."""
        config = self._config
        if config.role != "sync_master" or config.in_sync_replicas_min <= MASTER_ALONE:
            return None
        enough = self.in_sync_count(end_offset) >= config.in_sync_replicas_min
        return None if enough else IN_SYNC_REPLICAS_NOT_ENOUGH

    def wanted_count(self, end_offset: int) -> int:
        """Return how many brokers must have a record up to a physical offset (bytes), with the master."""
        config = self._config
        if config.role != "sync_master":
            return MASTER_ALONE
        if config.all_in_sync_replicas:
            return max(self.in_sync_count(end_offset), config.in_sync_replicas_min)
        if config.auto_in_sync_replicas:
            return max(
                min(config.in_sync_replicas, self.in_sync_count(end_offset)), config.in_sync_replicas_min
            )
        return config.in_sync_replicas

    def wait(self, end_offset: int, answer: Callable[[str], None], now_ms: int) -> str | None:
        """Wait until enough brokers have the log up to a physical offset (bytes).

        Returns:
            The result if it is known at once; `answer` is then not called. None: it will be called.
        """
        wanted = self.wanted_count(end_offset)
        if wanted <= MASTER_ALONE or self.reached(wanted) >= end_offset:
            return PUT_OK
        if not self._may_reach(wanted, end_offset):
            return SLAVE_NOT_AVAILABLE
        waiting = self._waiting.setdefault(wanted, deque())
        waiting.append(Waiting(end_offset, now_ms + self._config.slave_timeout_ms, answer))
        return None

    def _may_reach(self, wanted: int, end_offset: int) -> bool:
        """Whether `wanted` brokers are in sync with a physical offset (bytes)."""
        if wanted == ONE_SLAVE:  # the highest offset suffices, and is known
            return bool(self.acks) and end_offset - self.push_offset < self._config.gap_max_bytes
        return self.in_sync_count(end_offset) >= wanted

    def reached(self, wanted: int) -> int:
        """Return the physical offset (bytes) that `wanted` brokers, including the master, have reached."""
        if wanted == ONE_SLAVE:
            return self.push_offset
        doubted = self._doubted
        slaves = sorted((ack for one, ack in self.acks.items() if one not in doubted), reverse=True)
        return slaves[wanted - 2] if len(slaves) > wanted - 2 else -1

    def acknowledged(self, slave: int, offset: int) -> None:
        """Note that a slave, by its connection number, has the log up to a physical offset (bytes)."""
        self.acks[slave] = offset
        self.push_offset = max(self.acks.values())
        if self._doubted and offset > self._doubted.get(slave, offset):
            del self._doubted[slave]
        # A notified caller may put again at once, and wait for another number of brokers.
        for wanted, waiting in tuple(self._waiting.items()):
            reached = self.reached(wanted)
            while waiting and waiting[0].end_offset <= reached:
                waiting.popleft().answer(PUT_OK)

    def doubt(self, slave: int, sent_offset: int) -> None:
        """Note that a newer connection from the same machine reports, perhaps of the same slave.

        The older connection does not count until it acknowledges data that can only have been sent since
        then.

        Args:
            slave: The number of the older connection.
            sent_offset: Physical offset (bytes) up to which the log was sent on it.
        """
        self._doubted[slave] = sent_offset

    def gone(self, slave: int) -> None:
        """Note that a connection is closed. Puts keep waiting: the slave may reconnect in time."""
        self.acks.pop(slave, None)
        self.push_offset = max(self.acks.values(), default=-1)
        self._doubted.pop(slave, None)

    def tick(self, now_ms: int) -> None:
        """Complete the puts whose timeout has passed."""
        for waiting in tuple(self._waiting.values()):
            while waiting and waiting[0].deadline_ms <= now_ms:
                waiting.popleft().answer(FLUSH_SLAVE_TIMEOUT)

    def close(self) -> None:
        """Complete all waiting puts: the master stops."""
        self.tick(1 << 62)

    def deadline_ms(self) -> int | None:
        """Return when `tick` is next needed; None if no put waits."""
        return min((waiting[0].deadline_ms for waiting in self._waiting.values() if waiting), default=None)

    def describe(self) -> str:
        """Return slaves and waiting puts in one line."""
        slaves = ", ".join(f"{slave}: {offset}" for slave, offset in self.acks.items()) or "none"
        waits = ", ".join(
            f"{one.end_offset} on {wanted} until {one.deadline_ms}"
            for wanted, waiting in self._waiting.items()
            for one in waiting
        )
        return f"slaves {slaves}; waiting {waits or 'none'}"
