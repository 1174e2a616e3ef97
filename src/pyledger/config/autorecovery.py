"""Settings of autorecovery. Defaults are upstream's; where not, the docstring says why.

Source: BookKeeper conf/ServerConfiguration.java.
"""

from dataclasses import dataclass

from pyledger.config import bookie
from pyledger.config.fields import check, setting

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
"""What a bookie's file says of the cluster holds here too; where a bookie keeps its data does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryConfig:
    """How lost copies are found and made again."""

    lost_bookie_recovery_delay_s: int = setting(
        0, unit="seconds", range=(0, INT_MAX), upstream="lostBookieRecoveryDelay"
    )
    """How long a bookie that is lost is waited for, where the cluster's metadata does not say it yet."""

    auditor_periodic_check_interval_s: int = setting(
        604_800, unit="seconds", range=(0, INT_MAX), upstream="auditorPeriodicCheckInterval"
    )
    """How often all ledgers are checked by the first and last entries of their fragments; 0: never."""

    auditor_periodic_bookie_check_interval_s: int = setting(
        86_400, unit="seconds", range=(0, INT_MAX), upstream="auditorPeriodicBookieCheckInterval"
    )
    """How often the ledgers of lost bookies are marked although no bookie came or went; 0: never."""

    open_ledger_rereplication_grace_period_ms: int = setting(
        30_000, unit="ms", range=(0, DAY_MS), upstream="openLedgerRereplicationGracePeriod"
    )
    """How long the writer of an open ledger may take to replace a bookie that is gone; then the ledger is
    closed, and its writer fenced off."""

    lock_release_of_failed_ledger_grace_period_ms: int = setting(
        300_000, unit="ms", range=(0, DAY_MS), upstream="lockReleaseOfFailedLedgerGracePeriod"
    )
    """A ledger whose copies could not be made rests at most so long; a 32nd of it after the first failure,
    twice as long after each one more. A bookie that comes ends the rest."""

    rw_rereplicate_backoff_ms: int = setting(
        5_000, unit="ms", range=(1, HOUR_MS), upstream="rwRereplicateBackoffMs"
    )
    """Pause after a failure of the metadata store, and between looks for marked ledgers."""

    rereplication_read_ahead_entries: int = setting(2048, unit="entries", range=(1, 1 << 16), upstream=None)
    """Entries that are read at once to be copied, at most: large ones are fewer. Upstream: 10,
    `rereplicationEntryBatchSize`, one after the other."""

    replication_rate_by_bytes: int = setting(
        -1, unit="bytes", range=(-1, 1 << 40), upstream="replicationRateByBytes"
    )
    """Bytes a second that one worker copies at most; 0 or less: as many as it can."""

    ledgers_checked_at_once: int = setting(32, unit="ledgers", range=(1, 10_000), upstream=None)
    """Ledgers that an audit or a check looks at together. Upstream: 500,
    `auditorMaxNumberOfConcurrentOpenLedgerOperations`."""

    bookie_recovery_passwd: str = setting("", upstream="bookieRecoveryPasswd")
    """Of ledgers whose metadata has none, as in its version 1."""

    bookie_recovery_digest_type: str = setting(
        "CRC32",
        choices={"CRC32": "CRC32", "CRC32C": "CRC32C", "HMAC": "MAC", "DUMMY": "DUMMY"},
        upstream="bookieRecoveryDigestType",
    )
    """How entries of such ledgers are guarded."""

    def __post_init__(self) -> None:
        """Check every field."""
        check(self)
