"""How a group shares queues: what Java's strategies give, and what must hold whatever the group."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import RebalanceError
from pyledger.model.message import MessageQueue
from pyledger.protocol.rebalance.planner import share, sort_ids, sort_queues
from pyledger.protocol.rebalance.strategies import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    Strategy,
    md5_hash,
    room_of,
)

GOLDEN = Path(__file__).parents[2] / "golden/rebalance/5.3.3.jsonl"


def room_of_queue(queue: MessageQueue) -> str:
    """Java's resolver in the golden file: the first two characters of `room@name`."""
    return queue.broker_name[:2] if "@" in queue.broker_name[1:] else "r9"


def room_of_consumer(consumer_id: str) -> str:
    return consumer_id[:2]


STRATEGIES: dict[str, Strategy] = {
    one.name: one
    for one in (
        Averagely(),
        AveragelyByCircle(),
        ByMachineRoom(frozenset({"r1", "r2", ""})),
        MachineRoomNearby(Averagely(), room_of_queue, room_of_consumer),
        ConsistentHash(),
    )
}
SHARING = [STRATEGIES[name] for name in sorted(STRATEGIES.keys() - {"MACHINE_ROOM"})]
IDS = st.lists(st.text(min_size=2, max_size=8), min_size=1, max_size=12, unique=True)
QUEUES = st.lists(
    st.builds(MessageQueue, st.just("T"), st.sampled_from(["a", "r1@b", "r2@c"]), st.integers(0, 40)),
    min_size=1,
    max_size=40,
    unique=True,
)


@pytest.mark.parametrize("line", GOLDEN.read_text(encoding="utf-8").splitlines())
def test_strategy_gives_what_java_gives(line: str) -> None:
    case = json.loads(line)
    queues = [MessageQueue(*queue) for queue in case["queues"]]
    ids = [consumer_id for consumer_id, _ in case["shares"]]
    assert sort_queues(set(queues)) == queues
    assert sort_ids(list(reversed(ids))) == ids
    for consumer_id, expected in case["shares"]:
        found = STRATEGIES[case["strategy"]].allocate(consumer_id, queues, ids)
        assert found == [MessageQueue(*queue) for queue in expected], consumer_id


@pytest.mark.parametrize("strategy", SHARING, ids=lambda one: one.name)
@given(queues=QUEUES, ids=IDS)
def test_every_queue_goes_to_exactly_one(
    strategy: Strategy, queues: list[MessageQueue], ids: list[str]
) -> None:
    shares = [share(strategy, own, queues, ids) for own in ids]
    given_out = [queue for part in shares for queue in part or ()]
    assert sorted(given_out) == sorted(queues)
    assert shares == [share(strategy, own, queues[::-1], ids[::-1]) for own in ids], "order does not matter"
    assert share(strategy, "a stranger with a long name", queues, ids) == ()


@given(queues=QUEUES, ids=IDS)
def test_averages_differ_by_one(queues: list[MessageQueue], ids: list[str]) -> None:
    for strategy in (Averagely(), AveragelyByCircle()):
        sizes = [len(strategy.allocate(own, queues, ids)) for own in ids]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


@given(queues=QUEUES, ids=st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=12, unique=True))
def test_consistent_hash_moves_only_queues_of_the_one_that_goes(
    queues: list[MessageQueue], ids: list[str]
) -> None:
    strategy = ConsistentHash()
    *stay, gone = ids
    before = {own: strategy.allocate(own, queues, ids) for own in ids}
    after = {own: strategy.allocate(own, queues, stay) for own in stay}
    for own in stay:
        assert set(before[own]) <= set(after[own])
    assert sum(map(len, after.values())) == len(queues)
    assert len(queues) - sum(len(before[own]) for own in stay) == len(before[gone])


def test_consistent_hash_with_one_point_each_takes_the_next_point_or_the_first() -> None:
    places = {"a-0": 10, "b-0": 20}
    queues = [MessageQueue("T", "x", number) for number in (10, 11, 20, 21)]

    def place(key: str) -> int:
        return places.get(key) or int(key.rpartition("=")[2].removesuffix("]"))

    strategy = ConsistentHash(1, place)
    assert [queue.queue_id for queue in strategy.allocate("a", queues, ["a", "b"])] == [10, 21]
    assert [queue.queue_id for queue in strategy.allocate("b", queues, ["a", "b"])] == [11, 20]
    assert ConsistentHash(0).allocate("a", queues, ["a"]) == []


def test_consistent_hash_of_two_on_one_point_the_later_wins() -> None:
    queue = MessageQueue("T", "x", 0)
    strategy = ConsistentHash(1, lambda _: 7)
    assert strategy.allocate("a", [queue], ["a", "b"]) == []
    assert strategy.allocate("b", [queue], ["a", "b"]) == [queue]


def test_md5_hash_is_the_first_four_bytes_unsigned() -> None:
    assert md5_hash("") == 0xD41D8CD9


@pytest.mark.parametrize(
    ("name", "room"), [("r@b", "r"), ("b", None), ("r@b@", "r"), ("r@", None), ("@b", ""), ("r@b@c", None)]
)
def test_room_of_a_broker_name(name: str, room: str | None) -> None:
    assert room_of(name) == room


def test_fixed_list_is_given_whatever_there_is() -> None:
    fixed = (MessageQueue("T", "b", 3),)
    assert ByConfig(fixed).allocate("a", [], []) == list(fixed)


def test_nearby_names_its_inner_strategy_and_whoever_has_no_room() -> None:
    queues = [MessageQueue("T", "b", 0)]
    nearby = MachineRoomNearby(AveragelyByCircle(), lambda _: "", lambda _: "r")
    assert nearby.name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"
    with pytest.raises(RebalanceError, match="no machine room"):
        nearby.allocate("a", queues, ["a"])


@pytest.mark.parametrize(
    ("own", "queues", "ids"),
    [("", ["q"], ["a"]), ("a", [], ["a"]), ("a", ["q"], [])],
    ids=("id", "queues", "ids"),
)
def test_nothing_to_share_is_an_error(own: str, queues: list[str], ids: list[str]) -> None:
    with pytest.raises(RebalanceError, match="is empty"):
        Averagely().allocate(own, [MessageQueue("T", name, 0) for name in queues], ids)
