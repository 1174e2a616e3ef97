"""Settings of clients, producers and consumers. Defaults are upstream's; where not, the docstring says why.

Source: RocketMQ client/.../ClientConfig.java, producer/DefaultMQProducer.java,
consumer/DefaultMQPushConsumer.java, DefaultMQPullConsumer.java.
"""

from dataclasses import dataclass

from pyledger.config.fields import check, setting
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
DAY_MS = 86_400_000
MIB = 1 << 20


# A repr would show the secret key.
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientConfig:
    """What producers and consumers of one process have in common."""

    name_servers: str = setting("", upstream="rocketmq.namesrv.addr")
    """`host:port;host:port`. Empty takes the variable `NAMESRV_ADDR`, else 127.0.0.1:9876."""

    instance_name: str = setting("", upstream="rocketmq.client.name")
    """Part of the client id. Empty makes one that nobody else has, except for broadcasting consumers, which
    are called `DEFAULT` so that they find their offsets again."""

    unit_name: str = setting("", upstream="unitName")
    """Part of the client id, where there are units."""

    poll_name_server_interval_ms: int = setting(
        30_000, unit="ms", range=(100, DAY_MS), upstream="pollNameServerInterval"
    )
    """Time between two questions for the routes in use."""

    heartbeat_interval_ms: int = setting(
        30_000, unit="ms", range=(100, DAY_MS), upstream="heartbeatBrokerInterval"
    )
    """Time between two heartbeats."""

    persist_offsets_interval_ms: int = setting(
        5000, unit="ms", range=(100, DAY_MS), upstream="persistConsumerOffsetInterval"
    )
    """Time between two rounds of telling brokers how far consumers are."""

    api_timeout_ms: int = setting(3000, unit="ms", range=(100, DAY_MS), upstream="mqClientApiTimeout")
    """Limit of calls that are no send and no pull."""

    offsets_folder: str = setting("", upstream="rocketmq.client.localOffsetStoreDir")
    """Where broadcasting consumers keep their offsets; empty is `.rocketmq_offsets` in the home folder."""

    header: str = setting(
        "json", choices={"json": "JSON", "binary": "ROCKETMQ"}, upstream="rocketmq.serialize.type"
    )
    """How the headers of sends are written. `binary` is shorter and cheaper for both sides."""

    access_key: str = setting("", upstream="AccessKey")
    """Access key that signs requests; empty: requests are not signed."""

    secret_key: str = setting("", upstream="SecretKey")
    """What requests are signed with; never logged."""

    security_token: str = setting("", upstream="SecurityToken")
    """Sent along with signed requests, where it is asked for; never logged."""

    trace_enabled: bool = setting(False, upstream="enableTrace")
    """Producers and push consumers write where each message went, for `mqadmin queryMsgTraceById`."""

    trace_topic: str = setting("RMQ_SYS_TRACE_TOPIC", upstream="traceTopic")
    """Topic that they write it to."""

    def __post_init__(self) -> None:
        check(self)
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("access_key", "needs secret_key, and the other way round")

    def __repr__(self) -> str:
        return f"ClientConfig(name_servers={self.name_servers!r}, access_key={self.access_key!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How a producer sends."""

    send_timeout_ms: int = setting(3000, unit="ms", range=(1, DAY_MS), upstream="sendMsgTimeout")
    """For all attempts of one send."""

    retries: int = setting(2, unit="retries", range=(0, 100), upstream="retryTimesWhenSendFailed")
    """Attempts after the first one, each at another broker where there is one."""

    retry_when_not_stored_ok: bool = setting(False, upstream="retryAnotherBrokerWhenNotStoreOK")
    """Try another broker when one has the message, but not on disk or not at its slave in time. It is then
    stored twice."""

    compress_above_bytes: int = setting(
        4096, unit="bytes", range=(0, INT_MAX), upstream="compressMsgBodyOverHowmuch"
    )
    """Bodies of this size and more are packed."""

    compression: str = setting(
        "zlib",
        choices={"none": "NONE", "zlib": "ZLIB", "lz4": "LZ4", "zstd": "ZSTD"},
        upstream="rocketmq.message.compressType",
    )
    """How bodies are packed."""

    compression_level: int = setting(
        5, unit="levels", range=(0, 9), upstream="rocketmq.message.compressLevel"
    )
    """How hard zlib and zstd try; 0 is their default."""

    message_size_max_bytes: int = setting(
        4 * MIB, unit="bytes", range=(1, INT_MAX), upstream="maxMessageSize"
    )
    """Largest body, before packing."""

    template_topic: str = setting("TBW102", upstream="createTopicKey")
    """Topic whose settings a topic takes that a first send creates, where the broker allows that."""

    topic_queue_count: int = setting(4, unit="queues", range=(1, 65_535), upstream="defaultTopicQueueNums")
    """Queues of such a topic, at most."""

    latency_faults: bool = setting(False, upstream="sendLatencyFaultEnable")
    """Spare brokers that were slow or failed lately."""

    sends_in_flight_max: int = setting(
        1024, unit="sends", range=(1, INT_MAX), upstream="backPressureForAsyncSendNum"
    )
    """Sends under way at once; more wait. Upstream has no bound unless asked for one."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How a consumer of a group gets its messages."""

    message_model: str = setting(
        "clustering",
        choices={"clustering": "CLUSTERING", "broadcasting": "BROADCASTING"},
        upstream="messageModel",
    )
    """`clustering`: members of a group share the messages. `broadcasting`: everyone gets all of them."""

    consume_from: str = setting(
        "last_offset",
        choices={
            "last_offset": "CONSUME_FROM_LAST_OFFSET",
            "first_offset": "CONSUME_FROM_FIRST_OFFSET",
            "timestamp": "CONSUME_FROM_TIMESTAMP",
        },
        upstream="consumeFromWhere",
    )
    """Where a group starts that was never in a queue."""

    consume_timestamp_ms: int = setting(0, unit="ms", range=(0, (1 << 63) - 1), upstream=None)
    """Where `timestamp` starts, ms since 1970; 0 is 30 minutes before the start. Upstream's
    `consumeTimestamp` is text in local time."""

    threads: int = setting(20, unit="threads", range=(1, 1024), upstream="consumeThreadMax")
    """Listeners that run at once."""

    batch_count_max: int = setting(1, unit="messages", range=(1, 1024), upstream="consumeMessageBatchMaxSize")
    """Messages that a listener gets at once."""

    pull_batch_count: int = setting(32, unit="messages", range=(1, 1024), upstream="pullBatchSize")
    """Messages asked for at once."""

    pull_batch_bytes: int = setting(
        262_144, unit="bytes", range=(1, INT_MAX), upstream="pullBatchSizeInBytes"
    )
    """Bytes asked for at once; brokers may ignore it."""

    pull_interval_ms: int = setting(0, unit="ms", range=(0, 65_535), upstream="pullInterval")
    """Pause between two pulls of a queue."""

    cached_count_max: int = setting(
        1000, unit="messages", range=(1, 65_535), upstream="pullThresholdForQueue"
    )
    """Messages of one queue that may wait here; with more it is not pulled."""

    cached_mib_max: int = setting(100, unit="MiB", range=(1, 1024), upstream="pullThresholdSizeForQueue")
    """Size of the bodies of one queue that may wait here."""

    span_max: int = setting(2000, unit="messages", range=(1, 65_535), upstream="consumeConcurrentlyMaxSpan")
    """Distance of the last message that waits here from the first one; one slow message holds the queue."""

    reconsume_times_max: int = setting(-1, unit="times", range=(-1, INT_MAX), upstream="maxReconsumeTimes")
    """Failures until a message is a dead letter; -1 is 16, and no end for orderly listeners."""

    suspend_ms: int = setting(1000, unit="ms", range=(10, 30_000), upstream="suspendCurrentQueueTimeMillis")
    """Pause of a queue whose orderly listener failed."""

    consume_timeout_minutes: int = setting(15, unit="minutes", range=(1, 1440), upstream="consumeTimeout")
    """A message whose listener takes longer is given back to the broker."""

    shutdown_wait_ms: int = setting(
        10_000, unit="ms", range=(0, DAY_MS), upstream="awaitTerminationMillisWhenShutdown"
    )
    """How long a shutdown waits for listeners that run. Upstream's default is 0, which lets others consume
    the same messages again."""

    suspend_timeout_ms: int = setting(
        15_000, unit="ms", range=(1, DAY_MS), upstream="brokerSuspendMaxTimeMillis"
    )
    """How long a broker may hold a pull that finds nothing. Upstream's push consumer has it fixed."""

    pull_timeout_ms: int = setting(
        30_000, unit="ms", range=(1, DAY_MS), upstream="consumerTimeoutMillisWhenSuspend"
    )
    """Limit of a pull that a broker may hold; must be longer than that."""

    auto_commit_interval_ms: int = setting(
        5000, unit="ms", range=(100, DAY_MS), upstream="autoCommitIntervalMillis"
    )
    """Time between two commits of a lite-pull consumer."""

    def __post_init__(self) -> None:
        check(self)
        if self.pull_timeout_ms <= self.suspend_timeout_ms:
            raise ConfigError("pull_timeout_ms", "is not above suspend_timeout_ms", "raise it")
