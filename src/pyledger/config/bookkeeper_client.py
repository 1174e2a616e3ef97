"""Settings of a client of ledgers. Defaults are upstream's; where not, the docstring says why.

Source: BookKeeper conf/ClientConfiguration.java.
"""

from dataclasses import dataclass

from pyledger.config.fields import check, setting
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
HOUR_MS = 3_600_000
FRAME_BYTES_MAX = 5_242_880
FRAME_BYTES_LIMIT = 16 << 20
FRAME_HEAD_BYTES = 256
"""Room for what a frame has beside an entry's payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerConfig:
    """How a client writes, reads and recovers ledgers."""

    add_timeout_ms: int = setting(5_000, unit="ms", range=(1, HOUR_MS), upstream=None)
    """A bookie that has not answered an add by then has failed. Upstream: `addEntryTimeoutSec`."""

    read_timeout_ms: int = setting(5_000, unit="ms", range=(1, HOUR_MS), upstream=None)
    """A bookie that has not answered a read by then has failed. Upstream: `readEntryTimeoutSec`."""

    connect_timeout_ms: int = setting(
        10_000, unit="ms", range=(1, HOUR_MS), upstream="clientConnectTimeoutMillis"
    )
    """How long a connection to a bookie is tried."""

    metadata_timeout_ms: int = setting(60_000, unit="ms", range=(1, HOUR_MS), upstream=None)
    """How long a change of a ledger's metadata is tried while the metadata store does not answer."""

    add_quorum_timeout_ms: int = setting(0, unit="ms", range=(0, HOUR_MS), upstream=None)
    """An entry that waits longer for its quorum ends its writer; 0: never. Upstream:
    `addEntryQuorumTimeoutSec`."""

    speculative_read_timeout_ms: int = setting(
        2_000, unit="ms", range=(0, HOUR_MS), upstream="speculativeReadTimeout"
    )
    """After so long without an answer the next bookie is asked too; 0: only after a failure."""

    long_poll_ms: int = setting(1_000, unit="ms", range=(1, HOUR_MS), upstream=None)
    """How long a bookie holds the question whether a ledger has grown."""

    explicit_lac_interval_ms: int = setting(0, unit="ms", range=(0, HOUR_MS), upstream="explicitLacInterval")
    """How often a writer tells the last confirmed entry apart from its entries; 0: never."""

    adds_pending_max: int = setting(1_000, unit="entries", range=(1, 1 << 20), upstream=None)
    """Entries of one writer on their way; an add waits while there are more. Upstream limits adds by the
    second instead (`throttle`)."""

    reads_ahead: int = setting(64, unit="entries", range=(1, 1 << 16), upstream=None)
    """Entries that a reader asks for before they are wanted."""

    batch_read_enabled: bool = setting(True, upstream="batchReadEnabled")
    """Ask for many entries at once, where every bookie of the ensemble has all of them. Uses a second
    connection, which speaks version 2. Upstream does so only when it speaks version 2 anyway."""

    batch_read_bytes: int = setting(1 << 20, unit="bytes", range=(1024, FRAME_BYTES_MAX), upstream=None)
    """Size of an answer with many entries."""

    recovery_read_batch_size: int = setting(
        16, unit="entries", range=(1, 1 << 16), upstream="recoveryReadBatchSize"
    )
    """Entries that a recovery looks for at once. Upstream: 1."""

    max_num_ensemble_changes: int = setting(
        INT_MAX, unit="changes", range=(0, INT_MAX), upstream="maxNumEnsembleChanges"
    )
    """A writer whose ensemble changes more often is ended."""

    bookie_failure_history_ms: int = setting(
        60_000, unit="ms", range=(0, HOUR_MS), upstream="bookieFailureHistoryExpirationMSec"
    )
    """A bookie that failed is chosen, and read from, only when there is no other, for so long."""

    min_num_racks_per_write_quorum: int = setting(
        2, unit="racks", range=(1, 64), upstream="minNumRacksPerWriteQuorum"
    )
    """Racks that copies of an entry should be spread over."""

    racks: str = setting("", upstream=None)
    """Where bookies stand: `BOOKIE=/REGION/RACK`, with commas between them. One that is not named stands in
    `/default-region/default-rack`. Upstream asks a script."""

    throttle: int = setting(0, unit="adds/s", range=(0, INT_MAX), upstream="throttle")
    """Entries that a writer adds in a second at most; 0: any number. Upstream: 5,000."""

    frame_max_bytes: int = setting(
        FRAME_BYTES_MAX, unit="bytes", range=(1024, FRAME_BYTES_LIMIT), upstream="nettyMaxFrameSizeBytes"
    )
    """Longest frame that bookies take, its length word included. An answer may be 256 bytes longer: an entry
    that was added in the short form of version 2 has more around it in version 3."""

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
