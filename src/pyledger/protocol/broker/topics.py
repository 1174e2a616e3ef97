"""The topics of one broker: what it starts with, what a send may create, what an administrator changes.

The shell compares `version` before and after a call: if it has changed, it stores the table and registers
with the name servers.

Source: RocketMQ broker/.../TopicConfigManager.java, AdminBrokerProcessor.java.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pyledger.config.delivery import DeliveryConfig
from pyledger.errors import TopicAttributeError
from pyledger.model import names
from pyledger.model.remoting_codes import ResponseCode
from pyledger.model.topic import NO_VERSION, DataVersion, Permission, TopicConfig
from pyledger.protocol.broker.name_rules import is_system_topic, topic_problem
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.topic_attributes import alter_attributes

READ_WRITE = Permission.READ | Permission.WRITE
OPEN = READ_WRITE | Permission.INHERIT
SCHEDULE_QUEUE_COUNT = 18
REVIVE_QUEUE_COUNT = 8


def system_topics(config: DeliveryConfig, cluster: str, broker_name: str) -> Iterator[TopicConfig]:
    """The topics that a broker starts with."""
    yield TopicConfig(names.SELF_TEST_TOPIC, 1, 1)
    if config.auto_create_topics:
        count = config.topic_queue_count
        yield TopicConfig(names.DEFAULT_TOPIC, count, count, OPEN)
    if config.trace_topic:
        yield TopicConfig(names.TRACE_TOPIC, 1, 1)
    yield TopicConfig(names.BENCHMARK_TOPIC, 1024, 1024)
    yield TopicConfig(cluster, 16, 16, OPEN)
    yield TopicConfig(broker_name, 1, 1, OPEN)
    yield TopicConfig(names.OFFSET_MOVED_TOPIC, 1, 1)
    yield TopicConfig(names.SCHEDULE_TOPIC, SCHEDULE_QUEUE_COUNT, SCHEDULE_QUEUE_COUNT)
    yield TopicConfig(f"{cluster}_REPLY_TOPIC", 1, 1)
    yield TopicConfig(names.revive_topic(cluster), REVIVE_QUEUE_COUNT, REVIVE_QUEUE_COUNT)
    yield TopicConfig(
        f"{names.SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_{broker_name}", 1, 1, Permission.INHERIT
    )
    yield TopicConfig(names.HALF_TOPIC, 1, 1)
    yield TopicConfig(names.OP_TOPIC, 1, 1)
    yield TopicConfig(names.TIMER_TOPIC, 1, 1)


class BrokerTopics:
    """The table of topics; `topics` and `version` are what `topics.json` holds."""

    def __init__(
        self,
        config: DeliveryConfig,
        cluster: str,
        broker_name: str,
        topics: Mapping[str, TopicConfig] | None = None,
        version: DataVersion = NO_VERSION,
    ) -> None:
        self.config = config
        self.version = version
        self.topics: dict[str, TopicConfig] = dict(topics or {})
        self._cluster, self._broker_name = cluster, broker_name
        self.own = frozenset((cluster, broker_name))
        for topic in system_topics(config, cluster, broker_name):
            self.topics.setdefault(topic.name, topic)

    def configure(self, config: DeliveryConfig, now_ms: int) -> None:
        """Go by other settings from now on; topics that they call for are made."""
        self.config = config
        for topic in system_topics(config, self._cluster, self._broker_name):
            if topic.name not in self.topics:
                self._put(topic, now_ms)

    def advance(self, now_ms: int) -> None:
        """Advance the version: all topics may have changed for brokers with a copy."""
        self.version = self.version.next(now_ms)

    def adopt(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """Become a copy of a master's table."""
        self.topics.clear()
        self.topics.update(topics)
        self.version = version

    def find(self, name: str) -> TopicConfig | None:
        """A topic by its name."""
        return self.topics.get(name)

    def is_system(self, name: str) -> bool:
        """Whether clients may neither create nor delete a topic: the system's own, or the broker's."""
        return is_system_topic(name) or name in self.own

    def for_send(self, name: str, template: str, queue_count: int, sys_flag: int = 0) -> TopicConfig | None:
        """The topic that a first send to an unknown name creates, for `keep`; None where none may be.

        Args:
            name: The topic, a valid name.
            template: The topic to copy from, as the client names it.
            queue_count: Queues that the client wants; the template's are the limit.
            sys_flag: Flags of the new topic.
        """
        model = self.topics.get(template)
        if model is None or not model.permission & Permission.INHERIT:
            return None
        if template == names.DEFAULT_TOPIC and not self.config.auto_create_topics:
            return None
        if len(self.topics) >= self.config.auto_created_topics_max:
            return None
        count = max(0, min(queue_count, model.write_queue_count))
        permission = model.permission & ~Permission.INHERIT
        return TopicConfig(name, count, count, permission, model.filter_type, sys_flag)

    def keep(self, topic: TopicConfig, now_ms: int) -> TopicConfig:
        """Have a topic from now on, where it is missing."""
        return self.topics.get(topic.name) or self._put(topic, now_ms)

    def create_for_group(self, name: str, queue_count: int, now_ms: int) -> TopicConfig:
        """A group's retry or dead-letter topic, made where it is missing."""
        return self.keep(TopicConfig(name, queue_count, queue_count), now_ms)

    def is_without_queue(self, name: str, queue_id: int) -> bool:
        """Whether consumers cannot find a queue."""
        known = self.topics.get(name)
        return known is None or known.read_queue_count <= queue_id

    def add_queue(self, name: str, queue_id: int, now_ms: int) -> None:
        """Have a queue, and those before it, which a message shows to have been there."""
        known, count = self.topics.get(name) or TopicConfig(name, 0, 0), queue_id + 1
        self._put(
            replace(
                known,
                read_queue_count=max(known.read_queue_count, count),
                write_queue_count=max(known.write_queue_count, count),
            ),
            now_ms,
        )

    def update(self, wanted: TopicConfig, now_ms: int, *, mixed_allowed: bool = False) -> Rejection | None:
        """Create or change a topic at an administrator's request.

        Args:
            wanted: The topic; its attributes are a change, names with `+` or `-`.
            now_ms: The time.
            mixed_allowed: Whether a topic may hold messages of all types.
        """
        if (problem := topic_problem(wanted.name)) is not None:
            return Rejection(ResponseCode.INVALID_PARAMETER, problem)
        if self.is_system(wanted.name):
            problem = f"The topic[{wanted.name}] is conflict with system topic."
            return Rejection(ResponseCode.INVALID_PARAMETER, problem)
        if wanted.attributes.get("+message.type") == "MIXED" and not mixed_allowed:
            return Rejection(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        known = self.topics.get(wanted.name)
        current = known.attributes if known else {}
        try:
            attributes = alter_attributes(current, wanted.attributes, create=known is None)
        except TopicAttributeError as error:
            return Rejection(ResponseCode.SYSTEM_ERROR, str(error))
        topic = replace(wanted, attributes=attributes)
        if topic != known:
            self._put(topic, now_ms)
        return None

    def delete(self, name: str, now_ms: int) -> Rejection | None:
        """Delete a topic at an administrator's request; an unknown one is no error."""
        if not name.strip():
            return Rejection(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if self.is_system(name):
            problem = f"The topic[{name}] is conflict with system topic."
            return Rejection(ResponseCode.INVALID_PARAMETER, problem)
        if self.topics.pop(name, None) is not None:
            self.version = self.version.next(now_ms)
        return None

    def page(self, start: int, count: int) -> dict[str, TopicConfig]:
        """Some topics in the order of their names."""
        return {name: self.topics[name] for name in sorted(self.topics)[start : start + count]}

    def describe(self) -> str:
        """All topics but the broker's first ones, a line for each."""
        lines = [
            f"{topic.name} {topic.read_queue_count}/{topic.write_queue_count} perm {int(topic.permission)}"
            + "".join(f" {name}={value}" for name, value in sorted(topic.attributes.items()))
            for name, topic in sorted(self.topics.items())
            if not self.is_system(name) and not name.endswith("_REPLY_TOPIC")
        ]
        return "\n".join([*lines, f"version {self.version.counter}"])

    def _put(self, topic: TopicConfig, now_ms: int) -> TopicConfig:
        self.topics[topic.name] = topic
        self.version = self.version.next(now_ms)
        return topic
