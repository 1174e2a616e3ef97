"""Users and policies through `pyledger mqadmin`, at a broker that lets in who signs."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.command_line import Finished, pyledger
from tests.interop.servers import Node, our_cluster

pytestmark = pytest.mark.timeout(120)
ROOT = ("--access-key", "root", "--secret-key", "root-secret")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A broker that knows one super user."""
    folder = tmp_path_factory.mktemp("access")
    users = folder / "users.json"
    root = {"username": "root", "password": "root-secret", "userType": "Super"}
    users.write_text(json.dumps({"users": [root]}))
    users.chmod(0o600)
    with our_cluster(folder, acl_path=str(users)) as one:
        yield one


def test_users_and_policies_come_and_go(node: Node) -> None:
    def said(line: str, *options: str, code: int = 0) -> Finished:
        words = [node.broker if word == "BROKER" else word for word in line.split()]
        done = pyledger("mqadmin", *words, *options, "-n", node.namesrv, *ROOT)
        assert done.code == code, (line, done.out, done.err)
        return done

    made = said("createUser -c DefaultCluster -u alice -p alice-secret").lines
    assert made == [f"create user to {node.broker} success."]
    assert "existed" in said("createUser -b BROKER -u alice -p x", code=1).err
    said("updateUser -b BROKER -u alice -s disable")
    assert said("getUser -b BROKER -u alice").lines == [
        "#UserName         #Password               #UserType               #UserStatus           ",
        "alice             alice-secret            Normal                  disable               ",
    ]
    rule = "-s User:alice -r Topic:Orders,Group:G -a Pub,Sub -i 10.0.0.0/8 -d Allow"
    assert said(f"createAcl -b BROKER {rule}").lines == [f"create acl to {node.broker} success."]
    assert said("getAcl -b BROKER -s User:alice").lines == [
        (
            "#Subject          #PolicyType  #Resource               #Actions              #SourceIp"
            "                 #Decision "
        ),
        (
            "User:alice        Custom      Topic:Orders            [Pub, Sub]            [10.0.0.0/8]"
            "              Allow     "
        ),
        (
            "User:alice        Custom      Group:G                 [Pub, Sub]            [10.0.0.0/8]"
            "              Allow     "
        ),
    ]
    said("updateAcl -b BROKER -s User:alice -r Group:G -a Sub -d Deny")
    (entry,) = said("listAcl -b BROKER -r Group --json").json
    assert (entry["actions"], entry["sourceIps"], entry["decision"]) == (["Sub"], None, "Deny")
    said("deleteAcl -b BROKER -s User:alice -r Group:G")
    assert [one["resource"] for one in said("listAcl -b BROKER --json").json] == ["Topic:Orders"]
    copied = said("copyUser -f BROKER -t BROKER -u alice").lines
    assert copied == [f"copy user of alice from {node.broker} to {node.broker} success."]
    copied = said("copyAcl -f BROKER -t BROKER").lines
    assert copied == [f"copy acl of User:alice from {node.broker} to {node.broker} success."]
    said("deleteUser -b BROKER -u alice")
    assert [one["username"] for one in said("listUser -b BROKER --json").json] == ["root"]
    assert said("listAcl -b BROKER").lines == []
    assert "no change given" in said("updateUser -b BROKER -u root", code=2).err


@pytest.mark.parametrize(
    "given", [[], ["--secret-key", "root-secret"]], ids=["variable", "option and variable"]
)
def test_the_secret_stands_in_the_environment(
    node: Node, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    monkeypatch.setenv("PYLEDGER_CLIENT_SECRET_KEY", "other" if given else "root-secret")
    for line in (f"ha status {node.broker}", f"mqadmin brokerStatus -b {node.broker}", "topic create T"):
        done = pyledger(*line.split(), "-n", node.namesrv, "--access-key", "root", *given)
        assert done.code == 0, (line, done.out, done.err)
