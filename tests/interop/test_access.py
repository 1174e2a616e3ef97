"""RocketMQ's clients sign what they ask our broker, which knows its users by either form of a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.cases import Place, bodies, once
from tests.interop.java import Line
from tests.interop.peers import Peers, RocketMQ
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


def rejections(place: Place, *options: object) -> list[int]:
    """Error codes that a producer without permission receives."""
    where = ("--namesrv", place.namesrv, "--topic", place.topic)
    run = place.java.start("Produce", *where, "--count", 1, *options)
    with pytest.raises(AssertionError):
        run.wait()
    lines: list[Line] = run.lines
    return [line["code"] for line in lines if line["event"] == "error"]


def test_mqadmin_changes_users_and_policies(peers: Peers, tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    users.write_text('{"users": [{"username": "root", "password": "r", "userType": "Super"}]}')
    users.chmod(0o600)
    with our_cluster(tmp_path, acl_path=str(users)) as node:

        def said(line: str) -> list[str]:
            text = peers("5.3.3").admin("--access-key", "root", "--secret-key", "r", *line.split())
            assert "Exception" not in text, text
            return [" ".join(words) for one in text.splitlines() if (words := one.split())]

        at = f"-n {node.namesrv} -b {node.broker}"
        assert said(f"createUser {at} -u ordersuser -p secret-of-orders") == [
            f"create user to {node.broker} success."
        ]
        said(f"updateUser {at} -u ordersuser -t Normal")
        said(f"createAcl {at} -s User:ordersuser -r Topic:Orders,Group:GOrders -a Pub,Sub -d Allow")
        said(f"updateAcl {at} -s User:ordersuser -r Group:GOrders -a Sub -i 127.0.0.0/8 -d Allow")
        said(f"createAcl {at} -s User:ordersuser -r Topic:Gone -a All -d Allow")
        said(f"deleteAcl {at} -s User:ordersuser -r Topic:Gone")
        assert said(f"getUser {at} -u ordersuser")[1:] == ["ordersuser secret-of-orders Normal enable"]
        assert [line.split()[0] for line in said(f"listUser {at}")[1:]] == ["root", "ordersuser"]
        rules = [
            "User:ordersuser Custom Topic:Orders [Pub, Sub] null Allow",
            "User:ordersuser Custom Group:GOrders [Sub] [127.0.0.0/8] Allow",
        ]
        assert said(f"getAcl {at} -s User:ordersuser")[1:] == rules
        assert said(f"listAcl {at}")[1:] == rules
        orders = Place(peers("5.3.3"), node.namesrv, "Orders")
        orders.produce(5, *ORDERS)
        assert bodies(orders.consume(5, *ORDERS)) == once(5)
        said(f"copyUser -n {node.namesrv} -f {node.broker} -t {node.broker} -u ordersuser")
        said(f"copyAcl -n {node.namesrv} -f {node.broker} -t {node.broker}")
        said(f"deleteUser {at} -u ordersuser")
        assert len(said(f"listUser {at}")) == 2
        assert said(f"listAcl {at}") == []


def test_signed_requests_are_served_and_others_refused(rocketmq: RocketMQ, guarded: Node) -> None:
    orders = Place(rocketmq, guarded.namesrv, "Orders")
    prefix = f"m{rocketmq.version}"
    orders.produce(5, "--prefix", prefix, *ORDERS)
    assert bodies(orders.consume(5, *ORDERS)) == once(5, prefix)
    others = Place(rocketmq, guarded.namesrv, "Others")
    for place, keys in ((orders, ()), (orders, WRONG), (others, ORDERS)):
        assert rejections(place, *keys) == [16]
