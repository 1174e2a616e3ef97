"""What is counted, at brokers and at consumers. Times are milliseconds.

Source: RocketMQ remoting/.../protocol/admin/ConsumeStats.java, TopicStatsTable.java; protocol/body/
BrokerStatsData.java, ConsumerRunningInfo.java, ProcessQueueInfo.java, ConsumeStatus.java,
ConsumeMessageDirectlyResult.java.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, ClassVar

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.message import MessageQueue
from pyledger.model.topic import NO_VERSION, DataVersion
from pyledger.wire.remoting.bodies.json_body import Body
from pyledger.wire.remoting.bodies.subscription import Subscription
from pyledger.wire.remoting.headers.codec import Int, Long, Real


@lazy_dataclass(kw_only=True)
class TopicOffset(Body):
    """A queue of a topic."""

    min_offset: Long = 0
    max_offset: Long = 0
    last_update_timestamp: Long = 0


@lazy_dataclass(kw_only=True)
class TopicStatsTable(Body):
    """To 202."""

    offset_table: Mapping[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: Real | None = None
    """Missing before 5.0."""


@lazy_dataclass(kw_only=True)
class ConsumeOffset(Body):
    """A queue as a group sees it; upstream's `OffsetWrapper`."""

    broker_offset: Long = 0
    consumer_offset: Long = 0
    pull_offset: Long = 0
    last_timestamp: Long = 0


@lazy_dataclass(kw_only=True)
class ConsumeStats(Body):
    """To 208."""

    offset_table: Mapping[MessageQueue, ConsumeOffset] = field(default_factory=dict)
    consume_tps: Real = 0.0


@lazy_dataclass(kw_only=True)
class BrokerConsumeStats(Body):
    """To 317: all groups of a broker; upstream's `ConsumeStatsList`."""

    broker_addr: str | None = None
    consume_stats_list: tuple[Mapping[str, tuple[ConsumeStats, ...]], ...] = ()
    """Each by its group, a part for each topic."""
    total_diff: Long = 0
    """Messages that were not consumed."""
    total_inflight_diff: Long = 0
    """Messages that were pulled and not consumed."""


@lazy_dataclass(kw_only=True)
class StatsItem(Body):
    """A count over a span of time; upstream's `BrokerStatsItem`."""

    sum: Long = 0
    tps: Real = 0.0
    avgpt: Real = 0.0
    """Average of a count."""


@lazy_dataclass(kw_only=True)
class BrokerStats(Body):
    """To 315; upstream's `BrokerStatsData`."""

    stats_minute: StatsItem | None = None
    stats_hour: StatsItem | None = None
    stats_day: StatsItem | None = None


@lazy_dataclass(kw_only=True)
class TimerCount(Body):
    """Waiting messages of a topic; upstream's `TimerMetrics.Metric`."""

    count: Long = 0
    time_stamp: Long = 0


@lazy_dataclass(kw_only=True)
class TimerMetrics(Body):
    """To 61."""

    timing_count: Mapping[str, TimerCount] = field(default_factory=dict)
    data_version: DataVersion = NO_VERSION


@lazy_dataclass(kw_only=True)
class ProcessQueueState(Body):
    """A queue within a consumer; upstream's `ProcessQueueInfo`."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"cached_msg_size_in_mib": "cachedMsgSizeInMiB"}

    commit_offset: Long = 0
    cached_msg_min_offset: Long = 0
    cached_msg_max_offset: Long = 0
    cached_msg_count: Int = 0
    cached_msg_size_in_mib: Int = 0
    transaction_msg_min_offset: Long = 0
    transaction_msg_max_offset: Long = 0
    transaction_msg_count: Int = 0
    locked: bool = False
    try_unlock_times: Long = 0
    last_lock_timestamp: Long = 0
    droped: bool = False
    last_pull_timestamp: Long = 0
    last_consume_timestamp: Long = 0


@lazy_dataclass(kw_only=True)
class PopProcessQueueState(Body):
    """A popped queue within a consumer; upstream's `PopProcessQueueInfo`."""

    wait_ack_count: Int = 0
    droped: bool = False
    last_pop_timestamp: Long = 0


@lazy_dataclass(kw_only=True)
class ConsumeStatus(Body):
    """How fast a consumer works on a topic."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "pull_rt": "pullRT",
        "pull_tps": "pullTPS",
        "consume_rt": "consumeRT",
        "consume_ok_tps": "consumeOKTPS",
        "consume_failed_tps": "consumeFailedTPS",
    }

    pull_rt: Real = 0.0
    pull_tps: Real = 0.0
    consume_rt: Real = 0.0
    consume_ok_tps: Real = 0.0
    consume_failed_tps: Real = 0.0
    consume_failed_msgs: Long = 0


@lazy_dataclass(kw_only=True)
class ConsumerRunning(Body):
    """To 307: all about one consumer; upstream's `ConsumerRunningInfo`."""

    properties: Mapping[str, str] = field(default_factory=dict)
    """`PROP_CONSUME_TYPE`, `PROP_CLIENT_VERSION` and others, and the consumer's settings."""
    subscription_set: tuple[Subscription, ...] = ()
    mq_table: Mapping[MessageQueue, ProcessQueueState] = field(default_factory=dict)
    mq_pop_table: Mapping[MessageQueue, PopProcessQueueState] = field(default_factory=dict)
    status_table: Mapping[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: Mapping[str, Any] = field(default_factory=dict)
    jstack: str | None = None


class ConsumeResult(StrEnum):
    """What became of a message that was consumed by order; upstream's `CMResult`."""

    SUCCESS = "CR_SUCCESS"
    LATER = "CR_LATER"
    ROLLBACK = "CR_ROLLBACK"
    COMMIT = "CR_COMMIT"
    THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    RETURN_NULL = "CR_RETURN_NULL"


@lazy_dataclass(kw_only=True)
class ConsumeMessageDirectlyResult(Body):
    """To 309."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_time_mills: Long = 0
