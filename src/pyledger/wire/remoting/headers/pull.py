"""Headers of pulling.

Source: RocketMQ remoting/.../protocol/header/PullMessageRequestHeader.java, PullMessageResponseHeader.java.
"""

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.wire.remoting.headers.codec import Header, Int, Long, RpcHeader


@lazy_dataclass(kw_only=True)
class PullMessageRequestHeader(RpcHeader):
    """11 and 361: give me messages of a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    """Bits of `pyledger.model.sys_flag`: commit, suspend, subscription, class filter, lite."""
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None


@lazy_dataclass(kw_only=True)
class PullMessageResponseHeader(Header):
    """To 11 and 361, found or not."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None
