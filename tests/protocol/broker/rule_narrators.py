"""Narrators of the rules: topics, groups, what may be sent and pulled."""

from dataclasses import replace
from typing import Any

from pyledger.config.delivery import DeliveryConfig
from pyledger.errors import SqlSyntaxError
from pyledger.model.message import MessageQueue
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import Permission, TopicConfig
from pyledger.protocol.broker.broker_state import BrokerState
from pyledger.protocol.broker.client_channel import Client
from pyledger.protocol.broker.consumer_registry import ConsumerState, ConsumerTable
from pyledger.protocol.broker.pull_rules import (
    PullFlag,
    PullPlan,
    PullRequest,
    PullRules,
    answer_pull,
    check_subscription,
)
from pyledger.protocol.broker.queue_locks import QueueLocks
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.send_rules import SendPlan, SendRequest, SendRules, drop_internal
from pyledger.protocol.broker.subscription import Subscription, parse_subscription
from pyledger.protocol.broker.subscription_groups import BrokerGroups
from pyledger.protocol.broker.topic_attributes import parse_change
from pyledger.protocol.broker.topics import BrokerTopics
from pyledger.protocol.filter.sql92 import sql_filter
from tests.protocol.broker.narrator import Narrator, place
from tests.support.datadriven import Step


def rejection_text(rejection: Rejection | None) -> str:
    if rejection is None:
        return ""
    kind = f" ({rejection.forbidden_type.name})" if rejection.forbidden_type else ""
    return f"{int(rejection.code)} {rejection.code.name}{kind}: {rejection.remark}"


def options(step: Step, kind: type) -> dict[str, Any]:
    """Named arguments that are fields of a class, as the type of the field's default."""
    found: dict[str, Any] = {}
    for name, text in step.named.items():
        field = name.replace("-", "_")
        if field in kind.__dataclass_fields__:  # type: ignore[attr-defined]
            found[field] = text == "yes" if text in {"yes", "no"} else int(text) if is_number(text) else text
    return found


def is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def compile_sql(subscription: Subscription) -> object:
    return sql_filter(subscription.expression)


class Topics(Narrator):
    def __init__(self) -> None:
        super().__init__()
        self.settings()

    def settings(self, step: Step | None = None) -> str:
        self.config = DeliveryConfig(**options(step, DeliveryConfig)) if step else DeliveryConfig()
        self.broker_state = BrokerState(**options(step, BrokerState)) if step else BrokerState()
        self.topics = BrokerTopics(self.config, "DefaultCluster", "broker-a")
        self.groups = BrokerGroups(self.config)
        self.locks = QueueLocks(self.config)
        self.consumers = ConsumerTable(self.config)
        return ""

    def topic(self, step: Step) -> str:
        name = step.words[0] if step.words else ""
        count = step.integer("queues", 4)
        topic = TopicConfig(
            name,
            count,
            step.integer("write", count),
            Permission(step.integer("perm", 6)),
            order="order" in step.words,
            attributes=parse_change(step.named.get("attributes", "").strip("()")),
        )
        return rejection_text(self.topics.update(topic, self.now_ms))

    def send_creates(self, step: Step) -> str:
        name, template = step.words
        made = self.topics.for_send(name, template, step.integer("queues", 4))
        if made is None:
            return "nothing"
        self.topics.keep(made, self.now_ms)
        return self.topics.describe()

    def delete(self, step: Step) -> str:
        return rejection_text(self.topics.delete(step.words[0], self.now_ms))

    def show(self, step: Step) -> str:
        return self.topics.describe()


class Groups(Topics):
    def group(self, step: Step) -> str:
        attributes = parse_change(step.named.pop("attributes", "").strip("()"))
        group = SubscriptionGroup(step.words[0], attributes=attributes, **options(step, SubscriptionGroup))
        return rejection_text(self.groups.update(group, self.now_ms))

    def find(self, step: Step) -> str:
        found = self.groups.usable(step.words[0])
        return self.groups.keep(found, self.now_ms).name if found else "unknown"

    def forget(self, step: Step) -> str:
        if (rejection := self.groups.delete(step.words[0], self.now_ms)) is not None:
            return rejection_text(rejection)
        return self.groups.describe()

    def forbid(self, step: Step) -> str:
        group, topic, bits = step.words
        self.groups.forbidden.setdefault(group, {})[topic] = int(bits)
        return f"reads {'forbidden' if self.groups.read_forbidden(group, topic) else 'allowed'}"

    def show(self, step: Step) -> str:
        return self.groups.describe()


class Send(Groups):
    def lock(self, step: Step) -> str:
        self.locks.lock(step.words[0], [MessageQueue("T", "broker-a", 0)], "c", self.now_ms)
        return ""

    def send(self, step: Step) -> str:
        rules = SendRules(
            self.config, self.broker_state, self.topics, self.groups, self.locks, lambda n: n - 1
        )
        request = SendRequest(**{"topic": step.words[0], "queue_id": 0, **options(step, SendRequest)})
        given = dict(item.split("=", 1) for item in step.input.splitlines())
        received = dict(given)
        drop_internal(received)
        plan = rules.check(request, received, self.now_ms)
        if isinstance(plan, Rejection):
            return rejection_text(plan)
        assert isinstance(plan, SendPlan)
        changes = {name: value for name, value in plan.properties.items() if given.get(name) != value}
        lost = [f"-{name}" for name in given if name not in plan.properties]
        kind = " dead letter" if plan.dead_letter else " half" if plan.half else ""
        properties = " ".join([*(f"{name}={value}" for name, value in sorted(changes.items())), *lost])
        queue = f"{plan.topic.name}/{plan.queue_id} of {plan.topic.write_queue_count}"
        return f"store{kind} in {queue}\n{properties}"


class Pull(Groups):
    def heartbeat(self, step: Step) -> str:
        group, topic = step.words
        wanted = parse_subscription(
            topic,
            step.named.get("expression", "*"),
            step.named.get("type"),
            step.integer("version", 1),
        )
        state = ConsumerState(message_model=step.named.get("model", "CLUSTERING"))
        self.consumers.heartbeat(group, Client("c", "c", 0, 0, self.now_ms), state, [wanted])
        return ""

    def set(self, step: Step) -> str:
        group = self.groups.usable(step.words[0])
        assert group
        self.groups.update(replace(group, **options(step, SubscriptionGroup)), self.now_ms)
        return ""

    def pull(self, step: Step) -> str:
        def compile_filter(subscription: Subscription) -> object:
            if "broken" in subscription.expression:
                raise SqlSyntaxError(subscription.expression, "broken")
            return None

        rules = PullRules(
            self.config, self.broker_state, self.topics, self.groups, self.consumers, compile_filter
        )
        topic, queue_id = place(step.words[1])
        stated = "subscription" in step.named
        request = PullRequest(
            group=step.words[0],
            topic=topic,
            queue_id=queue_id,
            flags=int(PullFlag.SUBSCRIPTION) if stated else 0,
            subscription=step.named.get("subscription"),
            expression_type=step.named.get("type"),
            subscription_version=step.integer("version", 0),
            lite_code="lite" in step.words,
        )
        plan = rules.check(request, self.now_ms)
        if isinstance(plan, Rejection):
            return rejection_text(plan)
        assert isinstance(plan, PullPlan)
        return f"serve {plan.subscription.expression} v{plan.subscription.version}"

    def check(self, step: Step) -> str:
        wanted = Subscription("T", step.input, expression_type=step.words[0])
        return rejection_text(check_subscription(self.config, wanted, compile_sql))

    def answer(self, step: Step) -> str:
        answer = answer_pull(
            step.words[0],
            step.integer("offset", 5),
            step.integer("next", 7),
            config=self.config,
            broker_state=self.broker_state,
            group=SubscriptionGroup("g"),
            suggest_slave="far-behind" in step.words,
        )
        return (
            f"{int(answer.code)} {answer.code.name}, next {answer.next_offset} at broker {answer.broker_id}"
        )
