"""Messages before a send: checked, given a unique key, compressed and encoded.

Source: RocketMQ client/.../Validators.java, impl/producer/DefaultMQProducerImpl.java (sendKernelImpl),
common/.../message/MessageBatch.java.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyledger.client.identity import now_ms
from pyledger.config.client import ProducerConfig
from pyledger.config.fields import checked_type
from pyledger.errors import IllegalMessageError, RecordTooLargeError
from pyledger.model import names
from pyledger.model.message import Message
from pyledger.model.sys_flag import TransactionType
from pyledger.protocol.broker.name_rules import group_problem, is_internal_topic, topic_problem
from pyledger.wire.compression import CompressionType, compress
from pyledger.wire.record.batch import BatchItem, encode_batch
from pyledger.wire.record.properties import encode_properties
from pyledger.wire.remoting.native_codec import PendingSend, UniqueIds, prepare_message, prepare_messages

COMPRESSION = {
    "zlib": CompressionType.ZLIB,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
DELAYING = (names.TIMER_DELAY_SECONDS, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
NO_LIMIT = 1 << 62


def check_topic_name(topic: str) -> None:
    """Check the name of a topic.

    Raises:
        ConfigError: it is not a string.
        IllegalMessageError: brokers would reject it.
    """
    checked_type("topic", topic, str)
    problem = topic_problem(topic)
    if problem is not None:
        raise IllegalMessageError(f"topic {topic!r}: {problem}")


def check_topic(topic: str) -> None:
    """Check that clients may send to a topic.

    Raises:
        ConfigError: its name is not a string.
        IllegalMessageError: its name is invalid, or it is internal.
    """
    check_topic_name(topic)
    if is_internal_topic(topic):
        raise IllegalMessageError(f"topic {topic!r} belongs to the broker; send to another one")


def check_group(group: str, reserved: str) -> None:
    """Check the name of a group.

    Raises:
        ConfigError: it is not a string.
        IllegalMessageError: it is invalid, or the reserved default.
    """
    checked_type("group", group, str)
    problem = group_problem(group)
    if problem is not None:
        raise IllegalMessageError(f"group {group!r}: {problem}")
    if group == reserved:
        raise IllegalMessageError(
            f"group {group!r} is the default of all programs; choose a name of your own"
        )


BODY_TYPES = bytes, bytearray, memoryview


def check_body(message: Message, limit_bytes: int) -> None:
    """Check the size of a body.

    Raises:
        IllegalMessageError: it is empty, or not bytes.
        RecordTooLargeError: it is larger than the limit.
    """
    body: object = message.body
    if not isinstance(body, BODY_TYPES):
        kind = type(body).__name__
        raise IllegalMessageError(f"the body for {message.topic} is {kind}, not bytes; encode it first")
    if not message.body:
        raise IllegalMessageError(f"the message for {message.topic} has no body; brokers take none without")
    if len(message.body) > limit_bytes:
        raise RecordTooLargeError(f"the body for {message.topic}", len(message.body), limit_bytes)


def properties_of(message: Message) -> dict[str, str]:
    """Return all properties of a message."""
    found = dict(message.properties)
    if message.keys:
        found[names.KEYS] = message.keys
    if message.tags:
        found[names.TAGS] = message.tags
    if message.delay_level:
        found[names.DELAY] = str(message.delay_level)
    return found


class MessageEncoder:
    """Encodes messages for a send, without changing them."""

    def __init__(self, config: ProducerConfig, ids: UniqueIds) -> None:
        """Create the encoder of one producer.

        Args:
            config: Limits and compression.
            ids: Generates the unique keys of messages that have none.
        """
        self._config = config
        self._ids = ids
        compressed_from = NO_LIMIT if config.compression == "none" else config.compress_above_bytes
        self._plain_below = min(compressed_from, config.message_size_max_bytes + 1)
        """Size (bytes) below which a body is neither compressed nor rejected."""
        self._plain_topics: set[str] = set()
        """Checked topics that are not retry topics."""

    def message(self, message: Message, *, group: str | None = None) -> PendingSend:
        """Encode a message.

        Args:
            message: The message.
            group: Producer group of its transaction; None: it is not in a transaction.

        Raises:
            IllegalMessageError: brokers would reject it.
            RecordTooLargeError: the body or the properties are too large.
        """
        topic = message.topic
        if topic not in self._plain_topics:
            check_topic(topic)
            if not topic.startswith(names.RETRY_PREFIX):
                self._plain_topics.add(topic)
        if group is None and topic in self._plain_topics:
            out = prepare_message(message, self._ids, now_ms(), self._plain_below)
            if out is not None:
                return out
        check_body(message, self._config.message_size_max_bytes)
        properties = properties_of(message)
        unique_key = properties.setdefault(names.UNIQUE_KEY, "") or self._ids.next(now_ms())
        properties[names.UNIQUE_KEY] = unique_key
        body, sys_flag = message.body, message.sys_flag
        if group is not None:
            properties.pop(names.DELAY, None)
            properties |= {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: group}
            sys_flag |= TransactionType.PREPARED
        if len(body) >= self._config.compress_above_bytes and self._config.compression != "none":
            body, bits = compress(body, COMPRESSION[self._config.compression], self._config.compression_level)
            sys_flag |= bits
        out = PendingSend(
            message.topic, body, encode_properties(properties), unique_key, message.flag, sys_flag
        )
        if message.topic.startswith(names.RETRY_PREFIX):
            out.reconsume_times = int(properties.get(names.RECONSUME_TIME, "0"))
            if names.MAX_RECONSUME_TIMES in properties:
                out.reconsume_times_max = int(properties[names.MAX_RECONSUME_TIMES])
        out.is_reply = properties.get(names.MESSAGE_TYPE) == names.REPLY
        return out

    def batch(self, messages: Sequence[Message]) -> PendingSend:
        """Encode messages for one request. A batch is never compressed.

        Raises:
            IllegalMessageError: the batch is empty, has several topics, or a message that cannot be batched.
            RecordTooLargeError: the batch or one of its messages is too large.
        """
        if not messages:
            raise IllegalMessageError("a batch holds at least one message")
        topic = messages[0].topic
        check_topic(topic)
        if topic.startswith(names.RETRY_PREFIX):
            raise IllegalMessageError(f"topic {topic!r} takes no batches")
        if (
            plain := prepare_messages(messages, self._ids, now_ms(), self._config.message_size_max_bytes)
        ) is not None:
            return plain
        items, keys = [], []
        for message in messages:
            check_body(message, self._config.message_size_max_bytes)
            properties = properties_of(message)
            if message.topic != topic:
                raise IllegalMessageError(f"a batch has one topic, this one has {topic} and {message.topic}")
            if message.delay_level or any(name in properties for name in DELAYING):
                raise IllegalMessageError("a message of a batch cannot be delayed; send it alone")
            unique_key = properties.setdefault(names.UNIQUE_KEY, "") or self._ids.next(now_ms())
            properties[names.UNIQUE_KEY] = unique_key
            keys.append(unique_key)
            items.append(BatchItem(bytes(message.body), encode_properties(properties), message.flag))
        body = encode_batch(items)
        if len(body) > self._config.message_size_max_bytes:
            raise RecordTooLargeError(
                f"the batch for {topic}", len(body), self._config.message_size_max_bytes
            )
        # Upstream gives the batch its own key, and brokers then overwrite those of the messages with it.
        out = PendingSend(topic, body, b"", ",".join(keys))
        out.is_batch = True
        return out


def delayed(message: Message | Sequence[Message], deliver_at_ms: int | None, delay_ms: int | None) -> Message:
    """Return the message with the properties of a timer message; one of the times must be given.

    Raises:
        IllegalMessageError: it is a batch, or has two delays.
    """
    if not isinstance(message, Message):
        raise IllegalMessageError("a message of a batch cannot be delayed; send it alone")
    if message.delay_level or (deliver_at_ms is not None and delay_ms is not None):
        raise IllegalMessageError("a message has one delay: delay_level, deliver_at_ms or delay_ms")
    name, value = (
        (names.TIMER_DELAY_MS, delay_ms) if deliver_at_ms is None else (names.TIMER_DELIVER_MS, deliver_at_ms)
    )
    return replace(message, properties={**message.properties, name: str(value)})
