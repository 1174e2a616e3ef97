"""Configuration of a consumer group at its broker: `SubscriptionGroup`.

Source: RocketMQ remoting/.../protocol/subscription/SubscriptionGroupConfig.java.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pyledger.model.topic import truth

WIRE_NAMES = {
    "attributes": "attributes",
    "broker_id": "brokerId",
    "consume_broadcast": "consumeBroadcastEnable",
    "consume": "consumeEnable",
    "consume_from_min": "consumeFromMinEnable",
    "consume_orderly": "consumeMessageOrderly",
    "consume_timeout_minutes": "consumeTimeoutMinute",
    "name": "groupName",
    "retry_policy": "groupRetryPolicy",
    "sys_flag": "groupSysFlag",
    "notify_changes": "notifyConsumerIdsChangedEnable",
    "retry_times_max": "retryMaxTimes",
    "retry_queue_count": "retryQueueNums",
    "slow_broker_id": "whichBrokerWhenConsumeSlowly",
}
"""Our name and upstream's of each field, in upstream's order."""
OUR_NAMES = {theirs: ours for ours, theirs in WIRE_NAMES.items()}
READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("consume", "consume_from_min", "consume_broadcast"), truth),
    **dict.fromkeys(("consume_orderly", "notify_changes"), truth),
    **dict.fromkeys(("broker_id", "slow_broker_id", "sys_flag", "consume_timeout_minutes"), int),
    **dict.fromkeys(("retry_times_max", "retry_queue_count"), int),
    **dict.fromkeys(("attributes", "retry_policy"), dict),
    "name": str,
}


def default_retry_policy() -> dict[str, Any]:
    """Return the default retry policy of a group."""
    return {"type": "CUSTOMIZED"}


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """Configuration of one consumer group."""

    name: str
    consume: bool = True
    consume_from_min: bool = True
    consume_broadcast: bool = True
    consume_orderly: bool = False
    retry_queue_count: int = 1
    retry_times_max: int = 16
    retry_policy: Mapping[str, Any] = field(default_factory=default_retry_policy)
    broker_id: int = 0
    """Broker id from which its members read."""
    slow_broker_id: int = 1
    """Broker id from which members with a large lag read."""
    notify_changes: bool = True
    """Whether members are notified of each other at once."""
    sys_flag: int = 0
    consume_timeout_minutes: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    """Unknown fields, kept for other versions."""

    @classmethod
    def parse(cls, name: str, document: Mapping[str, Any]) -> Self:
        """Create it from the object in a file or a request; missing fields get their defaults."""
        given: dict[str, Any] = {"name": name}
        others: dict[str, Any] = {}
        for key, value in document.items():
            if (ours := OUR_NAMES.get(key)) is None:
                others[key] = value
            elif value is not None:
                given[ours] = READERS[ours](value)
        return cls(**given, others=others)

    def document(self) -> dict[str, Any]:
        """Return the object for a file or a response, fields in upstream's order."""
        fields = {theirs: getattr(self, ours) for ours, theirs in WIRE_NAMES.items()}
        return dict(sorted({**fields, **self.others}.items()))
