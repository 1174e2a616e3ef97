"""When data files of a DLedger log are deleted, and when its disk counts as full.

Files are deleted from the head, never the last one, and only if all their entries are committed.

Source: DLedger DLedgerMmapFileStore.java (CleanSpaceService). Differs: files with uncommitted entries
are kept, however full the disk is.
"""

from pyledger.clock import Clock
from pyledger.store.dledger.store import DLedgerStore
from pyledger.store.files.retention import MS_PER_HOUR, count_expired, disk_usage

FILES_MAX = 10
"""Limit of files deleted in one call, as upstream."""


def disk_is_full(store: DLedgerStore) -> bool:
    """Return whether a file system of a log's data is too full for appends."""
    return usage_of(store) > store.config.disk_full_percent


def usage_of(store: DLedgerStore) -> int:
    """Return the usage (percent) of the fullest file system of a log's data."""
    return max(map(disk_usage, store.data_paths))


def clean(store: DLedgerStore, clock: Clock) -> list[str]:
    """Delete expired data files; return their paths."""
    config, used = store.config, usage_of(store)
    force = used > config.disk_ratio_to_force_clean and config.disk_force_clean_enabled
    due = clock.hour_of_day() in config.delete_hours or used > config.disk_ratio_to_check_expired
    if not due and not force:
        return []
    paths = [file.path for file in store.log.data.files]
    reserved_ms = config.file_reserved_hours * MS_PER_HOUR
    count = count_expired(paths, clock.now_ms(), reserved_ms, immediate=force, batch_max=FILES_MAX)
    return store.delete_head(count) if count else []
