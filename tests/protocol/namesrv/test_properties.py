"""What must hold of a route table whatever brokers and operators do, in any order."""

from dataclasses import replace
from itertools import chain
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from pyledger.config.namesrv import NamesrvConfig
from pyledger.model.route import BrokerIdentity, QueueMapping, QueueRoute, Registration, TopicRoute
from pyledger.model.topic import DataVersion, Permission
from pyledger.protocol.namesrv.route_table import MEMBERS_MAX, RouteTable
from tests.support.processor_time import processor_seconds

NAMES = ("broker-a", "broker-b")
TOPICS = ("T", "U", "V")
BROKERS = st.builds(
    BrokerIdentity,
    st.sampled_from(["C", "D"]),
    st.sampled_from(NAMES),
    st.sampled_from("xyz"),
    st.integers(0, 2),
)
QUEUES = st.builds(
    QueueRoute, st.just(""), st.just(4), st.just(4), st.sampled_from([Permission(4), Permission(6)])
)
MAPPINGS = st.dictionaries(
    st.sampled_from(TOPICS),
    st.builds(QueueMapping, st.just("T"), st.sampled_from(NAMES), st.just(4), st.just(0)),
    max_size=2,
)
REGISTRATIONS = st.builds(
    Registration,
    BROKERS,
    st.dictionaries(st.sampled_from(TOPICS), QUEUES, max_size=3),
    st.builds(DataVersion, counter=st.integers(0, 2), state_version=st.integers(0, 1)),
    filter_servers=st.sampled_from([None, (), ("f",)]),
    enable_acting_master=st.sampled_from([None, False, True]),
    zone_name=st.sampled_from([None, "north"]),
    queue_mappings=MAPPINGS,
    heartbeat_timeout_ms=st.sampled_from([None, 10]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), REGISTRATIONS),
        st.tuples(st.just("register"), REGISTRATIONS),
        st.tuples(st.just("unregister"), BROKERS),
        st.tuples(st.just("close"), st.sampled_from("xyz")),
        st.tuples(st.just("wait"), st.sampled_from([5, 20, 200_000])),
        st.tuples(st.just("delete"), st.tuples(st.sampled_from(TOPICS), st.sampled_from([None, "C"]))),
        st.tuples(st.just("wipe"), st.sampled_from(NAMES)),
        st.tuples(st.just("add"), st.sampled_from(NAMES)),
    ),
    max_size=20,
)


class Player:
    """Plays steps; each address comes on a channel of its own."""

    def __init__(self, config: NamesrvConfig) -> None:
        self.table = RouteTable(config)
        self.now_ms = 0
        self.registered: dict[tuple[str, str], Registration] = {}

    def play(self, kind: str, what: Any) -> None:
        table = self.table
        if kind == "register":
            table.register(what, what.broker.broker_addr, self.now_ms)
        elif kind == "unregister":
            table.unregister(what)
        elif kind == "close":
            table.close_channel(what)
        elif kind == "wait":
            self.now_ms += what
            table.expire(self.now_ms)
        elif kind == "delete":
            table.delete_topic(*what)
        elif kind == "wipe":
            table.wipe_write_perm(what)
        else:
            table.add_write_perm(what)
        table.remove_queued()


def routes(table: RouteTable) -> dict[str, TopicRoute | None]:
    return {topic: table.route(topic) for topic in TOPICS}


CONFIGS = st.builds(
    NamesrvConfig, support_acting_master=st.booleans(), delete_topic_with_broker_registration=st.booleans()
)


@given(STEPS, CONFIGS)
def test_tables_agree_with_each_other(steps: list[tuple[str, Any]], config: NamesrvConfig) -> None:
    player = Player(config)
    table = player.table
    for step in steps:
        player.play(*step)
        found = table.clusters()
        for brokers in found.brokers.values():
            addresses = list(brokers.broker_addrs.values())
            assert len(set(addresses)) == len(addresses), "an address stands under one id"
            assert brokers.broker_name in found.clusters[brokers.cluster]
        assert all(found.clusters.values()), "no empty cluster"
        for topic in chain.from_iterable(table.topics()):
            route = table.route(topic)
            assert route is not None, "a topic that is listed has a route"
            assert {one.broker_name for one in route.queues} == {one.broker_name for one in route.brokers}


@given(STEPS, CONFIGS)
def test_a_generation_has_one_set_of_routes(steps: list[tuple[str, Any]], config: NamesrvConfig) -> None:
    player = Player(config)
    seen: dict[int, dict[str, TopicRoute | None]] = {}
    for step in steps:
        player.play(*step)
        now = routes(player.table)
        assert seen.setdefault(player.table.generation, now) == now, step


@given(STEPS, REGISTRATIONS)
def test_saying_the_same_again_changes_nothing_but_the_time(
    steps: list[tuple[str, Any]], registration: Registration
) -> None:
    player = Player(NamesrvConfig())
    for step in steps:
        player.play(*step)
    first = player.table.register(registration, registration.broker.broker_addr, player.now_ms)
    described, generation = player.table.describe(player.now_ms), player.table.generation
    again = player.table.register(registration, registration.broker.broker_addr, player.now_ms)
    assert player.table.describe(player.now_ms) == described
    assert (again is None) == (first is None)
    if (
        first is not None
        and registration.broker.broker_addr
        in player.table.member_group(registration.broker.broker_name).values()
    ):
        assert player.table.generation == generation


def registered_by(
    addr: str, state_version: int, filter_servers: tuple[str, ...] | None
) -> tuple[str, Registration]:
    broker = BrokerIdentity("C", "broker-a", addr, 0)
    version = DataVersion(state_version=state_version)
    return "register", Registration(broker, {}, version, filter_servers=filter_servers)


@given(STEPS)
@example([registered_by("y", 0, ("f",)), registered_by("x", 1, None), registered_by("y", 0, None)])
def test_nothing_is_left_when_all_brokers_expire(steps: list[tuple[str, Any]]) -> None:
    player = Player(NamesrvConfig())
    for step in steps:
        player.play(*step)
    # A second round removes what the first one left without a live broker.
    for _ in range(2):
        player.play("wait", 1_000_000)
    assert player.table.describe(player.now_ms) == "empty"
    assert not [name for name, held in vars(player.table).items() if isinstance(held, dict) and held]


def crowd(count: int) -> None:
    """Brokers of one channel; half of them expire, the others are removed with the channel."""
    table = RouteTable()
    for number in range(count):
        broker = BrokerIdentity(f"c{number}", f"b{number}", f"{number}", 0)
        topics = {f"t{number}": QueueRoute("", 4, 4, Permission(6))}
        timeout_ms = 10 if number % 2 else None
        table.register(
            Registration(
                broker, {**topics, "T": topics[f"t{number}"]}, DataVersion(), heartbeat_timeout_ms=timeout_ms
            ),
            "channel",
            0,
        )
    assert len(table.expire(1_000)) == count // 2
    table.remove_queued()
    assert len(table.close_channel("channel")) == count - count // 2
    table.remove_queued()
    assert table.describe(1_000) == "empty"


def test_brokers_cost_the_same_however_many_there_are() -> None:
    small = processor_seconds(lambda: crowd(2_000))
    assert processor_seconds(lambda: crowd(10_000)) < 10 * small + 0.1


def test_a_broker_name_has_a_limited_number_of_addresses() -> None:
    table = RouteTable()
    for number in range(MEMBERS_MAX):
        registration = Registration(BrokerIdentity("C", "b", f"{number}", number), {}, DataVersion())
        assert table.register(registration, "channel", 0) is not None
    more = BrokerIdentity("C", "b", "more", MEMBERS_MAX)
    assert table.register(Registration(more, {}, DataVersion()), "channel", 0) is None
    assert (
        table.register(Registration(replace(more, broker_id=0), {}, DataVersion()), "channel", 0) is not None
    )
    assert len(table.member_group("b")) == MEMBERS_MAX


@given(STEPS, REGISTRATIONS)
def test_rejected_registration_changes_no_topic(
    steps: list[tuple[str, Any]], registration: Registration
) -> None:
    player = Player(NamesrvConfig())
    for step in steps:
        player.play(*step)
    before = list(player.table.topics())
    topic = next(iter(registration.topics), "T")
    one = replace(registration, topics={topic: QueueRoute("", 1, 1, Permission(6))})
    if player.table.register(one, "channel", player.now_ms) is None:
        assert list(player.table.topics()) == before
