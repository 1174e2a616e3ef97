"""How large the body of each request may be, and as what a large one is read.

Reading JSON takes time in proportion to its size: some 40 ms a megabyte as clients write it, and up to a
second where it consists of objects of two bytes. So a body has a limit by its request code, and one that is
larger than `READ_AT_ONCE_MAX_BYTES` is read away from the thread that serves connections.

Upstream has no limit but that of the frame, nor have bodies that are messages, which have limits of their
own. A subscription takes some 150 bytes as Java writes it, a queue to lock 70, a topic 200.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyledger.model.remoting_codes import RequestCode
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.protocol.dledger.response_codes import APPEND_RAW, PUSH_RAW
from pyledger.protocol.dledger.response_codes import RequestCode as DLedgerCode
from pyledger.wire.remoting.bodies.heartbeat import Heartbeat
from pyledger.wire.remoting.bodies.membership import LockBatchRequest
from pyledger.wire.remoting.bodies.pop import BatchAckRequest
from pyledger.wire.remoting.bodies.topic_config import SubscriptionGroupList, TopicConfigList

READ_AT_ONCE_MAX_BYTES = 32 << 10


class BodyLimit(NamedTuple):
    """What holds for the bodies of one request code."""

    max_bytes: int
    kind: Any = None
    """What a handler reads it as; None: in a way of its own."""


DEFAULT = BodyLimit(64 << 10)
WHOLE_FRAME = BodyLimit(1 << 31)
LIMITS: Mapping[int, BodyLimit] = {
    RequestCode.HEART_BEAT: BodyLimit(1 << 20, Heartbeat),
    RequestCode.LOCK_BATCH_MQ: BodyLimit(512 << 10, LockBatchRequest),
    RequestCode.UNLOCK_BATCH_MQ: BodyLimit(512 << 10, LockBatchRequest),
    RequestCode.BATCH_ACK_MESSAGE: BodyLimit(256 << 10, BatchAckRequest),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: BodyLimit(1 << 20, TopicConfigList),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: BodyLimit(64 << 10, SubscriptionGroup),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: BodyLimit(1 << 20, SubscriptionGroupList),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: BodyLimit(256 << 10),
    # All topics of a broker; read in a thread by the name server.
    RequestCode.REGISTER_BROKER: WHOLE_FRAME,
    # Messages.
    RequestCode.SEND_MESSAGE: WHOLE_FRAME,
    RequestCode.SEND_MESSAGE_V2: WHOLE_FRAME,
    RequestCode.SEND_BATCH_MESSAGE: WHOLE_FRAME,
    RequestCode.SEND_REPLY_MESSAGE: WHOLE_FRAME,
    RequestCode.SEND_REPLY_MESSAGE_V2: WHOLE_FRAME,
    # To clients: messages, and the offsets of a group.
    RequestCode.CHECK_TRANSACTION_STATE: WHOLE_FRAME,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: WHOLE_FRAME,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: WHOLE_FRAME,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: BodyLimit(4 << 20),
    # Entries of a DLedger group.
    DLedgerCode.APPEND: WHOLE_FRAME,
    DLedgerCode.PUSH: WHOLE_FRAME,
    APPEND_RAW: WHOLE_FRAME,
    PUSH_RAW: WHOLE_FRAME,
}


def limit_of(code: int) -> BodyLimit:
    """What holds for the bodies of a request code."""
    return LIMITS.get(code, DEFAULT)


def too_large(code: int, size_bytes: int) -> str | None:
    """Why a body of this size is rejected; None: it is not."""
    max_bytes = limit_of(code).max_bytes
    if size_bytes <= max_bytes:
        return None
    return f"the body of request {code} has {size_bytes} bytes, of {max_bytes} at most"
