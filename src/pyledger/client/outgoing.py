"""Messages on their way out: checked, named, packed.

Source: RocketMQ client/.../Validators.java, impl/producer/DefaultMQProducerImpl.java (sendKernelImpl),
common/.../message/MessageBatch.java.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyledger import names
from pyledger.config.client import ProducerConfig
from pyledger.errors import IllegalMessageError, RecordTooLargeError
from pyledger.message import Message
from pyledger.protocol.delivery.name_rules import NOT_FOR_SENDERS, group_problem, topic_problem
from pyledger.wire.batch import BatchItem, encode_batch
from pyledger.wire.compression import CompressionType, compress
from pyledger.wire.properties import encode_properties
from pyledger.wire.sysflag import TransactionType

COMPRESSION = {
    "zlib": CompressionType.ZLIB,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
DELAYING = (names.TIMER_DELAY_SECONDS, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)


Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class Outgoing:
    """What a request to send needs to know of its message or batch."""

    topic: str
    body: Buffer
    properties: str
    unique_key: str
    """Of a batch those of its messages, separated by commas."""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    reconsume_times_max: int | None = None
    is_batch: bool = False
    is_reply: bool = False
    deadline: float = 0.0
    """Of all attempts, by the clock of the event loop."""


def check_topic(topic: str) -> None:
    """Refuse a topic that nobody may send to.

    Raises:
        IllegalMessageError: what is wrong with it.
    """
    problem = topic_problem(topic)
    if problem is not None:
        raise IllegalMessageError(f"topic {topic!r}: {problem}")
    if topic in NOT_FOR_SENDERS:
        raise IllegalMessageError(f"topic {topic!r} belongs to the broker; send to another one")


def check_group(group: str, reserved: str) -> None:
    """Refuse a group that cannot be.

    Raises:
        IllegalMessageError: what is wrong with it.
    """
    problem = group_problem(group)
    if problem is not None:
        raise IllegalMessageError(f"group {group!r}: {problem}")
    if group == reserved:
        raise IllegalMessageError(
            f"group {group!r} is the default of all programs; choose a name of your own"
        )


def check_body(message: Message, limit_bytes: int) -> None:
    """Refuse a body that brokers do not take.

    Raises:
        IllegalMessageError: it is empty.
        RecordTooLargeError: it is larger than the limit.
    """
    if not message.body:
        raise IllegalMessageError(f"the message for {message.topic} has no body; brokers take none without")
    if len(message.body) > limit_bytes:
        raise RecordTooLargeError(f"the body for {message.topic}", len(message.body), limit_bytes)


def properties_of(message: Message) -> dict[str, str]:
    """All properties of a message."""
    found = dict(message.properties)
    if message.keys:
        found[names.KEYS] = message.keys
    if message.tags:
        found[names.TAGS] = message.tags
    if message.delay_level:
        found[names.DELAY] = str(message.delay_level)
    return found


def prepare(
    message: Message, config: ProducerConfig, new_key: Callable[[], str], *, group: str | None = None
) -> Outgoing:
    """Make a message ready to be sent.

    Args:
        message: Stays as it is.
        config: Limits and packing.
        new_key: Makes its unique key, unless it has one.
        group: Producer group of a transaction; None: the message is in none.

    Raises:
        IllegalMessageError: brokers would refuse it.
        RecordTooLargeError: the body or the properties are too large.
    """
    check_topic(message.topic)
    check_body(message, config.message_size_max_bytes)
    properties = properties_of(message)
    unique_key = properties.setdefault(names.UNIQUE_KEY, "") or new_key()
    properties[names.UNIQUE_KEY] = unique_key
    body, sys_flag = message.body, message.sys_flag
    if group is not None:
        properties.pop(names.DELAY, None)
        properties |= {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: group}
        sys_flag |= TransactionType.PREPARED
    if len(body) >= config.compress_above_bytes and config.compression != "none":
        body, bits = compress(body, COMPRESSION[config.compression], config.compression_level)
        sys_flag |= bits
    encoded = encode_properties(properties)
    out = Outgoing(message.topic, body, encoded.decode(), unique_key, message.flag, sys_flag)
    if message.topic.startswith(names.RETRY_PREFIX):
        out.reconsume_times = int(properties.get(names.RECONSUME_TIME, "0"))
        if names.MAX_RECONSUME_TIMES in properties:
            out.reconsume_times_max = int(properties[names.MAX_RECONSUME_TIMES])
    out.is_reply = properties.get(names.MESSAGE_TYPE) == names.REPLY
    return out


def prepare_batch(
    messages: Sequence[Message], config: ProducerConfig, new_key: Callable[[], str]
) -> Outgoing:
    """Make messages ready to be sent in one request. A batch is never packed.

    Raises:
        IllegalMessageError: there is none, they go to several topics, or one may not be in a batch.
        RecordTooLargeError: together or one of them they are too large.
    """
    if not messages:
        raise IllegalMessageError("a batch holds at least one message")
    topic = messages[0].topic
    check_topic(topic)
    if topic.startswith(names.RETRY_PREFIX):
        raise IllegalMessageError(f"topic {topic!r} takes no batches")
    items, keys = [], []
    for message in messages:
        check_body(message, config.message_size_max_bytes)
        properties = properties_of(message)
        if message.topic != topic:
            raise IllegalMessageError(f"a batch goes to one topic, this one to {topic} and {message.topic}")
        if message.delay_level or any(name in properties for name in DELAYING):
            raise IllegalMessageError("a message of a batch cannot be delayed; send it alone")
        unique_key = properties.setdefault(names.UNIQUE_KEY, "") or new_key()
        properties[names.UNIQUE_KEY] = unique_key
        keys.append(unique_key)
        items.append(BatchItem(bytes(message.body), encode_properties(properties), message.flag))
    body = encode_batch(items)
    if len(body) > config.message_size_max_bytes:
        raise RecordTooLargeError(f"the batch for {topic}", len(body), config.message_size_max_bytes)
    # Upstream gives the batch a key of its own; brokers then write it over those of the messages.
    return Outgoing(topic, body, "", ",".join(keys), is_batch=True)


def timed(message: Message, deliver_at_ms: int | None, delay_ms: int | None) -> Message:
    """The message with the properties of a timer."""
    if deliver_at_ms is None and delay_ms is None:
        return message
    if message.delay_level or (deliver_at_ms is not None and delay_ms is not None):
        raise IllegalMessageError("a message has one delay: delay_level, deliver_at_ms or delay_ms")
    name, value = (
        (names.TIMER_DELAY_MS, delay_ms) if deliver_at_ms is None else (names.TIMER_DELIVER_MS, deliver_at_ms)
    )
    return replace(message, properties={**message.properties, name: str(value)})
