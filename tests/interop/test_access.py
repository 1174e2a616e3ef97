"""RocketMQ's clients sign what they ask our broker, which knows its users by either form of a file."""

from collections.abc import Iterator

import pytest

from tests.interop.cases import Place, bodies, once
from tests.interop.java import Line
from tests.interop.peers import RocketMQ
from tests.interop.servers import Node, our_cluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

ACCOUNTS = {
    "toml": """
[[users]]
username = "rootuser"
password = "secret-of-root"
userType = "Super"

[[users]]
username = "ordersuser"
password = "secret-of-orders"

[[acls]]
subject = "User:ordersuser"

[[acls.policies]]
entries = [{ resource = ["Topic:Orders", "Group:GOrders"], actions = ["Pub", "Sub"], decision = "Allow" }]
""",
    "yml": """
accounts:
  - accessKey: rootuser
    secretKey: secret-of-root
    admin: true
  - accessKey: ordersuser
    secretKey: secret-of-orders
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: ["Orders=PUB|SUB"]
    groupPerms: ["GOrders=SUB"]
""",
}
"""Users and policies as 5.3 has them, and accounts as 4.9 does."""
ORDERS = ("--access-key", "ordersuser", "--secret-key", "secret-of-orders")
WRONG = ("--access-key", "ordersuser", "--secret-key", "secret-of-another")


@pytest.fixture(scope="module", params=ACCOUNTS)
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A broker with users."""
    folder = tmp_path_factory.mktemp("guarded")
    accounts = folder / f"accounts.{request.param}"
    accounts.write_text(ACCOUNTS[request.param])
    accounts.chmod(0o600)
    with our_cluster(folder, acl_path=str(accounts)) as node:
        yield node


def refusals(place: Place, *options: object) -> list[int]:
    """Codes that a producer is told that may not send."""
    where = ("--namesrv", place.namesrv, "--topic", place.topic)
    run = place.java.start("Produce", *where, "--count", 1, *options)
    with pytest.raises(AssertionError):
        run.wait()
    lines: list[Line] = run.lines
    return [line["code"] for line in lines if line["event"] == "error"]


def test_signed_requests_are_served_and_others_refused(rocketmq: RocketMQ, guarded: Node) -> None:
    orders = Place(rocketmq, guarded.namesrv, "Orders")
    prefix = f"m{rocketmq.version}"
    orders.produce(5, "--prefix", prefix, *ORDERS)
    assert bodies(orders.consume(5, *ORDERS)) == once(5, prefix)
    others = Place(rocketmq, guarded.namesrv, "Others")
    for place, keys in ((orders, ()), (orders, WRONG), (others, ORDERS)):
        assert refusals(place, *keys) == [16]
