"""A consumer with the real rules: heartbeats, rebalances, locks for orderly consumption, pulls, commits.

Pulled messages wait in the process queues of the client. They are consumed in any order, or one at a time if
orderly. Some fail and are consumed again; an orderly queue waits for that.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyledger.model.message import MessageQueue
from pyledger.protocol.client.offset_table import OffsetTable
from pyledger.protocol.client.process_queue import NOTHING_CONSUMED, FlowLimits, ProcessQueue
from pyledger.protocol.rebalance.planner import plan, share
from pyledger.protocol.rebalance.strategies import Averagely
from pyledger.simulator.world import Clock, Network, World
from tests.simulator.broker import NAME, TOPIC, Broker
from tests.simulator.name_server import NAME_SERVER, NameServer

LIMITS = FlowLimits(count_max=48, span_max=200)
FLOW_CONTROL_WAIT_MS = 50
SUSPEND_MS = 1000
WORK_MS_MAX = 400
FAILURES = 0.02
CALL_TIMEOUT_MS = 3000
PULL_TIMEOUT_MS = 30_000


@dataclass(eq=False)
class Pulled:
    """A message that waits at a consumer."""

    queue_offset: int
    number: int
    body_length: int = 0


@dataclass(eq=False)
class Share:
    """A queue that a consumer has; `offset` is None until the broker has returned it."""

    messages: ProcessQueue[Pulled]
    offset: int | None = None
    pulls: int = 0
    """Number of the latest pull; responses to earlier ones are ignored."""
    works: bool = False
    """Orderly: a listener is consuming its messages."""


class Consumer:
    """A client process; `start` after a crash begins without state."""

    def __init__(
        self,
        world: World,
        network: Network,
        broker: Broker,
        name_server: NameServer,
        client_id: str,
        *,
        orderly: bool,
    ) -> None:
        self.world, self.network, self.broker = world, network, broker
        self.name_server = name_server
        self.queues: tuple[MessageQueue, ...] = ()
        self.client_id, self.orderly = client_id, orderly
        self.clock = Clock(world)
        self.life = 0
        self.running = False
        self.shares: dict[MessageQueue, Share] = {}
        self.offsets = OffsetTable()

    def start(self) -> None:
        self.life += 1
        self.running = True
        self.shares = {}
        self.offsets = OffsetTable()
        self.channel = f"{self.client_id}#{self.life}"
        self.queues = ()
        self.every(30_000, self.request_route)
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

    def request_route(self) -> None:
        """Request the route; an unknown one leaves the last in place."""

        def known(views: tuple[tuple[MessageQueue, ...], ...]) -> None:
            is_first = not self.queues
            if views:
                self.queues = views[1]
            if views and is_first:
                self.rebalance()

        self.call(self.name_server.route, then=known, server=NAME_SERVER)

    def call(
        self,
        request: Callable[..., None],
        *arguments: Any,
        then: Callable[..., None],
        server: str = NAME,
    ) -> None:
        """Send a request; only the first response counts, and only in the same process."""
        life, answered = self.life, False

        def receive(*values: Any) -> None:
            nonlocal answered
            if self.running and self.life == life and not answered:
                answered = True
                then(*values)

        def reply(*values: Any) -> None:
            self.network.send(server, self.channel, lambda: receive(*values))

        channel = self.channel
        self.network.send(channel, server, lambda: request(channel, *arguments, reply=reply))

    def send_oneway(self, request: Callable[..., None], *arguments: Any) -> None:
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
        wanted = share(Averagely(), self.client_id, self.queues, ids) if self.queues else None
        if wanted is None:
            return
        held = {queue: int(one.messages.last_pull_ms) for queue, one in self.shares.items()}
        todo = plan(TOPIC, held, wanted, self.clock.now_ms)
        for queue in todo.drop:
            self.commit([queue])
            self.forget(queue)
            if self.orderly:
                self.send_oneway(self.broker.unlock, self.client_id, [queue])
        for queue in todo.take:
            self.world.note(f"{self.channel} takes {queue.queue_id}")
            self.shares[queue] = Share(ProcessQueue(self.clock.now_ms))
            self.pull(queue, self.shares[queue])
        if self.orderly and todo.take:
            self.lock(list(todo.take))

    def lock(self, queues: list[MessageQueue]) -> None:
        requested_ms = self.clock.now_ms
        requested = {queue: self.shares[queue] for queue in queues}

        def locked(taken: list[MessageQueue]) -> None:
            for queue, one in requested.items():
                if queue in taken:
                    one.messages.last_lock_ms = requested_ms
                elif self.shares.get(queue) is one and one.messages.last_lock_ms is not None:
                    self.world.note(f"{self.channel} lost the lock of {queue.queue_id}")
                    self.forget(queue)

        if queues:
            self.call(self.broker.lock, self.client_id, queues, then=locked)

    def may_consume(self, queue: MessageQueue) -> bool:
        one = self.shares.get(queue)
        if one is None or not self.running:
            return False
        locked_ms = one.messages.last_lock_ms
        # A clock that was set back makes a lock look younger than it is.
        is_locked = locked_ms is not None and locked_ms <= self.clock.now_ms
        return not self.orderly or (is_locked and one.messages.is_locked(self.clock.now_ms))

    def pull(self, queue: MessageQueue, one: Share) -> None:
        """Request the offset, then messages; a new pull makes responses to earlier ones stale."""
        if self.shares.get(queue) is not one or not self.running:
            return
        one.pulls += 1
        pull_number = one.pulls
        one.messages.last_pull_ms = self.clock.now_ms
        if self.orderly and not self.may_consume(queue):
            self.again(queue, one, pull_number, 3000)
            return
        if one.messages.limit_reached(LIMITS) is not None:
            self.again(queue, one, pull_number, FLOW_CONTROL_WAIT_MS)
            return

        def start(offset: int) -> None:
            if one.pulls == pull_number:
                one.offset = offset
                self.offsets.known(queue, offset)
                self.again(queue, one, pull_number, 1)

        def take(numbers: list[int], next_offset: int) -> None:
            if one.pulls != pull_number or self.shares.get(queue) is not one or one.offset is None:
                return
            found = [Pulled(one.offset + at, number) for at, number in enumerate(numbers)]
            one.messages.put(found)
            one.offset = next_offset
            self.consume(queue, one, found)
            self.again(queue, one, pull_number, 1)

        if one.offset is None:
            self.call(self.broker.query, queue.queue_id, then=start)
            self.again(queue, one, pull_number, CALL_TIMEOUT_MS)
        else:
            self.call(self.broker.pull, queue.queue_id, one.offset, then=take)
            self.again(queue, one, pull_number, PULL_TIMEOUT_MS)

    def again(self, queue: MessageQueue, one: Share, pull_number: int, delay_ms: int) -> None:
        self.world.after(delay_ms, lambda: self.pull(queue, one) if one.pulls == pull_number else None)

    # --- listeners

    def consume(self, queue: MessageQueue, one: Share, found: list[Pulled]) -> None:
        if self.orderly:
            self.work_in_order(queue, one)
            return
        for message in found:
            self.later(WORK_MS_MAX, partial(self.finish, queue, one, message))

    def finish(self, queue: MessageQueue, one: Share, message: Pulled) -> None:
        """End the consumption of a message; a failed one is consumed again."""
        if self.shares.get(queue) is not one:
            return
        if self.fails():
            self.later(WORK_MS_MAX, partial(self.finish, queue, one, message))
            return
        self.broker.consumed.add(message.number)
        self.offsets.update(queue, one.messages.remove([message]))

    def work_in_order(self, queue: MessageQueue, one: Share) -> None:
        """Pass the next messages to the listener, unless it is busy."""
        if one.works or not self.may_consume(queue):
            return
        batch = one.messages.take(self.world.random.randint(1, 4))
        if batch:
            one.works = True
            self.later(WORK_MS_MAX, partial(self.finish_in_order, queue, one, batch))

    def finish_in_order(self, queue: MessageQueue, one: Share, batch: list[Pulled]) -> None:
        one.works = False
        if self.shares.get(queue) is not one:
            return
        if self.fails():
            one.messages.put_back()
            self.later(SUSPEND_MS, lambda: self.work_in_order(queue, one))
            return
        for message in batch:
            self.broker.check_order(queue.queue_id, message.queue_offset)
            self.broker.consumed.add(message.number)
        offset = one.messages.commit()
        assert offset != NOTHING_CONSUMED
        self.offsets.update(queue, offset, increase_only=False)
        self.work_in_order(queue, one)

    def fails(self) -> bool:
        return not self.world.healed and self.world.random.random() < FAILURES

    def later(self, delay_ms_max: int, action: Callable[[], None]) -> None:
        """Run an action later, if the same process still runs."""
        life = self.life
        self.world.after(
            self.world.random.randint(1, delay_ms_max),
            lambda: action() if self.running and self.life == life else None,
        )

    # --- offsets

    def commit(self, queues: Collection[MessageQueue] | None = None) -> None:
        """Commit the changed offsets."""
        for queue, offset in self.offsets.unpersisted(self.shares if queues is None else queues).items():
            self.offsets.on_persisted(queue, offset)
            self.send_oneway(self.broker.commit, queue.queue_id, offset)

    def forget(self, queue: MessageQueue) -> None:
        del self.shares[queue]
        self.offsets.forget(queue)
