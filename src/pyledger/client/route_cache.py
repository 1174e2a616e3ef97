"""The routes and broker addresses that a client has fetched.

Source: RocketMQ client/.../impl/factory/MQClientInstance.java (updateTopicRouteInfoFromNameServer,
cleanOfflineBroker).
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial

from pyledger.client.broker_api import Calls
from pyledger.errors import NoRouteError, RemotingConnectError, RemotingError, WireError
from pyledger.log_events import event, logger
from pyledger.model.message import MessageQueue
from pyledger.model.route import TopicRoute
from pyledger.protocol.client.topic_route_view import (
    addresses_of,
    is_same,
    master_address,
    publish_queues,
    read_address,
    subscribe_queues,
    template_route,
)

log = logger("client")

DOUBT_INTERVAL_S = 0.5
"""Least time between two background refreshes of a topic whose broker cannot be reached."""


class RouteCache:
    """Routes by topic, and the addresses of all brokers that they name."""

    def __init__(self, calls: Calls, changed: Callable[[str], None]) -> None:
        """Create an empty cache.

        Args:
            calls: Requests to name servers.
            changed: Called with the topic when its route has changed.
        """
        self._calls = calls
        self._changed = changed
        self._routes: dict[str, TopicRoute] = {}
        self._publish: dict[str, tuple[MessageQueue, ...]] = {}
        self._requests: dict[str, asyncio.Task[TopicRoute]] = {}
        self._doubted: dict[str, float] = {}
        """Time of the last call of `doubt` by topic, in seconds of the event loop's clock."""
        self._doubts: set[asyncio.Task[None]] = set()
        self.addresses: dict[str, dict[int, str]] = {}
        self.version = 0
        """Incremented with each change."""

    @property
    def known_addresses(self) -> set[str]:
        """The addresses of all brokers."""
        return {address for by_id in self.addresses.values() for address in by_id.values()}

    async def refresh(self, topic: str, timeout_ms: int | None = None) -> TopicRoute:
        """Fetch a route from a name server; concurrent callers share one request.

        Raises:
            NoRouteError: no name server knows the topic.
            RemotingError: none answered.
        """
        task = self._requests.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._calls.route(topic, timeout_ms))
            self._requests[topic] = task
            task.add_done_callback(partial(self._on_response, topic))
        route = await asyncio.shield(task)
        self._take(topic, route)
        return route

    async def refresh_all(self, topics: Collection[str]) -> None:
        """Fetch the routes of several topics; after an error a topic keeps its last route."""
        for topic in topics:
            try:
                await self.refresh(topic)
            except (RemotingError, WireError) as error:
                level = logging.DEBUG if isinstance(error, NoRouteError) else logging.WARNING
                event(log, level, "route not refreshed", topic=topic, error=error)

    def doubt(self, topic: str) -> None:
        """Refresh the route of a topic in the background: one of its brokers cannot be reached.

        Upstream's client waits for its next periodic refresh, up to 30 s.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._doubted.get(topic, 0.0) + DOUBT_INTERVAL_S:
            return
        self._doubted[topic] = loop.time()
        task = loop.create_task(self.refresh_all((topic,)))
        self._doubts.add(task)
        task.add_done_callback(self._doubts.discard)

    @property
    def topics(self) -> Collection[str]:
        """The topics whose routes are known."""
        return tuple(self._routes)

    def route(self, topic: str) -> TopicRoute | None:
        """Return the last known route of a topic."""
        return self._routes.get(topic)

    def writable_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic to send to; empty if its route is not known."""
        return self._publish.get(topic, ())

    async def publish_queues(
        self, topic: str, template_topic: str, queue_count: int, timeout_ms: int
    ) -> tuple[MessageQueue, ...]:
        """Return the queues to send to; for an unknown topic, those that a send will create.

        Raises:
            NoRouteError: the topic is not known, nor is the template.
            RemotingError: no name server answered.
        """
        queues = self._publish.get(topic)
        if queues:
            return queues
        try:
            await self.refresh(topic, timeout_ms)
        except NoRouteError:
            try:
                template = await self._calls.route(template_topic, timeout_ms)
            except NoRouteError:
                raise NoRouteError(topic) from None
            self._take(topic, template_route(template, queue_count))
        queues = self._publish[topic]
        if not queues:
            raise NoRouteError(topic)
        return queues

    async def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues to consume.

        Raises:
            NoRouteError: no name server knows the topic.
            RemotingError: none answered.
        """
        route = self._routes.get(topic) or await self.refresh(topic)
        return subscribe_queues(topic, route)

    async def current_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Fetch the route and return the queues to consume."""
        return subscribe_queues(topic, await self.refresh(topic))

    def master(self, broker_name: str) -> str:
        """Return the address of a broker's master.

        Raises:
            RemotingConnectError: no route names its master.
        """
        address = master_address(self.addresses, broker_name)
        if address is None:
            raise RemotingConnectError(broker_name, "no route names the master of this broker")
        return address

    def reader(self, broker_name: str, broker_id: int = 0) -> tuple[str, bool]:
        """Return the address to read from, and whether it is a slave's.

        Raises:
            RemotingConnectError: no route names it.
        """
        found = read_address(self.addresses, broker_name, broker_id)
        if found is None:
            raise RemotingConnectError(broker_name, "no route names this broker")
        return found

    def drop_unnamed(self) -> None:
        """Drop the addresses that no route names any more."""
        named = {
            (broker.broker_name, broker_id, address)
            for route in self._routes.values()
            for broker in route.brokers
            for broker_id, address in broker.broker_addrs.items()
        }
        self.version += 1
        for broker_name, by_id in list(self.addresses.items()):
            kept = {i: a for i, a in by_id.items() if (broker_name, i, a) in named}
            if kept:
                self.addresses[broker_name] = kept
            else:
                del self.addresses[broker_name]

    def _on_response(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        del self._requests[topic]
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the callers of `refresh` get it

    def _take(self, topic: str, route: TopicRoute) -> None:
        if is_same(self._routes.get(topic), route):
            return
        self.addresses.update(addresses_of(route))
        self._publish[topic] = publish_queues(topic, route)
        self._routes[topic] = route
        self.version += 1
        event(log, logging.DEBUG, "route changed", topic=topic)
        self._changed(topic)
