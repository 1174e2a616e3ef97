"""Administration for programs without asyncio."""

from collections.abc import Mapping
from typing import Any

from pyledger.client.admin.admin import TIME_MAX_MS, AsyncAdmin, Progress
from pyledger.client.blocking.base import Blocking, background
from pyledger.model.message import MessageQueue
from pyledger.model.route import ClusterRoutes, TopicRoute
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import TopicConfig
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.bodies.membership import ConsumerConnection
from pyledger.wire.remoting.bodies.statistics import TopicOffset


class Admin(Blocking[AsyncAdmin]):
    """Asks name servers and brokers; each method is that of `AsyncAdmin`, and waits."""

    def __init__(self, name_servers: str = "", **options: Any) -> None:
        """An administrator that connects once it is started; takes what `AsyncAdmin` takes."""
        super().__init__(AsyncAdmin(name_servers, **options))

    def clusters(self) -> ClusterRoutes:
        """All clusters and brokers that a name server knows."""
        return background().wait(self._inner.clusters())

    def broker_status(self, address: str) -> Mapping[str, str]:
        """What a broker says of itself, by name."""
        return background().wait(self._inner.broker_status(address))

    def topics(self) -> tuple[str, ...]:
        """Names of all topics, sorted."""
        return background().wait(self._inner.topics())

    def topic_route(self, topic: str) -> TopicRoute:
        """Which brokers have a topic."""
        return background().wait(self._inner.topic_route(topic))

    def topic_configs(self, topic: str) -> dict[str, TopicConfig]:
        """A topic as each broker has it, by broker name."""
        return background().wait(self._inner.topic_configs(topic))

    def topic_offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """First and next offset of each queue of a topic."""
        return background().wait(self._inner.topic_offsets(topic))

    def create_topic(
        self, topic: TopicConfig, *, cluster: str | None = None, address: str | None = None
    ) -> tuple[str, ...]:
        """Create a topic, or change it; returns the addresses of the brokers that have it now."""
        return background().wait(self._inner.create_topic(topic, cluster=cluster, address=address))

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic at brokers and name servers."""
        background().wait(self._inner.delete_topic(topic, cluster=cluster))

    def groups(self) -> dict[str, SubscriptionGroup]:
        """All groups that masters know, by name, sorted."""
        return background().wait(self._inner.groups())

    def create_group(self, group: SubscriptionGroup, *, cluster: str | None = None) -> tuple[str, ...]:
        """Create a group, or change it; returns the addresses of the brokers that have it now."""
        return background().wait(self._inner.create_group(group, cluster=cluster))

    def delete_group(self, group: str, *, cluster: str | None = None, forget_offsets: bool = True) -> None:
        """Delete a group, and where it stands."""
        background().wait(self._inner.delete_group(group, cluster=cluster, forget_offsets=forget_offsets))

    def progress(self, group: str, topic: str | None = None) -> Progress:
        """How far a group is, in all queues or in those of one topic."""
        return background().wait(self._inner.progress(group, topic))

    def members(self, group: str) -> ConsumerConnection | None:
        """Consumers of a group that are connected; None when there are none."""
        return background().wait(self._inner.members(group))

    def reset_offset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Let a group go on at a time (ms since 1970), in all queues of a topic."""
        return background().wait(self._inner.reset_offset(group, topic, timestamp_ms, force=force))

    def message(self, msg_id: str, topic: str | None = None) -> ReceivedMessage:
        """The message of an id: one that names a place, or with a topic also a unique key."""
        return background().wait(self._inner.message(msg_id, topic))

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX_MS,
        count_max: int = 64,
        unique: bool = False,
    ) -> list[ReceivedMessage]:
        """Messages of a topic with a key, by the time of their storing."""
        return background().wait(
            self._inner.query(
                topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count_max, unique=unique
            )
        )
