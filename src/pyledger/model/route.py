"""What brokers report to a name server, and what it returns to clients: plain values.

Each docstring gives upstream's class name; fields are named as in `TopicConfig`, or as upstream names them,
in snake case.

Source: RocketMQ remoting/.../protocol/route, remoting/.../protocol/statictopic, RouteInfoManager.java.
"""

from collections.abc import Mapping
from dataclasses import field

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.topic import DataVersion, Permission

MASTER_ID = 0
FLAG_UNIT = 1
FLAG_UNIT_SUBSCRIPTION = 2
ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"


@lazy_dataclass()
class QueueRoute:
    """Queues of one topic on the brokers of one name; upstream's `QueueData`."""

    broker_name: str
    read_queue_count: int
    write_queue_count: int
    permission: Permission
    sys_flag: int = 0


@lazy_dataclass()
class BrokerRoute:
    """Brokers of one name, a master and its slaves; upstream's `BrokerData`."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str] = field(default_factory=dict)
    """Address (`ip:port`) by broker id, smallest first; 0 is the master."""
    enable_acting_master: bool = False
    zone_name: str | None = None


@lazy_dataclass()
class QueueMapping:
    """The queues of one broker name in a static topic; upstream's `TopicQueueMappingInfo`."""

    topic: str
    broker_name: str
    total_queues: int
    epoch: int
    curr_id_map: Mapping[int, int] = field(default_factory=dict)
    """Global queue id by the broker's own queue id."""
    scope: str = "__global__"
    dirty: bool = False


@lazy_dataclass()
class TopicRoute:
    """Queues and brokers of one topic; upstream's `TopicRouteData`."""

    queues: tuple[QueueRoute, ...] = ()
    brokers: tuple[BrokerRoute, ...] = ()
    filter_servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By broker address."""
    order_topic_conf: str | None = None
    """`broker:queues;broker:queues` of an ordered topic."""
    queue_mappings: Mapping[str, QueueMapping] | None = None
    """By broker name; None for a topic that is not static."""


@lazy_dataclass()
class ClusterRoutes:
    """All brokers and clusters; upstream's `ClusterInfo`."""

    brokers: Mapping[str, BrokerRoute]
    """By broker name."""
    clusters: Mapping[str, tuple[str, ...]]
    """Broker names by cluster."""


@lazy_dataclass()
class BrokerIdentity:
    """Identity of a broker in each of its requests to a name server."""

    cluster: str
    broker_name: str
    broker_addr: str
    broker_id: int


@lazy_dataclass()
class Registration:
    """One registration, full or of changed topics only."""

    broker: BrokerIdentity
    topics: Mapping[str, QueueRoute]
    data_version: DataVersion = field(default_factory=DataVersion)
    ha_server_addr: str | None = None
    queue_mappings: Mapping[str, QueueMapping] = field(default_factory=dict)
    """By topic."""
    filter_servers: tuple[str, ...] | None = None
    """None: the registration does not contain them (before version 37)."""
    heartbeat_timeout_ms: int | None = None
    enable_acting_master: bool | None = None
    """None: the broker does not support acting masters (before 5.0)."""
    zone_name: str | None = None


@lazy_dataclass()
class MinBrokerIdChange:
    """Notification to brokers of one name that their smallest id has changed."""

    min_broker_id: int
    min_broker_addr: str
    targets: tuple[str, ...]
    """Addresses to notify."""
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@lazy_dataclass()
class Registered:
    """Response to a registration: the master of a slave, and the notifications to send."""

    master_addr: str | None = None
    ha_server_addr: str | None = None
    notices: tuple[MinBrokerIdChange, ...] = ()


@lazy_dataclass()
class ExpiredBroker:
    """A broker whose heartbeats stopped: its channel must be closed."""

    cluster: str
    broker_addr: str
    channel: object
    silent_ms: int
