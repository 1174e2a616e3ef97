"""Files of RocketMQ and BookKeeper as they are shipped, and every key that their servers know.

`upstream/*.txt` lists the keys: the setters of RocketMQ's BrokerConfig, MessageStoreConfig, NettyServerConfig
and NettyClientConfig, or NamesrvConfig, in 4.9.8, 5.3.3 and 5.5.1, and the constants of BookKeeper's
ServerConfiguration and AbstractConfiguration in 4.16.6 and 4.17.3.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pyledger.config import autorecovery, bookie, broker, namesrv
from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.config.bookie import BookieConfig
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.config.broker import BrokerConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.config.dledger import DLedgerConfig
from pyledger.config.dledger_broker import DLedgerBrokerConfig
from pyledger.config.fields import Fixed, Settings, settings_of
from pyledger.config.ha import HaConfig
from pyledger.config.loader import ConfigFile
from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.config.store import StoreConfig
from pyledger.errors import ConfigError

KEYS = Path(__file__).parent / "upstream"
SAME_FILE = {"autorecovery": "bookie"}
Server = tuple[Mapping[str, Fixed], Mapping[str, type[Settings]]]
SERVERS: dict[str, Server] = {
    "broker": (
        broker.FIXED,
        {
            "broker": BrokerConfig, "delivery": DeliveryConfig, "store": StoreConfig, "ha": HaConfig,
            "dledger_broker": DLedgerBrokerConfig, "dledger": DLedgerConfig, "net": NetConfig,
            "tls": TlsConfig,
        },
    ),
    "namesrv": (namesrv.FIXED, {"namesrv": NamesrvConfig, "net": NetConfig, "tls": TlsConfig}),
    "bookie": (
        bookie.FIXED,
        {
            "bookie": BookieConfig, "tls": TlsConfig, "autorecovery": AutoRecoveryConfig,
            "bookkeeper": BookkeeperConfig,
        },
    ),
    "autorecovery": (
        autorecovery.FIXED,
        {"autorecovery": AutoRecoveryConfig, "bookkeeper": BookkeeperConfig, "tls": TlsConfig},
    ),
}  # fmt: skip

BROKER = "brokerClusterName = DefaultCluster\nbrokerName = broker-a\ndeleteWhen = 04\nfileReservedTime = 48\n"
DLEDGER = """brokerClusterName = DLedgerCluster
brokerName=RaftNode00
listenPort=30911
namesrvAddr=127.0.0.1:9876
storePathRootDir=/tmp/rmqstore/node00
storePathCommitLog=/tmp/rmqstore/node00/commitlog
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913
dLegerSelfId=n0
sendMessageThreadPoolNums=16
"""
BOOKIE = """bookiePort=3181
extraServerComponents=
httpServerEnabled=false
httpServerPort=8080
httpServerHost=0.0.0.0
httpServerClass=org.apache.bookkeeper.http.vertx.VertxHttpServer
httpServerTlsEnable=false
journalDirectories=/tmp/bk-txn
ledgerDirectories=/tmp/bk-data
gcEntryLogMetadataCacheEnabled=false
metadataServiceUri=zk+hierarchical://localhost:2181/ledgers
zkServers=localhost:2181
zkTimeout=10000
zkEnableSecurity=false
statsProviderClass=org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider
stickyReadSEnabled=true
reorderReadSequenceEnabled=true
storageserver.grpc.port=4181
dlog.bkcEnsembleSize=3
dlog.bkcWriteQuorumSize=2
dlog.bkcAckQuorumSize=2
storage.range.store.dirs=data/bookkeeper/ranges
storage.serve.readonly.tables=false
storage.cluster.controller.schedule.interval.ms=30000
"""


def loaded(server: str, path: Path) -> tuple[dict[str, Settings], tuple[str, ...]]:
    """The sections of a file, and the keys without effect."""
    fixed, sections = SERVERS[server]
    file = ConfigFile(path, {})
    found: dict[str, Settings] = {name: file.load(kind, name) for name, kind in sections.items()}
    return found, file.ignored(fixed)


@pytest.mark.parametrize(
    ("server", "text", "ignored"),
    [
        ("broker", BROKER + "brokerId = 0\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\n", 0),
        ("broker", BROKER + "brokerId=1\nbrokerRole=SLAVE\nflushDiskType=ASYNC_FLUSH\n", 0),
        ("broker", BROKER + "brokerId=0\nbrokerRole=SYNC_MASTER\nflushDiskType=ASYNC_FLUSH\n", 0),
        ("broker", DLEDGER, 1),
        ("namesrv", "supportActingMaster=true\n", 0),
        ("bookie", BOOKIE, 17),
    ],
    ids=["master", "slave", "sync master", "dledger", "namesrv", "bookie"],
)
def test_a_file_as_shipped_is_taken(tmp_path: Path, server: str, text: str, ignored: int) -> None:
    path = tmp_path / "shipped.conf"
    path.write_text(text)
    found, without_effect = loaded(server, path)
    assert len(without_effect) == ignored, without_effect
    if text == BOOKIE:
        config = found["bookie"]
        assert isinstance(config, BookieConfig)
        assert (config.port, config.journal_directories, config.ledger_directories) == (
            3181, "/tmp/bk-txn", "/tmp/bk-data",
        )  # fmt: skip
        assert config.cluster_address == "zk+hierarchical://localhost:2181/ledgers"


@pytest.mark.parametrize("server", SERVERS)
def test_every_key_of_upstream_is_taken_fixed_or_ignored(tmp_path: Path, server: str) -> None:
    """None is an unknown setting: a file with harmless keys must not stop a server."""
    fixed, sections = SERVERS[server]
    taken = {name for kind in sections.values() for one in settings_of(kind) for name in one.names}
    keys = (KEYS / f"{SAME_FILE.get(server, server)}.txt").read_text().split()
    rest = [key for key in keys if key not in taken and key not in fixed]
    path = tmp_path / "all.conf"
    path.write_text("".join(f"{key}=1\n" for key in rest))
    assert sorted(loaded(server, path)[1]) == sorted(rest)
    assert len(rest) > 10


@pytest.mark.parametrize(
    ("server", "key"), [(server, key) for server in SERVERS for key in SERVERS[server][0]]
)
def test_a_fixed_key_takes_only_what_happens_here(tmp_path: Path, server: str, key: str) -> None:
    one = SERVERS[server][0][key]
    path = tmp_path / "fixed.conf"
    for value in one.allowed or ():
        path.write_text(f"{key}={value.upper()}\n")
        assert loaded(server, path)[1] == ()
    path.write_text(f"{key}=something-else\n")
    if one.allowed is None:
        assert loaded(server, path)[1] == (key,)
        return
    with pytest.raises(ConfigError) as caught:
        loaded(server, path)
    assert f"fixed.conf: {key}" in str(caught.value)
    assert one.remedy in str(caught.value)


def test_names_of_older_brokers_have_no_effect_as_upstream(tmp_path: Path) -> None:
    """Many files still have them; RocketMQ's brokers of today do not know them, and keep their default."""
    path = tmp_path / "broker.conf"
    path.write_text("mapedFileSizeCommitLog=1048576\nmapedFileSizeConsumeQueue=300000\n")
    found, ignored = loaded("broker", path)
    assert ignored == ("mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue")
    assert found["store"] == StoreConfig()


def test_the_longest_timer_delay_is_upstreams(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("timerMaxDelaySec=2592000\n")
    assert loaded("broker", path)[0]["delivery"] == DeliveryConfig(timer_delay_max_ms=2_592_000_000)


def test_settings_that_upstream_counts_in_another_unit(tmp_path: Path) -> None:
    path = tmp_path / "bk_server.conf"
    path.write_text(
        "journalMaxSizeMB=3\ndbStorage_writeCacheMaxSizeMb=64\nminorCompactionThreshold=0.25\n"
        "minorCompactionInterval=60\ndiskUsageThreshold=0.9\nzkServers=zk1:2181,zk2:2181\n"
    )
    config = loaded("bookie", path)[0]["bookie"]
    assert config == BookieConfig(
        journal_max_size_bytes=3 << 20,
        write_cache_bytes=64 << 20,
        minor_compaction_threshold_percent=25,
        minor_compaction_interval_ms=60_000,
        disk_usage_threshold_percent=90,
        zk_servers="zk1:2181,zk2:2181",
    )
    assert isinstance(config, BookieConfig)
    assert config.cluster_address == "zk://zk1:2181,zk2:2181/ledgers"


@pytest.mark.parametrize("value", ["much", "1e99999999", "NaN", "Infinity"])
def test_a_wrong_number_in_another_unit_is_named(tmp_path: Path, value: str) -> None:
    path = tmp_path / "bk_server.conf"
    path.write_text(f"journalMaxSizeMB={value}\n")
    with pytest.raises(ConfigError, match=r"bk_server\.conf: journalMaxSizeMB"):
        loaded("bookie", path)


@pytest.mark.parametrize("path", ["/srv/mq/commitlog", "/srv/mq/commitlog/", "/srv/./mq/commitlog"])
def test_the_log_below_the_root_is_taken(path: str) -> None:
    assert BrokerConfig(store_path="/srv/mq", log_path=path).store_folder == "/srv/mq"


@pytest.mark.parametrize("path", ["/disk/log", "/srv/mq", "/srv/mq/commitlog,/disk/log"])
def test_a_log_elsewhere_is_rejected_with_the_way_out(path: str) -> None:
    with pytest.raises(ConfigError, match=f"ln -s {path} /srv/mq/commitlog"):
        BrokerConfig(store_path="/srv/mq", log_path=path)
