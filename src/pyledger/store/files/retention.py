"""Which commit-log files are deleted, and when: by age at a set hour, by disk usage, or on demand.

Whole files are deleted, from the start of the log, never the last one; queues and index files follow the log.
The rule is pure (`RetentionRule`): usage, hour and time are arguments. It has upstream's hysteresis: between
the forced and the warning percentage the disk-full state keeps its old value.

Source: RocketMQ store/.../DefaultMessageStore.java (CleanCommitLogService, CleanConsumeQueueService).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pyledger.store.files.disk_error import disk_error

MS_PER_HOUR = 3_600_000
MANUAL_ROUNDS = 20
"""Rounds for which one request on demand is valid, as upstream."""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Sizes of a file system (bytes)."""

    total_bytes: int
    free_bytes: int
    """Includes the space reserved for root, as upstream reports it."""
    available_bytes: int
    """Free space for users other than root."""

    @property
    def used_percent(self) -> int:
        """Usage, rounded up, as `df` computes it: without the space reserved for root; -1: not known."""
        used = self.total_bytes - self.free_bytes
        total = used + self.available_bytes
        return -(-used * 100 // total) if total else -1


def disk_space(path: str) -> DiskSpace:
    """Return the sizes of the file system of a path; all 0 when they are not known."""
    try:
        found = os.statvfs(path)
    except OSError:
        return DiskSpace(0, 0, 0)
    unit = found.f_frsize
    return DiskSpace(found.f_blocks * unit, found.f_bfree * unit, found.f_bavail * unit)


def disk_usage(path: str) -> int:
    """Return the usage of the file system of a path in percent, rounded up; -1 when it is not known."""
    return disk_space(path).used_percent


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What one round of cleaning does."""

    clean: bool
    """Delete expired files."""
    immediate: bool
    """Delete the oldest files regardless of their age."""
    disk_full: bool
    """Reject puts until there is free space."""


class RetentionRule:
    """Decides each round of cleaning. Its state: disk full, and the rounds left of a request on demand."""

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
        """Request cleaning on demand: the next rounds clean regardless of the hour."""
        self._manual_rounds = MANUAL_ROUNDS

    def decide(self, hour: int, usages: Sequence[int]) -> RetentionDecision:
        """Decide by the local hour and the usage (percent) of each path, the commit log's first.

        An unknown (negative) usage cleans, as upstream, but never forces.
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
    """Count the files at the start of the log that may be deleted.

    Args:
        paths: Commit-log files in order. The last one always stays.
        now_ms: Wall clock.
        reserved_ms: Least time since the last change of a file.
        immediate: Ignore the age.
        batch_max: Limit of files per round.

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
    """Time of a file's last change (ms since 1970 UTC); 0 when it no longer exists."""
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise disk_error(path, "stat", error) from error
