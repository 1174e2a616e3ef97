"""When data files of a DLedger log go, and when its disk counts as full.

Only committed entries go, whole files from the head, never the last one.

Source: DLedger DLedgerMmapFileStore.java (CleanSpaceService). Differs: files whose entries are not committed
stay, however full the disk is.
"""

from pyledger.clock import Clock
from pyledger.store.dledger.store import DLedgerStore
from pyledger.store.files.retention import MS_PER_HOUR, count_expired, disk_usage

FILES_MAX = 10
"""Most files of one round, as upstream."""


def disk_is_full(store: DLedgerStore) -> bool:
    """Whether there is too little free space for appends, in any of the folders."""
    return usage_of(store) > store.config.disk_full_percent


def usage_of(store: DLedgerStore) -> int:
    """How full the fullest file system of a log's data is, in percent."""
    return max(map(disk_usage, store.data_paths))


def clean(store: DLedgerStore, clock: Clock) -> list[str]:
    """Remove files whose time has come; returns their paths."""
    config, used = store.config, usage_of(store)
    force = used > config.disk_ratio_to_force_clean and config.disk_force_clean_enabled
    due = clock.hour_of_day() in config.delete_hours or used > config.disk_ratio_to_check_expired
    if not due and not force:
        return []
    paths = [file.path for file in store.log.data.files]
    reserved_ms = config.file_reserved_hours * MS_PER_HOUR
    count = count_expired(paths, clock.now_ms(), reserved_ms, immediate=force, batch_max=FILES_MAX)
    return store.delete_head(count) if count else []
