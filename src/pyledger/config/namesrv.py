"""Settings of a name server. A default that differs from upstream's is explained at its field.

Source: RocketMQ common/.../NamesrvConfig.java, remoting/.../NettyServerConfig.java.
"""

from pyledger.config.fields import Fixed, check, setting, settings_class

FIXED = {
    "enableControllerInNamesrv": Fixed(
        ("false",), "there is no controller; use brokerRole, or enableDLegerCommitLog, of the brokers"
    ),
    "clusterTest": Fixed(("false",), "leave it off"),
    "useTLS": Fixed(("false",), "set tls.server.mode and the certificates, see docs/reference/config.md"),
}
"""Upstream's settings that decide how safe a name server is, and that cannot be changed here."""


@settings_class
class NamesrvConfig:
    """Where a name server listens, and how it keeps and returns routes."""

    host: str = setting("127.0.0.1", upstream="bindAddress")
    """Address to listen on. Upstream listens on all addresses; here that must be configured."""

    port: int = setting(9876, unit="ports", range=(0, 65535), upstream="listenPort")
    """Port to listen on; 0: a free port."""

    kv_config_path: str = setting("", upstream="kvConfigPath")
    """File of the KV config. Empty: `namesrv/kvConfig.json` in the home folder."""

    admin_enabled: bool = setting(False, upstream=None)
    """Serve requests that change the KV config, write permissions, topics or settings. Upstream always does;
    here, access to the port alone does not grant this right."""

    scan_interval_ms: int = setting(
        5000, unit="ms", range=(10, 3_600_000), upstream="scanNotActiveBrokerInterval"
    )
    """Interval at which brokers whose registration expired are removed."""

    unregister_queue_capacity: int = setting(
        3000, unit="requests", range=(1, 1 << 20), upstream="unRegisterBrokerQueueCapacity"
    )
    """Brokers whose removal may be pending at the same time; further requests are rejected."""

    support_acting_master: bool = setting(False, upstream="supportActingMaster")
    """In the route of a group without a master, list the slave with the smallest id as master, if the group
    requested it."""

    notify_min_broker_id_changed: bool = setting(False, upstream="notifyMinBrokerIdChanged")
    """Notify the brokers of a name when the smallest id among them changes."""

    delete_topic_with_broker_registration: bool = setting(False, upstream="deleteTopicWithBrokerRegistration")
    """Remove topics that a broker no longer registers. Brokers must then set `enableSingleTopicRegister`."""

    order_message_enable: bool = setting(False, upstream="orderMessageEnable")
    """Add the configuration of ordered topics to routes."""

    return_order_topic_config_to_broker: bool = setting(True, upstream="returnOrderTopicConfigToBroker")
    """Add the configuration of ordered topics to registration responses."""

    enable_all_topic_list: bool = setting(True, upstream="enableAllTopicList")
    """Serve the request for the names of all topics."""

    enable_topic_list: bool = setting(True, upstream="enableTopicList")
    """Serve requests for the names of some topics: those of a cluster, or of units."""

    need_wait_for_service: bool = setting(False, upstream="needWaitForService")
    """Reject requests for routes for some time after the start, until all brokers have registered."""

    wait_for_service_seconds: int = setting(
        45, unit="seconds", range=(0, 86_400), upstream="waitSecondsForService"
    )
    """How long requests for routes are rejected after the start."""

    config_black_list: str = setting(
        "configBlackList;configStorePath;kvConfigPath", upstream="configBlackList"
    )
    """Settings that a request cannot change, by upstream's names, separated by `;`."""

    def __post_init__(self) -> None:
        check(self)
