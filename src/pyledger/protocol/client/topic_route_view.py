"""What a client derives from a route: queues to send to, queues to consume, broker addresses.

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
    """Return the addresses in a route by broker name and broker id."""
    return {broker.broker_name: dict(broker.broker_addrs) for broker in route.brokers}


def template_route(route: TopicRoute, queue_count: int) -> TopicRoute:
    """Return the route of a topic that its first send will create, from that of the template topic."""

    def limited(queues: QueueRoute) -> QueueRoute:
        count = min(queue_count, queues.read_queue_count)
        return replace(queues, read_queue_count=count, write_queue_count=count)

    return replace(route, queues=tuple(map(limited, route.queues)))


def publish_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues to send to: writable, at brokers that have a master.

    Raises:
        WireError: the configuration of an ordered topic cannot be parsed.
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
    """Return the queues of a configuration such as `broker-a:4;broker-b:4`."""
    queues = []
    for part in filter(None, order_topic_conf.split(";")):
        broker_name, _, count = part.partition(":")
        if not count.isdecimal():
            raise WireError(f"order topic configuration of {topic}: {part!r} is not `broker:queues`")
        queues += [MessageQueue(topic, broker_name, number) for number in range(int(count))]
    return tuple(queues)


def subscribe_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues to consume: readable, at a master or a slave."""
    return tuple(
        MessageQueue(topic, queues.broker_name, number)
        for queues in sorted(route.queues, key=lambda one: one.broker_name)
        if Permission.READ in queues.permission
        for number in range(queues.read_queue_count)
    )


def is_same(one: TopicRoute | None, other: TopicRoute | None) -> bool:
    """Whether two routes are equal, in any order."""
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
    """Return the address of a broker's master, or None."""
    return addresses.get(broker_name, {}).get(MASTER_ID)


def read_address(
    addresses: Addresses, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = False
) -> tuple[str, bool] | None:
    """Return the address to read from, and whether it is a slave's; None if there is none.

    Args:
        addresses: All known addresses.
        broker_name: The broker name.
        broker_id: Preferred id; if a slave is missing, the next id is tried, then the lowest.
        only_this: Do not fall back to the lowest id.
    """
    known = addresses.get(broker_name, {})
    for wanted in (broker_id, broker_id + 1) if broker_id != MASTER_ID else (broker_id,):
        if wanted in known:
            return known[wanted], wanted != MASTER_ID
    if known and not only_this:
        chosen = min(known)
        return known[chosen], chosen != MASTER_ID
    return None
