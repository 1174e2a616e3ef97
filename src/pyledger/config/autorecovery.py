"""Settings of autorecovery. A default that differs from upstream's is explained at its field.

Source: BookKeeper conf/ServerConfiguration.java.
"""

from pyledger.config import bookie
from pyledger.config.fields import check, setting, settings_class

INT_MAX = (1 << 31) - 1
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
FIXED = {
    name: bookie.FIXED[name]
    for name in (
        "tlsProviderFactoryClass",
        "zkEnableSecurity",
        "registrationManagerClass",
        "ledgerManagerType",
        "ledgerManagerFactoryClass",
    )
}
"""The fixed settings of a bookie that concern the cluster; those about its own data have no effect here."""


@settings_class
class AutoRecoveryConfig:
    """How missing replicas are found and re-replicated."""

    lost_bookie_recovery_delay_s: int = setting(
        0, unit="seconds", range=(0, INT_MAX), upstream="lostBookieRecoveryDelay"
    )
    """How long the auditor waits for a lost bookie to return, if the cluster's metadata has no value of its
    own."""

    auditor_periodic_check_interval_s: int = setting(
        604_800, unit="seconds", range=(0, INT_MAX), upstream="auditorPeriodicCheckInterval"
    )
    """Interval at which all ledgers are checked by the first and last entries of their fragments; 0:
    never."""

    auditor_periodic_bookie_check_interval_s: int = setting(
        86_400, unit="seconds", range=(0, INT_MAX), upstream="auditorPeriodicBookieCheckInterval"
    )
    """Interval at which the ledgers of lost bookies are marked as under-replicated even if no bookie joined
    or left; 0: never."""

    open_ledger_rereplication_grace_period_ms: int = setting(
        30_000, unit="ms", range=(0, DAY_MS), upstream="openLedgerRereplicationGracePeriod"
    )
    """How long the writer of an open ledger has to replace a lost bookie. After that the ledger is fenced and
    closed."""

    lock_release_of_failed_ledger_grace_period_ms: int = setting(
        300_000, unit="ms", range=(0, DAY_MS), upstream="lockReleaseOfFailedLedgerGracePeriod"
    )
    """Longest pause before a ledger whose re-replication failed is retried: 1/32 of it after the first
    failure, doubled with each further one. A bookie that joins ends the pause."""

    rw_rereplicate_backoff_ms: int = setting(
        5_000, unit="ms", range=(1, HOUR_MS), upstream="rwRereplicateBackoffMs"
    )
    """Pause after a failure of the metadata store, and between two searches for under-replicated ledgers."""

    rereplication_read_ahead_entries: int = setting(2048, unit="entries", range=(1, 1 << 16), upstream=None)
    """Entries read at the same time for copying; fewer if they are large. Upstream reads them one by one
    (`rereplicationEntryBatchSize`, 10)."""

    replication_rate_by_bytes: int = setting(
        -1, unit="bytes", range=(-1, 1 << 40), upstream="replicationRateByBytes"
    )
    """Bytes per second that one worker copies at most; 0 or less: no limit."""

    ledgers_checked_at_once: int = setting(32, unit="ledgers", range=(1, 10_000), upstream=None)
    """Ledgers that an audit or a check reads at the same time. Upstream: 500,
    `auditorMaxNumberOfConcurrentOpenLedgerOperations`."""

    bookie_recovery_passwd: str = setting("", upstream="bookieRecoveryPasswd")
    """Password of ledgers whose metadata contains none, as in metadata version 1."""

    bookie_recovery_digest_type: str = setting(
        "CRC32",
        choices={"CRC32": "CRC32", "CRC32C": "CRC32C", "HMAC": "MAC", "DUMMY": "DUMMY"},
        upstream="bookieRecoveryDigestType",
    )
    """Digest type of such ledgers."""

    def __post_init__(self) -> None:
        """Check every field."""
        check(self)
