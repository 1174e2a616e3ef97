"""Rules on values: which brokers a new smallest broker id is sent to, acting masters, routes of one zone.

Source: RocketMQ namesrv/.../RouteInfoManager.java, ZoneRouteRPCHook.java.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pyledger.model.route import MASTER_ID, BrokerRoute, MinBrokerIdChange, QueueRoute, TopicRoute
from pyledger.model.topic import Permission

TOPICS_AT_ONCE = 1_000
Parts = Iterator[list[str]]
"""Names in parts, so that the caller can do other work in between."""


def min_id_change(
    addrs: Mapping[int, str], offline_addr: str | None, ha_addr: str | None
) -> MinBrokerIdChange:
    """Return the notice of the smallest id, for all remaining brokers or for those before a new one."""
    smallest = min(addrs)
    met = [addr for broker_id, addr in sorted(addrs.items()) if broker_id != smallest]
    everyone = offline_addr is not None or len(addrs) == 1
    targets = tuple(addr for _, addr in sorted(addrs.items())) if everyone else tuple(met)
    return MinBrokerIdChange(smallest, addrs[smallest], targets, offline_addr, ha_addr)


def with_acting_master(brokers: BrokerRoute, queues: QueueRoute | None) -> BrokerRoute:
    """Return brokers without a master with their smallest slave as master, if queues are read-only."""
    addrs = dict(brokers.broker_addrs)
    is_writable = queues is None or Permission.WRITE in queues.permission
    if not addrs or MASTER_ID in addrs or not brokers.enable_acting_master or is_writable:
        return brokers
    acting = addrs.pop(min(addrs))
    return replace(brokers, broker_addrs={MASTER_ID: acting, **addrs})


def in_zone(route: TopicRoute, zone_name: str) -> TopicRoute:
    """Return the part of a route in one zone; brokers without a master stay whatever their zone."""
    far = {
        broker.broker_name: broker
        for broker in route.brokers
        if MASTER_ID in broker.broker_addrs and (broker.zone_name or "").lower() != zone_name.lower()
    }
    far_addrs = {addr for broker in far.values() for addr in broker.broker_addrs.values()}
    return replace(
        route,
        brokers=tuple(broker for broker in route.brokers if broker.broker_name not in far),
        queues=tuple(queues for queues in route.queues if queues.broker_name not in far),
        filter_servers={a: servers for a, servers in route.filter_servers.items() if a not in far_addrs},
    )


def queues_of(broker_name: str, reported: QueueRoute, is_read_only: bool) -> QueueRoute:
    """Return the queues to store for those registered: usually the same object, which is cheapest."""
    permission = reported.permission & ~Permission.WRITE if is_read_only else reported.permission
    if (reported.broker_name, reported.permission) == (broker_name, permission):
        return reported
    return replace(reported, broker_name=broker_name, permission=permission)


def in_parts(names: list[str]) -> Parts:
    """Split a list into parts of `TOPICS_AT_ONCE`."""
    for start in range(0, len(names), TOPICS_AT_ONCE):
        yield names[start : start + TOPICS_AT_ONCE]
