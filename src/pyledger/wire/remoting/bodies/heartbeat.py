"""The heartbeat that a client sends every 30 seconds.

Source: RocketMQ remoting/.../protocol/heartbeat/HeartbeatData.java, ConsumerData.java, ProducerData.java.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.wire.remoting.bodies.json_body import Body
from pyledger.wire.remoting.bodies.subscription import Subscription
from pyledger.wire.remoting.headers.codec import Int


class ConsumeType(StrEnum):
    """How a group gets its messages."""

    ACTIVELY = "CONSUME_ACTIVELY"
    """It pulls."""
    PASSIVELY = "CONSUME_PASSIVELY"
    """It is pushed to."""
    POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Which members of a group get a message."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group starts that has no offsets yet."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    LAST_OFFSET_AND_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@lazy_dataclass(kw_only=True)
class ProducerEntry(Body):
    """A producer group of a client; upstream's `ProducerData`."""

    group_name: str | None = None


@lazy_dataclass(kw_only=True)
class ConsumerEntry(Body):
    """A consumer group of a client; upstream's `ConsumerData`."""

    group_name: str | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: tuple[Subscription, ...] = ()
    unit_mode: bool = False


@lazy_dataclass(kw_only=True)
class Heartbeat(Body):
    """34: upstream's `HeartbeatData`."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str | None = None
    producer_data_set: tuple[ProducerEntry, ...] = ()
    consumer_data_set: tuple[ConsumerEntry, ...] = ()
    heartbeat_fingerprint: Int = 0
    """Not 0: the second kind of heartbeat, which may leave subscriptions out."""
    without_sub: bool = False
    """Subscriptions are as they were."""
