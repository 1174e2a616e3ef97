"""Taking a timer message back: the handle that its sender was given, and the message that recalls it.

Source: RocketMQ broker/.../RecallMessageProcessor.java; common/.../RecallMessageHandle.java.
"""

import base64
import binascii
from typing import Self

from pyledger.config.delivery import DeliveryConfig
from pyledger.model import names
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.remoting_codes import ResponseCode
from pyledger.protocol.broker.broker_state import BrokerState
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.topics import BrokerTopics

HANDLE_VERSION = "v1"
RECALL_BODY = b"0"
RECALL_TAG = "_RECALL_TAG_"
UNAVAILABLE = "recall failed, broker service not available"


@lazy_dataclass()
class RecallHandle:
    """Names one timer message; clients see it as text without meaning."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str

    def encode(self) -> str:
        """The handle for a response. Its time is a ms late, so that it is floored to the message's own."""
        parts = (HANDLE_VERSION, self.topic, self.broker_name, str(self.deliver_ms + 1), self.unique_key)
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self | None:
        """The message that a handle names; None: it is none."""
        try:
            parts = base64.urlsafe_b64decode(text).decode().split(" ")
        except (binascii.Error, ValueError):
            return None
        if len(parts) != 5 or parts[0] != HANDLE_VERSION or not (parts[3].isascii() and parts[3].isdecimal()):
            return None
        return cls(parts[1], parts[2], int(parts[3][:19]) - 1, parts[4])


def check_recall(
    topic: str,
    handle_text: str,
    *,
    broker_state: BrokerState,
    topics: BrokerTopics,
    config: DeliveryConfig,
    now_ms: int,
) -> RecallHandle | Rejection:
    """Whether a message may be recalled; if so, send `recall_properties` with `RECALL_BODY` to its topic."""
    if not config.recall:
        return Rejection(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
    if broker_state.slave:
        return Rejection(ResponseCode.SLAVE_NOT_AVAILABLE, UNAVAILABLE)
    if now_ms < broker_state.accept_sends_from_ms or not broker_state.writable:
        return Rejection(ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE)
    return check_handle(topic, handle_text, broker_state, topics, config, now_ms)


def check_handle(
    topic: str,
    handle_text: str,
    broker_state: BrokerState,
    topics: BrokerTopics,
    config: DeliveryConfig,
    now_ms: int,
) -> RecallHandle | Rejection:
    """Whether a handle names a message of a topic that this broker may still have."""
    if topics.find(topic) is None:
        return Rejection(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
    handle = RecallHandle.decode(handle_text)
    if handle is None:
        return Rejection(ResponseCode.ILLEGAL_OPERATION, "recall failed, recall handle is invalid")
    if handle.topic != topic:
        return Rejection(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
    if handle.broker_name != broker_state.broker_name:
        return Rejection(ResponseCode.ILLEGAL_OPERATION, UNAVAILABLE)
    if not 0 < handle.deliver_ms + 1 - now_ms < config.timer_delay_max_ms:
        return Rejection(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
    return handle


def recall_properties(handle: RecallHandle, group: str) -> dict[str, str]:
    """The properties of the message that recalls another."""
    return {
        names.TAGS: RECALL_TAG,
        names.TIMER_DELETE_UNIQUE_KEY: handle.unique_key,
        names.UNIQUE_KEY: handle.unique_key,
        names.TIMER_DELIVER_MS: str(handle.deliver_ms + 1),
        **({names.PRODUCER_GROUP: group} if group else {}),
    }
