"""Counts and positions of a live store."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """What a store has done since it was opened, and where it stands."""

    put_count: int
    """Messages appended."""
    put_bytes: int
    """Bytes of the log that they take, blank records included."""
    min_offset: int
    """Physical offset (bytes) of the log's start."""
    max_offset: int
    """Physical offset (bytes) of the log's end, as readers see it."""
    flushed_where: int
    """Physical offset (bytes) up to which the log is on disk."""
    dispatched_where: int
    """Physical offset (bytes) up to which queues and index are built."""
    dispatch_behind_bytes: int
    """Confirmed bytes of the log that are not dispatched yet."""
    log_files: int
    queue_count: int
    index_files: int
    flush_count: int
    flush_total_ms: float
    flush_longest_ms: float
    deleted_files: int
    """Commit-log files that retention deleted."""
    disk_full: bool
    """The disk is so full that puts are refused."""
    failure: BaseException | None
    """Why the store takes no more writes; None while it does."""
    dispatch_problem: Exception | None
    """Why dispatch cannot go on at the moment; None while it can."""
