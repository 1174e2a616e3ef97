"""Consumers: groups, their members by connection, and what each group subscribes to.

A group's mode and subscriptions are those of its latest heartbeat, for all members: clients of one group with
different subscriptions overwrite each other's.

Source: RocketMQ broker/.../ConsumerManager.java, ConsumerGroupInfo.java,
DefaultConsumerIdsChangeListener.java.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyledger.config.delivery import DeliveryConfig
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.protocol.broker.client_channel import Channel, Client, Notice
from pyledger.protocol.broker.subscription import Subscription

ACTIVELY = "CONSUME_ACTIVELY"
PASSIVELY = "CONSUME_PASSIVELY"
BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"
FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"


@lazy_dataclass()
class ConsumerState:
    """How a group consumes, in upstream's words."""

    consume_type: str = PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = FROM_LAST_OFFSET


@dataclass(slots=True)
class ConsumerGroup:
    """A group with members."""

    state: ConsumerState
    members: dict[Channel, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """By topic."""

    def replace_subscriptions(self, subscriptions: Iterable[Subscription]) -> bool:
        """Take over what a heartbeat subscribes to; returns whether the set of topics changed.

        A known topic keeps its subscription unless the new one has a higher version.
        """
        stated = {one.topic: one for one in subscriptions}
        changed = stated.keys() != self.subscriptions.keys()
        for topic in [topic for topic in self.subscriptions if topic not in stated]:
            del self.subscriptions[topic]
        for topic, one in stated.items():
            known = self.subscriptions.get(topic)
            if known is None or one.version > known.version:
                self.subscriptions[topic] = one
        return changed


class ConsumerTable:
    """All consumer groups with a member at this broker."""

    def __init__(self, config: DeliveryConfig) -> None:
        self.config = config
        self.groups: dict[str, ConsumerGroup] = {}
        self.channels: dict[Channel, dict[str, None]] = {}
        self.pulled: dict[tuple[str, str], tuple[Subscription, int]] = {}
        """Subscriptions that came with pulls, by group and topic, with the time of the last."""

    def heartbeat(
        self,
        group: str,
        member: Client,
        state: ConsumerState,
        subscriptions: Iterable[Subscription] | None,
        *,
        notify: bool = True,
    ) -> Notice | None:
        """Apply a client's heartbeat for one of its groups.

        Args:
            group: The group.
            member: The client, with the time of this heartbeat.
            state: How it consumes; holds for the whole group from now on.
            subscriptions: All topics that it subscribes to; None leaves the group's as they are.
            notify: Whether the group is notified of changes.

        Returns:
            The connections to notify that the members or the topics of the group have changed.
        """
        known = self.groups.setdefault(group, ConsumerGroup(state))
        known.state = state
        joined = member.channel not in known.members
        known.members[member.channel] = member
        self.channels.setdefault(member.channel, {})[group] = None
        changed = subscriptions is not None and known.replace_subscriptions(subscriptions)
        return self._notice(group, known) if notify and (joined or changed) else None

    def unregister(self, group: str, channel: Channel, *, notify: bool = True) -> Notice | None:
        """Remove a client that unregisters from a group; return the connections to notify."""
        known = self.groups.get(group)
        if known is None or known.members.pop(channel, None) is None:
            return None
        groups = self.channels[channel]
        del groups[group]
        if not groups:
            del self.channels[channel]
        if not known.members:
            del self.groups[group]
            return None
        return self._notice(group, known) if notify else None

    def close_channel(self, channel: Channel) -> list[Notice]:
        """Remove a disconnected client from all its groups; return the connections to notify."""
        groups = list(self.channels.get(channel, ()))
        return [notice for group in groups if (notice := self.unregister(group, channel)) is not None]

    def expire(self, now_ms: int) -> list[Channel]:
        """Every 10 s: remove silent clients and subscriptions that no pull repeats.

        Returns:
            Connections to close. As in upstream, no member is notified: the others see it at their next
            query.
        """
        limit_ms = self.config.channel_timeout_ms
        silent = [
            (group, channel)
            for group, known in self.groups.items()
            for channel, member in known.members.items()
            if member.expired(now_ms, limit_ms)
        ]
        for group, channel in silent:
            self.unregister(group, channel, notify=False)
        kept_ms = self.config.subscription_timeout_ms
        for key in [key for key, (_, seen_ms) in self.pulled.items() if now_ms - seen_ms > kept_ms]:
            del self.pulled[key]
        return list(dict.fromkeys(channel for _, channel in silent))

    def note_pulled(self, group: str, subscription: Subscription, now_ms: int) -> None:
        """Remember a subscription that came with a pull, for groups without heartbeats."""
        self.pulled[group, subscription.topic] = (subscription, now_ms)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What a group wants of a topic, by its heartbeats or else by its pulls."""
        known = self.groups.get(group)
        if known is not None and topic in known.subscriptions:
            return known.subscriptions[topic]
        return self.pulled.get((group, topic), (None, 0))[0]

    def client_ids(self, group: str) -> list[str]:
        """Return the members of a group; a client with two connections occurs twice."""
        return [member.client_id for member in self.members(group)]

    def members(self, group: str) -> Iterator[Client]:
        """The members of a group, in the order they came."""
        known = self.groups.get(group)
        yield from known.members.values() if known else ()

    def groups_of_topic(self, topic: str) -> list[str]:
        """The groups with members that subscribe to a topic."""
        return [group for group, known in self.groups.items() if topic in known.subscriptions]

    def describe(self) -> str:
        """All groups, a line for each."""
        lines = []
        for group, known in sorted(self.groups.items()):
            members = ", ".join(f"{member.client_id}@{member.channel}" for member in known.members.values())
            wanted = ", ".join(
                f"{topic}:{one.expression} v{one.version}"
                for topic, one in sorted(known.subscriptions.items())
            )
            lines.append(f"{group} {known.state.message_model}: {members}; {wanted or 'no topics'}")
        return "\n".join(lines) or "no groups"

    @staticmethod
    def _notice(group: str, known: ConsumerGroup) -> Notice | None:
        return None if known.state.message_model == BROADCASTING else Notice(group, tuple(known.members))
