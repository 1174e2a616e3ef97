"""Settings of a broker. Defaults are upstream's; where not, the docstring of the field says why.

Source: RocketMQ common/.../BrokerConfig.java; store/.../MessageStoreConfig.java.
"""

import os
import re
from dataclasses import dataclass
from ipaddress import ip_address

from pyledger.config.fields import ANY, Fixed, check, setting
from pyledger.errors import ConfigError
from pyledger.model.address import PORT_MAX, split_address

HOUR_MS = 3_600_000
NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,100}")
ANY_ADDRESS = ("0.0.0.0", "::", "")

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Of delayed messages, as upstream writes them."""

_ONE_ROOT = "every reader of a store knows only its root folder; leave the key out, and "
_NO_ROCKSDB = "PyLedger keeps no RocksDB; use the files of `storeType=default`"
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
    "enableRetryTopicV2": Fixed(("false",), "PyLedger knows only the first form of retry topics of pop"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What a broker is called, where it listens, and to which name servers it reports."""

    cluster: str = setting("DefaultCluster", upstream="brokerClusterName")
    """Cluster that it belongs to."""

    name: str = setting("broker-a", upstream="brokerName")
    """Name that it shares with its slaves alone. Upstream's default is the name of the host."""

    broker_id: int = setting(0, unit="id", range=(0, (1 << 31) - 1), upstream="brokerId")
    """0 is a master."""

    host: str = setting("127.0.0.1", upstream="bindAddress")
    """Address to listen on. Upstream listens on all; here that has to be said."""

    port: int = setting(10911, unit="ports", range=(0, PORT_MAX), upstream="listenPort")
    """Port to listen on; 0 takes a free one."""

    vip_port: bool = setting(True, upstream=None)
    """Listen on the port two below, too, where clients with `vipChannelEnabled` send and slaves read tables;
    upstream always does. Not with a free port."""

    advertised_host: str = setting("", upstream="brokerIP1")
    """IPv4 or IPv6 literal that routes and message ids name. Empty: the address to listen on."""

    name_servers: str = setting("", upstream="namesrvAddr")
    """Name servers as `host:port;host:port`; empty: none."""

    store_path: str = setting("", upstream="storePathRootDir")
    """Folder of the store. Empty: `store` in the home folder, as upstream."""

    log_path: str = setting("", upstream="storePathCommitLog")
    """Has to be empty, or `commitlog` in the store's folder, which may be a symbolic link: readers find a log
    by the root of its store alone."""

    admin_enabled: bool = setting(False, upstream=None)
    """Answer requests that change topics, groups, offsets, files or settings: from this machine, and from
    others when they are signed (`acl_path`). Upstream always does; here whoever reaches the port must not be
    able to by default."""

    acl_path: str = setting("", upstream=None)
    """File with users and what each may do; see docs/operate/security.md. Empty: requests need no signature.
    Upstream has `aclEnable` and `conf/plain_acl.yml`, or, from 5.3 on, a database."""

    acl_user: str = setting("", upstream=None)
    """User of that file as whom a slave signs what it asks its master, whose file has the user, too. It needs
    `Get` on the cluster and on all topics, and should have no more: whoever can register a master at the name
    servers sees the signatures. Upstream has `innerClientAuthenticationCredentials`."""

    register_interval_ms: int = setting(
        30_000, unit="ms", range=(10_000, 60_000), upstream="registerNameServerPeriod"
    )
    """Pause between two reports to the name servers. A change is reported at once."""

    register_timeout_ms: int = setting(
        24_000, unit="ms", range=(1, HOUR_MS), upstream="registerBrokerTimeoutMills"
    )
    """How long a name server may take to answer."""

    offsets_flush_interval_ms: int = setting(
        5_000, unit="ms", range=(10, HOUR_MS), upstream="flushConsumerOffsetInterval"
    )
    """Pause between two writes of consumer offsets and of how far delayed messages are delivered."""

    permission: int = setting(6, unit="bits", range=(0, 7), upstream="brokerPermission")
    """What clients may do here: 4 read, 2 write, 6 both."""

    region: str = setting("DefaultRegion", upstream="regionId")
    """Region, told to producers."""

    trace: bool = setting(True, upstream="traceOn")
    """Whether clients shall write traces."""

    query_count_max: int = setting(32, unit="messages", range=(1, 64), upstream="defaultQueryMaxNum")
    """Messages that a query by unique key gives at most."""

    waiting_sends_max: int = setting(
        10_000, unit="sends", range=(1, 1 << 20), upstream="sendThreadPoolQueueCapacity"
    )
    """Sends that may wait for their flush at once; one more is answered SYSTEM_BUSY and not stored."""

    transfer_by_heap: bool = setting(False, upstream="transferMsgByHeap")
    """Copy the records of a pull's answer before they are sent. Off, they go to the socket from where they
    stand in the log, which takes a tenth less of the processor for bodies of 64 KiB, and no more for small
    ones. Upstream's default is on."""

    filter_scan_max: int = setting(1024, unit="messages", range=(32, 1 << 20), upstream=None)
    """Messages that one pull of an SQL92 subscription looks at before it answers. Upstream's
    `maxFilterMessageSize` allows 16,000, in a thread of its own."""

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
                    "name_servers", f"{address!r} is no address", "write host:port, several with ; between"
                ) from None
        if self.advertised_host or self.host in ANY_ADDRESS:
            try:
                ip_address(self.advertised_host)
            except ValueError:
                raise ConfigError(
                    "advertised_host",
                    f"{self.advertised_host!r} is no address that clients can reach",
                    "set brokerIP1 to an IPv4 or IPv6 address of this machine",
                ) from None

    @property
    def store_folder(self) -> str:
        """Folder of the store."""
        return self.store_path or os.path.expanduser("~/store")
