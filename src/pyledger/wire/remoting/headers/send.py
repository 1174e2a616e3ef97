"""Headers of sending, of replies, and of what a sent message may still meet: recall, send-back, transactions.

Source: RocketMQ remoting/.../protocol/header/SendMessageRequestHeader.java, SendMessageRequestHeaderV2.java,
ReplyMessageRequestHeader.java, ConsumerSendMsgBackRequestHeader.java, EndTransactionRequestHeader.java.
"""

from collections.abc import Mapping
from typing import ClassVar

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.remoting.headers.codec import Header, Int, Long, RpcHeader


@lazy_dataclass(kw_only=True)
class SendMessageRequestHeader(RpcHeader):
    """10, 324 with long names; 310, 320, 325 with one letter for each."""

    SHORT_CODES: ClassVar[frozenset[int]] = frozenset(
        {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
    )
    SHORT_NAMES: ClassVar[Mapping[str, str]] = {
        "producer_group": "a",
        "topic": "b",
        "default_topic": "c",
        "default_topic_queue_nums": "d",
        "queue_id": "e",
        "sys_flag": "f",
        "born_timestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsume_times": "j",
        "unit_mode": "k",
        "max_reconsume_times": "l",
        "batch": "m",
        "bname": "n",
    }

    producer_group: str
    topic: str
    default_topic: str
    """The topic whose settings a new topic takes."""
    default_topic_queue_nums: Int
    queue_id: Int
    """Negative: the broker draws one."""
    sys_flag: Int
    born_timestamp: Long
    """Milliseconds, by the client's clock."""
    flag: Int
    properties: str | None = None
    """Encoded, see `pyledger.wire.record.properties`."""
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int | None = None
    batch: bool | None = None


@lazy_dataclass(kw_only=True)
class SendMessageResponseHeader(Header):
    """To 10, 310, 320, 324, 325. `MSG_REGION` and `TRACE_ON` travel beside it."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@lazy_dataclass(kw_only=True)
class ReplyMessageRequestHeader(RpcHeader):
    """326: a broker hands a reply to the client that waits for it."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    born_host: str
    store_host: str
    store_timestamp: Long


@lazy_dataclass(kw_only=True)
class RecallMessageRequestHeader(RpcHeader):
    """370: take back a message that waits for its time."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


@lazy_dataclass(kw_only=True)
class RecallMessageResponseHeader(Header):
    """To 370."""

    msg_id: str


@lazy_dataclass(kw_only=True)
class ConsumerSendMsgBackRequestHeader(RpcHeader):
    """36: a consumer could not process a message."""

    offset: Long
    """Physical offset of the message."""
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


@lazy_dataclass(kw_only=True)
class EndTransactionRequestHeader(RpcHeader):
    """37: a producer decides about a half message."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    """Queue offset of the half message."""
    commit_log_offset: Long
    """Physical offset of the half message."""
    commit_or_rollback: Int
    """8 commits, 12 rolls back, 0 leaves it open."""
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


@lazy_dataclass(kw_only=True)
class CheckTransactionStateRequestHeader(RpcHeader):
    """39: a broker checks the state of a transaction at its producer."""

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
