"""Settings of a name server. Defaults are upstream's; where not, the docstring of the field says why.

Source: RocketMQ common/.../NamesrvConfig.java, remoting/.../NettyServerConfig.java.
"""

from dataclasses import dataclass

from pyledger.config.fields import Fixed, check, setting

FIXED = {
    "enableControllerInNamesrv": Fixed(
        ("false",), "there is no controller; use brokerRole, or enableDLegerCommitLog, of the brokers"
    ),
    "clusterTest": Fixed(("false",), "leave it off"),
    "useTLS": Fixed(("false",), "set tls.server.mode and the certificates, see docs/reference/config.md"),
}
"""Upstream's settings that decide how safe a name server is, and that cannot be changed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """What a name server listens on, and by which rules it keeps and answers routes."""

    host: str = setting("127.0.0.1", upstream="bindAddress")
    """Address to listen on. Upstream listens on all; here that has to be said."""

    port: int = setting(9876, unit="ports", range=(0, 65535), upstream="listenPort")
    """Port to listen on; 0 takes a free one."""

    kv_config_path: str = setting("", upstream="kvConfigPath")
    """File of the key-value table; empty is `namesrv/kvConfig.json` in the home folder."""

    admin_enabled: bool = setting(False, upstream=None)
    """Answer requests that change the key-value table, write permissions, topics or settings. Upstream always
    does; here whoever reaches the port must not be able to by default."""

    scan_interval_ms: int = setting(
        5000, unit="ms", range=(10, 3_600_000), upstream="scanNotActiveBrokerInterval"
    )
    """Pause between two searches for brokers that were silent for too long."""

    unregister_queue_capacity: int = setting(
        3000, unit="requests", range=(1, 1 << 20), upstream="unRegisterBrokerQueueCapacity"
    )
    """Brokers that can wait for their removal at one moment; more are answered with an error."""

    support_acting_master: bool = setting(False, upstream="supportActingMaster")
    """Show the slave with the smallest id as the master of a group that has none and asked for this."""

    notify_min_broker_id_changed: bool = setting(False, upstream="notifyMinBrokerIdChanged")
    """Tell the brokers of a name when the smallest id among them changes."""

    delete_topic_with_broker_registration: bool = setting(False, upstream="deleteTopicWithBrokerRegistration")
    """Forget topics that a broker no longer reports. Brokers must then set `enableSingleTopicRegister`."""

    order_message_enable: bool = setting(False, upstream="orderMessageEnable")
    """Add the configuration of ordered topics to routes."""

    return_order_topic_config_to_broker: bool = setting(True, upstream="returnOrderTopicConfigToBroker")
    """Add the configuration of ordered topics to the answer to a registration."""

    enable_all_topic_list: bool = setting(True, upstream="enableAllTopicList")
    """Answer the request for the names of all topics."""

    enable_topic_list: bool = setting(True, upstream="enableTopicList")
    """Answer requests for the names of some topics: of a cluster, or of units."""

    need_wait_for_service: bool = setting(False, upstream="needWaitForService")
    """Refuse routes for a while after the start, until all brokers had time to register."""

    wait_for_service_seconds: int = setting(
        45, unit="seconds", range=(0, 86_400), upstream="waitSecondsForService"
    )
    """How long routes are refused after the start."""

    config_black_list: str = setting(
        "configBlackList;configStorePath;kvConfigPath", upstream="configBlackList"
    )
    """Settings that a request cannot change, by upstream's names, separated by `;`."""

    def __post_init__(self) -> None:
        check(self)
