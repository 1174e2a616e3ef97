"""What a pop, an acknowledgement or a change of time must pass.

Source: RocketMQ broker/.../PopMessageProcessor.java, AckMessageProcessor.java,
ChangeInvisibleTimeProcessor.java, NotificationProcessor.java.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyledger.errors import SubscriptionSyntaxError
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.message import QueueRange
from pyledger.model.remoting_codes import ResponseCode
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import TopicConfig
from pyledger.protocol.broker.broker_state import BrokerState
from pyledger.protocol.broker.name_rules import is_internal_topic
from pyledger.protocol.broker.pop import RETRY, TOPIC_ITSELF, pop_retry_topic
from pyledger.protocol.broker.pull_rules import READ_BIT
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.subscription import Subscription, parse_subscription
from pyledger.protocol.broker.subscription_groups import BrokerGroups
from pyledger.protocol.broker.topics import BrokerTopics

POP_COUNT_MAX = 32
LATE_MS = 500
RETRY_FIRST_PERCENT = 20


@dataclass(slots=True, kw_only=True)
class PopRequest:
    """Fields of a pop that the rules check."""

    group: str
    topic: str
    queue_id: int
    count: int
    poll_ms: int
    """How long it may wait."""
    born_ms: int
    """When the client sent it; 0: now."""
    expression: str | None = None
    expression_type: str | None = None


@dataclass(slots=True)
class PopPlan:
    """A pop that may be served."""

    topic: TopicConfig
    subscription: Subscription
    deadline_ms: int
    """Until when it may wait, by the wall clock."""


@lazy_dataclass()
class PopSource:
    """A queue that a pop reads."""

    topic: str
    retry: str
    queue_id: int


class PopRules:
    """The checks of a pop, in upstream's order, and the queues that it reads."""

    def __init__(
        self,
        broker_state: BrokerState,
        topics: BrokerTopics,
        groups: BrokerGroups,
        compile_filter: Callable[[Subscription], object],
        random_below: Callable[[int], int],
    ) -> None:
        """Take the tables that the checks use.

        Args:
            broker_state: What this broker is and may do.
            topics: The topics.
            groups: The groups.
            compile_filter: Reads an SQL92 expression; raises `SubscriptionSyntaxError`.
            random_below: A random number from 0 up to below its argument.
        """
        self.broker_state, self.topics, self.groups = broker_state, topics, groups
        self.compile_filter, self.random_below = compile_filter, random_below

    def check(self, request: PopRequest, now_ms: int) -> PopPlan | Rejection:
        """Serve a pop or turn it down."""
        name = self.broker_state.broker_name
        deadline_ms = (request.born_ms or now_ms) + request.poll_ms
        if now_ms - deadline_ms > LATE_MS:
            problem = f"the broker[{name}] pop message is timeout too much"
            return Rejection(ResponseCode.POLLING_TIMEOUT, problem)
        if not self.broker_state.readable:
            return Rejection(ResponseCode.NO_PERMISSION, f"the broker[{name}] pop message is forbidden")
        if request.count > POP_COUNT_MAX:
            problem = f"the broker[{name}] pop message's num is greater than {POP_COUNT_MAX}"
            return Rejection(ResponseCode.INVALID_PARAMETER, problem)
        topic = self.check_queue(request.topic, request.queue_id)
        if isinstance(topic, Rejection):
            return topic
        if is_internal_topic(topic.name):
            return internal_topic(topic.name)
        group = self._check_group(request.group)
        if isinstance(group, Rejection):
            return group
        try:
            wanted = parse_subscription(request.topic, request.expression, request.expression_type)
            if not wanted.by_tag:
                self.compile_filter(wanted)
        except SubscriptionSyntaxError:
            problem = "parse the consumer's subscription failed"
            return Rejection(ResponseCode.SUBSCRIPTION_PARSE_FAILED, problem)
        self.groups.keep(group, now_ms)
        return PopPlan(topic, wanted, min(deadline_ms, now_ms + request.poll_ms))

    def check_queue(self, name: str, queue_id: int) -> TopicConfig | Rejection:
        """A topic that may be read, and that has the queue; a negative one is all."""
        topic = self.topics.find(name)
        if topic is None:
            return unknown_topic(name)
        if not int(topic.permission) & READ_BIT:
            return Rejection(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
        if queue_id >= topic.read_queue_count:
            problem = (
                f"queueId[{queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_count}]"
            )
            return Rejection(ResponseCode.INVALID_PARAMETER, problem)
        return topic

    def sources(
        self, topic: TopicConfig, group: str, queue_id: int, *, in_order: bool = False
    ) -> list[PopSource]:
        """The queues that a pop reads, in this order, until it has enough.

        Messages that were put back come last, but first in one of five pops, so that neither kind starves.
        An ordered pop has none: messages that are not acknowledged stay at their offset.
        """
        count = topic.read_queue_count
        start = self.random_below(max(1, count))
        numbers = [queue_id] if queue_id >= 0 else [(start + at) % count for at in range(count)]
        own = [PopSource(topic.name, TOPIC_ITSELF, number) for number in numbers]
        retry = None if in_order else self.topics.find(pop_retry_topic(topic.name, group))
        if retry is None or retry is topic:
            return own
        again = [PopSource(retry.name, RETRY, number) for number in range(retry.read_queue_count)]
        return again + own if self.random_below(100) < RETRY_FIRST_PERCENT else own + again

    def check_place(
        self, topic_name: str, queue_id: int, offset: int, held: QueueRange, *, end_allowed: bool
    ) -> Rejection | None:
        """Check whether a message named by a client may be at a queue offset, units."""
        topic = self.topics.find(topic_name)
        if topic is None:
            return unknown_topic(topic_name)
        if is_internal_topic(topic_name):
            return internal_topic(topic_name)
        if not 0 <= queue_id < topic.read_queue_count:
            problem = (
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_count}]"
            )
            return Rejection(ResponseCode.MESSAGE_ILLEGAL, problem)
        end = held.max_offset if end_allowed else held.max_offset - 1
        if not held.min_offset <= offset <= end:
            problem = (
                f"offset is illegal, key:{topic_name}@{queue_id}, commit:{offset}, "
                f"store:{held.min_offset}~{held.max_offset}"
            )
            return Rejection(ResponseCode.NO_MESSAGE, problem)
        return None

    def _check_group(self, name: str) -> SubscriptionGroup | Rejection:
        group = self.groups.usable(name)
        if group is None:
            problem = f"subscription group [{name}] does not exist"
            return Rejection(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        if not group.consume:
            return Rejection(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
        return group


def internal_topic(name: str) -> Rejection:
    """Pops store copies of what is not acknowledged, and none of what only the broker handles."""
    return Rejection(
        ResponseCode.NO_PERMISSION, f"the topic[{name}] is the broker's own and cannot be popped"
    )


def unknown_topic(name: str) -> Rejection:
    """The topic is not here."""
    return Rejection(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
