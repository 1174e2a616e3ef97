"""RocketMQ's clients in Java, of both versions, with our name server and broker."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.interop.cases import CASES, NEWER, Place
from tests.interop.peers import RocketMQ
from tests.interop.servers import Node
from tests.interop.side_by_side import Outcomes, chosen, side_by_side

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, rocketmq: RocketMQ, our_node: Node) -> Iterator[Outcomes]:
    """All cases with the clients of one version."""

    def run(name: str) -> None:
        if name in NEWER and rocketmq.version.startswith("4."):
            pytest.skip("came with 5.0")
        topic = f"{name}-{rocketmq.version.replace('.', '_')}"
        (CASES | NEWER)[name](Place(rocketmq, our_node.namesrv, topic))

    names = chosen(request, "java_case", rocketmq=rocketmq.version)
    with side_by_side({name: partial(run, name) for name in names}) as found:
        yield found


@pytest.mark.parametrize("java_case", [*NEWER, *CASES])
def test_java_client(outcomes: Outcomes, java_case: str) -> None:
    outcomes.require(java_case)
