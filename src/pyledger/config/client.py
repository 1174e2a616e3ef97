"""Settings of clients, producers and consumers. Defaults that differ from upstream's are explained.

Source: RocketMQ client/.../ClientConfig.java, producer/DefaultMQProducer.java,
consumer/DefaultMQPushConsumer.java, DefaultMQPullConsumer.java.
"""

from pyledger.config.fields import check, setting, settings_class
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
DAY_MS = 86_400_000
MIB = 1 << 20


@settings_class
class ClientConfig:
    """Settings that the producers and consumers of one process share."""

    name_servers: str = setting("", upstream="rocketmq.namesrv.addr")
    """`host:port;host:port`. Empty: the variable `NAMESRV_ADDR`, otherwise 127.0.0.1:9876."""

    instance_name: str = setting("", upstream="rocketmq.client.name")
    """Part of the client id. Empty: a unique name; for broadcasting consumers `DEFAULT`, so that they find
    their offsets after a restart."""

    unit_name: str = setting("", upstream="unitName")
    """Part of the client id, for deployments in units."""

    poll_name_server_interval_ms: int = setting(
        30_000, unit="ms", range=(100, DAY_MS), upstream="pollNameServerInterval"
    )
    """Interval at which the routes in use are fetched again."""

    heartbeat_interval_ms: int = setting(
        30_000, unit="ms", range=(100, DAY_MS), upstream="heartbeatBrokerInterval"
    )
    """Interval between two heartbeats."""

    persist_offsets_interval_ms: int = setting(
        5000, unit="ms", range=(100, DAY_MS), upstream="persistConsumerOffsetInterval"
    )
    """Interval at which consumers commit their offsets to the brokers."""

    api_timeout_ms: int = setting(3000, unit="ms", range=(100, DAY_MS), upstream="mqClientApiTimeout")
    """Timeout of requests other than sends and pulls."""

    offsets_folder: str = setting("", upstream="rocketmq.client.localOffsetStoreDir")
    """Folder in which broadcasting consumers keep their offsets. Empty: `.rocketmq_offsets` in the home
    folder."""

    header: str = setting(
        "json", choices={"json": "JSON", "binary": "ROCKETMQ"}, upstream="rocketmq.serialize.type"
    )
    """Encoding of the headers of sends. `binary` is shorter and costs both sides less."""

    access_key: str = setting("", upstream="AccessKey")
    """Access key that signs requests; empty: requests are not signed."""

    secret_key: str = setting("", upstream="SecretKey")
    """Key with which requests are signed; never logged."""

    security_token: str = setting("", upstream="SecurityToken")
    """Token sent with signed requests if the server requires one; never logged."""

    trace_enabled: bool = setting(False, upstream="enableTrace")
    """Producers and push consumers record where each message was sent and consumed, for `mqadmin
    queryMsgTraceById`."""

    trace_topic: str = setting("RMQ_SYS_TRACE_TOPIC", upstream="traceTopic")
    """Topic to which traces are written."""

    def __post_init__(self) -> None:
        check(self)
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("access_key", "needs secret_key, and the other way round")

    def __repr__(self) -> str:  # without the secret key
        return f"ClientConfig(name_servers={self.name_servers!r}, access_key={self.access_key!r})"


@settings_class
class ProducerConfig:
    """How a producer sends messages."""

    send_timeout_ms: int = setting(3000, unit="ms", range=(1, DAY_MS), upstream="sendMsgTimeout")
    """Timeout of one send, including all its attempts."""

    retries: int = setting(2, unit="retries", range=(0, 100), upstream="retryTimesWhenSendFailed")
    """Attempts after the first one, each at another broker if there is one."""

    retry_when_not_stored_ok: bool = setting(False, upstream="retryAnotherBrokerWhenNotStoreOK")
    """Retry at another broker when a broker has stored the message but did not flush or replicate it in time.
    The message is then stored twice."""

    compress_above_bytes: int = setting(
        4096, unit="bytes", range=(0, INT_MAX), upstream="compressMsgBodyOverHowmuch"
    )
    """Size from which bodies are compressed."""

    compression: str = setting(
        "zlib",
        choices={"none": "NONE", "zlib": "ZLIB", "lz4": "LZ4", "zstd": "ZSTD"},
        upstream="rocketmq.message.compressType",
    )
    """Compression of bodies."""

    compression_level: int = setting(
        5, unit="levels", range=(0, 9), upstream="rocketmq.message.compressLevel"
    )
    """Level of zlib and zstd; 0: the library's default."""

    message_size_max_bytes: int = setting(
        4 * MIB, unit="bytes", range=(1, INT_MAX), upstream="maxMessageSize"
    )
    """Largest body, before compression."""

    template_topic: str = setting("TBW102", upstream="createTopicKey")
    """Topic whose settings a topic inherits when a first send creates it, if the broker allows that."""

    topic_queue_count: int = setting(4, unit="queues", range=(1, 65_535), upstream="defaultTopicQueueNums")
    """Queues of such a topic at most."""

    latency_faults: bool = setting(False, upstream="sendLatencyFaultEnable")
    """Avoid brokers that were recently slow or failed."""

    sends_in_flight_max: int = setting(
        1024, unit="sends", range=(1, INT_MAX), upstream="backPressureForAsyncSendNum"
    )
    """Sends in flight; further sends wait. Upstream has no limit by default."""

    def __post_init__(self) -> None:
        check(self)


@settings_class
class ConsumerConfig:
    """How a consumer of a group receives messages."""

    message_model: str = setting(
        "clustering",
        choices={"clustering": "CLUSTERING", "broadcasting": "BROADCASTING"},
        upstream="messageModel",
    )
    """`clustering`: the members of a group share the messages. `broadcasting`: every member receives all of
    them."""

    consume_from: str = setting(
        "last_offset",
        choices={
            "last_offset": "CONSUME_FROM_LAST_OFFSET",
            "first_offset": "CONSUME_FROM_FIRST_OFFSET",
            "timestamp": "CONSUME_FROM_TIMESTAMP",
        },
        upstream="consumeFromWhere",
    )
    """Where a group starts in a queue that it has not consumed before."""

    consume_timestamp_ms: int = setting(0, unit="ms", range=(0, (1 << 63) - 1), upstream=None)
    """Time from which `timestamp` starts, ms since 1970; 0: 30 minutes before the start. Upstream's
    `consumeTimestamp` is a text in local time."""

    threads: int = setting(20, unit="threads", range=(1, 1024), upstream="consumeThreadMax")
    """Listener calls that run at the same time."""

    batch_count_max: int = setting(1, unit="messages", range=(1, 1024), upstream="consumeMessageBatchMaxSize")
    """Messages that one listener call receives at most."""

    pull_batch_count: int = setting(32, unit="messages", range=(1, 1024), upstream="pullBatchSize")
    """Messages that one pull requests."""

    pull_batch_bytes: int = setting(
        262_144, unit="bytes", range=(1, INT_MAX), upstream="pullBatchSizeInBytes"
    )
    """Bytes that one pull requests; brokers may ignore it."""

    pull_interval_ms: int = setting(0, unit="ms", range=(0, 65_535), upstream="pullInterval")
    """Pause between two pulls from a queue."""

    cached_count_max: int = setting(
        1000, unit="messages", range=(1, 65_535), upstream="pullThresholdForQueue"
    )
    """Messages of one queue that the client buffers; at this number, pulls from the queue pause."""

    cached_mib_max: int = setting(100, unit="MiB", range=(1, 1024), upstream="pullThresholdSizeForQueue")
    """Size of the bodies of one queue that the client buffers; at this size, pulls from the queue pause."""

    span_max: int = setting(2000, unit="messages", range=(1, 65_535), upstream="consumeConcurrentlyMaxSpan")
    """Largest distance in queue offsets from the first buffered message to the last. One slow message stops
    the queue at this distance."""

    reconsume_times_max: int = setting(-1, unit="times", range=(-1, INT_MAX), upstream="maxReconsumeTimes")
    """Failures after which a message is moved to the dead-letter topic; -1: 16, and unlimited for orderly
    listeners."""

    suspend_ms: int = setting(1000, unit="ms", range=(10, 30_000), upstream="suspendCurrentQueueTimeMillis")
    """Pause of a queue after its orderly listener failed."""

    consume_timeout_minutes: int = setting(15, unit="minutes", range=(1, 1440), upstream="consumeTimeout")
    """Time after which a message whose listener has not returned is sent back to the broker."""

    shutdown_wait_ms: int = setting(
        10_000, unit="ms", range=(0, DAY_MS), upstream="awaitTerminationMillisWhenShutdown"
    )
    """How long a shutdown waits for running listeners. Upstream's default is 0, after which other members
    consume the same messages again."""

    suspend_timeout_ms: int = setting(
        15_000, unit="ms", range=(1, DAY_MS), upstream="brokerSuspendMaxTimeMillis"
    )
    """How long a broker may hold a pull that finds no message. Fixed in upstream's push consumer."""

    pull_timeout_ms: int = setting(
        30_000, unit="ms", range=(1, DAY_MS), upstream="consumerTimeoutMillisWhenSuspend"
    )
    """Timeout of a pull; must be longer than `suspend_timeout_ms`."""

    auto_commit_interval_ms: int = setting(
        5000, unit="ms", range=(100, DAY_MS), upstream="autoCommitIntervalMillis"
    )
    """Interval at which a lite-pull consumer commits its offsets."""

    def __post_init__(self) -> None:
        check(self)
        if self.pull_timeout_ms <= self.suspend_timeout_ms:
            raise ConfigError("pull_timeout_ms", "is not above suspend_timeout_ms", "raise it")
