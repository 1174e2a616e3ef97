"""Settings of a bookie. A default that differs from upstream's is explained at its field.

Source: BookKeeper conf/ServerConfiguration.java.
"""

from pyledger.config.fields import ANY, Fixed, check, setting, settings_class
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
DAY_MS = 86_400_000
MONTH_MS = 30 * DAY_MS
MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30
PORT_MAX = 65_535

FIXED = {
    "indexDirectories": Fixed((), "indexes are stored in ledgerDirectories; leave the key out"),
    "ledgerStorageClass": Fixed(
        (
            "org.apache.bookkeeper.bookie.SortedLedgerStorage",
            "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        ),
        "PyLedger does not support RocksDB: leave it out for empty folders; DbLedgerStorage needs Java",
    ),
    "journalBufferedEntriesThreshold": ANY,
    "maxPendingReadRequestsPerThread": ANY,
    "journalSyncData": Fixed(("true",), "adds are confirmed when they are on disk; leave the key out"),
    "journalWriteData": Fixed(("true",), "adds are confirmed when they are on disk; leave the key out"),
    "listeningInterface": Fixed((), "give the address to listen on: --listen HOST:PORT"),
    "useHostNameAsBookieID": Fixed(("false",), "set bookieId to the name that the bookie has in the cluster"),
    "bookieAuthProviderFactoryClass": Fixed(
        (), "use TLS with client certificates, see docs/operate/security.md"
    ),
    "authorizedRoles": Fixed((), "use TLS with client certificates, see docs/operate/security.md"),
    "permittedStartupUsers": Fixed((), "leave it out, and let the service manager choose the user"),
    "tlsProviderFactoryClass": Fixed(
        (), "set tls.server.mode and the certificates, see docs/reference/config.md"
    ),
    "zkEnableSecurity": Fixed(("false",), "nodes in ZooKeeper are created without an ACL; leave it off"),
    "registrationManagerClass": Fixed((), "use metadataServiceUri"),
    "ledgerManagerType": Fixed(("hierarchical",), "only hierarchical ledger metadata is supported"),
    "ledgerManagerFactoryClass": Fixed(
        ("org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",),
        "only hierarchical ledger metadata is supported",
    ),
}
"""Upstream's settings that decide where data is or how safe it is, and that cannot be changed here."""


@settings_class
class BookieConfig:
    """How a bookie stores its ledgers, and its limits."""

    host: str = setting("127.0.0.1", upstream=None)
    """Address to listen on. Upstream listens on all addresses; here that must be configured."""

    port: int = setting(3181, unit="ports", range=(0, PORT_MAX), upstream="bookiePort")
    """Port to listen on; 0: a free port."""

    advertised_host: str = setting("", upstream="advertisedAddress")
    """Host that clients connect to. Empty: the address to listen on."""

    bookie_id: str = setting("", upstream="bookieId")
    """Name in the cluster. Empty: `host:port`."""

    metadata: str = setting("", upstream="metadataServiceUri")
    """The cluster: `zk://HOST:PORT/ledgers`, or `sqlite:FILE`."""

    zk_servers: str = setting("", upstream="zkServers")
    """ZooKeeper servers as `host:port,host:port`, if `metadata` is empty."""

    zk_ledgers_root: str = setting("/ledgers", upstream="zkLedgersRootPath")
    """Path of the cluster in ZooKeeper, if `metadata` is empty."""

    journal_directories: str = setting("", upstream="journalDirectories", aliases=("journalDirectory",))
    """Folders of the journals, separated by commas, best on disks of their own. The records of a ledger are
    written to one of them; all are synced in parallel. Empty: `journal` in the bookie's folder."""

    ledger_directories: str = setting("", upstream="ledgerDirectories")
    """Folders of entry logs and indexes, separated by commas. A full one is not written to. Empty: `ledgers`
    in the bookie's folder."""

    allow_storage_expansion: bool = setting(False, upstream="allowStorageExpansion")
    """Allow a start with more ledger folders than the bookie had before."""

    journal_max_group_wait_ms: int = setting(
        0, unit="ms", range=(0, 1000), upstream="journalMaxGroupWaitMSec"
    )
    """How long a journal batch waits for more entries. Upstream: 2, by which a single add is delayed; here a
    batch contains what arrived during the previous sync."""

    journal_buffered_writes_threshold_bytes: int = setting(
        512 << 10, unit="bytes", range=(512, INT_MAX), upstream="journalBufferedWritesThreshold"
    )
    """Size at which a journal batch no longer waits."""

    journal_max_size_bytes: int = setting(
        2 * GIBIBYTE,
        unit="bytes",
        range=(1 << 16, 1 << 40),
        upstream="journalMaxSizeMB",
        upstream_factor=MEBIBYTE,
    )
    """Size at which a new journal file begins."""

    journal_pre_alloc_bytes: int = setting(
        16 << 20,
        unit="bytes",
        range=(0, GIBIBYTE),
        upstream="journalPreAllocSizeMB",
        upstream_factor=MEBIBYTE,
    )
    """Bytes of a journal file that are allocated ahead."""

    journal_max_backups: int = setting(5, unit="files", range=(0, 1 << 20), upstream="journalMaxBackups")
    """Journal files that are kept although they are no longer needed."""

    log_size_limit_bytes: int = setting(
        GIBIBYTE, unit="bytes", range=(1 << 12, GIBIBYTE), upstream="logSizeLimit"
    )
    """Size at which a new entry log begins."""

    flush_interval_ms: int = setting(10_000, unit="ms", range=(10, DAY_MS), upstream="flushInterval")
    """Interval at which entries are flushed from memory to the entry log."""

    write_cache_bytes: int = setting(
        64 << 20,
        unit="bytes",
        range=(1 << 12, 1 << 40),
        upstream="dbStorage_writeCacheMaxSizeMb",
        upstream_factor=MEBIBYTE,
    )
    """Bytes of entries in memory above which they are flushed before the interval ends."""

    index_holes_max_bytes: int = setting(GIBIBYTE, unit="bytes", range=(0, 32 * GIBIBYTE), upstream=None)
    """Bytes of holes that the index of one ledger may have. An index has 8 bytes for each entry id from 0, so
    an id far above the stored ones makes a long, almost empty file. An add that would exceed the limit is
    rejected. The default lets a bookie join a ledger up to entry 134,000,000."""

    open_file_limit: int = setting(1_000, unit="files", range=(16, 1 << 20), upstream="openFileLimit")
    """Index files that are kept open. Upstream: 20,000, more than most systems allow a process."""

    frame_max_bytes: int = setting(
        5 << 20, unit="bytes", range=(1024, 16 << 20), upstream="nettyMaxFrameSizeBytes"
    )
    """Longest frame, including its length field."""

    adds_in_progress_max: int = setting(
        10_000, unit="requests", range=(1, INT_MAX), upstream="maxPendingAddRequestsPerThread"
    )
    """Requests of one connection that wait for the journal; at this number, no more are read from the
    connection."""

    disk_usage_threshold_percent: int = setting(
        95, unit="percent", range=(1, 100), upstream="diskUsageThreshold", upstream_factor=100
    )
    """Disk usage above which a disk is not written to. If this holds for all disks, the bookie serves only
    reads and recovery adds."""

    disk_usage_lwm_threshold_percent: int = setting(
        95, unit="percent", range=(1, 100), upstream="diskUsageLwmThreshold", upstream_factor=100
    )
    """Disk usage at or below which such a disk is written to again."""

    read_only_mode_on_any_disk_full_enabled: bool = setting(
        False, upstream="readOnlyModeOnAnyDiskFullEnabled"
    )
    """Become read-only when one disk is full, not only when all are. Upstream: on."""

    min_usable_size_for_high_priority_writes_bytes: int = setting(
        GIBIBYTE, unit="bytes", range=(0, 1 << 50), upstream="minUsableSizeForHighPriorityWrites"
    )
    """Free space that a full bookie needs to accept recovery adds."""

    disk_check_interval_ms: int = setting(10_000, unit="ms", range=(10, DAY_MS), upstream="diskCheckInterval")
    """Interval at which disk usage is checked."""

    gc_wait_time_ms: int = setting(600_000, unit="ms", range=(100, DAY_MS), upstream="gcWaitTime")
    """Interval between two garbage collections, which remove deleted ledgers."""

    minor_compaction_threshold_percent: int = setting(
        20, unit="percent", range=(0, 99), upstream="minorCompactionThreshold", upstream_factor=100
    )
    """Share of an entry log still in use below which a minor compaction rewrites it; 0: never."""

    minor_compaction_interval_ms: int = setting(
        3_600_000, unit="ms", range=(0, MONTH_MS), upstream="minorCompactionInterval", upstream_factor=1000
    )
    """Interval between two minor compactions, which follow a garbage collection; 0: never."""

    major_compaction_threshold_percent: int = setting(
        80, unit="percent", range=(0, 99), upstream="majorCompactionThreshold", upstream_factor=100
    )
    """Share of an entry log still in use below which a major compaction rewrites it; 0: never."""

    major_compaction_interval_ms: int = setting(
        DAY_MS, unit="ms", range=(0, MONTH_MS), upstream="majorCompactionInterval", upstream_factor=1000
    )
    """Interval between two major compactions; 0: never."""

    compaction_rate_by_bytes: int = setting(
        16 << 20, unit="bytes", range=(1 << 10, 1 << 40), upstream="compactionRateByBytes"
    )
    """Bytes per second that compaction copies. Upstream: 1,000,000, or 1,000 entries."""

    disk_usage_warn_threshold_percent: int = setting(
        90, unit="percent", range=(1, 100), upstream="diskUsageWarnThreshold", upstream_factor=100
    )
    """Disk usage above which garbage is collected at once and major compactions are suspended."""

    force_read_only_bookie: bool = setting(False, upstream="forceReadOnlyBookie")
    """Start read-only."""

    auto_recovery_daemon_enabled: bool = setting(True, upstream="autoRecoveryDaemonEnabled")
    """Also re-replicate under-replicated ledgers. Upstream: off, so that a separate process is needed, which
    is easily forgotten."""

    def __post_init__(self) -> None:
        """Check every field."""
        check(self)
        if not self.zk_ledgers_root.startswith("/"):
            raise ConfigError(
                "zk_ledgers_root", f"{self.zk_ledgers_root!r} is not a path in ZooKeeper", "write /ledgers"
            )

    @property
    def cluster_address(self) -> str:
        """Address of the cluster's metadata; empty if not configured."""
        if self.metadata or not self.zk_servers:
            return self.metadata
        return f"zk://{self.zk_servers}{self.zk_ledgers_root}"
