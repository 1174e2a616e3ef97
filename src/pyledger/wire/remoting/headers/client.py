"""Headers between a broker and its clients: membership, and calls to a client.

Source: RocketMQ remoting/.../protocol/header/UnregisterClientRequestHeader.java,
GetConsumerListByGroupRequestHeader.java, ResetOffsetRequestHeader.java,
GetConsumerRunningInfoRequestHeader.java.
"""

from collections.abc import Mapping
from typing import ClassVar

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.wire.remoting.headers.codec import Header, Int, Long, RpcHeader


@lazy_dataclass(kw_only=True)
class HeartbeatResponseHeader(Header):
    """To 34."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "is_support_heart_beat_v2": "IS_SUPPORT_HEART_BEAT_V2",
        "is_sub_change": "IS_SUB_CHANGE",
    }

    is_support_heart_beat_v2: bool = True
    is_sub_change: bool = True


@lazy_dataclass(kw_only=True)
class UnregisterClientRequestHeader(RpcHeader):
    """35: a client leaves."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@lazy_dataclass(kw_only=True)
class GetConsumerListByGroupRequestHeader(RpcHeader):
    """38: who is in a group?"""

    consumer_group: str


@lazy_dataclass(kw_only=True)
class NotifyConsumerIdsChangedRequestHeader(RpcHeader):
    """40: the members of a group have changed."""

    consumer_group: str


@lazy_dataclass(kw_only=True)
class ResetOffsetRequestHeader(RpcHeader):
    """220 and 222: reset the offsets of a group."""

    topic: str
    group: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp: Long = 0
    is_force: bool = False


@lazy_dataclass(kw_only=True)
class GetConsumerStatusRequestHeader(RpcHeader):
    """221 and 223: the offsets of clients."""

    topic: str
    group: str
    client_addr: str | None = None


@lazy_dataclass(kw_only=True)
class GetConsumerRunningInfoRequestHeader(RpcHeader):
    """307: what does a client do?"""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@lazy_dataclass(kw_only=True)
class ConsumeMessageDirectlyResultRequestHeader(RpcHeader):
    """309: let one client consume one message."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
