"""Settings of replication from a master to its slaves. A default that differs from upstream's is explained.

Source: RocketMQ store/.../MessageStoreConfig.java; common/.../BrokerConfig.java.
"""

from typing import TYPE_CHECKING

from pyledger.config.fields import check, setting, settings_class
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
    """Split `one;two` into its parts."""
    return [part.strip() for part in text.split(";") if part.strip()]


def networks_of(text: str) -> "tuple[IPv4Network | IPv6Network, ...]":
    """Parse networks such as `10.0.0.2;10.1.0.0/16`; an address is a network of one.

    Raises:
        ConfigError: A part is neither an address nor a network.
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


@settings_class
class HaConfig:
    """Role of a broker among those of its name, and how the log is replicated."""

    role: str = setting(SINGLE, choices=ROLES, upstream="brokerRole")
    """`single_master`: a master that opens no port for slaves. `async_master` answers a send at once,
    `sync_master` when slaves have the message. `slave` copies the log of a master and takes no sends.
    Upstream's default is ASYNC_MASTER, and every broker listens for slaves."""

    port: int = setting(0, unit="ports", range=(0, 65_535), upstream="haListenPort")
    """Port for slaves; 0: the broker's port plus one, or a free port if the broker's port is free."""

    allowed_slaves: str = setting("", upstream=None)
    """Addresses and networks, such as `10.0.0.2;10.1.0.0/16`, that may copy the whole log, even without TLS
    and a signature. Without access control, this machine and the addresses that the name servers know as
    slaves of this broker may always do so. Upstream sends its log to any client."""

    slave_certificates: str = setting("", upstream=None)
    """Names in the client certificates of slaves, such as `slave-1.example.org;slave-2`: the common name, or
    a DNS name of `subjectAltName`. If set, a connection needs such a certificate unless `allowed_slaves`
    contains its address. The certificate is checked against `server_trust_cert_path` of section `tls`."""

    plain_master: bool = setting(False, upstream=None)
    """Let a slave copy the log in plain text although its requests are sent over TLS: RocketMQ's masters have
    no TLS on the port for slaves."""

    master_address: str = setting("", upstream="haMasterAddress")
    """`host:port` of the master's HA service. Empty: the address from the name servers."""

    heartbeat_interval_ms: int = setting(
        5_000, unit="ms", range=(10, HOUR_MS), upstream="haSendHeartbeatInterval"
    )
    """Time without a transfer after which either side sends a heartbeat."""

    silence_max_ms: int = setting(20_000, unit="ms", range=(20, HOUR_MS), upstream="haHousekeepingInterval")
    """Time without data from the other side after which a connection is closed."""

    reconnect_interval_ms: int = setting(5_000, unit="ms", range=(10, HOUR_MS), upstream=None)
    """Pause before a slave reconnects; up to 12 times as long while its own disk cannot store the data.
    Upstream's pause is fixed."""

    transfer_batch_bytes: int = setting(
        32_768, unit="bytes", range=(1024, 1 << 22), upstream="haTransferBatchSize"
    )
    """Largest number of log bytes in one transfer."""

    flow_control: bool = setting(False, upstream="haFlowControlEnable")
    """Limit the transfer to each slave to `transfer_rate_max_bytes` per second."""

    transfer_rate_max_bytes: int = setting(
        100 << 20, unit="bytes", range=(1024, 1 << 40), upstream="maxHaTransferByteInSecond"
    )
    """Log bytes per second sent to one slave at most, if `flow_control` is on."""

    gap_max_bytes: int = setting(
        1 << 28,
        unit="bytes",
        range=(0, 1 << 50),
        upstream="haMaxGapNotInSync",
        aliases=("haSlaveFallbehindMax",),
    )
    """Lag from which a slave is not in sync."""

    slave_timeout_ms: int = setting(3_000, unit="ms", range=(1, HOUR_MS), upstream="slaveTimeout")
    """How long a send waits for slaves. After that the response is FLUSH_SLAVE_TIMEOUT; the message is
    stored."""

    in_sync_replicas: int = setting(2, unit="brokers", range=(0, 64), upstream="inSyncReplicas")
    """Brokers, including the master, that must have a message before a `sync_master` answers. Upstream's
    default since 5.0 is 1, with which a SYNC_MASTER waits for no slave; before 5.0 it waited for one, as with
    2."""

    in_sync_replicas_min: int = setting(1, unit="brokers", range=(1, 64), upstream="minInSyncReplicas")
    """Brokers, including the master, that must be in sync; with fewer, a `sync_master` rejects sends."""

    auto_in_sync_replicas: bool = setting(False, upstream="enableAutoInSyncReplicas")
    """Require only the brokers that are currently in sync, but at least `in_sync_replicas_min`."""

    all_in_sync_replicas: bool = setting(False, upstream="allAckInSyncStateSet")
    """Require all brokers that are currently in sync instead of `in_sync_replicas`."""

    sync_first_ms: int = setting(10_000, unit="ms", range=(0, HOUR_MS), upstream=None)
    """Time from the start of a slave until it first copies topics, groups and offsets."""

    sync_interval_ms: int = setting(60_000, unit="ms", range=(100, HOUR_MS), upstream=None)
    """Interval between two such copies. Upstream's interval is fixed."""

    sync_delays_interval_ms: int = setting(3_000, unit="ms", range=(100, HOUR_MS), upstream=None)
    """Interval at which a slave reads the master's delivery progress of delayed and timer messages.
    Upstream's intervals are fixed, 60 s for delayed messages."""

    def __post_init__(self) -> None:
        check(self)
        networks_of(self.allowed_slaves)
