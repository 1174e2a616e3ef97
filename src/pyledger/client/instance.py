"""State shared by the producers and consumers of one client id: connections, routes, heartbeats.

Source: RocketMQ client/.../impl/factory/MQClientInstance.java.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import chain
from random import Random

from pyledger.client.broker_api import Calls
from pyledger.client.identity import client_id, own_address, unique_instance_name
from pyledger.client.registered_groups import ConsumerMember, ProducerMember
from pyledger.client.remoting_processor import ClientRemotingProcessor
from pyledger.client.route_cache import RouteCache
from pyledger.config.client import ClientConfig
from pyledger.config.fields import Settings, checked_type
from pyledger.config.loader import name_server_list
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import ClientStateError, ConfigError, PyLedgerError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.name_servers import parse_addresses
from pyledger.protocol.rebalance.planner import INTERVAL_MS, MIN_INTERVAL_MS
from pyledger.wire.remoting.bodies.heartbeat import Heartbeat, ProducerEntry

log = logger("client")

FIRST_ROUTES_MS = 10
FIRST_HEARTBEAT_MS = 1000
FIRST_PERSIST_MS = 10_000


class ClientInstance:
    """One client, between `start` and `close`. Belongs to one event loop."""

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        net: NetConfig | None = None,
        tls: TlsConfig | None = None,
    ) -> None:
        """A client that connects once it is started.

        Args:
            config: Name servers, intervals, keys.
            net: Limits of connections.
            tls: Whether to use TLS, and its certificates.

        Raises:
            ConfigError: no name server is named, or an argument has another type.
        """
        checked_type("config", config, ClientConfig | None)
        checked_type("net", net, NetConfig | None)
        checked_type("tls", tls, TlsConfig | None)
        self.config = config or ClientConfig()
        self._net = net
        self._tls = tls
        self.name_servers = name_server_list(self.config.name_servers)
        self.name_server_addresses = parse_addresses(self.name_servers)
        if not self.name_server_addresses:
            raise ConfigError("name_servers", f"{self.name_servers!r} names no server", "give host:port")
        self.address = own_address(self.name_server_addresses[0])
        name = self.config.instance_name or unique_instance_name()
        self.client_id = client_id(self.address, name, self.config.unit_name)
        self.random = Random()
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self.inbound = ClientRemotingProcessor(self.producers, self.consumers, self.rebalance_soon)
        self._registered_at: set[str] = set()
        """Addresses of brokers that have answered a heartbeat."""
        self._users = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._heartbeat_lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._calls: Calls | None = None
        self._routes: RouteCache | None = None

    @property
    def calls(self) -> Calls:
        """Requests to servers.

        Raises:
            ClientStateError: the client is not started, or is closed.
        """
        if self._calls is None:
            raise ClientStateError(f"client {self.client_id}", "it does not run", "start it, or use `with`")
        return self._calls

    @property
    def routes(self) -> RouteCache:
        """The routes of topics.

        Raises:
            ClientStateError: the client is not started, or is closed.
        """
        if self._routes is None:
            raise ClientStateError(f"client {self.client_id}", "it does not run", "start it, or use `with`")
        return self._routes

    async def start(self) -> None:
        """Start, or count one more user of this client.

        Raises:
            ConfigError: a certificate cannot be read.
        """
        self._users += 1
        if self._users > 1:
            return
        remoting = RemotingClient(
            self.inbound.handlers(), config=self._net, tls=self._tls, random=self.random
        )
        self._calls = Calls(remoting, self.config)
        self._routes = RouteCache(self._calls, self._route_changed)
        self._registered_at.clear()
        remoting.update_name_servers(self.name_server_addresses)
        config = self.config
        self._tasks = [
            asyncio.create_task(work)
            for work in (
                self._repeat(FIRST_ROUTES_MS, config.poll_name_server_interval_ms, self._refresh_routes),
                self._repeat(FIRST_HEARTBEAT_MS, config.heartbeat_interval_ms, self._beat),
                self._repeat(FIRST_PERSIST_MS, config.persist_offsets_interval_ms, self._persist_offsets),
                self._rebalance(),
            )
        ]
        event(log, logging.INFO, "client started", client_id=self.client_id, name_servers=self.name_servers)

    async def close(self) -> None:
        """Count one user less; the last one closes all connections."""
        if self._users == 0:
            return
        self._users -= 1
        if self._users:
            return
        await self._unregister(names.INNER_PRODUCER_GROUP, None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.inbound.close()
        calls, self._calls, self._routes = self.calls, None, None
        await calls.remoting.close()
        event(log, logging.INFO, "client closed", client_id=self.client_id)

    @staticmethod
    def monotonic_ms() -> float:
        """Return milliseconds of the monotonic clock; thread-safe."""
        return time.monotonic() * 1000

    # --- members

    async def add_producer(self, producer: ProducerMember) -> None:
        """Register a producer and send heartbeats for it.

        Raises:
            ClientStateError: this client has a producer of this group.
        """
        if producer.group in self.producers:
            raise ClientStateError(
                f"producer group {producer.group}", "this client has a producer of it", "share that one"
            )
        self.producers[producer.group] = producer
        await self.heartbeat()

    async def remove_producer(self, producer: ProducerMember) -> None:
        """Unregister a producer."""
        if self.producers.get(producer.group) is producer:
            del self.producers[producer.group]
            await self._unregister(producer.group, None)

    async def add_consumer(self, consumer: ConsumerMember) -> None:
        """Register a consumer, send heartbeats for it and rebalance it.

        Raises:
            ClientStateError: this client has a consumer of this group.
        """
        # Before the registration: a changed route starts a rebalance, and this consumer is not ready for one.
        await self.routes.refresh_all(consumer.topics())
        if consumer.group in self.consumers:
            raise ClientStateError(
                f"consumer group {consumer.group}", "this client has a consumer of it", "use another client"
            )
        self.consumers[consumer.group] = consumer
        await self.heartbeat()

    async def remove_consumer(self, consumer: ConsumerMember) -> None:
        """Unregister a consumer."""
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]
            await self._unregister(None, consumer.group)

    def rebalance_soon(self) -> None:
        """Rebalance now, or one second after the last round."""
        self._wake.set()

    async def heartbeat(self) -> None:
        """Send a heartbeat to every broker in use; one that does not answer gets the next one."""
        async with self._heartbeat_lock:
            data = self._heartbeat_data()
            if not data.consumer_data_set and not self.producers:
                return
            targets = [
                address
                for by_id in self.routes.addresses.values()
                for broker_id, address in by_id.items()
                if data.consumer_data_set or broker_id == 0
            ]
            await asyncio.gather(*[self._beat_one(address, data) for address in targets])

    # --- inside

    def _heartbeat_data(self) -> Heartbeat:
        groups = [*self.producers, names.INNER_PRODUCER_GROUP]
        return Heartbeat(
            client_id=self.client_id,
            producer_data_set=tuple(ProducerEntry(group_name=group) for group in groups),
            consumer_data_set=tuple(consumer.entry() for consumer in self.consumers.values()),
        )

    async def _beat_one(self, address: str, data: Heartbeat) -> None:
        try:
            await self.calls.heartbeat(address, data)
            self._registered_at.add(address)
        except PyLedgerError as error:
            event(log, logging.WARNING, "heartbeat failed", address=address, error=error)

    async def _beat(self) -> None:
        self.routes.drop_unnamed()
        await self.heartbeat()

    async def _refresh_routes(self) -> None:
        published = chain.from_iterable(one.topics() for one in self.producers.values())
        subscribed = chain.from_iterable(one.topics() for one in self.consumers.values())
        # `routes.topics` serves a client that only reads: it must follow a broker's new address, too.
        await self.routes.refresh_all(dict.fromkeys(chain(published, subscribed, self.routes.topics)))

    def _route_changed(self, topic: str) -> None:
        # A broker without our heartbeat sends no replies and no transaction checks, and lists no member.
        if not self.routes.known_addresses <= self._registered_at and (self.producers or self.consumers):
            self.inbound.spawn(self.heartbeat())
        if any(topic in consumer.topics() for consumer in self.consumers.values()):
            self.rebalance_soon()

    async def _persist_offsets(self) -> None:
        for consumer in list(self.consumers.values()):
            await consumer.persist_offsets()

    async def _rebalance(self) -> None:
        wait_ms = INTERVAL_MS
        while True:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            balanced = True
            for consumer in list(self.consumers.values()):
                balanced &= await self._rebalance_one(consumer)
            wait_ms = INTERVAL_MS if balanced else MIN_INTERVAL_MS
            await asyncio.sleep(MIN_INTERVAL_MS / 1000)

    async def _rebalance_one(self, consumer: ConsumerMember) -> bool:
        try:
            return await consumer.rebalance()
        except PyLedgerError as error:
            event(log, logging.WARNING, "rebalance failed", group=consumer.group, error=error)
        except Exception:
            log.exception("rebalance failed")
        return False

    async def _repeat(self, first_ms: int, interval_ms: int, action: Callable[[], Awaitable[None]]) -> None:
        wait_ms = first_ms
        while True:
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = interval_ms
            try:
                await action()
            except PyLedgerError as error:
                event(log, logging.WARNING, "periodic task failed", error=error)
            except Exception:
                log.exception("periodic task failed")

    async def _unregister(self, producer_group: str | None, consumer_group: str | None) -> None:
        async def leave(address: str) -> None:
            try:
                await self.calls.unregister(address, self.client_id, producer_group, consumer_group)
            except PyLedgerError as error:
                event(log, logging.INFO, "not unregistered", address=address, error=error)

        await asyncio.gather(*[leave(address) for address in sorted(self.routes.known_addresses)])


OWN_CLIENT: Mapping[str, type[Settings]] = {"client": ClientConfig, "net": NetConfig, "tls": TlsConfig}
"""The arguments of `own_client` that are settings classes."""


def own_client(
    name_servers: str,
    client: ClientConfig | ClientInstance | None,
    net: NetConfig | None,
    tls: TlsConfig | None,
) -> ClientInstance:
    """Return the shared client, or a new one.

    Raises:
        ConfigError: an argument has another type.
    """
    checked_type("name_servers", name_servers, str)
    checked_type("client", client, ClientConfig | ClientInstance | None)
    if isinstance(client, ClientInstance):
        return client
    config = client or ClientConfig()
    if name_servers:
        config = replace(config, name_servers=name_servers)
    return ClientInstance(config, net=net, tls=tls)
