"""Our name server between RocketMQ's own brokers, clients and `mqadmin`."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyledger.model.remoting_codes import RequestCode
from pyledger.model.topic import Permission
from pyledger.wire.remoting.command import RemotingCommand
from tests.interop import peers
from tests.interop.cases import Place, bodies, once
from tests.interop.peers import RocketMQ
from tests.servers.broker.peers import make_request
from tests.servers.namesrv.answers import meaning
from tests.servers.namesrv.process import ask, serving
from tests.support.ports import free_ports

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOPIC = "InteropTopic"
MESSAGES = 20
LIMIT_S = 120


@dataclass(frozen=True)
class Cluster:
    """A broker that registered with two name servers."""

    ours: str
    java: str
    broker: str
    stop_broker: Callable[[], None]


@pytest.fixture
def cluster(rocketmq: RocketMQ, tmp_path: Path) -> Iterator[Cluster]:
    """A broker of each version in turn, registered with our name server and with Java's 5.3.3."""
    namesrv_port, broker_port = free_ports(2)
    java = f"127.0.0.1:{namesrv_port}"
    with ExitStack() as stack:
        _, ours = stack.enter_context(serving(tmp_path, "--listen", "127.0.0.1:0"))
        peers.build("5.3.3")
        start = ("NameServer", "--port", namesrv_port, "--home", tmp_path / "namesrv")
        stack.enter_context(peers.serving("5.3.3", *start, log=tmp_path / "namesrv.log"))
        where = ("--port", broker_port, "--namesrv", f"{ours};{java}", "--store", tmp_path / "store")
        log = tmp_path / "broker.log"
        broker = stack.enter_context(ExitStack())
        broker.enter_context(peers.serving(rocketmq.version, "Broker", *where, "--small", log=log))
        yield Cluster(ours, java, f"127.0.0.1:{broker_port}", broker.close)


def test_clients_and_mqadmin_see_through_ours_what_they_see_through_javas(
    rocketmq: RocketMQ, cluster: Cluster
) -> None:
    place = Place(rocketmq, cluster.ours, TOPIC)
    place.produce(MESSAGES)
    assert bodies(place.consume(MESSAGES)) == once(MESSAGES)
    differing = [
        command
        for command in reads(cluster)
        if answer_of(cluster.ours, command) != answer_of(cluster.java, command)
    ]
    assert not differing, [(answer_of(cluster.ours, one), answer_of(cluster.java, one)) for one in differing]
    for words in (["topicList"], ["topicRoute", "-t", TOPIC], ["clusterList"]):
        ours, java = (rows(rocketmq.admin(*words, "-n", address)) for address in (cluster.ours, cluster.java))
        assert ours == java, words
        assert len(ours) > 1, words
    cluster.stop_broker()
    left = ask(cluster.ours, make_request(RequestCode.GET_BROKER_CLUSTER_INFO))
    assert bytes(left.body) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def reads(cluster: Cluster) -> list[RemotingCommand]:
    """Every request that a name server answers from registrations."""
    commands = [
        make_request(RequestCode.GET_BROKER_CLUSTER_INFO),
        make_request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        make_request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS),
        make_request(RequestCode.GET_UNIT_TOPIC_LIST),
        make_request(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST),
        make_request(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
        make_request(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster"),
        make_request(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="Unknown"),
        make_request(
            RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="DefaultCluster", brokerName="broker-a"
        ),
        make_request(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="DefaultCluster", brokerName="unknown"),
        make_request(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG"),
        make_request(RequestCode.GET_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key=TOPIC),
    ]
    for version in (479, 401, 399, 0):
        for topic in (TOPIC, "TBW102", "%RETRY%GInteropTopic", "Unknown"):
            command = make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
            command.version = version
            commands.append(command)
    place = {"brokerName": "broker-a", "clusterName": "DefaultCluster", "brokerId": "0"}
    for addr in (cluster.broker, "127.0.0.1:1"):
        version_body = b'{"counter":0,"stateVersion":0,"timestamp":0}'
        commands.append(make_request(RequestCode.QUERY_DATA_VERSION, version_body, brokerAddr=addr, **place))
    return commands


def answer_of(address: str, command: RemotingCommand) -> tuple[dict[str, Any], bytes]:
    """The meaning of an answer, and whether its keys are quoted."""
    answer = ask(address, command)
    return meaning(answer), b"quoted" if b'{"0":"' in bytes(answer.body) else b""


def rows(text: str) -> list[list[str]]:
    """Lines of a table in any order, without the columns that change with time."""
    return sorted(line.split()[:5] for line in text.splitlines() if line.strip())


def test_slave_acts_for_its_master_as_with_java(tmp_path: Path) -> None:
    peers.build("5.3.3")
    namesrv_port, master_port, slave_port = free_ports(3)
    java = f"127.0.0.1:{namesrv_port}"
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=0\nsupportActingMaster=true\nnotifyMinBrokerIdChanged=true\n")
    acting = ("--set", "supportActingMaster=true", "--set", "notifyMinBrokerIdChanged=true")
    places = [
        make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102"),
        make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="rmq_sys_SYNC_BROKER_MEMBER_broker-a"),
        make_request(RequestCode.GET_BROKER_CLUSTER_INFO),
    ]
    with ExitStack() as stack:
        _, ours = stack.enter_context(serving(tmp_path, "--config", str(conf)))
        start = ("NameServer", "--port", namesrv_port, "--home", tmp_path / "namesrv", *acting)
        stack.enter_context(peers.serving("5.3.3", *start, log=tmp_path / "namesrv.log"))

        def broker(name: str, port: int, *options: object) -> AbstractContextManager[list[str]]:
            where = ("--port", port, "--namesrv", f"{ours};{java}", "--store", tmp_path / name, "--small")
            options = (*where, "--set", "enableSlaveActingMaster=true", *options)
            return peers.serving("5.3.3", "Broker", *options, log=tmp_path / f"{name}.log")

        def routes() -> list[Any]:
            return [answer_of(ours, one) for one in places]

        def alike(is_there: Callable[[list[Any]], bool]) -> list[Any]:
            """Wait until both name servers have the same routes."""
            end = time.monotonic() + LIMIT_S
            while not (is_there(routes()) and routes() == [answer_of(java, one) for one in places]):
                assert time.monotonic() < end, (routes(), [answer_of(java, one) for one in places])
                time.sleep(0.1)
            return routes()

        with broker("master", master_port):
            stack.enter_context(broker("slave", slave_port, "--role", "SLAVE", "--broker-id", 1))
            (route, _), *_ = alike(lambda found: addresses(found[0]).keys() == {"0", "1"})
            assert route["body"]["queueDatas"][0]["perm"] & Permission.WRITE
        slave = f"127.0.0.1:{slave_port}"
        (route, _), (members, _), _ = alike(lambda found: addresses(found[0]) == {"0": slave})
        assert members["body"]["brokerDatas"][0]["brokerAddrs"] == {"1": slave}
        assert not route["body"]["queueDatas"][0]["perm"] & Permission.WRITE


def addresses(answer: tuple[dict[str, Any], bytes]) -> dict[str, str]:
    """Brokers of a route by their ids."""
    found: dict[str, str] = answer[0]["body"]["brokerDatas"][0]["brokerAddrs"]
    return found
