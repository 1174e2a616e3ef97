"""`pyledger broker` and `pyledger serve`: ready, asked, stopped or killed; RocketMQ's own settings."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyledger.client.blocking.producer import Producer
from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.store.reading.reader import StoreReader
from pyledger.wire.remoting.command import RemotingCommand
from tests.cli.command_line import COMMAND, ENVIRONMENT, pyledger
from tests.net.peers import raw
from tests.servers.broker.peers import send


@contextmanager
def serving(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server as a process, and its address."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("READY "), line + process.communicate(timeout=100)[1]
        yield process, line.split()[2]
    finally:
        process.kill()
        process.communicate()


def ask(address: str, command: RemotingCommand) -> RemotingCommand:
    async def main() -> RemotingCommand:
        async with raw(int(address.rpartition(":")[2])) as client:
            return await client.request(command)

    return asyncio.run(main())


@pytest.mark.parametrize("option", ["--listen", "--broker-listen"])
def test_node_listens_on_loopback_only(tmp_path: Path, option: str) -> None:
    found = pyledger("serve", "--store", str(tmp_path / "store"), option, "0.0.0.0:0")
    assert (found.code, "on 127.0.0.1 only" in found.err) == (2, True)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_node_serves_clients_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    store = tmp_path / "store"
    with serving("serve", "--store", store, "--listen", "127.0.0.1:0", "--broker-listen", "127.0.0.1:0") as (
        process,
        address,
    ):
        with Producer("P", address) as producer:
            for count in range(10):
                producer.send(Message("Orders", b"%d" % count))
        process.send_signal(number)
        out, err = process.communicate(timeout=100)
        assert (process.returncode, out) == (0, "")
        assert "broker closed" in err
        assert "Traceback" not in err
    with StoreReader.open(store) as reader:
        assert reader.clean
        assert sorted(message.body for message in reader.messages()) == [b"%d" % n for n in range(10)]
        assert {message.topic for message in reader.messages()} == {"Orders"}


def test_killed_broker_has_what_it_acknowledged(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "brokerClusterName=C\nbrokerName=b\nlistenPort=0\nflushDiskType=SYNC_FLUSH\n"
        "autoCreateTopicEnable=true\n"
        f"storePathRootDir={tmp_path / 'store'}\nmappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\n"
        "maxIndexNum=4000\nsendMessageThreadPoolNums=16\n"
    )
    with serving("broker", "--config", conf) as (process, address):
        for count in range(50):
            assert ask(address, send("T", b"%d" % count)).code == 0
        process.kill()
        _, err = process.communicate(timeout=100)
        assert "settings have no effect here settings=sendMessageThreadPoolNums" in err
    with serving("broker", "--config", conf) as (process, address):
        found = ask(
            address,
            RemotingCommand.request(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "T", "queueId": "0"}),
        )
        assert found.ext_fields == {"offset": "50"}
        assert ask(address, send("T", b"after")).ext_fields["queueOffset"] == "50"
        process.terminate()
        assert process.wait(timeout=100) == 0


def test_topics_are_not_created_unless_allowed(tmp_path: Path) -> None:
    with serving("broker", "--store", tmp_path / "store", "--listen", "127.0.0.1:0") as (_, address):
        assert ask(address, send("Mistyped")).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("listenPrt=1", "did you mean listenPort?"),
        ("brokerRole=SLAVE", "brokerId"),
        ("storePathRootDir=/srv/mq\nstorePathCommitLog=/disk/log", "ln -s /disk/log /srv/mq/commitlog"),
        (
            "storeType=defaultRocksDB",
            "storeType: 'defaultRocksDB' is not supported; PyLedger does not support RocksDB",
        ),
        ("enableControllerMode=true", "there is no controller mode; use brokerRole"),
        ("bindAddress=0.0.0.0", "set brokerIP1"),
        ("brokerName=../x", "cannot name a topic"),
        ("listenPort=many", "broker.conf: listenPort: 'many' is not a whole number"),
        ("namesrvAddr=10.0.0.1", "namesrvAddr: '10.0.0.1' is not an address; write host:port"),
    ],
)
def test_broker_names_a_wrong_setting(tmp_path: Path, line: str, says: str) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(line + "\n")
    found = pyledger("broker", "-c", conf)
    assert found.code == 2
    assert says in found.err
    assert not (tmp_path / "store").exists()
