"""The route table of a name server: which broker holds which queues of which topic.

Its contents come from registrations and are kept in memory. A broker is removed when it is silent for longer
than its timeout, unregisters, or its channel closes. Its topics stay as long as one broker of its name has an
address.

Invariant: an address belongs to only one id of its broker name.
Invariant: a broker name in a topic is known, unless its removal is still queued.
Invariant: the cost of a registration or removal depends on its own size, not on the number of other brokers.

Source: RocketMQ namesrv/.../RouteInfoManager.java, BatchUnregistrationService.java.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from pyledger.config.namesrv import NamesrvConfig
from pyledger.model.route import (
    FLAG_UNIT,
    FLAG_UNIT_SUBSCRIPTION,
    MASTER_ID,
    BrokerIdentity,
    BrokerRoute,
    ClusterRoutes,
    ExpiredBroker,
    MinBrokerIdChange,
    QueueMapping,
    QueueRoute,
    Registered,
    Registration,
    TopicRoute,
)
from pyledger.model.topic import DataVersion, Permission
from pyledger.protocol.namesrv import route_rules
from pyledger.protocol.namesrv.route_rules import Parts, in_parts

BROKER_TIMEOUT_MS = 120_000
SYNC_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
MEMBERS_MAX = 1_000
"""Addresses of one broker name: operations read all of them."""


@dataclass(slots=True)
class Brokers:
    """The brokers of one name."""

    cluster: str
    name: str
    addrs: dict[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None
    clusters: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    mappings: set[tuple[str, str]] = field(default_factory=set)
    """Topics, and broker names in them, whose queue mappings it registered."""

    def route(self) -> BrokerRoute:
        """Return an immutable copy, ids in order."""
        addrs = dict(sorted(self.addrs.items()))
        return BrokerRoute(self.cluster, self.name, addrs, self.enable_acting_master, self.zone_name)

    def acts_without_master(self) -> bool:
        """Whether a slave may act for the missing master."""
        return self.enable_acting_master and MASTER_ID not in self.addrs


@dataclass(slots=True)
class LiveBroker:
    """One broker whose registration has not expired."""

    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    channel: object
    ha_server_addr: str | None


class RouteTable:
    """All routes, as one machine: time is an argument, and notices for brokers are returned.

    Removals are queued until `remove_queued`, so that many brokers are removed in one pass over the topics.
    """

    def __init__(self, config: NamesrvConfig | None = None) -> None:
        self.config = config or NamesrvConfig()
        self.generation = 0
        """Grows when a route may have changed; results derived from routes are valid while it is
        unchanged."""
        self._topics: dict[str, dict[str, QueueRoute]] = {}
        self._brokers: dict[str, Brokers] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[tuple[str, str], LiveBroker] = {}
        # Brokers by the identity of their channel, which some live broker references.
        self._keys_by_channel: dict[int, dict[tuple[str, str], None]] = {}
        # Names and ids by cluster and address.
        self._bound: dict[tuple[str, str], dict[tuple[str, int], None]] = {}
        self._filter_servers: dict[tuple[str, str], tuple[str, ...]] = {}
        self._queue_mappings: dict[str, dict[str, QueueMapping]] = {}
        self._leaving: dict[BrokerIdentity, None] = {}

    def register(self, new: Registration, channel: object, now_ms: int) -> Registered | None:
        """Apply the registration of a broker and its topics.

        Args:
            new: The registration.
            channel: The broker's connection; compared by identity.
            now_ms: Time of the registration.

        Returns:
            The response and the notices; None: rejected. An unknown broker id must register all its topics,
            not just one, and a broker name has at most `MEMBERS_MAX` ids.
        """
        broker = new.broker
        brokers = self._brokers.get(broker.broker_name)
        if brokers is None:
            brokers = self._brokers[broker.broker_name] = Brokers(broker.cluster, broker.broker_name, {})
        elif broker.broker_id not in brokers.addrs and len(brokers.addrs) >= MEMBERS_MAX:
            return None
        if broker.cluster not in brokers.clusters:
            self._clusters.setdefault(broker.cluster, {})[broker.broker_name] = None
            brokers.clusters.add(broker.cluster)
            self.generation += 1
        before = brokers.route()
        brokers.enable_acting_master = bool(new.enable_acting_master)
        brokers.zone_name = new.zone_name
        is_new_min = broker.broker_id < min(brokers.addrs, default=0)
        for other in [i for i, a in brokers.addrs.items() if a == broker.broker_addr]:
            if other != broker.broker_id:
                self._unbind(brokers, other)
        if broker.broker_addr != before.broker_addrs.get(broker.broker_id) or brokers.route() != before:
            self.generation += 1
        key = (broker.cluster, broker.broker_addr)
        if self._is_outdated(new, brokers.addrs.get(broker.broker_id)):
            (self._not_live if key in self._bound else self._drop)(key)
            return Registered()
        is_first = broker.broker_id not in brokers.addrs
        if is_first and len(new.topics) == 1:
            return None
        self._bind(brokers, broker.broker_id, broker.broker_addr)
        is_prime_slave = new.enable_acting_master is not None and MASTER_ID < broker.broker_id == min(
            brokers.addrs
        )
        if broker.broker_id == MASTER_ID or is_prime_slave:
            self._take_topics(new, is_first, is_prime_slave and brokers.enable_acting_master)
        timeout_ms = BROKER_TIMEOUT_MS if new.heartbeat_timeout_ms is None else new.heartbeat_timeout_ms
        self._not_live(key)
        self._keys_by_channel.setdefault(id(channel), {})[key] = None
        self._live[key] = LiveBroker(now_ms, timeout_ms, new.data_version, channel, new.ha_server_addr)
        if new.filter_servers is not None:
            self._set_filter_servers(key, new.filter_servers)
        notices: tuple[MinBrokerIdChange, ...] = ()
        if is_new_min and self.config.notify_min_broker_id_changed:
            notices = (route_rules.min_id_change(brokers.addrs, None, new.ha_server_addr),)
        return self._answer(broker, brokers, notices)

    def _bind(self, brokers: Brokers, broker_id: int, addr: str) -> None:
        """Set the address of an id of a broker name."""
        if brokers.addrs.get(broker_id) != addr:
            self._unbind(brokers, broker_id)
            brokers.addrs[broker_id] = addr
            self._bound.setdefault((brokers.cluster, addr), {})[brokers.name, broker_id] = None

    def _unbind(self, brokers: Brokers, broker_id: int) -> None:
        """Remove the address of an id, if it has one."""
        if (addr := brokers.addrs.pop(broker_id, None)) is not None:
            bound = self._bound[brokers.cluster, addr]
            del bound[brokers.name, broker_id]
            if not bound:
                del self._bound[brokers.cluster, addr]

    def _not_live(self, key: tuple[str, str]) -> None:
        """Remove the live broker of an address."""
        if (live := self._live.pop(key, None)) is not None:
            keys = self._keys_by_channel[id(live.channel)]
            del keys[key]
            if not keys:
                del self._keys_by_channel[id(live.channel)]

    def _drop(self, key: tuple[str, str]) -> None:
        """Remove the live broker of an address and its filter servers."""
        self._not_live(key)
        self._filter_servers.pop(key, None)

    def _set_filter_servers(self, key: tuple[str, str], filter_servers: tuple[str, ...]) -> None:
        if self._filter_servers.pop(key, ()) != filter_servers:
            self.generation += 1
        if filter_servers:
            self._filter_servers[key] = filter_servers

    def _is_outdated(self, new: Registration, bound: str | None) -> bool:
        """Whether the id belongs to another live broker of a later generation."""
        if bound is None or bound == new.broker.broker_addr:
            return False
        owner = self._live.get((new.broker.cluster, bound))
        return owner is not None and owner.data_version.state_version > new.data_version.state_version

    def _answer(
        self, broker: BrokerIdentity, brokers: Brokers, notices: tuple[MinBrokerIdChange, ...]
    ) -> Registered:
        """Return the response to a registration: a slave gets the addresses of its master."""
        master = brokers.addrs.get(MASTER_ID)
        if broker.broker_id == MASTER_ID or master is None:
            return Registered(notices=notices)
        live = self._live.get((broker.cluster, master))
        return Registered(master, live.ha_server_addr, notices) if live else Registered(notices=notices)

    def _take_topics(self, new: Registration, is_first: bool, is_read_only: bool) -> None:
        """Create and replace the queues of a broker name from one registration."""
        broker = new.broker
        is_changed = is_first or self.is_changed(broker.cluster, broker.broker_addr, new.data_version)
        if self.config.delete_topic_with_broker_registration and not new.queue_mappings:
            known = self._brokers[broker.broker_name].topics
            self._remove_queues(broker.broker_name, [topic for topic in known if topic not in new.topics])
        for topic, reported in new.topics.items():
            queues = self._topics.setdefault(topic, {})
            if is_changed or broker.broker_name not in queues:
                queues[broker.broker_name] = route_rules.queues_of(broker.broker_name, reported, is_read_only)
                self._brokers[broker.broker_name].topics.add(topic)
                self.generation += 1
        if is_changed:
            for topic, mapping in new.queue_mappings.items():
                self._brokers[broker.broker_name].mappings.add((topic, mapping.broker_name))
                self._queue_mappings.setdefault(topic, {})[mapping.broker_name] = mapping
                self.generation += 1

    def _remove_queues(self, broker_name: str, topics: Iterable[str]) -> None:
        """Remove a broker name's queues of some topics."""
        for topic in topics:
            queues = self._topics[topic]
            if queues.pop(broker_name, None) is not None:
                self.generation += 1
                if (brokers := self._brokers.get(broker_name)) is not None:
                    brokers.topics.discard(topic)
            if not queues:
                del self._topics[topic]

    def is_changed(self, cluster: str, broker_addr: str, version: DataVersion) -> bool:
        """Whether a broker's data version differs from the one it last registered."""
        return self.data_version(cluster, broker_addr) != version

    def data_version(self, cluster: str, broker_addr: str) -> DataVersion | None:
        """Return the data version that a broker last registered."""
        live = self._live.get((cluster, broker_addr))
        return live.data_version if live else None

    def refresh(self, cluster: str, broker_addr: str, now_ms: int) -> None:
        """Note that a broker is alive: it sent a heartbeat or a query of its data version."""
        if live := self._live.get((cluster, broker_addr)):
            live.last_update_ms = now_ms

    def expire(self, now_ms: int) -> tuple[ExpiredBroker, ...]:
        """Queue the removal of all brokers that were silent for too long; the caller closes their channels.

        Entries without a live broker are removed too: names without an address, left by a rejected
        registration, and addresses of brokers that were removed under a wrong name or cluster.
        """
        expired = [
            ExpiredBroker(cluster, addr, live.channel, now_ms - live.last_update_ms)
            for (cluster, addr), live in self._live.items()
            if live.last_update_ms + live.timeout_ms < now_ms
        ]
        for broker in expired:
            self._leave(broker.cluster, broker.broker_addr)
        live_addrs = {addr: None for _, addr in self._live}
        for brokers in self._brokers.values():
            for broker_id, addr in brokers.addrs.items():
                if addr not in live_addrs:
                    self._leaving[BrokerIdentity(brokers.cluster, brokers.name, addr, broker_id)] = None
        if unbound := [brokers for brokers in self._brokers.values() if not brokers.addrs]:
            for brokers in unbound:
                self._remove_name(brokers)
            self.generation += 1
        return tuple(expired)

    def close_channel(self, channel: object) -> tuple[str, ...]:
        """Queue the removal of the brokers of a channel; return their addresses."""
        keys = tuple(self._keys_by_channel.get(id(channel), ()))
        for cluster, addr in keys:
            self._leave(cluster, addr)
        return tuple(addr for _, addr in keys)

    def _leave(self, cluster: str, addr: str) -> None:
        """Queue the removal of the broker of an address, whatever the length of the queue."""
        for name, broker_id in self._bound.get((cluster, addr), ()):
            self._leaving[BrokerIdentity(cluster, name, addr, broker_id)] = None
            return
        # Another address took over its id: nothing else is left of it.
        self._drop((cluster, addr))

    def unregister(self, broker: BrokerIdentity) -> bool:
        """Queue the removal of a broker that unregisters; False if the queue is full."""
        if broker not in self._leaving and len(self._leaving) >= self.config.unregister_queue_capacity:
            return False
        self._leaving[broker] = None
        return True

    @property
    def is_removing(self) -> bool:
        """Whether removals are queued."""
        return bool(self._leaving)

    def remove_queued(self, at_most: int | None = None) -> tuple[MinBrokerIdChange, ...]:
        """Remove the queued brokers, `at_most` of them if given, and return the notices to send."""
        leaving = list(islice(self._leaving, at_most))
        reduced: dict[str, Brokers] = {}
        self.generation += bool(leaving)
        changes: dict[str, tuple[Brokers, str]] = {}
        for broker in leaving:
            del self._leaving[broker]
            self._drop((broker.cluster, broker.broker_addr))
            brokers = self._brokers.get(broker.broker_name)
            if brokers is None:
                continue
            was_min = broker.broker_id == min(brokers.addrs, default=None)
            for broker_id in [i for i, a in brokers.addrs.items() if a == broker.broker_addr]:
                self._unbind(brokers, broker_id)
            if brokers.addrs:
                reduced[broker.broker_name] = brokers
                if was_min:
                    changes[broker.broker_name] = (brokers, broker.broker_addr)
            else:
                self._remove_name(brokers)
        for name, brokers in reduced.items():
            if name in self._brokers and brokers.acts_without_master():
                self._make_read_only(brokers)
        if not self.config.notify_min_broker_id_changed:
            return ()
        return tuple(
            route_rules.min_id_change(brokers.addrs, offline_addr, None)
            for name, (brokers, offline_addr) in changes.items()
            if name in self._brokers and brokers.enable_acting_master
        )

    def _remove_name(self, brokers: Brokers) -> None:
        """Remove a broker name without address, and its topics."""
        self._remove_queues(brokers.name, tuple(brokers.topics))
        for topic, name in brokers.mappings:
            if (mappings := self._queue_mappings.get(topic)) is not None:
                mappings.pop(name, None)
                if not mappings:
                    del self._queue_mappings[topic]
        for cluster in brokers.clusters:
            names = self._clusters[cluster]
            del names[brokers.name]
            if not names:
                del self._clusters[cluster]
        del self._brokers[brokers.name]

    def _make_read_only(self, brokers: Brokers) -> None:
        """Make the queues of a broker name read-only: it has no master."""
        for topic in brokers.topics:
            queues = self._topics[topic]
            permission = queues[brokers.name].permission & ~Permission.WRITE
            queues[brokers.name] = replace(queues[brokers.name], permission=permission)

    def route(self, topic: str, order_topic_conf: str | None = None) -> TopicRoute | None:
        """Return the route of a topic; None if no known broker has it.

        Args:
            topic: Name of the topic.
            order_topic_conf: The topic's ordering from the KV config, copied to the route.
        """
        queues = self._topics.get(topic)
        brokers = [self._brokers[name].route() for name in sorted(queues or ()) if name in self._brokers]
        if not queues or not brokers:
            return None
        filter_servers = {
            addr: self._filter_servers[broker.cluster, addr]
            for broker in brokers
            for addr in broker.broker_addrs.values()
            if (broker.cluster, addr) in self._filter_servers
        }
        if self.config.support_acting_master and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX):
            brokers = [route_rules.with_acting_master(one, queues.get(one.broker_name)) for one in brokers]
        mappings = self._queue_mappings.get(topic)
        return TopicRoute(
            queues=tuple(queues[name] for name in sorted(queues)),
            brokers=tuple(brokers),
            filter_servers=filter_servers,
            order_topic_conf=order_topic_conf,
            queue_mappings=None if mappings is None else dict(mappings),
        )

    def member_group(self, broker_name: str) -> Mapping[int, str]:
        """Return the addresses of one broker name by id; empty for an unknown one."""
        brokers = self._brokers.get(broker_name)
        return dict(sorted(brokers.addrs.items())) if brokers else {}

    def clusters(self) -> ClusterRoutes:
        """Return all brokers and clusters."""
        return ClusterRoutes(
            brokers={name: self._brokers[name].route() for name in sorted(self._brokers)},
            clusters={cluster: tuple(sorted(self._clusters[cluster])) for cluster in sorted(self._clusters)},
        )

    def topics(self) -> Parts:
        """Return the names of all topics in parts, between which the table may change."""
        return in_parts(list(self._topics))

    def topics_of_cluster(self, cluster: str) -> Parts:
        """Return the names of a cluster's topics in parts; a name may occur twice."""
        for name in tuple(self._clusters.get(cluster, ())):
            if (brokers := self._brokers.get(name)) is not None:
                yield from in_parts(list(brokers.topics))

    def system_topics(self) -> tuple[tuple[str, ...], str | None]:
        """Return the topics named after clusters and brokers, and the address of a broker with more."""
        named = {name: None for c in sorted(self._clusters) for name in (c, *sorted(self._clusters[c]))}
        addrs = (self.member_group(name) for name in sorted(self._brokers))
        first = next((addr for group in addrs for addr in group.values()), None)
        return tuple(named), first

    def unit_topics(self, *, unit: bool | None = None, subscription: bool | None = None) -> Parts:
        """Return the names of topics by their unit flags, in parts; None: any value of a flag."""
        wanted = ((FLAG_UNIT, unit), (FLAG_UNIT_SUBSCRIPTION, subscription))

        def matches(queues: dict[str, QueueRoute]) -> bool:
            flags = queues[min(queues)].sys_flag
            return all(expected is None or bool(flags & flag) == expected for flag, expected in wanted)

        for part in self.topics():
            yield [topic for topic in part if (queues := self._topics.get(topic)) and matches(queues)]

    def register_topic(self, topic: str, queues: Iterable[QueueRoute]) -> bool:
        """Add an unknown topic, all of whose broker names are known; return whether it was added."""
        by_name = {queue.broker_name: queue for queue in queues}
        if not by_name or topic in self._topics or not by_name.keys() <= self._brokers.keys():
            return False
        self._topics[topic] = by_name
        for name in by_name:
            self._brokers[name].topics.add(topic)
        self.generation += 1
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, or its queues on the brokers of one cluster."""
        if not cluster:
            self._remove_topic(topic, self._topics.get(topic, ()))
            self.generation += 1
            return
        self._remove_topic(topic, self._clusters.get(cluster, ()))

    def _remove_topic(self, topic: str, broker_names: Iterable[str]) -> None:
        for name in tuple(broker_names):
            if topic in self._topics:
                self._remove_queues(name, [topic])

    def wipe_write_perm(self, broker_name: str) -> int:
        """Make all queues of a broker name read-only, until it registers another version.

        Returns:
            Number of topics.
        """
        return self._set_perm(broker_name, lambda permission: permission & ~Permission.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Make all queues of a broker name readable and writable, whatever they were.

        Returns:
            Number of topics.
        """
        return self._set_perm(broker_name, lambda _: Permission.READ | Permission.WRITE)

    def _set_perm(self, broker_name: str, change: Callable[[Permission], Permission]) -> int:
        count = 0
        for queues in self._topics.values():
            if found := queues.get(broker_name):
                queues[broker_name] = replace(found, permission=change(found.permission))
                count += 1
        self.generation += 1
        return count

    def describe(self, now_ms: int) -> str:
        """Return all tables as text, in a stable order."""
        lines = [f"cluster {c}: {' '.join(sorted(self._clusters[c])) or '-'}" for c in sorted(self._clusters)]
        for name in sorted(self._brokers):
            brokers = self._brokers[name]
            addrs = " ".join(f"{i}={a}" for i, a in sorted(brokers.addrs.items())) or "no address"
            acting = " acting-master" if brokers.enable_acting_master else ""
            zone = f" zone={brokers.zone_name}" if brokers.zone_name else ""
            lines.append(f"broker {name}: {addrs}{acting}{zone}")
        for (_, addr), live in sorted(self._live.items()):
            version = live.data_version
            numbers = f"{version.state_version}.{version.counter}@{version.timestamp_ms}"
            rest_ms = live.last_update_ms + live.timeout_ms - now_ms
            lines.append(f"live {addr}: version={numbers} expires in {rest_ms} ms")
        for topic in sorted(self._topics):
            queues = [self._topics[topic][name] for name in sorted(self._topics[topic])]
            lines.append(f"topic {topic}: " + ", ".join(map(describe_queues, queues)))
        return "\n".join(lines) or "empty"


def describe_queues(queues: QueueRoute) -> str:
    """`broker-a 4/8 rw`: read queues, write queues, permissions."""
    letters = ((Permission.READ, "r"), (Permission.WRITE, "w"))
    permission = "".join(letter if one in queues.permission else "-" for one, letter in letters)
    return f"{queues.broker_name} {queues.read_queue_count}/{queues.write_queue_count} {permission}"
