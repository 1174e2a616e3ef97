"""Messages on their way out: checked, named, packed.

Source: RocketMQ client/.../Validators.java, impl/producer/DefaultMQProducerImpl.java (sendKernelImpl),
common/.../message/MessageBatch.java.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyledger.client.identity import now_ms
from pyledger.config.client import ProducerConfig
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


def check_topic(topic: str) -> None:
    """Refuse a topic that nobody may send to.

    Raises:
        IllegalMessageError: what is wrong with it.
    """
    problem = topic_problem(topic)
    if problem is not None:
        raise IllegalMessageError(f"topic {topic!r}: {problem}")
    if is_internal_topic(topic):
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


class MessageEncoder:
    """Makes messages ready to be sent; they stay as they are."""

    def __init__(self, config: ProducerConfig, ids: UniqueIds) -> None:
        """For one producer.

        Args:
            config: Limits and packing.
            ids: Makes the unique keys of messages that have none.
        """
        self._config = config
        self._ids = ids
        packed_from = NO_LIMIT if config.compression == "none" else config.compress_above_bytes
        self._ordinary_below = min(packed_from, config.message_size_max_bytes + 1)
        self._ordinary_topics: set[str] = set()
        """Those that were checked, and are of no retries."""

    def message(self, message: Message, *, group: str | None = None) -> PendingSend:
        """Make a message ready.

        Args:
            message: What to send.
            group: Producer group of a transaction; None: the message is in none.

        Raises:
            IllegalMessageError: brokers would refuse it.
            RecordTooLargeError: the body or the properties are too large.
        """
        topic = message.topic
        if topic not in self._ordinary_topics:
            check_topic(topic)
            if not topic.startswith(names.RETRY_PREFIX):
                self._ordinary_topics.add(topic)
        if group is None and topic in self._ordinary_topics:
            out = prepare_message(message, self._ids, now_ms(), self._ordinary_below)
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
        if (
            ordinary := prepare_messages(messages, self._ids, now_ms(), self._config.message_size_max_bytes)
        ) is not None:
            return ordinary
        items, keys = [], []
        for message in messages:
            check_body(message, self._config.message_size_max_bytes)
            properties = properties_of(message)
            if message.topic != topic:
                raise IllegalMessageError(
                    f"a batch goes to one topic, this one to {topic} and {message.topic}"
                )
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
        # Upstream gives the batch a key of its own; brokers then write it over those of the messages.
        out = PendingSend(topic, body, b"", ",".join(keys))
        out.is_batch = True
        return out


def delayed(message: Message | Sequence[Message], deliver_at_ms: int | None, delay_ms: int | None) -> Message:
    """Return the message with the properties of a timer; one of the times is given.

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
