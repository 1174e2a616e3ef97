"""Routes, clusters and groups of brokers as a name server writes them.

A client of version 4.9.4 or later, or one that requests it, receives routes as standard JSON; all other
bodies, and routes for older clients, are fastjson's JSON.

Source: RocketMQ remoting/.../protocol/route/TopicRouteData.java, QueueData.java, BrokerData.java; body/
ClusterInfo.java, GetBrokerMemberGroupResponseBody.java; statictopic/TopicQueueMappingInfo.java.
"""

from collections.abc import Mapping
from dataclasses import field

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.route import ClusterRoutes, QueueMapping, QueueRoute, TopicRoute
from pyledger.wire.remoting.bodies.json_body import FOREIGN_NAMES, Body, Buffer, decode_body, encode_body
from pyledger.wire.remoting.headers.codec import Int
from pyledger.wire.remoting.versions import V4_9_4

FOREIGN_NAMES[QueueRoute] = {
    "read_queue_count": "readQueueNums",
    "write_queue_count": "writeQueueNums",
    "permission": "perm",
    "sys_flag": "topicSysFlag",
}
FOREIGN_NAMES[QueueMapping] = {"broker_name": "bname"}
FOREIGN_NAMES[TopicRoute] = {
    "queues": "queueDatas",
    "brokers": "brokerDatas",
    "filter_servers": "filterServerTable",
    "queue_mappings": "topicQueueMappingByBroker",
}
FOREIGN_NAMES[ClusterRoutes] = {"brokers": "brokerAddrTable", "clusters": "clusterAddrTable"}


@lazy_dataclass(kw_only=True)
class BrokerMembers(Body):
    """Addresses under one broker name; upstream's `BrokerMemberGroup`."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: Mapping[Int, str] = field(default_factory=dict)


@lazy_dataclass(kw_only=True)
class BrokerMembersResponse(Body):
    """To 901."""

    broker_member_group: BrokerMembers | None = None


def reads_standard_json(version: int, accept_standard_json_only: bool | None = None) -> bool:
    """Whether a client gets its routes as standard JSON."""
    return version >= V4_9_4 or bool(accept_standard_json_only)


def encode_route(route: TopicRoute, *, standard: bool) -> bytes:
    """Write the answer to 105."""
    return encode_body(route, standard=standard)


def decode_route(body: Buffer) -> TopicRoute:
    """Read the answer to 105, in either form.

    Raises:
        MalformedBodyError: it is none.
    """
    return decode_body(TopicRoute, body)


def encode_clusters(clusters: ClusterRoutes) -> bytes:
    """Write the answer to 106."""
    return encode_body(clusters)


def decode_clusters(body: Buffer) -> ClusterRoutes:
    """Read the answer to 106.

    Raises:
        MalformedBodyError: it is none.
    """
    return decode_body(ClusterRoutes, body)
