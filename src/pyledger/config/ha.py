"""Settings of replication between a master and its slaves. Defaults are upstream's, or their docstring says.

Source: RocketMQ store/.../MessageStoreConfig.java; common/.../BrokerConfig.java.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyledger.config.fields import check, setting
from pyledger.errors import ConfigError

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

HOUR_MS = 3_600_000
SLAVE = "slave"
"""The role of a broker that follows a master."""
SINGLE = "single_master"
"""The role of a master without slaves."""
ROLES = {
    "async_master": "ASYNC_MASTER",
    "sync_master": "SYNC_MASTER",
    SLAVE: "SLAVE",
    SINGLE: "ASYNC_MASTER",
}
"""Upstream's word for each role."""


def listed(text: str) -> list[str]:
    """The parts of `one;two`."""
    return [part.strip() for part in text.split(";") if part.strip()]


def networks_of(text: str) -> "tuple[IPv4Network | IPv6Network, ...]":
    """The networks of `10.0.0.2;10.1.0.0/16`; an address is a network of one.

    Raises:
        ConfigError: a part is neither.
    """
    if not text:
        return ()
    from ipaddress import ip_network  # noqa: PLC0415 - not for brokers without slaves

    try:
        return tuple(ip_network(part, strict=False) for part in listed(text))
    except ValueError as error:
        raise ConfigError(
            "allowed_slaves", str(error), "give addresses or networks such as 10.0.0.2;10.1.0.0/16"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class HaConfig:
    """What a broker is to others of its name, and what it asks of them."""

    role: str = setting(SINGLE, choices=ROLES, upstream="brokerRole")
    """`async_master` answers sends at once, `sync_master` when slaves have the message; `slave` takes its log
    from a master and no sends; `single_master` is a master that opens no port for slaves. Upstream's default
    is ASYNC_MASTER, and every broker of it listens for slaves."""

    port: int = setting(0, unit="ports", range=(0, 65_535), upstream="haListenPort")
    """Port for slaves; 0 takes the one after the broker's, or a free one where the broker does."""

    allowed_slaves: str = setting("", upstream=None)
    """Addresses and networks, `10.0.0.2;10.1.0.0/16`, whose connections get the whole log, without TLS and
    without a signature too. This machine, and addresses that the name servers know as slaves of this broker,
    get it in any case, unless access control is on. Upstream gives its log to whoever connects."""

    slave_certificates: str = setting("", upstream=None)
    """Names in the client certificates of slaves, `slave-1.example.org;slave-2`: the common name, or a DNS
    name of `subjectAltName`. A connection must show one of them then, unless `allowed_slaves` names its
    address; the certificate is checked against `server_trust_cert_path` of section `tls`."""

    plain_master: bool = setting(False, upstream=None)
    """A slave takes the log in plain text although its own requests travel over TLS: RocketMQ's masters speak
    no TLS on the port for slaves."""

    master_address: str = setting("", upstream="haMasterAddress")
    """`host:port` of the master's HA service. Empty: as the name servers say."""

    heartbeat_interval_ms: int = setting(
        5_000, unit="ms", range=(10, HOUR_MS), upstream="haSendHeartbeatInterval"
    )
    """Silence after which either side says that it is there."""

    silence_max_ms: int = setting(20_000, unit="ms", range=(20, HOUR_MS), upstream="haHousekeepingInterval")
    """Silence of the other side after which a connection is closed."""

    reconnect_interval_ms: int = setting(5_000, unit="ms", range=(10, HOUR_MS), upstream=None)
    """Pause of a slave before it connects again; up to 12 times as long while its own disk refuses what
    comes. Upstream's is fixed."""

    transfer_batch_bytes: int = setting(
        32_768, unit="bytes", range=(1024, 1 << 22), upstream="haTransferBatchSize"
    )
    """Log bytes that one transfer carries at most."""

    flow_control: bool = setting(False, upstream="haFlowControlEnable")
    """Send each slave no more than `transfer_rate_max_bytes` of the log in a second."""

    transfer_rate_max_bytes: int = setting(
        100 << 20, unit="bytes", range=(1024, 1 << 40), upstream="maxHaTransferByteInSecond"
    )
    """Log bytes that one slave gets in a second at most, where `flow_control` is on."""

    gap_max_bytes: int = setting(
        1 << 28,
        unit="bytes",
        range=(0, 1 << 50),
        upstream="haMaxGapNotInSync",
        aliases=("haSlaveFallbehindMax",),
    )
    """A slave that is further behind counts as not available."""

    slave_timeout_ms: int = setting(3_000, unit="ms", range=(1, HOUR_MS), upstream="slaveTimeout")
    """How long a send waits for slaves; then it is answered FLUSH_SLAVE_TIMEOUT, and is stored."""

    in_sync_replicas: int = setting(2, unit="brokers", range=(0, 64), upstream="inSyncReplicas")
    """Brokers, the master among them, that a `sync_master` wants a message on before it answers. Upstream's
    default is 1 since 5.0, so that a SYNC_MASTER waits for nobody; before it was what 2 is here."""

    in_sync_replicas_min: int = setting(1, unit="brokers", range=(1, 64), upstream="minInSyncReplicas")
    """A `sync_master` refuses sends while fewer brokers, itself among them, are in sync."""

    auto_in_sync_replicas: bool = setting(False, upstream="enableAutoInSyncReplicas")
    """Want no more brokers than are in sync at the moment, down to `in_sync_replicas_min`."""

    all_in_sync_replicas: bool = setting(False, upstream="allAckInSyncStateSet")
    """Want every broker that is in sync at the moment instead of `in_sync_replicas`."""

    sync_first_ms: int = setting(10_000, unit="ms", range=(0, HOUR_MS), upstream=None)
    """Time after a slave's start until it copies topics, groups and offsets for the first time."""

    sync_interval_ms: int = setting(60_000, unit="ms", range=(100, HOUR_MS), upstream=None)
    """Pause between two such copies; upstream's is fixed."""

    sync_delays_interval_ms: int = setting(3_000, unit="ms", range=(100, HOUR_MS), upstream=None)
    """Pause between two looks how far the master has delivered delayed and timer messages; upstream's is
    fixed, and is 60 s for delayed ones."""

    def __post_init__(self) -> None:
        check(self)
        networks_of(self.allowed_slaves)
