"""A consumer as Java's: heartbeats, rebalances, locks where it keeps order, pulls, commits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyledger.message import MessageQueue
from pyledger.protocol.rebalance.planner import plan, share
from pyledger.protocol.rebalance.strategies import Averagely
from tests.simulator.broker import NAME, TOPIC, Broker
from tests.simulator.world import Clock, Network, World

LOCK_VALID_MS = 30_000
CALL_TIMEOUT_MS = 3000
PULL_TIMEOUT_MS = 30_000


@dataclass
class Share:
    """A queue that a consumer has; `offset` is None until the broker has told it."""

    offset: int | None = None
    locked_ms: int = -LOCK_VALID_MS
    pulled_ms: int = 0
    committed: int = 0
    turn: int = 0


class Consumer:
    """One process; `start` after a crash begins with nothing."""

    def __init__(
        self, world: World, network: Network, broker: Broker, client_id: str, *, orderly: bool
    ) -> None:
        self.world, self.network, self.broker = world, network, broker
        self.client_id, self.orderly = client_id, orderly
        self.clock = Clock(world)
        self.seen: set[int] = set()
        self.life = 0
        self.running = False
        self.shares: dict[MessageQueue, Share] = {}

    def start(self) -> None:
        self.life += 1
        self.running = True
        self.shares = {}
        self.channel = f"{self.client_id}#{self.life}"
        self.every(30_000, self.heartbeat)
        self.every(20_000, self.rebalance)
        self.every(5000, self.commit)
        if self.orderly:
            self.every(20_000, lambda: self.lock(list(self.shares)))

    def stop(self) -> None:
        """The process is killed; its connection closes."""
        self.running = False
        self.shares = {}
        channel = self.channel
        self.network.send(self.channel, NAME, lambda: self.broker.close(channel))

    def every(self, interval_ms: int, action: Callable[[], None]) -> None:
        life = self.life

        def again() -> None:
            if self.running and self.life == life:
                action()
                self.world.after(interval_ms, again)

        again()

    def call(self, request: Callable[..., None], *arguments: Any, then: Callable[..., None]) -> None:
        """Send a request; the first answer counts, and only in this life."""
        life, answered = self.life, False

        def receive(*values: Any) -> None:
            nonlocal answered
            if self.running and self.life == life and not answered:
                answered = True
                then(*values)

        def reply(*values: Any) -> None:
            self.network.send(NAME, self.channel, lambda: receive(*values))

        channel = self.channel
        self.network.send(channel, NAME, lambda: request(channel, *arguments, reply=reply))

    def tell(self, request: Callable[..., None], *arguments: Any) -> None:
        channel = self.channel
        self.network.send(channel, NAME, lambda: request(channel, *arguments))

    def heartbeat(self) -> None:
        self.call(self.broker.heartbeat, self, then=lambda: None)

    def ids_changed(self) -> None:
        if self.running:
            self.rebalance()

    def rebalance(self) -> None:
        self.call(self.broker.ids, then=self.allocate)

    def allocate(self, ids: list[str] | None) -> None:
        wanted = share(Averagely(), self.client_id, self.broker.message_queues, ids)
        if wanted is None:
            return
        held = {queue: one.pulled_ms for queue, one in self.shares.items()}
        todo = plan(TOPIC, held, wanted, self.clock.now_ms)
        for queue in todo.drop:
            self.commit_queue(queue)
            del self.shares[queue]
            if self.orderly:
                self.tell(self.broker.unlock, self.client_id, [queue])
        for queue in todo.take:
            self.world.note(f"{self.channel} takes {queue.queue_id}")
            self.shares[queue] = Share(pulled_ms=self.clock.now_ms)
            self.pull(queue, self.shares[queue])
        if self.orderly and todo.take:
            self.lock(list(todo.take))

    def lock(self, queues: list[MessageQueue]) -> None:
        asked_ms = self.clock.now_ms

        def locked(taken: list[MessageQueue]) -> None:
            for queue in queues:
                if queue in self.shares:
                    self.shares[queue].locked_ms = asked_ms if queue in taken else -LOCK_VALID_MS

        if queues:
            self.call(self.broker.lock, self.client_id, queues, then=locked)

    def may_consume(self, queue: MessageQueue) -> bool:
        one = self.shares.get(queue)
        if one is None or not self.running:
            return False
        return not self.orderly or 0 <= self.clock.now_ms - one.locked_ms < LOCK_VALID_MS

    def pull(self, queue: MessageQueue, one: Share) -> None:
        """Ask for the offset, then for messages; a new turn makes answers to the one before worthless."""
        if self.shares.get(queue) is not one or not self.running:
            return
        one.turn += 1
        turn = one.turn
        if self.orderly and not self.may_consume(queue):
            one.offset = None
            self.again(queue, one, turn, 3000)
            return
        one.pulled_ms = self.clock.now_ms

        def start(offset: int) -> None:
            if one.turn == turn:
                one.offset = one.committed = offset
                self.again(queue, one, turn, 1)

        def consume(messages: list[int], next_offset: int) -> None:
            if one.turn != turn or self.shares.get(queue) is not one:
                return
            if self.may_consume(queue):
                self.seen.update(messages)
                one.offset = next_offset
            self.again(queue, one, turn, 1)

        if one.offset is None:
            self.call(self.broker.query, queue.queue_id, then=start)
            self.again(queue, one, turn, CALL_TIMEOUT_MS)
        else:
            self.call(self.broker.pull, queue.queue_id, one.offset, then=consume)
            self.again(queue, one, turn, PULL_TIMEOUT_MS)

    def again(self, queue: MessageQueue, one: Share, turn: int, delay_ms: int) -> None:
        self.world.after(delay_ms, lambda: self.pull(queue, one) if one.turn == turn else None)

    def commit(self) -> None:
        for queue in self.shares:
            self.commit_queue(queue)

    def commit_queue(self, queue: MessageQueue) -> None:
        one = self.shares[queue]
        if one.offset is not None and one.offset > one.committed:
            one.committed = one.offset
            self.tell(self.broker.commit, queue.queue_id, one.offset)
