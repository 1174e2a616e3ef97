"""A broker with the real rules over queues in memory: members, locks, offsets, held pulls."""

from collections.abc import Callable
from typing import Any

from pyledger.config.delivery import DeliveryConfig
from pyledger.model.message import MessageQueue
from pyledger.protocol.broker.client_channel import Client, Notice
from pyledger.protocol.broker.consumer_offsets import OffsetTable
from pyledger.protocol.broker.consumer_registry import ConsumerState, ConsumerTable
from pyledger.protocol.broker.long_poll import LongPollTable, ParkedPull
from pyledger.protocol.broker.queue_locks import QueueLocks
from pyledger.protocol.broker.subscription import Subscription
from pyledger.simulator.world import Clock, Network, World

TOPIC, GROUP, NAME = "T", "g", "broker-a"
BATCH = 32
Reply = Callable[..., None]


class Broker:
    """Each request is a method that takes its channel and a reply function."""

    def __init__(self, world: World, network: Network, queue_count: int) -> None:
        self.world, self.network, self.clock = world, network, Clock(world)
        self.config = DeliveryConfig()
        self.queues: dict[int, list[int]] = {number: [] for number in range(queue_count)}
        self.clients: dict[str, Any] = {}
        self.consumed: set[int] = set()
        """By any consumer; used by checks only."""
        self.offsets = OffsetTable(self.config)
        self.start()
        self.every(5000, self.sweep)
        self.every(10_000, self.expire)

    def start(self) -> None:
        """Start or restart: offsets are kept, all else is forgotten."""
        self.epoch = self.world.now_ms
        self.consumers = ConsumerTable(self.config)
        self.locks = QueueLocks(self.config)
        self.polls = LongPollTable(self.config)
        self.offsets = OffsetTable(self.config, self.offsets.offsets)
        self.clients.clear()

    def every(self, interval_ms: int, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.world.after(interval_ms, again)

        self.world.after(interval_ms, again)

    @property
    def message_queues(self) -> list[MessageQueue]:
        return [MessageQueue(TOPIC, NAME, number) for number in self.queues]

    def put(self, queue_id: int, message: int) -> None:
        queue = self.queues[queue_id]
        queue.append(message)
        self.run_again(self.polls.arrive(TOPIC, queue_id, len(queue)))

    def heartbeat(self, channel: str, client: Any, reply: Reply) -> None:
        self.clients[channel] = client
        member = Client(channel, client.client_id, 0, 479, self.clock.now_ms)
        wanted = [Subscription(TOPIC, version=1)]
        self.notify(self.consumers.heartbeat(GROUP, member, ConsumerState(), wanted))

    def close(self, channel: str) -> None:
        self.clients.pop(channel, None)
        self.polls.drop_channel(channel)
        for notice in self.consumers.close_channel(channel):
            self.notify(notice)

    def notify(self, notice: Notice | None) -> None:
        for channel in notice.channels if notice else ():
            if (client := self.clients.get(str(channel))) is not None:
                self.network.send(NAME, channel, client.ids_changed)

    def ids(self, channel: str, reply: Reply) -> None:
        reply(self.consumers.client_ids(GROUP) or None)

    def lock(self, channel: str, client_id: str, queues: list[MessageQueue], reply: Reply) -> None:
        reply(self.locks.lock(GROUP, queues, client_id, self.clock.now_ms))

    def unlock(self, channel: str, client_id: str, queues: list[MessageQueue]) -> None:
        self.locks.unlock(GROUP, queues, client_id)

    def query(self, channel: str, queue_id: int, reply: Reply) -> None:
        reply(self.offsets.committed(GROUP, TOPIC, queue_id) or 0)

    def commit(self, channel: str, queue_id: int, offset: int) -> None:
        before = self.offsets.committed(GROUP, TOPIC, queue_id) or 0
        assert not (self.world.calm and offset < before), f"offset of {queue_id}: {before} to {offset}"
        missing = set(self.queues[queue_id][:offset]) - self.consumed
        assert not missing, f"commit of {queue_id} at {offset} passes {sorted(missing)}"
        self.offsets.commit(GROUP, TOPIC, queue_id, offset, self.clock.now_ms)
        self.world.note(f"commit {queue_id} {offset}")

    def check_order(self, queue_id: int, offset: int) -> None:
        """Check that messages are consumed in order."""
        missing = set(self.queues[queue_id][:offset]) - self.consumed
        assert not missing, f"{queue_id}@{offset} is consumed before {sorted(missing)}"

    def pull(self, channel: str, queue_id: int, offset: int, reply: Reply) -> None:
        if not self.answer_pull(queue_id, offset, reply):
            request = (self.epoch, queue_id, offset, reply)
            now_ms = self.clock.now_ms
            self.polls.park(
                request,
                channel=channel,
                topic=TOPIC,
                queue_id=queue_id,
                offset=offset,
                hold_ms=15_000,
                now_ms=now_ms,
            )

    def answer_pull(self, queue_id: int, offset: int, reply: Reply) -> bool:
        found = self.queues[queue_id][offset : offset + BATCH]
        if found:
            reply(found, offset + len(found))
        return bool(found)

    def run_again(self, pulls: list[ParkedPull]) -> None:
        for pull in pulls:
            epoch, queue_id, offset, reply = pull.request  # type: ignore[misc]
            if epoch == self.epoch and not self.answer_pull(queue_id, offset, reply):
                reply([], offset)

    def sweep(self) -> None:
        ends = {number: len(queue) for number, queue in self.queues.items()}
        self.run_again(self.polls.sweep(self.clock.now_ms, lambda _, queue_id: ends[queue_id]))

    def expire(self) -> None:
        for channel in self.consumers.expire(self.clock.now_ms):
            self.close(str(channel))
