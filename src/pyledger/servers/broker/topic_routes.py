"""The queues of topics at all brokers, as the name servers know them.

Source: RocketMQ broker/.../TopicRouteInfoManager.java.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyledger.errors import RemotingError, WireError
from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.client import RemotingClient
from pyledger.protocol.broker.topics import BrokerTopics
from pyledger.protocol.client.topic_route_view import subscribe_queues
from pyledger.wire.remoting.bodies.route import decode_route
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.namesrv import GetRouteInfoRequestHeader

KEPT_MS = 10_000
"""How long a response is cached."""
TIMEOUT_MS = 3_000
TOPICS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class KnownQueues:
    """The response of a name server, and its time."""

    queues: tuple[MessageQueue, ...] | None
    time_ms: int


class TopicRoutes:
    """Queries the name servers one after the other; without any, uses the broker's own table."""

    def __init__(
        self,
        broker_name: str,
        name_servers: tuple[str, ...],
        topics: BrokerTopics,
        client: Callable[[], RemotingClient | None],
        now_ms: Callable[[], int],
    ) -> None:
        """Query nothing yet.

        Args:
            broker_name: The name of this broker.
            name_servers: The addresses of the name servers.
            topics: The broker's own table.
            client: Returns the client that calls the name servers; None while the broker starts.
            now_ms: A monotonic clock.
        """
        self._broker_name = broker_name
        self._name_servers = name_servers
        self._topics = topics
        self._client = client
        self._now_ms = now_ms
        self._known: dict[str, KnownQueues] = {}

    async def queues(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """Return the readable queues of a topic; None when there is no such topic."""
        known = self._known.get(topic)
        if known is not None and self._now_ms() - known.time_ms < KEPT_MS:
            return known.queues
        client = self._client()
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        for address in self._name_servers:
            if client is None:
                break
            command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            try:
                answer = await client.call(address, command, TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS:
                    return self._keep(topic, subscribe_queues(topic, decode_route(answer.body)))
            except (RemotingError, WireError):
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return self._keep(topic, None)
        return self._own(topic)

    def _keep(self, topic: str, queues: tuple[MessageQueue, ...] | None) -> tuple[MessageQueue, ...] | None:
        if len(self._known) >= TOPICS_MAX:
            self._known.clear()
        self._known[topic] = KnownQueues(queues, self._now_ms())
        return queues

    def _own(self, name: str) -> tuple[MessageQueue, ...] | None:
        topic = self._topics.find(name)
        if topic is None:
            return None
        return tuple(
            MessageQueue(name, self._broker_name, number) for number in range(topic.read_queue_count)
        )
