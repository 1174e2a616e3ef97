"""RocketMQ's clients in C++ and Go with our name server and broker; Java's are at the other end."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.interop.cases import Place, acquaint, bodies, once
from tests.interop.foreign import ForeignClient, foreign_client
from tests.interop.peers import Peers
from tests.interop.servers import Node
from tests.interop.side_by_side import Outcomes, chosen, side_by_side

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

ForeignCase = Callable[[ForeignClient, Place], None]
PREFIXES = {"cpp": "c", "go": "g"}
"""What bodies of each producer begin with."""
ORDERLY = {"cpp": ("--orderly",), "go": ("--mode", "orderly")}


def sends(mode: str) -> ForeignCase:
    """Java consumes what they send."""

    def case(foreign: ForeignClient, place: Place) -> None:
        where = ("--namesrv", place.namesrv, "--topic", place.topic, "--mode", mode)
        foreign.run("produce", *where, "--count", 10)
        if (foreign.name, mode) == ("cpp", "batch"):
            # It calls that a batch in a way that brokers do not know: all of it is one message.
            assert sum(bodies(place.consume(1)).values()) == 1
        else:
            assert bodies(place.consume(10)) == once(10, PREFIXES[foreign.name])

    return case


def reads(orderly: bool) -> ForeignCase:
    """They consume what Java sends."""

    def case(foreign: ForeignClient, place: Place) -> None:
        place.produce(12, "--tags", "A,B", "--mode", "orderly")
        options = ORDERLY[foreign.name] if orderly else ()
        lines = foreign.run("consume", *place.group(6, "--filter", "A", *options))
        assert bodies(lines) == Counter(f"m-{number}" for number in range(0, 12, 2))

    return case


def broadcast_reaches_them(foreign: ForeignClient, place: Place) -> None:
    place.produce(4)
    reader = foreign.start("consume", *place.group(12, "--broadcast", "--counted", "n"))
    reader.until("ready")
    # It may begin where queues end, so what it must get is sent after it has something of each queue.
    heard: set[int] = set()
    while len(heard) < 4:
        place.produce(4, "--prefix", "warm")
        heard.add(reader.until("message")["queue"])
    place.produce(12, "--prefix", "n")
    got = bodies(reader.end())
    assert {body: count for body, count in got.items() if body.startswith("n")} == once(12, "n")


def failures_come_again(foreign: ForeignClient, place: Place) -> None:
    acquaint(place)
    place.produce(2)
    lines = foreign.run("consume", *place.group(2, "--later", 1))
    assert bodies(lines) == bodies(lines, "later") == once(2)


FOREIGN_CASES: dict[str, ForeignCase] = {
    **{f"send-{mode}": sends(mode) for mode in ("sync", "async", "oneway", "batch")},
    "read": reads(orderly=False),
    "read-orderly": reads(orderly=True),
    "broadcast": broadcast_reaches_them,
    "retry": failures_come_again,
}


@pytest.fixture(scope="module", params=PREFIXES)
def foreign_outcomes(
    request: pytest.FixtureRequest, peers: Peers, our_node: Node, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outcomes]:
    """All cases with one of these clients."""

    def run(foreign: ForeignClient, name: str) -> None:
        topic = f"{name}-{foreign.name}"
        FOREIGN_CASES[name](foreign, Place(peers("5.3.3"), our_node.namesrv, topic))

    names = chosen(request, "foreign_case", foreign_outcomes=request.param)
    with foreign_client(request.param, tmp_path_factory.mktemp(request.param)) as foreign:
        work = {name: partial(run, foreign, name) for name in names}
        with side_by_side(work) as found:
            yield found


@pytest.mark.parametrize("foreign_case", FOREIGN_CASES)
def test_foreign_client(foreign_outcomes: Outcomes, foreign_case: str) -> None:
    foreign_outcomes.require(foreign_case)
