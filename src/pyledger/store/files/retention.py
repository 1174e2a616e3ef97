"""Which commit-log files are given up, and when: by age at a set hour, by how full the disk is, or on demand.

Deleting is always from the head, a whole file at a time, never the last one; queues and index files follow
the log. The rule is pure (`RetentionRule`): usage, hour and time are arguments. Upstream's hysteresis is
kept: between the forced and the warning percentage the disk-full state keeps its old value.

Source: RocketMQ store/.../DefaultMessageStore.java (CleanCommitLogService, CleanConsumeQueueService).
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyledger.store.files.disk_error import disk_error

MS_PER_HOUR = 3_600_000
MANUAL_ROUNDS = 20
"""Rounds that one request on demand stays good for, as upstream."""

DiskUsage = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Sizes of a file system (bytes)."""

    total_bytes: int
    free_bytes: int
    """What is reserved for root counts as free here, as upstream shows it."""
    available_bytes: int
    """What others than root may still take."""

    @property
    def used_percent(self) -> int:
        """How full it is, rounded up, as `df` has it: what is reserved does not count; -1: not known."""
        used = self.total_bytes - self.free_bytes
        total = used + self.available_bytes
        return -(-used * 100 // total) if total else -1


def disk_space(path: str) -> DiskSpace:
    """The file system of a path; all sizes are 0 when it cannot be told."""
    try:
        found = os.statvfs(path)
    except OSError:
        return DiskSpace(0, 0, 0)
    unit = found.f_frsize
    return DiskSpace(found.f_blocks * unit, found.f_bfree * unit, found.f_bavail * unit)


def disk_usage(path: str) -> int:
    """How full the file system of a path is, in percent, rounded up; -1 when it cannot be told."""
    return disk_space(path).used_percent


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What one round of cleaning does."""

    clean: bool
    """Delete files whose time has come."""
    immediate: bool
    """Delete the oldest files whatever their age."""
    disk_full: bool
    """Take no more messages until there is room."""


class RetentionRule:
    """Decides a round of cleaning. Holds only the disk-full state and the credits of requests on demand."""

    def __init__(
        self,
        *,
        delete_hours: Sequence[int],
        warning_percent: int,
        forced_percent: int,
        used_percent_max: int,
        may_force: bool = True,
    ) -> None:
        self.delete_hours = frozenset(delete_hours)
        self.warning_percent = warning_percent
        self.forced_percent = forced_percent
        self.used_percent_max = used_percent_max
        self.may_force = may_force
        self.disk_full = False
        self._manual_rounds = 0

    def request(self) -> None:
        """Ask for cleaning on demand: the next rounds clean whatever the hour."""
        self._manual_rounds = MANUAL_ROUNDS

    def decide(self, hour: int, usages: Sequence[int]) -> RetentionDecision:
        """Decide for the local hour and how full (percent) each path is, the commit log's first.

        A negative usage is unknown and cleans, as upstream; it never forces.
        """
        immediate = needs_space = False
        for used in usages:
            if used > self.warning_percent:
                self.disk_full = immediate = True
            elif used > self.forced_percent:
                immediate = True
            else:
                self.disk_full = False
            if used < 0 or used > self.used_percent_max:
                needs_space = True
                break
        manual = self._manual_rounds > 0
        if manual:
            self._manual_rounds -= 1
        clean = needs_space or manual or hour in self.delete_hours
        return RetentionDecision(clean, immediate and self.may_force, self.disk_full)


def count_expired(
    paths: Sequence[str], now_ms: int, reserved_ms: int, *, immediate: bool, batch_max: int
) -> int:
    """Count the files at the head that may go: the oldest first, up to the first that must stay.

    Args:
        paths: Commit-log files in order. The last one always stays.
        now_ms: Wall clock.
        reserved_ms: Age that a file must have reached since its last change.
        immediate: Ignore the age.
        batch_max: Most files of one round.

    Returns:
        How many files, from the first, to delete.
    """
    count = 0
    for path in paths[:-1][:batch_max]:
        if not immediate and _changed_ms(path) + reserved_ms > now_ms:
            break
        count += 1
    return count


def _changed_ms(path: str) -> int:
    """When a file was changed last (ms since 1970 UTC); 0: somebody else removed it."""
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise disk_error(path, "look at", error) from error
