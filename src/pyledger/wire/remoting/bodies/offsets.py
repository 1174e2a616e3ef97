"""Offsets of groups and queues, in the forms in which they travel. All are queue offsets.

Source: RocketMQ remoting/.../protocol/body/ResetOffsetBody.java, ResetOffsetBodyForC.java,
GetConsumerStatusBody.java, ConsumerOffsetSerializeWrapper.java, QueryCorrectionOffsetBody.java,
QueryConsumeQueueResponseBody.java.
"""

from collections.abc import Mapping
from dataclasses import field

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.message import MessageQueue
from pyledger.model.topic import NO_VERSION, DataVersion
from pyledger.wire.remoting.bodies.json_body import Body
from pyledger.wire.remoting.bodies.subscription import Subscription
from pyledger.wire.remoting.headers.codec import Int, Long


@lazy_dataclass(kw_only=True)
class QueueOffsets(Body):
    """220 and to 222: the offsets at which a group must continue; upstream's `ResetOffsetBody`."""

    offset_table: Mapping[MessageQueue, Long] = field(default_factory=dict)


@lazy_dataclass(kw_only=True)
class ConsumerStatus(Body):
    """To 221 and 223: the offsets of clients; upstream's `GetConsumerStatusBody`."""

    message_queue_table: Mapping[MessageQueue, Long] = field(default_factory=dict)
    consumer_table: Mapping[str, Mapping[MessageQueue, Long]] = field(default_factory=dict)
    """By client id."""


@lazy_dataclass(kw_only=True)
class ConsumerOffsetTable(Body):
    """To 43: all offsets of a broker, by `topic@group` and queue id."""

    offset_table: Mapping[str, Mapping[Int, Long]] = field(default_factory=dict)
    group_topic_map: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data_version: DataVersion = NO_VERSION


@lazy_dataclass(kw_only=True)
class DelayOffsetTable(Body):
    """To 45: the next offset to deliver, by delay level."""

    offset_table: Mapping[Int, Long] = field(default_factory=dict)
    data_version: DataVersion = NO_VERSION


@lazy_dataclass(kw_only=True)
class CorrectionOffsets(Body):
    """To 308: by queue id."""

    correction_offsets: Mapping[Int, Long] = field(default_factory=dict)


@lazy_dataclass(kw_only=True)
class QueueUnit(Body):
    """A unit of a consume queue; upstream's `ConsumeQueueData`."""

    physic_offset: Long = 0
    physic_size: Int = 0
    tags_code: Long = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@lazy_dataclass(kw_only=True)
class QueueUnits(Body):
    """To 321; upstream's `QueryConsumeQueueResponseBody`."""

    subscription_data: Subscription | None = None
    filter_data: str | None = None
    queue_data: tuple[QueueUnit, ...] | None = None
    max_queue_index: Long = 0
    min_queue_index: Long = 0
