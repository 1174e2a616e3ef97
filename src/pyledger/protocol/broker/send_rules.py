"""Checks of a send before it is stored, the message to store, and the response.

A topic that is not known may be created here. A message sent to a retry topic (a consumer's own way to send
back, when the broker's failed) may become a dead letter.

Source: RocketMQ broker/.../SendMessageProcessor.java, AbstractSendMessageProcessor.java.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyledger.config.delivery import DeliveryConfig
from pyledger.model import names
from pyledger.model.remoting_codes import ResponseCode
from pyledger.model.sys_flag import MULTI_TAGS
from pyledger.model.topic import TopicConfig
from pyledger.protocol.broker.broker_state import BrokerState
from pyledger.protocol.broker.delay_levels import delay_level
from pyledger.protocol.broker.name_rules import TOPIC_LENGTH_MAX, is_internal_topic, topic_problem
from pyledger.protocol.broker.queue_locks import QueueLocks
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.subscription_groups import BrokerGroups
from pyledger.protocol.broker.topics import BrokerTopics

VERSION_OF_REQUEST_LIMIT = 121
"""Clients from V3_4_9 send the limit of retries of a message themselves."""
DLQ_QUEUE_COUNT = 1
TIMER_WISHES = (names.TIMER_DELAY_SECONDS, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
INTERNAL_PROPERTIES = (
    names.REAL_TOPIC,
    names.REAL_QUEUE_ID,
    names.PREPARED_QUEUE_OFFSET,
    names.TRANSACTION_CHECK_TIMES,
    names.POP_CHECKPOINT,
    names.INNER_COUNT,
    names.INNER_BASE,
    names.TIMER_OUT_MS,
    names.TIMER_ROLL_TIMES,
    names.TIMER_ROLL_LABEL,
    names.TIMER_ENQUEUE_MS,
    names.TIMER_DEQUEUE_MS,
)
"""Only the broker sets them. They are taken off: clients that forward what they have received send them."""
SPECIAL_PROPERTIES = (
    names.DELAY,
    names.TRANSACTION_PREPARED,
    names.MSG_REGION,
    names.TRACE_ON,
    names.CLUSTER,
    *TIMER_WISHES,
    *INTERNAL_PROPERTIES,
)
"""A message with one of these is changed or stored in another topic."""


@dataclass(slots=True, kw_only=True)
class SendRequest:
    """Fields of a send that the rules check."""

    topic: str
    queue_id: int
    default_topic: str = names.DEFAULT_TOPIC
    default_topic_queue_count: int = 4
    sys_flag: int = 0
    batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    unit_mode: bool = False
    version: int = 0
    """Of the client."""


@dataclass(slots=True)
class SendPlan:
    """A send that may be stored."""

    topic: TopicConfig
    queue_id: int
    properties: dict[str, str]
    sys_flag: int
    half: bool = False
    """It is to wait in the half topic for the end of its transaction."""
    dead_letter: bool = False
    inner_batch: bool = False
    """It is a batch that is stored as one record."""


class SendRules:
    """The checks of a send, in upstream's order."""

    def __init__(
        self,
        config: DeliveryConfig,
        broker_state: BrokerState,
        topics: BrokerTopics,
        groups: BrokerGroups,
        locks: QueueLocks,
        random_below: Callable[[int], int],
    ) -> None:
        """Take the tables that the checks use.

        Args:
            config: What may be created and sent.
            broker_state: What this broker is and may do.
            topics: The topics.
            groups: The groups, for messages that come back.
            locks: The groups that consume in order.
            random_below: A random number from 0 up to below its argument.
        """
        self.config, self.broker_state = config, broker_state
        self.topics, self.groups, self.locks = topics, groups, locks
        self.random_below = random_below
        self._open: dict[str, TopicConfig] = {}

    def check(self, request: SendRequest, properties: dict[str, str], now_ms: int) -> SendPlan | Rejection:
        """Store a send or turn it down.

        Args:
            request: The send.
            properties: Of the message, or of the whole batch; the plan may hold the same mapping, changed.
            now_ms: The time.
        """
        if (rejection := self._check_broker(request, now_ms)) is not None:
            return rejection
        topic = self.topics.find(request.topic) or self._new_topic(request)
        if isinstance(topic, Rejection):
            return topic
        plan = self._plan(request, topic, properties, now_ms)
        if not isinstance(plan, Rejection):
            self.topics.keep(topic, now_ms)
        return plan

    def _plan(
        self, request: SendRequest, topic: TopicConfig, properties: dict[str, str], now_ms: int
    ) -> SendPlan | Rejection:
        if request.queue_id >= max(topic.read_queue_count, topic.write_queue_count):
            problem = f"request queueId[{request.queue_id}] is illegal, {topic.name} has fewer queues"
            return Rejection(ResponseCode.INVALID_PARAMETER, problem)
        queue_id = request.queue_id
        if queue_id < 0:
            queue_id = self.random_below(max(1, topic.write_queue_count))
        self._set_properties(properties)
        retry = topic.name.startswith(names.RETRY_PREFIX)
        if request.batch and (retry or len(topic.name) > TOPIC_LENGTH_MAX):
            problem = "batch request does not support retry group" if retry else "message topic is too long"
            return Rejection(ResponseCode.MESSAGE_ILLEGAL, f"{problem} {topic.name}")
        sys_flag = request.sys_flag | (MULTI_TAGS if topic.filter_type == "MULTI_TAG" else 0)
        if retry:
            return self._check_retry(request, SendPlan(topic, queue_id, properties, sys_flag), now_ms)
        if topic.attributes.get("cleanup.policy") == "COMPACTION" and not properties.get(names.KEYS):
            problem = "Required message key is missing"
            return Rejection(ResponseCode.MESSAGE_ILLEGAL, problem)
        half = not request.batch and is_half(request.reconsume_times, properties)
        if half and self.config.reject_transactions:
            problem = f"the broker[{self.broker_state.broker_name}] sending transaction message is forbidden"
            return Rejection(ResponseCode.NO_PERMISSION, problem)
        inner_batch = request.batch and topic.attributes.get("queue.type") == "BatchCQ"
        return SendPlan(topic, queue_id, properties, sys_flag, half, inner_batch=inner_batch)

    def open_queue_count(self, topic: str, now_ms: int) -> int:
        """Return the number of queues of a topic that take every plain message; 0: `check` must check each.

        A plain message, or batch, has one of these queues and no property of `SPECIAL_PROPERTIES`.
        """
        known = self.topics.find(topic)
        if known is None or self.broker_state.slave or now_ms < self.broker_state.accept_sends_from_ms:
            return 0
        if known is not self._open.get(topic):
            special = topic.startswith(names.RETRY_PREFIX) or is_internal_topic(topic)
            special |= len(topic) > TOPIC_LENGTH_MAX
            if special or known.order or known.filter_type == "MULTI_TAG" or known.attributes:
                return 0
            # A topic is replaced when it changes, so the same object needs no second check.
            self._open[topic] = known
        return max(known.read_queue_count, known.write_queue_count)

    def added_properties(self) -> dict[str, str]:
        """What every message is stored with."""
        added: dict[str, str] = {}
        self._set_properties(added)
        return added

    def _check_broker(self, request: SendRequest, now_ms: int) -> Rejection | None:
        broker_state = self.broker_state
        if broker_state.slave:
            return Rejection(ResponseCode.SYSTEM_BUSY, "this broker is a slave and takes no messages")
        if now_ms < broker_state.accept_sends_from_ms:
            problem = f"broker unable to service, until {broker_state.accept_sends_from_ms}"
            return Rejection(ResponseCode.SYSTEM_ERROR, problem)
        known = self.topics.find(request.topic)
        if not broker_state.writable and known is not None and known.order:
            problem = f"the broker[{broker_state.broker_name}] sending message is forbidden"
            return Rejection(ResponseCode.NO_PERMISSION, problem)
        if known is None and (wrong := topic_problem(request.topic)) is not None:
            return Rejection(ResponseCode.INVALID_PARAMETER, wrong)
        if is_internal_topic(request.topic):
            problem = f"Sending message to topic[{request.topic}] is forbidden."
            return Rejection(ResponseCode.NO_PERMISSION, problem)
        if request.reconsume_times < 0:
            # Counted from below zero it would come again more often than its group allows.
            problem = f"reconsumeTimes[{request.reconsume_times}] is negative"
            return Rejection(ResponseCode.MESSAGE_ILLEGAL, problem)
        return None

    def _new_topic(self, request: SendRequest) -> TopicConfig | Rejection:
        count = request.default_topic_queue_count
        topic = self.topics.for_send(request.topic, request.default_topic, count)
        if topic is None and request.topic.startswith(names.RETRY_PREFIX):
            topic = TopicConfig(request.topic, 1, 1)
        if topic is None:
            problem = f"topic[{request.topic}] not exist, apply first please!"
            return Rejection(ResponseCode.TOPIC_NOT_EXIST, problem)
        return topic

    def _check_retry(self, request: SendRequest, plan: SendPlan, now_ms: int) -> SendPlan | Rejection:
        """A message for a retry topic: again, or a dead letter after too many times or when kept in order."""
        name = plan.topic.name.removeprefix(names.RETRY_PREFIX)
        group = self.groups.usable(name)
        if group is None:
            problem = f"subscription group not exist, {name}"
            return Rejection(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        self.groups.keep(group, now_ms)
        times_max = group.retry_times_max
        if request.version >= VERSION_OF_REQUEST_LIMIT and request.max_reconsume_times is not None:
            times_max = request.max_reconsume_times
        if request.reconsume_times <= times_max and not self.locks.holds_any(name, now_ms):
            return plan
        topic = self.topics.create_for_group(names.dlq_topic(name), DLQ_QUEUE_COUNT, now_ms)
        plan.properties[names.DELAY] = "0"
        return SendPlan(topic, 0, plan.properties, plan.sys_flag, dead_letter=True)

    def _set_properties(self, properties: dict[str, str]) -> None:
        properties[names.MSG_REGION] = self.broker_state.region
        properties[names.TRACE_ON] = "true" if self.broker_state.trace else "false"
        properties[names.CLUSTER] = self.broker_state.cluster


def drop_internal(properties: dict[str, str]) -> None:
    """Remove properties that only the broker sets; a delivered timer message is not delayed again."""
    if names.TIMER_OUT_MS in properties:
        for name in TIMER_WISHES:
            properties.pop(name, None)
    for name in INTERNAL_PROPERTIES:
        properties.pop(name, None)


def is_half(reconsume_times: int, properties: dict[str, str]) -> bool:
    """Whether a message opens a transaction; one that a consumer sent back with a delay does not."""
    if properties.get(names.TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return not (reconsume_times > 0 and delay_level(properties) > 0)


CODE_OF_PUT = {
    "PUT_OK": ResponseCode.SUCCESS,
    "FLUSH_DISK_TIMEOUT": ResponseCode.FLUSH_DISK_TIMEOUT,
    "FLUSH_SLAVE_TIMEOUT": ResponseCode.FLUSH_SLAVE_TIMEOUT,
    "SLAVE_NOT_AVAILABLE": ResponseCode.SLAVE_NOT_AVAILABLE,
    "SERVICE_NOT_AVAILABLE": ResponseCode.SERVICE_NOT_AVAILABLE,
    "CREATE_MAPPED_FILE_FAILED": ResponseCode.SYSTEM_ERROR,
    "MESSAGE_ILLEGAL": ResponseCode.MESSAGE_ILLEGAL,
    "PROPERTIES_SIZE_EXCEEDED": ResponseCode.MESSAGE_ILLEGAL,
    "OS_PAGE_CACHE_BUSY": ResponseCode.SYSTEM_BUSY,
    "UNKNOWN_ERROR": ResponseCode.SYSTEM_ERROR,
    "IN_SYNC_REPLICAS_NOT_ENOUGH": ResponseCode.SYSTEM_ERROR,
    "PUT_TO_REMOTE_BROKER_FAIL": ResponseCode.SYSTEM_ERROR,
    "LMQ_CONSUME_QUEUE_NUM_EXCEEDED": ResponseCode.SYSTEM_ERROR,
    "WHEEL_TIMER_FLOW_CONTROL": ResponseCode.SYSTEM_ERROR,
    "WHEEL_TIMER_MSG_ILLEGAL": ResponseCode.MESSAGE_ILLEGAL,
    "WHEEL_TIMER_NOT_ENABLE": ResponseCode.SYSTEM_ERROR,
}
"""The response's code, by upstream's word for how a put went."""
STORED = frozenset({"PUT_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"})
"""After these the message is stored, and the response contains its offset."""
