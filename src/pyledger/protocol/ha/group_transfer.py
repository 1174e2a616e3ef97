"""Puts that wait for slaves, and whether the slaves have received enough.

A put of a SYNC_MASTER waits until enough brokers hold its record, the master among them. All that wait are
looked at when a slave reports, never in between: a report that reaches many ends many.

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
"""As most groups want it: the master and one slave."""


class Waiting(NamedTuple):
    """A put that waits."""

    end_offset: int
    """Physical offset (bytes) where its record ends."""
    deadline_ms: int
    answer: Callable[[str], None]
    """Told upstream's word for how it ended, once."""


class GroupTransfer:
    """The slaves in touch, how far each has come, and the puts that wait for them."""

    def __init__(self, config: HaConfig) -> None:
        """No slave, nobody waits."""
        self._config = config
        self.acks: dict[int, int] = {}
        """How far each slave has come (bytes), by the number of its connection."""
        self.push_offset = -1
        """How far the foremost slave has come (bytes); -1 without any."""
        self._doubted: dict[int, int] = {}
        # By the number of brokers wanted, in order of offsets and so of deadlines: appends have one order.
        self._waiting: dict[int, deque[Waiting]] = {}

    @property
    def waiting_count(self) -> int:
        """Puts that wait."""
        return sum(map(len, self._waiting.values()))

    @property
    def anyone_waits(self) -> bool:
        """Whether a put waits."""
        return any(self._waiting.values())

    def in_sync_count(self, end_offset: int) -> int:
        """Brokers that are not too far behind a physical offset (bytes), the master among them."""
        gap = self._config.gap_max_bytes
        return MASTER_ALONE + sum(end_offset - ack < gap for ack in self.acks.values())

    def refusal(self, end_offset: int) -> str | None:
        """Why no put may be taken while the log ends at a physical offset (bytes); None: it may."""
        config = self._config
        if config.role != "sync_master" or config.in_sync_replicas_min <= MASTER_ALONE:
            return None
        enough = self.in_sync_count(end_offset) >= config.in_sync_replicas_min
        return None if enough else IN_SYNC_REPLICAS_NOT_ENOUGH

    def wanted_count(self, end_offset: int) -> int:
        """Brokers that must hold a record that ends at a physical offset (bytes); 1: the master alone."""
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
        """Begin to wait until enough brokers hold all below a physical offset (bytes).

        Returns:
            How it ended where that is known at once; `answer` is not called then. None: it will be.
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
        """Whether `wanted` brokers are not too far behind a physical offset (bytes)."""
        if wanted == ONE_SLAVE:  # the foremost is enough, and known
            return bool(self.acks) and end_offset - self.push_offset < self._config.gap_max_bytes
        return self.in_sync_count(end_offset) >= wanted

    def reached(self, wanted: int) -> int:
        """The physical offset (bytes) below which `wanted` brokers, the master among them, hold the log."""
        if wanted == ONE_SLAVE:
            return self.push_offset
        doubted = self._doubted
        slaves = sorted((ack for one, ack in self.acks.items() if one not in doubted), reverse=True)
        return slaves[wanted - 2] if len(slaves) > wanted - 2 else -1

    def acknowledged(self, slave: int, offset: int) -> None:
        """A slave, by the number of its connection, has all below a physical offset (bytes)."""
        self.acks[slave] = offset
        self.push_offset = max(self.acks.values())
        if self._doubted and offset > self._doubted.get(slave, offset):
            del self._doubted[slave]
        # A caller that is answered may put again at once, and wait for another number of brokers.
        for wanted, waiting in tuple(self._waiting.items()):
            reached = self.reached(wanted)
            while waiting and waiting[0].end_offset <= reached:
                waiting.popleft().answer(PUT_OK)

    def doubt(self, slave: int, sent_offset: int) -> None:
        """A newer connection of the same machine reports, so this one may be what is left of the same slave.

        It is not counted beside others until it acknowledges what it can only have got since then.

        Args:
            slave: The number of the older connection.
            sent_offset: Physical offset (bytes) below which all has been sent on it.
        """
        self._doubted[slave] = sent_offset

    def gone(self, slave: int) -> None:
        """A connection is closed. Who waits goes on waiting: the slave may come back in time."""
        self.acks.pop(slave, None)
        self.push_offset = max(self.acks.values(), default=-1)
        self._doubted.pop(slave, None)

    def tick(self, now_ms: int) -> None:
        """End the waits whose time is over."""
        for waiting in tuple(self._waiting.values()):
            while waiting and waiting[0].deadline_ms <= now_ms:
                waiting.popleft().answer(FLUSH_SLAVE_TIMEOUT)

    def close(self) -> None:
        """End all waits: the master stops."""
        self.tick(1 << 62)

    def deadline_ms(self) -> int | None:
        """When `tick` is next needed; None while nobody waits."""
        return min((waiting[0].deadline_ms for waiting in self._waiting.values() if waiting), default=None)

    def describe(self) -> str:
        """Slaves and waits in a line."""
        slaves = ", ".join(f"{slave}: {offset}" for slave, offset in self.acks.items()) or "none"
        waits = ", ".join(
            f"{one.end_offset} on {wanted} until {one.deadline_ms}"
            for wanted, waiting in self._waiting.items()
            for one in waiting
        )
        return f"slaves {slaves}; waiting {waits or 'nobody'}"
