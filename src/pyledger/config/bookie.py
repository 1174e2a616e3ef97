"""Settings of a bookie. Defaults are upstream's; where not, the docstring says why.

Source: BookKeeper conf/ServerConfiguration.java.
"""

from dataclasses import dataclass

from pyledger.config.fields import check, setting

INT_MAX = (1 << 31) - 1
DAY_MS = 86_400_000
MONTH_MS = 30 * DAY_MS
GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieConfig:
    """How a bookie keeps its ledgers, and what bounds it."""

    journal_directories: str = setting("", upstream="journalDirectories")
    """Folders of the journals, with commas between them, best on disks of their own: a ledger's records go to
    one of them, which all sync at the same time. Empty: `journal` in the bookie's folder."""

    ledger_directories: str = setting("", upstream="ledgerDirectories")
    """Folders of entry logs and indexes, with commas between them. A full one is left out. Empty: `ledgers`
    in the bookie's folder."""

    allow_storage_expansion: bool = setting(False, upstream="allowStorageExpansion")
    """A start may find more folders for ledgers than the bookie had before."""

    journal_max_group_wait_ms: int = setting(
        0, unit="ms", range=(0, 1000), upstream="journalMaxGroupWaitMSec"
    )
    """How long a batch of the journal waits for more entries. Upstream: 2, which a lone add pays in full;
    here a batch is whatever came while the last one was synced."""

    journal_buffered_writes_threshold_bytes: int = setting(
        512 << 10, unit="bytes", range=(512, INT_MAX), upstream="journalBufferedWritesThreshold"
    )
    """A batch of so many bytes does not wait."""

    journal_max_size_bytes: int = setting(2 * GIBIBYTE, unit="bytes", range=(1 << 16, 1 << 40), upstream=None)
    """Size at which a new journal file begins. Upstream: `journalMaxSizeMB`, in MiB."""

    journal_pre_alloc_bytes: int = setting(16 << 20, unit="bytes", range=(0, GIBIBYTE), upstream=None)
    """So much of a journal file is allocated ahead. Upstream: `journalPreAllocSizeMB`, in MiB."""

    journal_max_backups: int = setting(5, unit="files", range=(0, 1 << 20), upstream="journalMaxBackups")
    """Journal files that are kept although nothing in them is needed any more."""

    log_size_limit_bytes: int = setting(
        GIBIBYTE, unit="bytes", range=(1 << 12, GIBIBYTE), upstream="logSizeLimit"
    )
    """Size at which a new entry log begins."""

    flush_interval_ms: int = setting(10_000, unit="ms", range=(10, DAY_MS), upstream="flushInterval")
    """How often entries go from memory to the entry log."""

    write_cache_bytes: int = setting(64 << 20, unit="bytes", range=(1 << 12, 1 << 40), upstream=None)
    """Bytes of entries in memory that are flushed before the interval is over. Upstream:
    `dbStorage_writeCacheMaxSizeMb`, or `skipListSizeLimit`."""

    index_holes_max_bytes: int = setting(GIBIBYTE, unit="bytes", range=(0, 32 * GIBIBYTE), upstream=None)
    """Holes that the index of one ledger may have. An index has 8 bytes for each entry id from 0 on, so an
    id far beyond those that are stored makes a file that is long and almost empty. Such an add is rejected.
    The default lets a bookie join a ledger up to entry 134,000,000."""

    open_file_limit: int = setting(1_000, unit="files", range=(16, 1 << 20), upstream="openFileLimit")
    """Index files that are kept open. Upstream: 20,000, more than most systems let a process have."""

    frame_max_bytes: int = setting(
        5 << 20, unit="bytes", range=(1024, 16 << 20), upstream="nettyMaxFrameSizeBytes"
    )
    """Longest frame, its length word included."""

    adds_in_progress_max: int = setting(
        10_000, unit="requests", range=(1, INT_MAX), upstream="maxPendingAddRequestsPerThread"
    )
    """Requests of one connection that wait for the journal; above, it is not read from."""

    disk_usage_threshold_percent: int = setting(95, unit="percent", range=(1, 100), upstream=None)
    """A disk fuller than this is left out; with all disks left out the bookie takes reads and recoveries
    only. Upstream: `diskUsageThreshold`, 0.95."""

    disk_usage_lwm_threshold_percent: int = setting(95, unit="percent", range=(1, 100), upstream=None)
    """A disk that was left out is used again when it is not fuller than this. Upstream:
    `diskUsageLwmThreshold`, 0.95."""

    read_only_mode_on_any_disk_full_enabled: bool = setting(
        False, upstream="readOnlyModeOnAnyDiskFullEnabled"
    )
    """One full disk, not all of them, makes the bookie read-only. Upstream: on."""

    min_usable_size_for_high_priority_writes_bytes: int = setting(
        GIBIBYTE, unit="bytes", range=(0, 1 << 50), upstream="minUsableSizeForHighPriorityWrites"
    )
    """Free room that a full bookie needs for the adds of a recovery."""

    disk_check_interval_ms: int = setting(10_000, unit="ms", range=(10, DAY_MS), upstream="diskCheckInterval")
    """How often the disk is looked at."""

    gc_wait_time_ms: int = setting(600_000, unit="ms", range=(100, DAY_MS), upstream="gcWaitTime")
    """How often ledgers that were deleted are cleared away."""

    minor_compaction_threshold_percent: int = setting(20, unit="percent", range=(0, 99), upstream=None)
    """Entry logs of which less than this is needed are compacted; 0: never. Upstream:
    `minorCompactionThreshold`, 0.2."""

    minor_compaction_interval_ms: int = setting(3_600_000, unit="ms", range=(0, MONTH_MS), upstream=None)
    """How often, at the end of a clearing away; 0: never. Upstream: `minorCompactionInterval`, in s."""

    major_compaction_threshold_percent: int = setting(80, unit="percent", range=(0, 99), upstream=None)
    """The same in a major compaction. Upstream: `majorCompactionThreshold`, 0.8."""

    major_compaction_interval_ms: int = setting(DAY_MS, unit="ms", range=(0, MONTH_MS), upstream=None)
    """The same in a major compaction. Upstream: `majorCompactionInterval`, in s."""

    compaction_rate_by_bytes: int = setting(
        16 << 20, unit="bytes", range=(1 << 10, 1 << 40), upstream="compactionRateByBytes"
    )
    """Bytes that compaction moves in a second. Upstream: 1,000,000, or 1,000 entries."""

    disk_usage_warn_threshold_percent: int = setting(90, unit="percent", range=(1, 100), upstream=None)
    """With a disk fuller than this garbage is collected at once, and there is no major compaction. Upstream:
    `diskUsageWarnThreshold`, 0.90."""

    force_read_only_bookie: bool = setting(False, upstream="forceReadOnlyBookie")
    """Take no adds from the start."""

    auto_recovery_daemon_enabled: bool = setting(True, upstream="autoRecoveryDaemonEnabled")
    """Also look for ledgers that lack copies, and make them. Upstream: off, which leaves it to a process of
    its own that is easily forgotten."""

    def __post_init__(self) -> None:
        """Check every field."""
        check(self)
