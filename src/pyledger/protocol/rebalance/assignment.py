"""The queues that a broker gives to a client of a group, where clients do not share them among themselves.

Source: RocketMQ broker/.../QueryAssignmentProcessor.java.
"""

from collections.abc import Mapping, Sequence

from pyledger.model.message import MessageQueue
from pyledger.protocol.rebalance.planner import share, sort_ids, sort_queues
from pyledger.protocol.rebalance.strategies import Averagely, AveragelyByCircle, Strategy

ANY_QUEUE = -1
"""Queue id in an assignment: the client pops from all queues of the broker."""
STRATEGIES: Mapping[str, Strategy] = {one.name: one for one in (Averagely(), AveragelyByCircle())}


def assign(
    own_id: str,
    strategy_name: str,
    queues: Sequence[MessageQueue] | None,
    client_ids: Sequence[str],
    *,
    pops: bool,
    share_count: int = 0,
) -> tuple[MessageQueue, ...] | None:
    """The queues of one client of a group that shares them.

    Args:
        own_id: The client.
        strategy_name: How the group shares, by upstream's word.
        queues: All queues of the topic; None when its route is not known.
        client_ids: All clients of the group.
        pops: Whether the group pops.
        share_count: Of popping clients: how many others take from each one's queues; 0: all from all.

    Returns:
        Its queues; None: not known, so it must keep its queues.

    Raises:
        RebalanceError: the strategy cannot place the client.
    """
    strategy = STRATEGIES.get(strategy_name)
    if strategy is None or not queues or not client_ids:
        return None
    if not pops:
        return share(strategy, own_id, queues, client_ids)
    return share_popping(strategy, own_id, share_count, sort_queues(queues), sort_ids(client_ids))


def share_popping(
    strategy: Strategy,
    own_id: str,
    share_count: int,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
) -> tuple[MessageQueue, ...]:
    """Return the queues of a client that pops: its own, and those of the `share_count` clients after it."""
    if not 0 < share_count < len(client_ids) - 1:
        anywhere = (MessageQueue(queue.topic, queue.broker_name, ANY_QUEUE) for queue in queues)
        return tuple(dict.fromkeys(anywhere))
    if own_id not in client_ids:
        return ()
    first = client_ids.index(own_id)
    if len(client_ids) > len(queues):
        return (queues[first % len(queues)],)
    found: list[MessageQueue] = []
    for step in range(share_count + 1):
        found += strategy.allocate(client_ids[(first + step) % len(client_ids)], queues, client_ids)
    return tuple(dict.fromkeys(found))
