"""What a client makes of a route: queues to send to, queues to consume, addresses to call.

Source: RocketMQ client/.../impl/factory/MQClientInstance.java (topicRouteData2TopicPublishInfo,
topicRouteData2TopicSubscribeInfo, findBrokerAddressInSubscribe).
"""

from collections.abc import Mapping
from dataclasses import replace

from pyledger.errors import WireError
from pyledger.model.message import MessageQueue
from pyledger.model.route import MASTER_ID, QueueRoute, TopicRoute
from pyledger.model.topic import Permission

Addresses = Mapping[str, Mapping[int, str]]
"""Address by broker id, by broker name."""


def addresses_of(route: TopicRoute) -> dict[str, dict[int, str]]:
    """The addresses that a route names."""
    return {broker.broker_name: dict(broker.broker_addrs) for broker in route.brokers}


def template_route(route: TopicRoute, queue_count: int) -> TopicRoute:
    """The template topic's route, as that of a topic that a first send will create with `queue_count`."""

    def cut(queues: QueueRoute) -> QueueRoute:
        count = min(queue_count, queues.read_queue_count)
        return replace(queues, read_queue_count=count, write_queue_count=count)

    return replace(route, queues=tuple(map(cut, route.queues)))


def publish_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """The queues to send to: writable, at brokers that have a master.

    Raises:
        WireError: the configuration of an ordered topic cannot be read.
    """
    if route.order_topic_conf:
        return ordered_queues(topic, route.order_topic_conf)
    masters = {broker.broker_name for broker in route.brokers if MASTER_ID in broker.broker_addrs}
    return tuple(
        MessageQueue(topic, queues.broker_name, number)
        for queues in sorted(route.queues, key=lambda one: one.broker_name)
        if Permission.WRITE in queues.permission and queues.broker_name in masters
        for number in range(queues.write_queue_count)
    )


def ordered_queues(topic: str, order_topic_conf: str) -> tuple[MessageQueue, ...]:
    """The queues of `broker:queues;broker:queues`."""
    queues = []
    for part in filter(None, order_topic_conf.split(";")):
        broker_name, _, count = part.partition(":")
        if not count.isdecimal():
            raise WireError(f"order topic configuration of {topic}: {part!r} is not `broker:queues`")
        queues += [MessageQueue(topic, broker_name, number) for number in range(int(count))]
    return tuple(queues)


def subscribe_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """The queues to consume: readable; a slave will do."""
    return tuple(
        MessageQueue(topic, queues.broker_name, number)
        for queues in sorted(route.queues, key=lambda one: one.broker_name)
        if Permission.READ in queues.permission
        for number in range(queues.read_queue_count)
    )


def is_same(one: TopicRoute | None, other: TopicRoute | None) -> bool:
    """Whether two routes say the same, in whatever order."""
    if one is None or other is None:
        return one is other

    def parts(route: TopicRoute) -> tuple[object, ...]:
        return (
            sorted(route.queues, key=lambda queues: queues.broker_name),
            sorted(route.brokers, key=lambda broker: broker.broker_name),
            route.order_topic_conf,
            route.queue_mappings,
        )

    return parts(one) == parts(other)


def master_address(addresses: Addresses, broker_name: str) -> str | None:
    """Where to write to a broker."""
    return addresses.get(broker_name, {}).get(MASTER_ID)


def read_address(
    addresses: Addresses, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = False
) -> tuple[str, bool] | None:
    """Where to read from a broker, and whether that is a slave.

    Args:
        addresses: All that is known.
        broker_name: The broker.
        broker_id: Whom to prefer; the id after a missing slave is tried, then any.
        only_this: Do not take any.
    """
    known = addresses.get(broker_name, {})
    for wanted in (broker_id, broker_id + 1) if broker_id != MASTER_ID else (broker_id,):
        if wanted in known:
            return known[wanted], wanted != MASTER_ID
    if known and not only_this:
        chosen = min(known)
        return known[chosen], chosen != MASTER_ID
    return None
