"""Settings of a bookie. Defaults are upstream's; where not, the docstring says why.

Source: BookKeeper conf/ServerConfiguration.java.
"""

from dataclasses import dataclass

from pyledger.config.fields import ANY, Fixed, check, setting
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
DAY_MS = 86_400_000
MONTH_MS = 30 * DAY_MS
MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30
PORT_MAX = 65_535

FIXED = {
    "indexDirectories": Fixed((), "indexes are kept in ledgerDirectories; leave the key out"),
    "ledgerStorageClass": Fixed(
        (
            "org.apache.bookkeeper.bookie.SortedLedgerStorage",
            "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        ),
        "PyLedger keeps no RocksDB: leave it out on empty folders; those of a DbLedgerStorage need Java",
    ),
    "journalBufferedEntriesThreshold": ANY,
    "maxPendingReadRequestsPerThread": ANY,
    "journalSyncData": Fixed(("true",), "an add is answered when it is on disk; leave the key out"),
    "journalWriteData": Fixed(("true",), "an add is answered when it is on disk; leave the key out"),
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
    "zkEnableSecurity": Fixed(("false",), "nodes in ZooKeeper are made without an access list; leave it off"),
    "registrationManagerClass": Fixed((), "use metadataServiceUri"),
    "ledgerManagerType": Fixed(("hierarchical",), "only hierarchical ledger metadata is supported"),
    "ledgerManagerFactoryClass": Fixed(
        ("org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",),
        "only hierarchical ledger metadata is supported",
    ),
}
"""Upstream's settings that decide where data is or how safe it is, and that cannot be changed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieConfig:
    """How a bookie keeps its ledgers, and what bounds it."""

    host: str = setting("127.0.0.1", upstream=None)
    """Address to listen on. Upstream listens on all; here that has to be said."""

    port: int = setting(3181, unit="ports", range=(0, PORT_MAX), upstream="bookiePort")
    """Port to listen on; 0 takes a free one."""

    advertised_host: str = setting("", upstream="advertisedAddress")
    """Host that clients are given. Empty: the address to listen on."""

    bookie_id: str = setting("", upstream="bookieId")
    """Name in the cluster. Empty: `host:port`."""

    metadata: str = setting("", upstream="metadataServiceUri")
    """The cluster: `zk://HOST:PORT/ledgers`, or `sqlite:FILE`."""

    zk_servers: str = setting("", upstream="zkServers")
    """ZooKeeper servers as `host:port,host:port`, where `metadata` is empty."""

    zk_ledgers_root: str = setting("/ledgers", upstream="zkLedgersRootPath")
    """Path of the cluster in ZooKeeper, where `metadata` is empty."""

    journal_directories: str = setting("", upstream="journalDirectories", aliases=("journalDirectory",))
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
    """How much of a journal file is allocated ahead."""

    journal_max_backups: int = setting(5, unit="files", range=(0, 1 << 20), upstream="journalMaxBackups")
    """Journal files that are kept although nothing in them is needed any more."""

    log_size_limit_bytes: int = setting(
        GIBIBYTE, unit="bytes", range=(1 << 12, GIBIBYTE), upstream="logSizeLimit"
    )
    """Size at which a new entry log begins."""

    flush_interval_ms: int = setting(10_000, unit="ms", range=(10, DAY_MS), upstream="flushInterval")
    """How often entries go from memory to the entry log."""

    write_cache_bytes: int = setting(
        64 << 20,
        unit="bytes",
        range=(1 << 12, 1 << 40),
        upstream="dbStorage_writeCacheMaxSizeMb",
        upstream_factor=MEBIBYTE,
    )
    """Bytes of entries in memory that are flushed before the interval is over."""

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

    disk_usage_threshold_percent: int = setting(
        95, unit="percent", range=(1, 100), upstream="diskUsageThreshold", upstream_factor=100
    )
    """A disk fuller than this is left out; with all disks left out the bookie takes reads and recoveries
    only."""

    disk_usage_lwm_threshold_percent: int = setting(
        95, unit="percent", range=(1, 100), upstream="diskUsageLwmThreshold", upstream_factor=100
    )
    """A disk that was left out is used again when it is not fuller than this."""

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

    minor_compaction_threshold_percent: int = setting(
        20, unit="percent", range=(0, 99), upstream="minorCompactionThreshold", upstream_factor=100
    )
    """Entry logs of which less than this is needed are compacted; 0: never."""

    minor_compaction_interval_ms: int = setting(
        3_600_000, unit="ms", range=(0, MONTH_MS), upstream="minorCompactionInterval", upstream_factor=1000
    )
    """How often, at the end of a clearing away; 0: never."""

    major_compaction_threshold_percent: int = setting(
        80, unit="percent", range=(0, 99), upstream="majorCompactionThreshold", upstream_factor=100
    )
    """The same in a major compaction."""

    major_compaction_interval_ms: int = setting(
        DAY_MS, unit="ms", range=(0, MONTH_MS), upstream="majorCompactionInterval", upstream_factor=1000
    )
    """The same in a major compaction."""

    compaction_rate_by_bytes: int = setting(
        16 << 20, unit="bytes", range=(1 << 10, 1 << 40), upstream="compactionRateByBytes"
    )
    """Bytes that compaction moves in a second. Upstream: 1,000,000, or 1,000 entries."""

    disk_usage_warn_threshold_percent: int = setting(
        90, unit="percent", range=(1, 100), upstream="diskUsageWarnThreshold", upstream_factor=100
    )
    """With a disk fuller than this garbage is collected at once, and there is no major compaction."""

    force_read_only_bookie: bool = setting(False, upstream="forceReadOnlyBookie")
    """Take no adds from the start."""

    auto_recovery_daemon_enabled: bool = setting(True, upstream="autoRecoveryDaemonEnabled")
    """Also look for ledgers that lack copies, and make them. Upstream: off, which leaves it to a process of
    its own that is easily forgotten."""

    def __post_init__(self) -> None:
        """Check every field."""
        check(self)
        if not self.zk_ledgers_root.startswith("/"):
            raise ConfigError(
                "zk_ledgers_root", f"{self.zk_ledgers_root!r} is not a path in ZooKeeper", "write /ledgers"
            )

    @property
    def cluster_address(self) -> str:
        """Where the metadata of the cluster is; empty where no setting names it."""
        if self.metadata or not self.zk_servers:
            return self.metadata
        return f"zk://{self.zk_servers}{self.zk_ledgers_root}"
