"""A producer with the real rules: it requests the route, uses the queues alternately, and retries.

An attempt whose answer is lost may be stored, and so may the next: messages come twice, none is lost that was
acknowledged.
"""

from collections.abc import Sequence
from functools import partial

from pyledger.errors import RemotingTimeoutError
from pyledger.model.message import MessageQueue
from pyledger.protocol.client.queue_selection import FaultStrategy
from pyledger.protocol.client.send_retry import SendMode, tries_again
from pyledger.simulator.world import Network, World
from tests.simulator.broker import NAME, Broker
from tests.simulator.name_server import NAME_SERVER, NameServer

PRODUCER = "producer"
ATTEMPTS_MAX = 3
TIMEOUT_MS = 3000
ROUTE_INTERVAL_MS = 30_000


class Producer:
    """Sends numbered messages; `acknowledged` are those with a successful response."""

    def __init__(self, world: World, network: Network, broker: Broker, name_server: NameServer) -> None:
        self.world, self.network = world, network
        self.broker, self.name_server = broker, name_server
        self.queues: Sequence[MessageQueue] = ()
        self.chooser = FaultStrategy(world.random.randrange)
        self.acknowledged: set[int] = set()
        self.ask()
        broker.every(ROUTE_INTERVAL_MS, self.ask)

    def ask(self) -> None:
        """Request the route; an unknown one leaves the last in place."""

        def known(*views: tuple[MessageQueue, ...]) -> None:
            if views:
                self.queues = views[0]

        def reply(found: tuple[tuple[MessageQueue, ...], ...]) -> None:
            self.network.send(NAME_SERVER, PRODUCER, lambda: known(*found))

        self.network.send(PRODUCER, NAME_SERVER, lambda: self.name_server.route(PRODUCER, reply))

    def send(self, message: int, attempt: int = 1) -> None:
        """Send a message; without a route it is given up."""
        if not self.queues:
            return
        answered = False

        def receive() -> None:
            nonlocal answered
            answered = True
            self.acknowledged.add(message)

        def give_up() -> None:
            lost = RemotingTimeoutError(NAME, TIMEOUT_MS)
            if not answered and attempt < ATTEMPTS_MAX and tries_again(SendMode.SYNC, lost):
                self.send(message, attempt + 1)

        queue = self.chooser.choose(self.queues)
        self.network.send(PRODUCER, NAME, partial(self.store, queue.queue_id, message, receive))
        self.world.after(TIMEOUT_MS, give_up)

    def store(self, queue_id: int, message: int, receive: object) -> None:
        """Handle the request at the broker."""
        self.broker.put(queue_id, message)
        self.network.send(NAME, PRODUCER, receive)  # type: ignore[arg-type]
