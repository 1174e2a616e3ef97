"""Names of topics and groups that a broker takes: an allow-list of characters, a length, the system's own.

Names come from the network and become parts of paths, so nothing else may pass.

Differs: upstream takes sends for its timer topic, its revive topics and all other topics of its own that
start with `rmq_sys_`, offsets of its own groups, names with a second prefix, such as `%RETRY%%RETRY%x`,
messages for the topic of a light queue, `%LMQ%x`, and dead-letter topics of 128 to 255 characters, to whose
messages only its store objects.

Source: RocketMQ common/.../TopicValidator.java, Validators.java, MixAll.java.
"""

import re

from pyledger.model import names

ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
TOPIC_LENGTH_MAX = 127
RETRY_TOPIC_LENGTH_MAX = 255
GROUP_LENGTH_MAX = 120
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
GROUP_TOPIC_PREFIXES = (names.RETRY_PREFIX, names.DLQ_PREFIX)
"""A topic has at most one of them, a group none."""
INTERNAL_GROUPS = frozenset({names.TRANSACTION_GROUP, names.REVIVE_GROUP})
"""Groups whose offsets are the broker's progress in its internal topics."""

NOT_FOR_SENDERS = frozenset(
    {
        names.SCHEDULE_TOPIC,
        names.HALF_TOPIC,
        names.OP_TOPIC,
        names.CHECK_EXPIRED_TOPIC,
        names.SELF_TEST_TOPIC,
        names.OFFSET_MOVED_TOPIC,
    }
)
"""Upstream's list; see `is_internal_topic`."""
SYSTEM_TOPICS = NOT_FOR_SENDERS | {names.DEFAULT_TOPIC, names.BENCHMARK_TOPIC, names.TRACE_TOPIC}


def topic_problem(topic: str) -> str | None:
    """What is wrong with the name of a topic; None: nothing."""
    if not topic.strip():
        return "The specified topic is blank."
    if not ALLOWED.fullmatch(topic):
        return f"The specified topic contains illegal characters, allowing only ^{ALLOWED.pattern}$"
    limit = RETRY_TOPIC_LENGTH_MAX if topic.startswith(names.RETRY_PREFIX) else TOPIC_LENGTH_MAX
    if len(topic) > limit:
        return f"The specified topic is longer than topic max length {limit}."
    if is_retry_or_dlq(topic) and is_retry_or_dlq(topic[topic.index("%", 1) + 1 :]):
        return "The specified topic has more than one prefix of a group."
    if topic.startswith(names.LIGHT_QUEUE_PREFIX):
        return "The specified topic is the name of a light queue, which this broker does not write."
    return None


def group_problem(group: str) -> str | None:
    """What is wrong with the name of a group; None: nothing."""
    if not group.strip():
        return "the specified group is blank"
    if not ALLOWED.fullmatch(group):
        return f"the specified group[{group}] contains illegal characters, allowing only ^{ALLOWED.pattern}$"
    if len(group) > GROUP_LENGTH_MAX:
        return f"the specified group is longer than group max length {GROUP_LENGTH_MAX}"
    if is_retry_or_dlq(group):
        return f"the specified group[{group}] starts as the topic of a group"
    return None


def is_retry_or_dlq(topic: str) -> bool:
    """Whether a topic belongs to a group's retries or its dead letters."""
    return topic.startswith(GROUP_TOPIC_PREFIXES)


def is_system_topic(topic: str) -> bool:
    """Whether a topic is the system's own: clients neither create nor delete it."""
    return topic in SYSTEM_TOPICS or topic.startswith(names.SYSTEM_TOPIC_PREFIXES)


def is_internal_topic(topic: str) -> bool:
    """Whether only the broker itself puts messages into a topic, which it acts upon.

    Topics of traces are the system's, but clients write to them.
    """
    if topic in NOT_FOR_SENDERS:
        return True
    is_named_so = topic.startswith(names.SYSTEM_TOPIC_PREFIXES)
    return is_named_so and topic != names.TRACE_TOPIC and not topic.startswith(names.TRACE_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether a group is the system's own."""
    return group.startswith(SYSTEM_GROUP_PREFIX)
