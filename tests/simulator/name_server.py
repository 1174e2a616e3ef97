"""A name server with the real table of routes; after a restart it is empty until brokers register."""

from pyledger.model.route import BrokerIdentity, QueueRoute, Registration
from pyledger.model.topic import Permission
from pyledger.protocol.client.topic_route_view import publish_queues, subscribe_queues
from pyledger.protocol.namesrv.route_table import RouteTable
from pyledger.simulator.world import Clock, World
from tests.simulator.broker import NAME, TOPIC, Broker, Reply

NAME_SERVER = "namesrv"
CLUSTER, ADDRESS = "c", "127.0.0.1:10911"
OPEN = Permission.READ | Permission.WRITE


class NameServer:
    """Each request is a method; `start` after a crash begins without state."""

    def __init__(self, world: World) -> None:
        self.clock = Clock(world)
        self.start()

    def start(self) -> None:
        self.table = RouteTable()

    def register(self, connection: object, queue_count: int) -> None:
        """Handle a registration, which a broker sends every 30 s."""
        queues = QueueRoute(NAME, queue_count, queue_count, OPEN)
        # One topic alone would be a report of a change.
        said = Registration(BrokerIdentity(CLUSTER, NAME, ADDRESS, 0), {TOPIC: queues, NAME: queues})
        self.table.register(said, connection, self.clock.now_ms)

    def lose(self, connection: object) -> None:
        """Handle the closed connection of a broker."""
        self.table.close_channel(connection)
        self.table.remove_queued()

    def expire(self) -> None:
        """Remove brokers that were silent for two minutes."""
        self.table.expire(self.clock.now_ms)
        self.table.remove_queued()

    def route(self, _channel: str, reply: Reply) -> None:
        """Return the queues to send to and to consume, as a client derives them; empty if unknown."""
        found = self.table.route(TOPIC)
        reply(() if found is None else (publish_queues(TOPIC, found), subscribe_queues(TOPIC, found)))


class Reporter:
    """The part of a broker that registers with the name server."""

    def __init__(self, broker: Broker, name_server: NameServer) -> None:
        self.broker, self.name_server = broker, name_server
        self.epoch, self.connection = broker.epoch, object()
        self.report()
        broker.every(30_000, self.report)
        broker.every(1000, self.look)
        broker.every(5000, name_server.expire)

    def look(self) -> None:
        """Close the old connection after a restart of the broker, and register at once."""
        if self.epoch != self.broker.epoch:
            lost, self.epoch, self.connection = self.connection, self.broker.epoch, object()
            self.broker.network.send(NAME, NAME_SERVER, lambda: self.name_server.lose(lost))
            self.report()

    def report(self) -> None:
        connection, count = self.connection, len(self.broker.queues)
        self.broker.network.send(NAME, NAME_SERVER, lambda: self.name_server.register(connection, count))
