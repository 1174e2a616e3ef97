"""Checks of a pull before the store is read, and the response to it afterwards.

Source: RocketMQ broker/.../PullMessageProcessor.java, DefaultPullMessageResultHandler.java;
common/.../PullSysFlag.java; store/.../GetMessageStatus.java.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag

from pyledger.config.delivery import DeliveryConfig
from pyledger.errors import SubscriptionSyntaxError
from pyledger.model.remoting_codes import ResponseCode
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import Permission
from pyledger.protocol.broker.broker_state import BrokerState
from pyledger.protocol.broker.consumer_registry import BROADCASTING, ConsumerTable
from pyledger.protocol.broker.rejection import ForbiddenType, Rejection
from pyledger.protocol.broker.subscription import Subscription, parse_subscription
from pyledger.protocol.broker.subscription_groups import BrokerGroups
from pyledger.protocol.broker.topics import BrokerTopics


class PullFlag(IntFlag):
    """Bits of a pull's `sysFlag`."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE = 16


READ_BIT, SUBSCRIPTION_BIT = int(Permission.READ), int(PullFlag.SUBSCRIPTION)
"""As plain numbers: flags of enums take their time on every pull."""


@dataclass(slots=True, kw_only=True)
class PullRequest:
    """Fields of a pull that the rules check."""

    group: str
    topic: str
    queue_id: int
    flags: int = 0
    subscription: str | None = None
    subscription_version: int = 0
    expression_type: str | None = None
    lite_code: bool = False
    """It came with the code of lite pull."""


@dataclass(slots=True)
class PullPlan:
    """A pull that may be served."""

    group: SubscriptionGroup
    subscription: Subscription


class PullRules:
    """The checks of a pull, in upstream's order."""

    def __init__(
        self,
        config: DeliveryConfig,
        broker_state: BrokerState,
        topics: BrokerTopics,
        groups: BrokerGroups,
        consumers: ConsumerTable,
        compile_filter: Callable[[Subscription], object],
    ) -> None:
        """Take the tables that the checks use.

        Args:
            config: Which kinds of pulls are served.
            broker_state: What this broker is and may do.
            topics: The topics.
            groups: The groups.
            consumers: Members and subscriptions.
            compile_filter: Reads an SQL92 expression; raises `SubscriptionSyntaxError`.
        """
        self.config, self.broker_state = config, broker_state
        self.topics, self.groups, self.consumers = topics, groups, consumers
        self.compile_filter = compile_filter

    def check(self, request: PullRequest, now_ms: int) -> PullPlan | Rejection:
        """Serve a pull or turn it down."""
        group = self._check_group(request)
        if isinstance(group, Rejection):
            return group
        if (rejection := self._check_queue(request)) is not None:
            return rejection
        found = (
            self._stated(request) if request.flags & SUBSCRIPTION_BIT else self._subscribed(request, group)
        )
        if isinstance(found, Rejection):
            return found
        if not found.by_tag and not self.config.property_filter:
            return unsupported(found)
        if request.flags & SUBSCRIPTION_BIT:
            self.consumers.note_pulled(request.group, found, now_ms)
        return PullPlan(self.groups.keep(group, now_ms), found)

    def _check_group(self, request: PullRequest) -> SubscriptionGroup | Rejection:
        if self.broker_state.slave and not self.config.slave_read:
            return Rejection(ResponseCode.SYSTEM_BUSY, "this broker is a slave and serves no pulls")
        if not self.broker_state.readable:
            return forbidden(ForbiddenType.BROKER, "the broker pulling message is forbidden")
        if request.lite_code and not self.config.lite_pull:
            return forbidden(ForbiddenType.BROKER, "the broker for lite pull message is forbidden")
        group = self.groups.usable(request.group)
        if group is None:
            problem = f"subscription group [{request.group}] does not exist"
            return Rejection(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        if not group.consume:
            return forbidden(ForbiddenType.GROUP, f"subscription group no permission, {request.group}")
        return group

    def _check_queue(self, request: PullRequest) -> Rejection | None:
        topic = self.topics.find(request.topic)
        if topic is None:
            problem = f"topic[{request.topic}] not exist, apply first please!"
            return Rejection(ResponseCode.TOPIC_NOT_EXIST, problem)
        if not int(topic.permission) & READ_BIT:
            return forbidden(ForbiddenType.TOPIC, f"the topic[{request.topic}] pulling message is forbidden")
        if not 0 <= request.queue_id < topic.read_queue_count:
            problem = (
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_count}]"
            )
            return Rejection(ResponseCode.INVALID_PARAMETER, problem)
        return None

    def _stated(self, request: PullRequest) -> Subscription | Rejection:
        """The subscription that the pull itself carries."""
        text, kind = request.subscription, request.expression_type
        try:
            found = parse_subscription(request.topic, text, kind, request.subscription_version)
            if not found.by_tag:
                self.compile_filter(found)
        except SubscriptionSyntaxError:
            return Rejection(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
            )
        return found

    def _subscribed(self, request: PullRequest, group: SubscriptionGroup) -> Subscription | Rejection:
        """The subscription that the group's heartbeats have stated."""
        online = self.consumers.groups.get(request.group)
        if online is None:
            return Rejection(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if not group.consume_broadcast and online.state.message_model == BROADCASTING:
            problem = f"the consumer group[{request.group}] can not consume by broadcast way"
            return forbidden(ForbiddenType.BROADCASTING, problem)
        if self.groups.read_forbidden(request.group, request.topic):
            problem = f"the consumer group[{request.group}] is forbidden for topic[{request.topic}]"
            return forbidden(ForbiddenType.SUBSCRIPTION, problem)
        found = online.subscriptions.get(request.topic)
        if found is None:
            return Rejection(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if found.version < request.subscription_version:
            return Rejection(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if not found.by_tag:
            try:
                self.compile_filter(found)
            except SubscriptionSyntaxError:
                problem = "the broker's consumer filter data is not exist!"
                return Rejection(ResponseCode.FILTER_DATA_NOT_EXIST, problem)
        return found


def forbidden(kind: ForbiddenType, remark: str) -> Rejection:
    """Return the rejection of a forbidden pull."""
    return Rejection(ResponseCode.NO_PERMISSION, remark, kind)


def check_subscription(
    config: DeliveryConfig, subscription: Subscription, compile_filter: Callable[[Subscription], object]
) -> Rejection | None:
    """Check whether a consumer could use a subscription; it sends the query when it starts."""
    if subscription.by_tag:
        return None
    if not config.property_filter:
        return unsupported(subscription)
    try:
        compile_filter(subscription)
    except SubscriptionSyntaxError as error:
        return Rejection(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
    return None


def unsupported(subscription: Subscription) -> Rejection:
    """A kind of filter that is switched off."""
    problem = f"The broker does not support consumer to filter message by {subscription.expression_type}"
    return Rejection(ResponseCode.SYSTEM_ERROR, problem)


CODE_OF_STATUS = {
    "FOUND": ResponseCode.SUCCESS,
    "MESSAGE_WAS_REMOVING": ResponseCode.PULL_RETRY_IMMEDIATELY,
    "NO_MATCHED_MESSAGE": ResponseCode.PULL_RETRY_IMMEDIATELY,
    "OFFSET_FOUND_NULL": ResponseCode.PULL_NOT_FOUND,
    "OFFSET_OVERFLOW_ONE": ResponseCode.PULL_NOT_FOUND,
    "OFFSET_OVERFLOW_BADLY": ResponseCode.PULL_OFFSET_MOVED,
    "OFFSET_TOO_SMALL": ResponseCode.PULL_OFFSET_MOVED,
    "OFFSET_RESET": ResponseCode.PULL_OFFSET_MOVED,
}
EMPTY_QUEUE = frozenset({"NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE"})
NOT_HERE = EMPTY_QUEUE | {
    "OFFSET_FOUND_NULL",
    "OFFSET_OVERFLOW_ONE",
    "OFFSET_OVERFLOW_BADLY",
    "OFFSET_TOO_SMALL",
}
"""The queue of this broker does not have the offset. A slave's queue may differ from the master's."""


@dataclass(slots=True)
class PullAnswer:
    """Code of the response, and where the consumer should continue."""

    code: ResponseCode
    broker_id: int
    next_offset: int
    """Queue offset (units) to pull next."""


def answer_pull(
    status: str,
    queue_offset: int,
    next_offset: int,
    *,
    config: DeliveryConfig,
    broker_state: BrokerState,
    group: SubscriptionGroup,
    suggest_slave: bool,
) -> PullAnswer:
    """The response to a pull, by the store's status.

    A slave returns an offset that its queue does not have unchanged: it may lag its master, or start later,
    and a consumer that was moved would read messages again or skip some.

    Args:
        status: Upstream's word for it.
        queue_offset: The requested offset, units.
        next_offset: Where the store's queue continues, units.
        config: Whether slaves serve pulls.
        broker_state: What this broker is.
        group: The group, which names the brokers to read at.
        suggest_slave: The store holds the messages on disk only, so a slave should serve them.
    """
    if status in EMPTY_QUEUE:
        code = ResponseCode.PULL_OFFSET_MOVED if queue_offset else ResponseCode.PULL_NOT_FOUND
    else:
        code = CODE_OF_STATUS[status]
    broker_id = 0
    if config.slave_read:
        broker_id = group.slow_broker_id if suggest_slave else group.broker_id
    if broker_state.slave and not config.offset_check_on_slave:
        if status in NOT_HERE:
            next_offset = queue_offset
        if code == ResponseCode.PULL_OFFSET_MOVED:
            code, broker_id = ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id
    if broker_state.broker_id != 0 and not suggest_slave and broker_state.master_alive:
        broker_id = 0
        if code != ResponseCode.SUCCESS:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
    return PullAnswer(code, broker_id, next_offset)
