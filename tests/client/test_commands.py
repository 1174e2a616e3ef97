"""`pyledger produce`, `consume`, `topic`, `group`, `cluster` with a broker of their own."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyledger.servers.local.rocketmq import LocalBroker
from tests.cli.command_line import Finished, into_closed_pipe, pyledger, spawn

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBroker]:
    """A broker that commands find through the environment, with three messages in `Orders`."""
    with LocalBroker(tmp_path / "store") as served:
        monkeypatch.setenv("NAMESRV_ADDR", served.address)
        monkeypatch.chdir(tmp_path)
        rows = [{"id": f"order-{number}", "what": "pizza"} for number in range(3)]
        Path("orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        form = ("--in", "json", "--key-field", "id", "orders.jsonl")
        done = pyledger("produce", "--topic", "Orders", "--tags", "food", *form)
        assert (done.code, done.err) == (0, "3 messages stored\n")
        yield served


def consumed(*options: str) -> Finished:
    return pyledger("consume", "--topic", "Orders", "--exit", *options)


def test_what_is_produced_is_consumed(node: LocalBroker) -> None:
    found = consumed("--json").json
    assert sorted(one["keys"] for one in found) == ["order-0", "order-1", "order-2"]
    assert {one["tags"] for one in found} == {"food"}
    assert sorted(one["body"] for one in found) == sorted(Path("orders.jsonl").read_text().split("\n")[:3])
    assert len(node.bodies("Orders")) == 3
    places = {(one["brokerName"], one["queueId"], one["queueOffset"]) for one in found}
    assert len(places) == 3


@pytest.mark.parametrize(
    ("options", "count"),
    [(["--limit", "2"], 2), (["--tags", "drinks"], 0), (["--tags", "food || x"], 3), (["--from", "end"], 0)],
)
@pytest.mark.usefixtures("node")
def test_options_choose(options: list[str], count: int) -> None:
    assert len(consumed("-f", "%o\\n", *options).lines) == count


@pytest.mark.usefixtures("node")
def test_format_takes_every_letter() -> None:
    [line, *_] = consumed("-f", "%t|%b|%S|%g|%k|%%|%p|%T|%d|%u|%i|%q|%o|%s\\n").lines
    parts = line.split("|")
    assert parts[:2] == ["Orders", "broker-a"]
    assert parts[3] == "food"
    assert parts[5] == "%"
    assert json.loads(parts[6])["TAGS"] == "food"
    assert int(parts[2]) == len(parts[13])
    wrong = consumed("-f", "%z")
    assert wrong.code == 2
    assert "%z is unknown" in wrong.err


@pytest.mark.usefixtures("node")
def test_group_goes_on_and_goes_back() -> None:
    assert len(consumed("--group", "billing", "-f", "%k\\n").lines) == 3
    assert consumed("--group", "billing", "-f", "%k\\n").lines == []
    [shown] = pyledger("group", "show", "billing", "--json").json
    assert (shown["lag"], shown["members"]) == (0, [])
    moved = pyledger("group", "reset", "billing", "--topic", "Orders", "--to", "begin", "--json")
    assert {row["offset"] for row in moved.json} == {0}
    assert len(consumed("--group", "billing", "-f", "%k\\n", "--limit", "3").lines) == 3


@pytest.mark.usefixtures("node")
def test_topics_come_and_go() -> None:
    assert pyledger("topic", "list").lines == ["Orders"]
    assert pyledger("topic", "create", "Bills", "--queues", "2", "--attribute", "message.type=FIFO").code == 0
    assert pyledger("topic", "list").lines == ["Bills", "Orders"]
    assert [row["queueId"] for row in pyledger("topic", "show", "Bills", "--json").json] == [0, 1]
    assert pyledger("topic", "delete", "Bills", "--yes").code == 0
    again = pyledger("topic", "delete", "Bills", "--yes")
    assert (again.code, "no route for the topic Bills" in again.err) == (3, True)
    assert pyledger("topic", "delete", "Bills", "--yes", "--if-exists").code == 0
    assert pyledger("topic", "list").lines == ["Orders"]
    missing = pyledger("topic", "show", "Bills")
    assert missing.code == 3
    assert "no route for the topic Bills" in missing.err


@pytest.mark.usefixtures("node")
def test_groups_come_and_go() -> None:
    assert pyledger("group", "create", "billing", "--retry-times", "3").code == 0
    listed = {row["group"]: row for row in pyledger("group", "list", "--json").json}
    assert listed["billing"]["retryTimesMax"] == 3
    assert pyledger("group", "delete", "billing", "--yes", "--json").json == [
        {"group": "billing", "deleted": True}
    ]
    for deed in (("delete", "--yes"), ("show",)):
        missing = pyledger("group", deed[0], "billing", *deed[1:])
        assert (missing.code, "no group billing" in missing.err) == (1, True)
    assert pyledger("group", "delete", "billing", "--yes", "--if-exists").code == 0
    assert "billing" not in {row["group"] for row in pyledger("group", "list", "--json").json}


def test_cluster_shows_its_brokers(node: LocalBroker) -> None:
    [row] = pyledger("cluster", "list", "--json").json
    assert (row["brokerId"], row["address"]) == (0, node.broker_address)
    assert "commitLogMaxOffset" in pyledger("cluster", "status", node.broker_address).out


@pytest.mark.parametrize("form", ["lines", "whole"])
def test_lines_and_whole_files(node: LocalBroker, form: str) -> None:
    Path("text").write_bytes(b"one\n\ntwo\r\n")
    assert pyledger("produce", "--topic", "Text", "--in", form, "text").code == 0
    assert sorted(node.bodies("Text")) == ([b"one", b"two"] if form == "lines" else [b"one\n\ntwo\r\n"])


def test_all_is_sent_though_nobody_reads_the_answers(node: LocalBroker) -> None:
    assert pyledger("topic", "create", "Text").code == 0
    Path("text").write_text("".join(f"{number}\n" for number in range(2000)))
    code, err = into_closed_pipe("produce", "-n", node.address, "--topic", "Text", "--json", "text")
    assert (code, err) == (0, b"")
    assert len(node.bodies("Text")) == 2000


def test_a_send_that_fails_tells_what_is_stored(node: LocalBroker) -> None:
    assert pyledger("topic", "create", "Text").code == 0
    Path("text").write_text("one\n" * 300 + "x" * (5 << 20) + "\n" + "two\n" * 300)
    found = spawn("produce", "-n", node.address, "--topic", "Text", "text")
    assert found.code == 1
    summary, error = found.err.splitlines()
    assert int(summary.split()[0]) <= len(node.bodies("Text"))
    assert summary.endswith("stored; messages in flight may be stored, too")
    assert "the limit is" in error


def test_batches_and_places(node: LocalBroker) -> None:
    done = pyledger(
        "produce", "--topic", "Load", "--count", "1000", "--size", "10", "--batch", "32", "--json"
    )
    assert len(done.json) == 32
    assert {len(body) for body in node.bodies("Load")} == {10}
    assert len(node.bodies("Load")) == 1000


def test_nobody_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    asking = (["topic", "list"], ["consume", "--topic", "T"], ["cluster", "list"])
    for words in (*asking, ["produce", "--topic", "T", "--count", "1"]):
        found = pyledger(*words)
        assert found.code == 3
        assert "cannot connect to 127.0.0.1:1" in found.err
        assert "Traceback" not in found.err


@pytest.mark.parametrize("name", ["produce", "consume", "topic", "group", "cluster"])
def test_examples_in_help_work(node: LocalBroker, name: str) -> None:
    pyledger("group", "create", "billing")
    lines = [line.strip() for line in pyledger(name, "--help").lines]
    # Those that ask a ZooKeeper have tests of their own.
    examples = [line for line in lines if line.startswith(f"pyledger {name}") and "zk://" not in line]
    assert examples
    for line in examples:
        words = [node.broker_address if word == "127.0.0.1:10911" else word for word in shlex.split(line)[1:]]
        done = pyledger(*words)
        assert done.code == 0, (line, done.err)


def test_what_shall_speak_tls_never_speaks_plain_text(
    node: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers here have no certificate."""
    sending = ["produce", "--topic", "Orders", "--count", "1"]
    for words in (["topic", "list"], sending, ["mqadmin", "topicList"]):
        assert pyledger(*words).code == 0
        with monkeypatch.context() as patch:
            patch.setenv("PYLEDGER_TLS_CLIENT_ENABLED", "true")
            assert pyledger(*words).code == 3
