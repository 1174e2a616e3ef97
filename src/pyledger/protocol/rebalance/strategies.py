"""How a group shares the queues of a topic: each strategy names the queues of one consumer.

Every member runs the same strategy on the same sorted lists and takes its own part, without any request.
Members written in other languages take part too, so results equal upstream's queue for queue.

Source: RocketMQ client/.../consumer/rebalance, common/.../consistenthash/ConsistentHashRouter.java.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeVar, runtime_checkable

from pyledger.errors import RebalanceError
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.message import MessageQueue

T = TypeVar("T")
Queues = Sequence[MessageQueue]
VIRTUAL_NODES = 10


@runtime_checkable
class Strategy(Protocol):
    """Chooses the queues of one consumer."""

    @property
    def name(self) -> str:
        """Upstream's word for it."""

    def allocate(self, own_id: str, queues: Queues, consumer_ids: Sequence[str]) -> list[MessageQueue]:
        """The queues of consumer `own_id`.

        Args:
            own_id: Client id of the consumer.
            queues: All queues of a topic, sorted.
            consumer_ids: Client ids of all consumers of the group, sorted.

        Returns:
            Its part, in the order of `queues`; empty when `own_id` is not among the consumers.

        Raises:
            RebalanceError: there are no queues or no consumers, or one has no place.
        """


def check(own_id: str, queues: Queues, consumer_ids: Sequence[str]) -> bool:
    """Whether there is something to share, and the consumer takes part.

    Raises:
        RebalanceError: a list is empty, or the id.
    """
    for what, given in (("client id", own_id), ("queues", queues), ("consumer ids", consumer_ids)):
        if not given:
            raise RebalanceError(what, "is empty")
    return own_id in consumer_ids


@lazy_dataclass()
class Averagely:
    """Neighbouring queues, sizes that differ by one at most, longer parts first."""

    name: str = field(default="AVG", init=False)

    def allocate(self, own_id: str, queues: Queues, consumer_ids: Sequence[str]) -> list[MessageQueue]:
        """The queues of one consumer; see `Strategy`."""
        if not check(own_id, queues, consumer_ids):
            return []
        index = consumer_ids.index(own_id)
        size, longer = divmod(len(queues), len(consumer_ids))
        start = index * size + min(index, longer)
        return list(queues[start : start + size + (index < longer)])


@lazy_dataclass()
class AveragelyByCircle:
    """Every n-th queue, so that a broker's queues go to many consumers."""

    name: str = field(default="AVG_BY_CIRCLE", init=False)

    def allocate(self, own_id: str, queues: Queues, consumer_ids: Sequence[str]) -> list[MessageQueue]:
        """The queues of one consumer; see `Strategy`."""
        if not check(own_id, queues, consumer_ids):
            return []
        return list(queues[consumer_ids.index(own_id) :: len(consumer_ids)])


@lazy_dataclass()
class ByConfig:
    """A fixed list, whatever queues and consumers there are."""

    queues: tuple[MessageQueue, ...]
    name: str = field(default="CONFIG", init=False)

    def allocate(
        self,
        own_id: str,  # noqa: ARG002 - the list is fixed
        queues: Queues,  # noqa: ARG002
        consumer_ids: Sequence[str],  # noqa: ARG002
    ) -> list[MessageQueue]:
        """The list."""
        return list(self.queues)


@lazy_dataclass()
class ByMachineRoom:
    """Queues of brokers named `room@name` in some rooms; neighbouring ones, the rest one by one."""

    rooms: frozenset[str]
    name: str = field(default="MACHINE_ROOM", init=False)

    def allocate(self, own_id: str, queues: Queues, consumer_ids: Sequence[str]) -> list[MessageQueue]:
        """The queues of one consumer; see `Strategy`."""
        if not check(own_id, queues, consumer_ids):
            return []
        within = [queue for queue in queues if room_of(queue.broker_name) in self.rooms]
        index = consumer_ids.index(own_id)
        size, rest = divmod(len(within), len(consumer_ids))
        extra = [within[index + size * len(consumer_ids)]] if index < rest else []
        return within[index * size : (index + 1) * size] + extra


def room_of(broker_name: str) -> str | None:
    """`room` of `room@name`; None for any other form. As in Java, `@` at the end does not count."""
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


@lazy_dataclass()
class MachineRoomNearby:
    """Assigns queues to consumers in their machine room; all share those of rooms without consumers."""

    inner: Strategy
    """Shares the queues of one machine room."""
    room_of_queue: Callable[[MessageQueue], str]
    room_of_consumer: Callable[[str], str]

    @property
    def name(self) -> str:
        """Upstream's word, with that of the inner strategy."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(self, own_id: str, queues: Queues, consumer_ids: Sequence[str]) -> list[MessageQueue]:
        """The queues of one consumer; see `Strategy`. Its own machine room comes first, then the others."""
        if not check(own_id, queues, consumer_ids):
            return []
        queues_by_room = grouped(queues, self.room_of_queue)
        consumers_by_room = grouped(consumer_ids, self.room_of_consumer)
        own_room = self.room_of_consumer(own_id)
        found = []
        if near := queues_by_room.pop(own_room, None):
            found = self.inner.allocate(own_id, near, consumers_by_room[own_room])
        for room in sorted(queues_by_room, key=java_order):
            if room not in consumers_by_room:
                found = found + self.inner.allocate(own_id, queues_by_room[room], consumer_ids)
        return found


def grouped(items: Sequence[T], room_of_item: Callable[[T], str]) -> dict[str, list[T]]:
    """Group items by machine room, in the order given."""
    by_room: dict[str, list[T]] = {}
    for item in items:
        if not (room := room_of_item(item)):
            raise RebalanceError(str(item), "has no machine room")
        by_room.setdefault(room, []).append(item)
    return by_room


def md5_hash(key: str) -> int:
    """The first four bytes of the MD5 sum, as an unsigned number."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


@lazy_dataclass()
class ConsistentHash:
    """Points on a ring; few queues move when a consumer joins or leaves."""

    virtual_nodes: int = VIRTUAL_NODES
    """Points of each consumer."""
    hash_of: Callable[[str], int] = md5_hash
    name: str = field(default="CONSISTENT_HASH", init=False)

    def allocate(self, own_id: str, queues: Queues, consumer_ids: Sequence[str]) -> list[MessageQueue]:
        """The queues of one consumer; see `Strategy`."""
        if not check(own_id, queues, consumer_ids):
            return []
        ring = self.ring(consumer_ids)
        points = sorted(ring)
        if not points:
            return []

        def owner(queue: MessageQueue) -> str:
            at = bisect_left(points, self.hash_of(hash_key(queue)))
            return ring[points[at % len(points)]]

        return [queue for queue in queues if owner(queue) == own_id]

    def ring(self, consumer_ids: Sequence[str]) -> Mapping[int, str]:
        """Consumer by point; of two on one point the later stays."""
        ring: dict[int, str] = {}
        for consumer_id in consumer_ids:
            # An id that occurs twice, as with two connections of one client, gets further points.
            first = sum(1 for owner in ring.values() if owner == consumer_id)
            for node in range(first, first + self.virtual_nodes):
                ring[self.hash_of(f"{consumer_id}-{node}")] = consumer_id
        return ring


def hash_key(queue: MessageQueue) -> str:
    """The text whose hash places a queue: upstream's printed form."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def java_order(text: str) -> bytes:
    """A sort key: Java compares texts by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
