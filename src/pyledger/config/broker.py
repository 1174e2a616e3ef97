"""Settings of a broker. A default that differs from upstream's is explained at its field.

Source: RocketMQ common/.../BrokerConfig.java; store/.../MessageStoreConfig.java.
"""

import os
import re
from ipaddress import ip_address

from pyledger.config.fields import ANY, Fixed, check, setting, settings_class
from pyledger.errors import ConfigError
from pyledger.model.address import PORT_MAX, split_address

HOUR_MS = 3_600_000
NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,100}")
ANY_ADDRESS = ("0.0.0.0", "::", "")

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Upstream's default delay levels."""

_ONE_ROOT = "readers know only the root folder of a store; leave the key out, and "
_NO_ROCKSDB = "PyLedger does not support RocksDB; use the files of `storeType=default`"
_NO_LIGHT_QUEUES = "PyLedger writes no light queues (`%LMQ%…`); leave it off"
_AUTH = "set acl_path to a file of users and rules, see docs/operate/security.md"

FIXED = {
    "readOnlyCommitLogStorePaths": Fixed((), _ONE_ROOT + "make `commitlog` one folder"),
    "storeType": Fixed(("default",), _NO_ROCKSDB),
    "rocksdbCQDoubleWriteEnable": Fixed(("false",), _NO_ROCKSDB),
    "transRocksDBEnable": Fixed(("false",), _NO_ROCKSDB),
    "timerRocksDBEnable": Fixed(("false",), _NO_ROCKSDB),
    "popConsumerKVServiceEnable": Fixed(("false",), _NO_ROCKSDB),
    "useSingleRocksDBForAllConfigs": Fixed(("false",), _NO_ROCKSDB),
    "configManagerVersion": Fixed(("v1",), _NO_ROCKSDB),
    "messageStorePlugIn": Fixed((), "PyLedger loads no Java class; leave the key out"),
    "enableRetryTopicV2": Fixed(("false",), "PyLedger supports only the first form of pop retry topics"),
    "messageDelayLevel": Fixed((DELAY_LEVELS,), "leave it at upstream's default"),
    "enableControllerMode": Fixed(
        ("false",), "there is no controller mode; use brokerRole, or enableDLegerCommitLog"
    ),
    "enableSlaveActingMaster": Fixed(("false",), "a slave does not act as master here; leave it off"),
    "duplicationEnable": Fixed(("false",), "leave it off"),
    "asyncLearner": Fixed(("false",), "leave it off"),
    "brokerConfigPaths": Fixed(
        (), "there is no broker container; run one `pyledger broker -c` for each file"
    ),
    "enableLmq": Fixed(("false",), _NO_LIGHT_QUEUES),
    "enableMultiDispatch": Fixed(("false",), _NO_LIGHT_QUEUES),
    "brokerConfigPath": ANY,
    "mapedFileSizeCommitLog": ANY,
    "mapedFileSizeConsumeQueue": ANY,
    "mapedFileSizeConsumeQueueExt": ANY,
    "mappedFileSizeConsumeQueueExt": ANY,
    "fetchNamesrvAddrByAddressServer": Fixed(("false",), "list the name servers in namesrvAddr"),
    "aclEnable": Fixed(("false",), _AUTH),
    "authenticationEnabled": Fixed(("false",), _AUTH),
    "authorizationEnabled": Fixed(("false",), _AUTH),
    "useTLS": Fixed(("false",), "set tls.server.mode and the certificates, see docs/reference/config.md"),
}
"""Upstream's settings that decide where data is or how safe it is, and that cannot be changed here."""


@settings_class
class BrokerConfig:
    """Name and addresses of a broker, and the name servers with which it registers."""

    cluster: str = setting("DefaultCluster", upstream="brokerClusterName")
    """Cluster to which the broker belongs."""

    name: str = setting("broker-a", upstream="brokerName")
    """Name of the broker, shared only with its slaves. Upstream's default is the host name."""

    broker_id: int = setting(0, unit="id", range=(0, (1 << 31) - 1), upstream="brokerId")
    """0: master."""

    host: str = setting("127.0.0.1", upstream="bindAddress")
    """Address to listen on. Upstream listens on all addresses; here that must be configured."""

    port: int = setting(10911, unit="ports", range=(0, PORT_MAX), upstream="listenPort")
    """Port to listen on; 0: a free port."""

    vip_port: bool = setting(True, upstream=None)
    """Also listen on the port two below, to which clients with `vipChannelEnabled` send and from which slaves
    read tables. Upstream always does. Ignored when `port` is 0."""

    advertised_host: str = setting("", upstream="brokerIP1")
    """IPv4 or IPv6 literal in routes and message ids. Empty: the address to listen on."""

    name_servers: str = setting("", upstream="namesrvAddr")
    """Name servers as `host:port;host:port`; empty: none."""

    store_path: str = setting("", upstream="storePathRootDir")
    """Folder of the store. Empty: `store` in the home folder, as upstream."""

    log_path: str = setting("", upstream="storePathCommitLog")
    """Must be empty, or `commitlog` in the store's folder, which may be a symbolic link: readers know only
    the root folder of a store."""

    admin_enabled: bool = setting(False, upstream=None)
    """Serve requests that change topics, groups, offsets, files or settings: from this machine, and from
    other machines if the requests are signed (`acl_path`). Upstream always serves them; here, access to the
    port alone does not grant this right."""

    acl_path: str = setting("", upstream=None)
    """File of users and their permissions; see docs/operate/security.md. Empty: requests need no signature.
    Upstream has `aclEnable` and `conf/plain_acl.yml` or, since 5.3, a database."""

    acl_user: str = setting("", upstream=None)
    """User in that file as whom a slave signs its requests to the master; the master's file must have the
    same user. It needs `Get` on the cluster and on all topics, and should have no other permission: anyone
    who can register a master with the name servers sees the signatures. Upstream has
    `innerClientAuthenticationCredentials`."""

    register_interval_ms: int = setting(
        30_000, unit="ms", range=(10_000, 60_000), upstream="registerNameServerPeriod"
    )
    """Interval between two registrations with the name servers. A change is registered at once."""

    register_timeout_ms: int = setting(
        24_000, unit="ms", range=(1, HOUR_MS), upstream="registerBrokerTimeoutMills"
    )
    """Timeout of a registration."""

    offsets_flush_interval_ms: int = setting(
        5_000, unit="ms", range=(10, HOUR_MS), upstream="flushConsumerOffsetInterval"
    )
    """Interval at which consumer offsets and the progress of delayed messages are written."""

    permission: int = setting(6, unit="bits", range=(0, 7), upstream="brokerPermission")
    """What clients may do on this broker: 4 read, 2 write, 6 both."""

    region: str = setting("DefaultRegion", upstream="regionId")
    """Name of the region, returned to producers."""

    trace: bool = setting(True, upstream="traceOn")
    """Whether clients should write traces."""

    query_count_max: int = setting(32, unit="messages", range=(1, 64), upstream="defaultQueryMaxNum")
    """Messages that a query by unique key returns at most."""

    waiting_sends_max: int = setting(
        10_000, unit="sends", range=(1, 1 << 20), upstream="sendThreadPoolQueueCapacity"
    )
    """Sends that may wait for their flush. Further sends are rejected with SYSTEM_BUSY and not stored."""

    transfer_by_heap: bool = setting(False, upstream="transferMsgByHeap")
    """Copy the records of a pull response before they are sent. Off: they are sent directly from the log,
    which saves a tenth of the processor time for bodies of 64 KiB and nothing for small ones. Upstream's
    default is on."""

    filter_scan_max: int = setting(1024, unit="messages", range=(32, 1 << 20), upstream=None)
    """Messages that one pull of an SQL92 subscription examines before it returns. Upstream's
    `maxFilterMessageSize` is 16,000, in a separate thread."""

    def __post_init__(self) -> None:
        check(self)
        expected = os.path.normpath(os.path.join(self.store_folder, "commitlog"))
        if self.log_path and os.path.normpath(self.log_path) != expected:
            raise ConfigError(
                "log_path",
                f"storePathCommitLog={self.log_path} is not below storePathRootDir: no reader of the store "
                "would find the log",
                f"leave it out, and make {expected} a symbolic link to it: ln -s {self.log_path} {expected}",
            )
        for field, name in (("cluster", self.cluster), ("name", self.name)):
            if not NAME.fullmatch(name):
                raise ConfigError(field, f"{name!r} cannot name a topic", "take letters, digits, - and _")
        for address in filter(None, map(str.strip, self.name_servers.split(";"))):
            try:
                split_address(address)
            except ValueError:
                raise ConfigError(
                    "name_servers", f"{address!r} is not an address", "write host:port;host:port"
                ) from None
        if self.advertised_host or self.host in ANY_ADDRESS:
            try:
                ip_address(self.advertised_host)
            except ValueError:
                raise ConfigError(
                    "advertised_host",
                    f"{self.advertised_host!r} is not an address that clients can reach",
                    "set brokerIP1 to an IPv4 or IPv6 address of this machine",
                ) from None

    @property
    def store_folder(self) -> str:
        """Folder of the store."""
        return self.store_path or os.path.expanduser("~/store")
