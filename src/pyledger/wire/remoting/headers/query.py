"""Headers of questions about messages and offsets. Offsets are queue offsets, times are milliseconds.

Source: RocketMQ remoting/.../protocol/header/QueryMessageRequestHeader.java,
QueryConsumerOffsetRequestHeader.java, UpdateConsumerOffsetRequestHeader.java, SearchOffsetRequestHeader.java.
"""

from enum import StrEnum

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.wire.remoting.headers.codec import Header, Int, Long, RpcHeader


class BoundaryType(StrEnum):
    """Which of several messages of one time is meant."""

    LOWER = "LOWER"
    UPPER = "UPPER"


@lazy_dataclass(kw_only=True)
class QueryMessageRequestHeader(RpcHeader):
    """12: messages by a key. `_UNIQUE_KEY_QUERY` travels beside it."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long


@lazy_dataclass(kw_only=True)
class QueryMessageResponseHeader(Header):
    """To 12."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


@lazy_dataclass(kw_only=True)
class ViewMessageRequestHeader(RpcHeader):
    """33: the message at a physical offset."""

    topic: str | None = None
    offset: Long
    """Physical offset."""


@lazy_dataclass(kw_only=True)
class QueryConsumerOffsetRequestHeader(RpcHeader):
    """14: the offset of a group."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


@lazy_dataclass(kw_only=True)
class QueryConsumerOffsetResponseHeader(Header):
    """To 14."""

    offset: Long


@lazy_dataclass(kw_only=True)
class UpdateConsumerOffsetRequestHeader(RpcHeader):
    """15: a group has come so far. The broker has its own answer to a missing number."""

    consumer_group: str
    topic: str
    queue_id: Int | None = None
    commit_offset: Long | None = None


@lazy_dataclass(kw_only=True)
class SearchOffsetRequestHeader(RpcHeader):
    """29: the queue offset of a time."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: BoundaryType = BoundaryType.LOWER


@lazy_dataclass(kw_only=True)
class SearchOffsetResponseHeader(Header):
    """To 29."""

    offset: Long


@lazy_dataclass(kw_only=True)
class GetMaxOffsetRequestHeader(RpcHeader):
    """30: the offset of a queue's next message."""

    topic: str
    queue_id: Int
    committed: bool = True


@lazy_dataclass(kw_only=True)
class GetMaxOffsetResponseHeader(Header):
    """To 30."""

    offset: Long


@lazy_dataclass(kw_only=True)
class GetMinOffsetRequestHeader(RpcHeader):
    """31: the offset of a queue's first message."""

    topic: str
    queue_id: Int


@lazy_dataclass(kw_only=True)
class GetMinOffsetResponseHeader(Header):
    """To 31."""

    offset: Long


@lazy_dataclass(kw_only=True)
class GetEarliestMsgStoretimeRequestHeader(RpcHeader):
    """32: when was the first message of a queue stored?"""

    topic: str
    queue_id: Int


@lazy_dataclass(kw_only=True)
class GetEarliestMsgStoretimeResponseHeader(Header):
    """To 32; -1 for none."""

    timestamp: Long


@lazy_dataclass(kw_only=True)
class QueryCorrectionOffsetRequestHeader(RpcHeader):
    """308: offsets that other groups hold back."""

    filter_groups: str | None = None
    compare_group: str
    topic: str
