"""Messages that a consumer could not use: sent back they wait and come again, until they are dead letters.

Source: RocketMQ broker/.../AbstractSendMessageProcessor.java (consumerSendMsgBack).
"""

from collections.abc import Callable, Mapping

from pyledger.model import names
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.remoting_codes import ResponseCode
from pyledger.model.topic import Permission
from pyledger.protocol.broker.broker_state import BrokerState
from pyledger.protocol.broker.name_rules import is_internal_topic, is_retry_or_dlq
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.send_rules import DLQ_QUEUE_COUNT, VERSION_OF_REQUEST_LIMIT, drop_internal
from pyledger.protocol.broker.subscription_groups import BrokerGroups
from pyledger.protocol.broker.topics import BrokerTopics

FIRST_DELAY_LEVEL = 3
"""Of the first retry: 10 s; each further one a level more."""


@lazy_dataclass(kw_only=True)
class SendBackRequest:
    """Fields of a message sent back that the rules check."""

    group: str
    delay_level: int = 0
    """Below 0: a dead letter at once; 0: the broker decides; above: as given."""
    max_reconsume_times: int | None = None
    version: int = 0
    """Of the client."""


@lazy_dataclass()
class Returned:
    """What is stored for a message sent back; body, flags, birth and hosts stay as they were."""

    topic: str
    queue_id: int
    reconsume_times: int
    delay_level: int
    properties: dict[str, str]
    dead_letter: bool


class SendBackRules:
    """Decides where a message that was sent back is stored."""

    def __init__(
        self,
        broker_state: BrokerState,
        topics: BrokerTopics,
        groups: BrokerGroups,
        random_below: Callable[[int], int],
    ) -> None:
        """Take the tables.

        Args:
            broker_state: What this broker may do.
            topics: The topics; retry and dead-letter topics are made here.
            groups: The groups, with their number of retries.
            random_below: A random number from 0 up to below its argument.
        """
        self.broker_state, self.topics, self.groups = broker_state, topics, groups
        self.random_below = random_below

    def check(self, request: SendBackRequest) -> Rejection | None:
        """Check a request before its message is looked up; SUCCESS: discard it without an error."""
        group = self.groups.usable(request.group)
        if group is None:
            problem = f"subscription group not exist, {request.group}"
            return Rejection(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        if not self.broker_state.writable:
            problem = f"the broker[{self.broker_state.broker_name}] sending message is forbidden"
            return Rejection(ResponseCode.NO_PERMISSION, problem)
        if group.retry_queue_count <= 0:
            return Rejection(ResponseCode.SUCCESS, "")
        retry = names.retry_topic(request.group)
        topic = self.topics.find(retry)
        if topic is not None and not topic.permission & Permission.WRITE:
            return Rejection(ResponseCode.NO_PERMISSION, f"the topic[{retry}] sending message is forbidden")
        return None

    def place(
        self,
        request: SendBackRequest,
        *,
        topic: str,
        reconsume_times: int,
        msg_id: str,
        properties: Mapping[str, str],
        now_ms: int,
    ) -> Returned | Rejection:
        """Return the destination of the message, after `check` found nothing.

        Args:
            request: The request.
            topic: Topic of the stored message.
            reconsume_times: How often it came back before.
            msg_id: Of the stored message.
            properties: Of the stored message.
            now_ms: The time.
        """
        if is_internal_topic(topic):
            problem = f"a message of topic[{topic}] cannot be sent back"
            return Rejection(ResponseCode.NO_PERMISSION, problem)
        group = self.groups.usable(request.group)
        assert group is not None
        self.groups.keep(group, now_ms)
        self.topics.create_for_group(names.retry_topic(group.name), group.retry_queue_count, now_ms)
        times_max = group.retry_times_max
        if request.version >= VERSION_OF_REQUEST_LIMIT and request.max_reconsume_times is not None:
            times_max = request.max_reconsume_times
        dead = reconsume_times >= times_max or request.delay_level < 0
        if dead:
            target, level, queue_id = names.dlq_topic(request.group), 0, 0
            self.topics.create_for_group(target, DLQ_QUEUE_COUNT, now_ms)
        else:
            target = names.retry_topic(request.group)
            level = request.delay_level or FIRST_DELAY_LEVEL + reconsume_times
            queue_id = self.random_below(group.retry_queue_count)
        kept = dict(properties)
        drop_internal(kept)
        if is_retry_or_dlq(topic):
            kept.setdefault(names.RETRY_TOPIC, topic)
            kept.setdefault(names.ORIGIN_MESSAGE_ID, msg_id)
        else:
            # Whatever its sender has written there: consumers take the message for one of that topic.
            kept |= {names.RETRY_TOPIC: topic, names.ORIGIN_MESSAGE_ID: msg_id}
        kept[names.WAIT] = "false"
        kept[names.DELAY] = str(level)
        return Returned(target, queue_id, reconsume_times + 1, level, kept, dead)
