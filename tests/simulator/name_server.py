"""A name server with the real table of routes; what it knows dies with it, and brokers tell it again."""

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
    """Requests are methods; `start` after a crash begins with nothing."""

    def __init__(self, world: World) -> None:
        self.clock = Clock(world)
        self.start()

    def start(self) -> None:
        self.table = RouteTable()

    def register(self, connection: object, queue_count: int) -> None:
        """What a broker tells every 30 s."""
        queues = QueueRoute(NAME, queue_count, queue_count, OPEN)
        # One topic alone would be a report of a change.
        said = Registration(BrokerIdentity(CLUSTER, NAME, ADDRESS, 0), {TOPIC: queues, NAME: queues})
        self.table.register(said, connection, self.clock.now_ms)

    def lose(self, connection: object) -> None:
        """A broker's connection has closed."""
        self.table.close_channel(connection)
        self.table.remove_queued()

    def expire(self) -> None:
        """Brokers that were silent for two minutes go."""
        self.table.expire(self.clock.now_ms)
        self.table.remove_queued()

    def route(self, _channel: str, reply: Reply) -> None:
        """Queues to send to and to consume, as a client makes them of the answer; nothing: nobody knows."""
        found = self.table.route(TOPIC)
        reply(() if found is None else (publish_queues(TOPIC, found), subscribe_queues(TOPIC, found)))


class Reporter:
    """The part of a broker that tells the name server where it is."""

    def __init__(self, broker: Broker, name_server: NameServer) -> None:
        self.broker, self.name_server = broker, name_server
        self.epoch, self.connection = broker.epoch, object()
        self.report()
        broker.every(30_000, self.report)
        broker.every(1000, self.look)
        broker.every(5000, name_server.expire)

    def look(self) -> None:
        """After a restart of the broker its old connection closes, and it reports at once."""
        if self.epoch != self.broker.epoch:
            lost, self.epoch, self.connection = self.connection, self.broker.epoch, object()
            self.broker.network.send(NAME, NAME_SERVER, lambda: self.name_server.lose(lost))
            self.report()

    def report(self) -> None:
        connection, count = self.connection, len(self.broker.queues)
        self.broker.network.send(NAME, NAME_SERVER, lambda: self.name_server.register(connection, count))
