"""One round of rebalance for one topic: what a consumer should have, what it drops, what it takes.

Whoever runs this drops first: a queue of orderly consumption that cannot be dropped yet stays until the next
round, and is not taken again. Then it takes the queues that are not held.

Source: RocketMQ client/.../impl/consumer/RebalanceImpl.java.
"""

from collections.abc import Collection, Mapping

from pyledger.errors import RebalanceError
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.message import MessageQueue
from pyledger.protocol.rebalance.strategies import Strategy, java_order

PULL_IDLE_MAX_MS = 120_000
INTERVAL_MS = 20_000
MIN_INTERVAL_MS = 1_000


@lazy_dataclass()
class Plan:
    """Changes to the queues of one topic. A queue in both parts must be restarted."""

    drop: tuple[MessageQueue, ...] = ()
    take: tuple[MessageQueue, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.drop or self.take)


def sort_queues(queues: Collection[MessageQueue]) -> list[MessageQueue]:
    """Queues as all members of a group sort them, those written in Java included."""
    return sorted(queues, key=lambda one: (java_order(one.topic), java_order(one.broker_name), one.queue_id))


def sort_ids(consumer_ids: Collection[str]) -> list[str]:
    """Sort client ids in the order that all members of a group use. Duplicates are kept."""
    return sorted(consumer_ids, key=java_order)


def share(
    strategy: Strategy,
    own_id: str,
    queues: Collection[MessageQueue] | None,
    consumer_ids: Collection[str] | None,
) -> tuple[MessageQueue, ...] | None:
    """The queues of one topic that a consumer of a group should have.

    Args:
        strategy: How the group shares.
        own_id: Client id of the consumer.
        queues: Queues by the route of the topic, in any order; None or none when it is not known.
        consumer_ids: Client ids of the group, in any order; None if no broker answered.

    Returns:
        The queues without repetition, in the order of the strategy; None: keep what there is.

    Raises:
        RebalanceError: the strategy cannot place a queue or a consumer; keep what there is.
    """
    if not queues or not consumer_ids:
        return None
    return tuple(dict.fromkeys(strategy.allocate(own_id, sort_queues(queues), sort_ids(consumer_ids))))


def plan(
    topic: str,
    held: Mapping[MessageQueue, int],
    wanted: Collection[MessageQueue],
    now_ms: int,
    *,
    pull_idle_max_ms: int = PULL_IDLE_MAX_MS,
) -> Plan:
    """What changes when a consumer should have the queues `wanted` of one topic.

    Args:
        topic: The topic; held queues of other topics are left alone.
        held: Time of the last pull in ms, by queue that the consumer has.
        wanted: Queues that it should have.
        now_ms: The same clock as in `held`.
        pull_idle_max_ms: A queue that was not pulled for longer is restarted.
    """
    assigned = dict.fromkeys(wanted)
    if any(queue.topic != topic for queue in assigned):
        raise RebalanceError(topic, "a queue of another topic is in its share")
    drop = tuple(
        queue
        for queue, last_pull_ms in held.items()
        if queue.topic == topic and (queue not in assigned or now_ms - last_pull_ms > pull_idle_max_ms)
    )
    dropped = dict.fromkeys(drop)
    return Plan(drop, tuple(queue for queue in assigned if queue not in held or queue in dropped))
