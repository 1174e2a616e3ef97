"""Settings of the broker's delivery rules. A default that differs from upstream's is explained at its field.

Source: RocketMQ common/.../BrokerConfig.java; store/.../MessageStoreConfig.java.
"""

from pyledger.config.fields import check, setting, settings_class

INT_MAX = (1 << 31) - 1
DAY_MS = 86_400_000


@settings_class
class DeliveryConfig:
    """How a broker serves producers and consumers."""

    long_polling: bool = setting(True, upstream="longPollingEnable")
    """Hold a pull that finds no message until one arrives or the pull's timeout ends."""

    short_polling_ms: int = setting(1000, unit="ms", range=(1, DAY_MS), upstream="shortPollingTimeMills")
    """How long a pull is held if long polling is off."""

    parked_pulls_max: int = setting(100_000, unit="pulls", range=(1, INT_MAX), upstream=None)
    """Pulls held at the same time; further pulls are answered at once. Upstream has no limit."""

    channel_timeout_ms: int = setting(120_000, unit="ms", range=(1000, DAY_MS), upstream=None)
    """Time without a heartbeat after which a client is removed and its connection closed."""

    subscription_timeout_ms: int = setting(
        600_000, unit="ms", range=(1000, DAY_MS), upstream="subscriptionExpiredTimeout"
    )
    """Time after which a subscription that is known only from pulls is removed."""

    queue_lock_timeout_ms: int = setting(
        60_000, unit="ms", range=(1000, DAY_MS), upstream="rocketmq.broker.rebalance.lockMaxLiveTime"
    )
    """Time after which a queue lock that its owner did not renew expires."""

    offset_version_step: int = setting(
        500, unit="commits", range=(1, INT_MAX), upstream="consumerOffsetUpdateVersionStep"
    )
    """Offset commits after which the version of the offset table advances."""

    auto_create_topics: bool = setting(False, upstream="autoCreateTopicEnable")
    """Create an unknown topic at the first send. Upstream's default is on; here a misspelt topic is an
    error."""

    trace_topic: bool = setting(False, upstream="traceTopicEnable")
    """Create the topic to which clients write traces. Not needed with `auto_create_topics`."""

    auto_create_groups: bool = setting(True, upstream="autoCreateSubscriptionGroup")
    """Create an unknown consumer group at its first use."""

    auto_created_groups_max: int = setting(10_000, unit="groups", range=(1, INT_MAX), upstream=None)
    """Number of groups above which first use creates no further group; administrators still can. Upstream has
    no limit, so that a client without permissions can create any number of groups."""

    auto_created_topics_max: int = setting(50_000, unit="topics", range=(1, INT_MAX), upstream=None)
    """Number of topics, including those of groups, above which a first send creates no further topic."""

    consumer_offsets_max: int = setting(1_000_000, unit="offsets", range=(1, INT_MAX), upstream=None)
    """Number of offsets (one per group and queue) above which a commit for a further queue is rejected."""

    topic_queue_count: int = setting(8, unit="queues", range=(1, 65_535), upstream="defaultTopicQueueNums")
    """Queues of the template topic, and so the largest number of queues of a topic created by a send."""

    property_filter: bool = setting(False, upstream="enablePropertyFilter")
    """Serve SQL92 subscriptions."""

    slave_read: bool = setting(False, upstream="slaveReadEnable")
    """Let slaves serve pulls, and direct consumers with a large lag to them."""

    offset_check_on_slave: bool = setting(False, upstream="offsetCheckInSlave")
    """Let a slave correct a consumer's offset."""

    lite_pull: bool = setting(True, upstream="litePullMessageEnable")
    """Serve lite-pull consumers."""

    reject_transactions: bool = setting(False, upstream="rejectTransactionMessage")
    """Reject half messages."""

    transaction_timeout_ms: int = setting(6000, unit="ms", range=(0, DAY_MS), upstream="transactionTimeOut")
    """Age at which a half message without an outcome is checked with its producer."""

    transaction_checks_max: int = setting(
        15, unit="checks", range=(1, 10_000), upstream="transactionCheckMax"
    )
    """Checks after which a half message is discarded."""

    transaction_check_interval_ms: int = setting(
        30_000, unit="ms", range=(100, DAY_MS), upstream="transactionCheckInterval"
    )
    """Interval between two rounds of checks."""

    op_message_size_max_bytes: int = setting(
        4096, unit="bytes", range=(1, 1 << 20), upstream="transactionOpMsgMaxSize"
    )
    """Size of an operation message, which lists completed half messages, at which it is written."""

    op_batch_interval_ms: int = setting(
        3000, unit="ms", range=(1, DAY_MS), upstream="transactionOpBatchInterval"
    )
    """Longest time until a completed half message is listed in an operation message."""

    store_replies: bool = setting(True, upstream="storeReplyMessageEnable")
    """Also store replies to requests, after they were delivered."""

    recall: bool = setting(False, upstream="recallMessageEnable")
    """Let producers recall timer messages that were not delivered yet."""

    timer_delay_max_ms: int = setting(
        259_200_000,
        unit="ms",
        range=(1000, 366 * DAY_MS),
        upstream="timerMaxDelaySec",
        upstream_factor=1000,
    )
    """Longest delay of a timer message; the default is 3 days."""

    timer_messages_max: int = setting(1_000_000, unit="messages", range=(1, INT_MAX), upstream=None)
    """Timer messages that may be pending; each takes about 200 bytes of memory. Further ones are rejected."""

    timer_precision_ms: int = setting(1000, unit="ms", range=(100, 60_000), upstream="timerPrecisionMs")
    """Resolution of timer messages: they are delivered at multiples of this time."""

    def __post_init__(self) -> None:
        check(self)
