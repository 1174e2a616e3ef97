"""Settings of the broker's delivery rules. Defaults are upstream's; where not, the docstring says why.

Source: RocketMQ common/.../BrokerConfig.java; store/.../MessageStoreConfig.java.
"""

from dataclasses import dataclass

from pyledger.config.fields import check, setting

INT_MAX = (1 << 31) - 1
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryConfig:
    """How a broker serves producers and consumers."""

    long_polling: bool = setting(True, upstream="longPollingEnable")
    """Hold a pull that finds nothing until a message comes or its own time is over."""

    short_polling_ms: int = setting(1000, unit="ms", range=(1, DAY_MS), upstream="shortPollingTimeMills")
    """How long a pull is held where long polling is off."""

    parked_pulls_max: int = setting(100_000, unit="pulls", range=(1, INT_MAX), upstream=None)
    """Pulls held at once; one more is answered at once. Upstream has no bound."""

    channel_timeout_ms: int = setting(120_000, unit="ms", range=(1000, DAY_MS), upstream=None)
    """A client that sends no heartbeat for longer is removed and its connection closed."""

    subscription_timeout_ms: int = setting(
        600_000, unit="ms", range=(1000, DAY_MS), upstream="subscriptionExpiredTimeout"
    )
    """A subscription known from pulls alone is forgotten after this time."""

    queue_lock_timeout_ms: int = setting(
        60_000, unit="ms", range=(1000, DAY_MS), upstream="rocketmq.broker.rebalance.lockMaxLiveTime"
    )
    """A lock on a queue that its owner does not refresh is free after this time."""

    offset_version_step: int = setting(
        500, unit="commits", range=(1, INT_MAX), upstream="consumerOffsetUpdateVersionStep"
    )
    """Commits until the version of the offset table advances."""

    auto_create_topics: bool = setting(False, upstream="autoCreateTopicEnable")
    """A first send to an unknown topic creates it. Upstream's default is on; a mistyped name should fail."""

    trace_topic: bool = setting(False, upstream="traceTopicEnable")
    """There is a topic for the traces that clients write. Not needed where first sends create topics."""

    auto_create_groups: bool = setting(True, upstream="autoCreateSubscriptionGroup")
    """A first use of an unknown consumer group creates it."""

    auto_created_groups_max: int = setting(10_000, unit="groups", range=(1, INT_MAX), upstream=None)
    """With so many groups none is created by its first use any more; administrators still create some.
    Upstream has no bound, and a peer without rights could create any number, for ever."""

    auto_created_topics_max: int = setting(50_000, unit="topics", range=(1, INT_MAX), upstream=None)
    """With so many topics, those of groups included, none is created by its first message any more."""

    consumer_offsets_max: int = setting(1_000_000, unit="offsets", range=(1, INT_MAX), upstream=None)
    """With so many offsets, each of a group and a queue, a client's commit for a further queue is refused."""

    topic_queue_count: int = setting(8, unit="queues", range=(1, 65_535), upstream="defaultTopicQueueNums")
    """Queues of the template topic, thus at most of a topic that a send creates."""

    property_filter: bool = setting(False, upstream="enablePropertyFilter")
    """Serve SQL92 subscriptions."""

    slave_read: bool = setting(False, upstream="slaveReadEnable")
    """Let slaves serve pulls, and send consumers there that are far behind."""

    offset_check_on_slave: bool = setting(False, upstream="offsetCheckInSlave")
    """Let a slave correct a consumer's offset."""

    lite_pull: bool = setting(True, upstream="litePullMessageEnable")
    """Serve lite-pull consumers."""

    reject_transactions: bool = setting(False, upstream="rejectTransactionMessage")
    """Refuse half messages."""

    transaction_timeout_ms: int = setting(6000, unit="ms", range=(0, DAY_MS), upstream="transactionTimeOut")
    """Age at which a half message without an end is checked at its producer."""

    transaction_checks_max: int = setting(
        15, unit="checks", range=(1, 10_000), upstream="transactionCheckMax"
    )
    """Checks until a half message is given up."""

    transaction_check_interval_ms: int = setting(
        30_000, unit="ms", range=(100, DAY_MS), upstream="transactionCheckInterval"
    )
    """Time between two rounds of checks."""

    op_message_size_max_bytes: int = setting(
        4096, unit="bytes", range=(1, 1 << 20), upstream="transactionOpMsgMaxSize"
    )
    """Finished half messages are noted together until their text is longer."""

    op_batch_interval_ms: int = setting(
        3000, unit="ms", range=(1, DAY_MS), upstream="transactionOpBatchInterval"
    )
    """Finished half messages are noted at least this often."""

    store_replies: bool = setting(True, upstream="storeReplyMessageEnable")
    """Store replies to requests, too, after they are handed over."""

    recall: bool = setting(False, upstream="recallMessageEnable")
    """Let producers take back timer messages that wait."""

    timer_delay_max_ms: int = setting(
        259_200_000,
        unit="ms",
        range=(1000, 366 * DAY_MS),
        upstream="timerMaxDelaySec",
        upstream_factor=1000,
    )
    """Longest delay of a timer message, 3 days."""

    timer_messages_max: int = setting(1_000_000, unit="messages", range=(1, INT_MAX), upstream=None)
    """Timer messages that may wait; each takes some 200 bytes of memory. One more is refused."""

    timer_precision_ms: int = setting(1000, unit="ms", range=(100, 60_000), upstream="timerPrecisionMs")
    """Timer messages are due at multiples of this."""

    def __post_init__(self) -> None:
        check(self)
