"""Settings of a ledger client. A default that differs from upstream's is explained at its field.

Source: BookKeeper conf/ClientConfiguration.java.
"""

from pyledger.config.fields import check, setting, settings_class
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
HOUR_MS = 3_600_000
FRAME_BYTES_MAX = 5_242_880
FRAME_BYTES_LIMIT = 16 << 20
FRAME_HEAD_BYTES = 256
"""Bytes reserved in a frame for everything but the payload of its entry."""


@settings_class
class BookkeeperConfig:
    """How a client writes, reads and recovers ledgers."""

    add_timeout_ms: int = setting(5_000, unit="ms", range=(1, HOUR_MS), upstream=None)
    """Time after which an unanswered add counts as a failure of the bookie. Upstream:
    `addEntryTimeoutSec`."""

    read_timeout_ms: int = setting(5_000, unit="ms", range=(1, HOUR_MS), upstream=None)
    """Time after which an unanswered read counts as a failure of the bookie. Upstream:
    `readEntryTimeoutSec`."""

    connect_timeout_ms: int = setting(
        10_000, unit="ms", range=(1, HOUR_MS), upstream="clientConnectTimeoutMillis"
    )
    """Timeout of a connection attempt to a bookie."""

    metadata_timeout_ms: int = setting(60_000, unit="ms", range=(1, HOUR_MS), upstream=None)
    """How long a change of a ledger's metadata is retried while the metadata store does not answer."""

    add_quorum_timeout_ms: int = setting(0, unit="ms", range=(0, HOUR_MS), upstream=None)
    """Time after which an entry without its ack quorum fails the writer; 0: never. Upstream:
    `addEntryQuorumTimeoutSec`."""

    speculative_read_timeout_ms: int = setting(
        2_000, unit="ms", range=(0, HOUR_MS), upstream="speculativeReadTimeout"
    )
    """Time after which an unanswered read is also sent to the next bookie; 0: only after a failure."""

    long_poll_ms: int = setting(1_000, unit="ms", range=(1, HOUR_MS), upstream=None)
    """How long a bookie holds a read for the growth of a ledger."""

    explicit_lac_interval_ms: int = setting(0, unit="ms", range=(0, HOUR_MS), upstream="explicitLacInterval")
    """Interval at which a writer sends the last add confirmed without an entry; 0: never."""

    adds_pending_max: int = setting(1_000, unit="entries", range=(1, 1 << 20), upstream=None)
    """Entries of one writer in flight; further adds wait. Upstream limits adds per second instead
    (`throttle`)."""

    reads_ahead: int = setting(64, unit="entries", range=(1, 1 << 16), upstream=None)
    """Entries that a reader reads ahead."""

    batch_read_enabled: bool = setting(True, upstream="batchReadEnabled")
    """Read many entries with one request if every bookie of the ensemble has all of them. Needs a second
    connection, which uses protocol version 2. Upstream does so only if it uses version 2 anyway."""

    batch_read_bytes: int = setting(1 << 20, unit="bytes", range=(1024, FRAME_BYTES_MAX), upstream=None)
    """Size of the response to such a request."""

    recovery_read_batch_size: int = setting(
        16, unit="entries", range=(1, 1 << 16), upstream="recoveryReadBatchSize"
    )
    """Entries that a recovery reads at the same time. Upstream: 1."""

    max_num_ensemble_changes: int = setting(
        INT_MAX, unit="changes", range=(0, INT_MAX), upstream="maxNumEnsembleChanges"
    )
    """Ensemble changes that a writer makes at most; if it needs one more, it closes the ledger."""

    bookie_failure_history_ms: int = setting(
        60_000, unit="ms", range=(0, HOUR_MS), upstream="bookieFailureHistoryExpirationMSec"
    )
    """Time during which a bookie that failed is used only if there is no other."""

    min_num_racks_per_write_quorum: int = setting(
        2, unit="racks", range=(1, 64), upstream="minNumRacksPerWriteQuorum"
    )
    """Racks over which the replicas of an entry should be spread."""

    racks: str = setting("", upstream=None)
    """Racks of bookies: `BOOKIE=/REGION/RACK`, separated by commas. A bookie that is not listed is in
    `/default-region/default-rack`. Upstream runs a script."""

    throttle: int = setting(0, unit="adds/s", range=(0, INT_MAX), upstream="throttle")
    """Entries per second that a writer adds at most; 0: no limit. Upstream: 5,000."""

    frame_max_bytes: int = setting(
        FRAME_BYTES_MAX, unit="bytes", range=(1024, FRAME_BYTES_LIMIT), upstream="nettyMaxFrameSizeBytes"
    )
    """Longest frame that bookies accept, including its length field. A response may be 256 bytes longer: an
    entry added with the short frame of version 2 has a longer frame in version 3."""

    def __post_init__(self) -> None:
        """Check every field."""
        check(self)
        try:
            racks_from(self.racks)
        except ValueError as error:
            raise ConfigError("racks", str(error)) from None

    @property
    def payload_max_bytes(self) -> int:
        """Longest payload that fits into a frame of any version."""
        return self.frame_max_bytes - FRAME_HEAD_BYTES

    @property
    def answer_max_bytes(self) -> int:
        """Longest frame that is received."""
        return min(self.frame_max_bytes + FRAME_HEAD_BYTES, FRAME_BYTES_LIMIT)


def racks_from(text: str) -> dict[str, str]:
    """Racks by bookie, from `id=/region/rack,id=/region/rack`.

    Raises:
        ValueError: A part of it is not of this form.
    """
    found = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        bookie, _, rack = part.rpartition("=")
        if not bookie or not rack.startswith("/"):
            raise ValueError(f"{part!r} is not BOOKIE=/REGION/RACK")
        found[bookie] = rack
    return found
