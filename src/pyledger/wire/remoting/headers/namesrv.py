"""Headers of requests to a name server, and of those it sends.

Source: RocketMQ remoting/.../protocol/header/namesrv/RegisterBrokerRequestHeader.java,
GetRouteInfoRequestHeader.java, QueryDataVersionRequestHeader.java, PutKVConfigRequestHeader.java.
"""

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.wire.remoting.headers.codec import Header, Int, Long, RpcHeader


@lazy_dataclass(kw_only=True)
class RegisterBrokerRequestHeader(Header):
    """103: a broker registers its topics."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0
    """`digest.body_crc` of the body as it was sent; 0 is not checked."""


@lazy_dataclass(kw_only=True)
class RegisterBrokerResponseHeader(Header):
    """To 103: the master's addresses, for a slave."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@lazy_dataclass(kw_only=True)
class UnRegisterBrokerRequestHeader(Header):
    """104: a broker leaves."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@lazy_dataclass(kw_only=True)
class BrokerHeartbeatRequestHeader(Header):
    """904: a broker is alive."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


@lazy_dataclass(kw_only=True)
class QueryDataVersionRequestHeader(Header):
    """322: does a broker have to register again?"""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@lazy_dataclass(kw_only=True)
class QueryDataVersionResponseHeader(Header):
    """To 322."""

    changed: bool


@lazy_dataclass(kw_only=True)
class RegisterTopicRequestHeader(RpcHeader):
    """217: add queues to a topic."""

    topic: str


@lazy_dataclass(kw_only=True)
class DeleteTopicFromNamesrvRequestHeader(RpcHeader):
    """216: forget a topic."""

    topic: str
    cluster_name: str | None = None


@lazy_dataclass(kw_only=True)
class WipeWritePermOfBrokerRequestHeader(Header):
    """205: forbid writes to a broker."""

    broker_name: str


@lazy_dataclass(kw_only=True)
class WipeWritePermOfBrokerResponseHeader(Header):
    """To 205."""

    wipe_topic_count: Int


@lazy_dataclass(kw_only=True)
class AddWritePermOfBrokerRequestHeader(Header):
    """327: all may write to a broker again."""

    broker_name: str


@lazy_dataclass(kw_only=True)
class AddWritePermOfBrokerResponseHeader(Header):
    """To 327."""

    add_topic_count: Int


@lazy_dataclass(kw_only=True)
class GetRouteInfoRequestHeader(RpcHeader):
    """105: which brokers have a topic?"""

    topic: str
    accept_standard_json_only: bool | None = None


@lazy_dataclass(kw_only=True)
class GetTopicsByClusterRequestHeader(RpcHeader):
    """224: topics of a cluster."""

    cluster: str


@lazy_dataclass(kw_only=True)
class PutKVConfigRequestHeader(Header):
    """100: store a pair."""

    namespace: str
    key: str
    value: str


@lazy_dataclass(kw_only=True)
class GetKVConfigRequestHeader(Header):
    """101: read a pair."""

    namespace: str
    key: str


@lazy_dataclass(kw_only=True)
class GetKVConfigResponseHeader(Header):
    """To 101."""

    value: str | None = None


@lazy_dataclass(kw_only=True)
class DeleteKVConfigRequestHeader(Header):
    """102: delete a pair."""

    namespace: str
    key: str


@lazy_dataclass(kw_only=True)
class GetKVListByNamespaceRequestHeader(Header):
    """219: all pairs of a namespace."""

    namespace: str


@lazy_dataclass(kw_only=True)
class GetBrokerMemberGroupRequestHeader(Header):
    """901: addresses under a broker name."""

    cluster_name: str
    broker_name: str


@lazy_dataclass(kw_only=True)
class NotifyMinBrokerIdChangeRequestHeader(Header):
    """905: another broker has the smallest id of its group."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
