"""Headers of popping: messages that come back unless acknowledged in time. All times are milliseconds.

Source: RocketMQ remoting/.../protocol/header/PopMessageRequestHeader.java, AckMessageRequestHeader.java,
ChangeInvisibleTimeRequestHeader.java, NotificationRequestHeader.java, PeekMessageRequestHeader.java.
"""

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.wire.remoting.headers.codec import Header, Int, Long, RpcHeader


@lazy_dataclass(kw_only=True)
class PopMessageRequestHeader(RpcHeader):
    """200050: give me messages, and hide them from others for a time."""

    consumer_group: str
    topic: str
    queue_id: Int = 0
    """Negative: all queues."""
    max_msg_nums: Int = 0
    invisible_time: Long = 0
    poll_time: Long = 0
    born_time: Long = 0
    init_mode: Int = 0
    """Where a new group starts: 0 at the first message, 1 at the last."""
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


@lazy_dataclass(kw_only=True)
class PopMessageResponseHeader(Header):
    """To 200050 and 200052."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@lazy_dataclass(kw_only=True)
class AckMessageRequestHeader(RpcHeader):
    """200051: a popped message is done."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    """Queue offset."""


@lazy_dataclass(kw_only=True)
class ChangeInvisibleTimeRequestHeader(RpcHeader):
    """200053: hide a popped message for longer, or shorter."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    """Queue offset."""
    invisible_time: Long


@lazy_dataclass(kw_only=True)
class ChangeInvisibleTimeResponseHeader(Header):
    """To 200053."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int


@lazy_dataclass(kw_only=True)
class NotificationRequestHeader(RpcHeader):
    """200054: respond when there are messages."""

    consumer_group: str
    topic: str
    queue_id: Int = 0
    poll_time: Long = 0
    born_time: Long = 0
    order: bool = False
    attempt_id: str | None = None


@lazy_dataclass(kw_only=True)
class NotificationResponseHeader(Header):
    """To 200054."""

    has_msg: bool = False
    polling_full: bool = False


@lazy_dataclass(kw_only=True)
class PeekMessageRequestHeader(RpcHeader):
    """200052: show me messages without hiding them."""

    consumer_group: str
    topic: str
    queue_id: Int = 0
    max_msg_nums: Int = 0


@lazy_dataclass(kw_only=True)
class PollingInfoRequestHeader(RpcHeader):
    """200055: how many pops wait?"""

    consumer_group: str
    topic: str
    queue_id: Int = 0


@lazy_dataclass(kw_only=True)
class PollingInfoResponseHeader(Header):
    """To 200055."""

    polling_num: Int
