"""`pyledger mqadmin`: each command with a broker of its own; tables as RocketMQ's own `mqadmin` prints them.

The heads and widths here are what `mqadmin` 5.3.3 printed for the same broker; `tests/interop` compares whole
outputs where Java is.
"""

import importlib
import json
import shlex
import time
from collections.abc import Iterator

import click
import pytest

from pyledger.cli.mqadmin import EXAMPLES, MODULES, PLACES
from pyledger.client.blocking.consumer import PushConsumer
from pyledger.client.blocking.producer import Producer
from pyledger.model.message import Message
from pyledger.servers.local.rocketmq import LocalBroker
from tests.cli.command_line import Finished, pyledger

pytestmark = pytest.mark.timeout(300)
DAY = 24 * 3_600_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker with three messages in each of four queues of `Orders`; the group `billing` read two."""
    with LocalBroker(tmp_path_factory.mktemp("mqadmin") / "store") as served:
        with Producer("shop", served.address) as producer:
            for number in range(12):
                tag = "food" if number % 2 else "drinks"
                body = f"order {number}".encode()
                producer.send(Message("Orders", body, tags=tag, keys=f"key-{number}"))
        done = pyledger(
            "consume", "-n", served.address, "--topic", "Orders", "--group", "billing", "--limit", "2",
            "-f", "%o",
        )  # fmt: skip
        assert done.code == 0, done.err
        yield served


@pytest.fixture
def mqadmin(node: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> "Caller":
    monkeypatch.setenv("NAMESRV_ADDR", node.address)
    return Caller(node.broker_address)


class Caller:
    """Runs commands; `BROKER` in one stands for the broker's address."""

    def __init__(self, broker: str) -> None:
        self.broker = broker

    def __call__(self, line: str, code: int = 0) -> Finished:
        done = pyledger("mqadmin", *(self.broker if word == "BROKER" else word for word in shlex.split(line)))
        assert done.code == code, (line, done.out, done.err)
        assert "Traceback" not in done.err
        return done


def test_topics_come_and_go(mqadmin: Caller) -> None:
    said = mqadmin("updateTopic -t Bills -c DefaultCluster -r 3 -w 4 -o true -a +message.type=FIFO").lines
    assert said == [
        f"create topic to {mqadmin.broker} success.",
        "set cluster orderConf. isOrder=true, orderConf=[broker-a:4]",
        (
            "TopicConfig [topicName=Bills, readQueueNums=3, writeQueueNums=4, perm=RW-, "
            "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=true, attributes={+message.type=FIFO}]"
        ),
    ]
    assert "orderConf=[broker-a:4]" in mqadmin("updateOrderConf -t Bills -m get").out
    perm = mqadmin("updateTopicPerm -t Bills -b BROKER -p 4").lines
    assert perm[0] == f"update topic perm from 6 to 4 in {mqadmin.broker} success."
    assert "perm=R--" in perm[1]
    assert "attributes={message.type=FIFO}" in perm[1]
    assert "new perm equals" in mqadmin("updateTopicPerm -t Bills -b BROKER -p 4").out
    assert "Bills" in mqadmin("topicList").lines
    assert mqadmin("topicClusterList -t Bills").lines == ["DefaultCluster"]
    assert mqadmin("deleteTopic -t Bills -c DefaultCluster").lines == [
        "delete topic [Bills] from cluster [DefaultCluster] success.",
        "delete topic [Bills] from NameServer success.",
    ]
    assert "Bills" not in mqadmin("topicList").lines
    assert "Bills" in mqadmin("topicStatus -t Bills", 3).err


def test_tables_have_the_columns_of_the_original(mqadmin: Caller) -> None:
    status = mqadmin("topicStatus -t Orders").lines
    assert status[0] == (
        "#Broker Name                      #QID  #Min Offset           #Max Offset             #Last Updated"
    )
    assert status[1].startswith(
        "broker-a                          0     0                     3                       20"
    )
    assert status[-2:] == ["", status[-1]]
    assert status[-1].startswith("Topic Put TPS: ")
    route = mqadmin("topicRoute -t Orders -l").lines
    assert route[0].split() == [
        "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm",
    ]  # fmt: skip
    assert route[1] == (
        "DefaultCluster                                broker-a                         "
        f"{f'{{0={mqadmin.broker}}}':<50} 4          4           6    "
    )
    [head, row] = mqadmin("clusterList").lines
    assert head == (
        "#Cluster Name           #Broker Name            #BID  #Addr                  #Version              "
        "#InTPS(LOAD)                   #OutTPS(LOAD)  #Timer(Progress)        #PCWait(ms)  #Hour         "
        "#SPACE    #ACTIVATED"
    )
    assert row.split()[:5] == ["DefaultCluster", "broker-a", "0", mqadmin.broker, "V5_3_3"]
    assert row.endswith("          true")
    assert mqadmin("clusterList -m").lines[1].split()[:4] == ["DefaultCluster", "broker-a", "0", "0"]
    stats = [line.split() for line in mqadmin("statsAll -t Orders").lines[1:]]
    assert [row[:3] for row in stats] == [["Orders", "billing", "10"]]
    assert len(stats[0]) == 7


def test_offsets_are_seen_and_moved(mqadmin: Caller) -> None:
    lines = mqadmin("consumerProgress -g billing").lines
    head = "#Topic #Broker Name #QID #Broker Offset #Consumer Offset #Diff #Inflight #LastTime"
    assert " ".join(lines[0].split()) == head
    assert "Consume Diff Total: 10" in lines
    rows = [line.split() for line in mqadmin("consumerProgress").lines]
    assert ["billing", "0", "OFFLINE", "10"] in [row[:3] + row[-1:] for row in rows]
    assert "Diff Total: 10" in mqadmin("brokerConsumeStats -b BROKER").lines
    said = mqadmin("resetOffsetByTime -g billing -t Orders -s 2020-01-01#00:00:00:000").lines
    assert said[1].split() == ["#brokerName", "#queueId", "#offset"]
    assert [line.split() for line in said[2:]] == [["broker-a", str(one), "0"] for one in range(4)]
    one = mqadmin("resetOffsetByTime -g billing -t Orders -s -1 -b BROKER -q 1 -o 2").lines
    assert one[-1] == "reset consumer offset to 2"
    assert {row["offset"] for row in mqadmin("skipAccumulatedMessage -g billing -t Orders --json").json} == {
        3
    }
    mqadmin("cloneGroupOffset -s billing -d taxes -t Orders")
    taxes = mqadmin("consumerProgress -g taxes --json").json
    assert [row["consumerOffset"] for row in taxes] == [3] * 4
    assert mqadmin("resetOffsetByTime -g billing -t Orders -s yesterday", 2).err.count("yesterday") == 1
    assert "no consumer group Nobody" in mqadmin("consumerProgress -g Nobody", 1).err


def test_groups_come_and_go(mqadmin: Caller) -> None:
    said = mqadmin("updateSubGroup -g payers -b BROKER -r 5 -o true -d true").lines
    assert said[0] == f"create subscription group to {mqadmin.broker} success."
    assert (
        "consumeBroadcastEnable=true, consumeMessageOrderly=true, retryQueueNums=1, retryMaxTimes=5"
        in said[1]
    )
    shown = dict(line.split("=", 1) for line in mqadmin("getConsumerConfig -g payers").lines[1:])
    assert {name.strip(): value.strip() for name, value in shown.items()}["retryMaxTimes"] == "5"
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000]}}'
    mqadmin(f"updateSubGroup -g payers -c DefaultCluster -p '{policy}'")
    [found] = mqadmin("getConsumerConfig -g payers --json").json
    assert found["groupRetryPolicy"]["customizedRetryPolicy"] == {"next": [1000]}
    assert "success" in mqadmin("setConsumeMode -b BROKER -g payers -t Orders -m POP -q 2").out
    assert mqadmin("deleteSubGroup -g payers -b BROKER -r true").lines == [
        f"delete subscription group [payers] from broker [{mqadmin.broker}] success."
    ]
    assert mqadmin("getConsumerConfig -g payers").lines == []
    assert "not online" in mqadmin("consumerConnection -g billing", 2).err
    mqadmin("producer -b BROKER")


def test_messages_are_found(mqadmin: Caller) -> None:
    [message] = mqadmin("queryMsgByKey -t Orders -k key-7 --json").json
    assert (message["body"], message["tags"]) == ("order 7", "food")
    by_key = mqadmin("queryMsgByKey -t Orders -k key-7").lines
    assert by_key[1].split() == [message["uniqueKey"], str(message["queueId"]), str(message["queueOffset"])]
    place = f"-b broker-a -i {message['queueId']} -o {message['queueOffset']}"
    for line in (
        f"queryMsgById -i {message['msgId']} -t Orders",
        f"queryMsgById -i {message['uniqueKey']} -t Orders",
        f"queryMsgByUniqueKey -i {message['uniqueKey']} -t Orders -a",
        f"queryMsgByOffset -t Orders {place}",
    ):
        assert [one["body"] for one in mqadmin(f"{line} --json").json] == ["order 7"], line
        fields = dict(text.split(":", 1) for text in mqadmin(line).lines if ": " in text[:21])
        assert fields["Keys"].strip() == "[key-7]"
        assert fields["Queue Offset"].strip() == str(message["queueOffset"])
    assert "MessageTrack [consumerGroup=billing, trackType=NOT_ONLINE" in mqadmin(line).out
    assert "no message" in mqadmin("queryMsgByOffset -t Orders -b broker-a -i 0 -o 99", 1).err
    assert "no message" in mqadmin(f"queryMsgByUniqueKey -t Orders -i {'0' * 32}", 1).err
    units = mqadmin("queryCq -t Orders -q 0 -i 1 -c 1 -b BROKER --json").json
    assert [unit["index"] for unit in units] == [1]


def test_messages_are_printed_and_sent(mqadmin: Caller) -> None:
    printed = [line for line in mqadmin("printMsg -t Orders -s food").lines if line.startswith("MSGID: ")]
    assert sorted(line.rpartition(" BODY: ")[2] for line in printed) == [
        f"order {number}" for number in (1, 11, 3, 5, 7, 9)
    ]
    assert "body=[111, 114, 100, 101, 114, 32, " in printed[0]
    assert mqadmin(f"printMsg -t Orders -b {DAY} -e {2 * DAY} --json").lines == []
    counted = mqadmin("printMsgByQueue -t Orders -a broker-a -i 1 -f true").lines
    assert sum(int(line.split()[-1]) for line in counted) == 3
    assert len(mqadmin("printMsgByQueue -t Orders -a broker-a -i 1 -p true").lines) == 3
    assert len(mqadmin("consumeMessage -t Orders --json").json) == 12
    assert len(mqadmin("consumeMessage -t Orders -b broker-a -i 2 -o 1 --json").json) == 2
    assert len(mqadmin("consumeMessage -t Orders -c 5 --json").json) == 5
    sent = mqadmin("sendMessage -t Sent -p hello -k k -c A").lines
    assert sent[0].split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#MsgId"]
    assert sent[1].split()[2] == "SEND_OK"
    [row] = mqadmin("sendMessage -t Sent -p hello -b broker-a -i 1 --json").json
    assert row["queueId"] == 1
    assert len(mqadmin("consumeMessage -t Sent --json").json) == 2


def test_servers_are_seen_and_changed(mqadmin: Caller) -> None:
    table = dict(line.split(":", 1) for line in mqadmin("brokerStatus -b BROKER").lines)
    assert {name.strip(): value for name, value in table.items()}["brokerActive"].strip() == "true"
    assert mqadmin.broker in mqadmin("brokerStatus -c DefaultCluster").lines[0]
    mqadmin("updateBrokerConfig -b BROKER -k defaultTopicQueueNums -v 5")
    assert mqadmin("getBrokerConfig -b BROKER --json").json[0]["defaultTopicQueueNums"] == "5"
    mqadmin("updateBrokerConfig -c DefaultCluster -a true -k defaultTopicQueueNums -v 8")
    for name in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert mqadmin(f"{name} -b BROKER").lines == ["success"]
        assert mqadmin(name).lines == ["success"]
    assert "OK, " in mqadmin("wipeWritePerm -b broker-a").out
    assert json.loads(mqadmin("topicRoute -t Orders --json").out)["queueDatas"][0]["perm"] == 4
    assert "OK, " in mqadmin("addWritePerm -b broker-a").out
    assert '"perm":6' in mqadmin("topicRoute -t Orders").out
    mqadmin("updateKvConfig -s space -k name -v value")
    mqadmin("deleteKvConfig -s space -k name")
    mqadmin("updateNamesrvConfig -k orderMessageEnable -v true")
    assert mqadmin("getNamesrvConfig --json").json[0]["orderMessageEnable"] == "true"
    shared = mqadmin("allocateMQ -t Orders -i 10.0.0.1,10.0.0.2 --json").json[0]["result"]
    assert [len(queues) for queues in shared.values()] == [2, 2]


@pytest.mark.parametrize(
    ("line", "code", "hint"),
    [
        ("topicLst", 2, "topicList"),
        ("updateTopic -t A", 2, "-b HOST:PORT"),
        ("updateTopic -t A -c Nowhere", 1, "DefaultCluster"),
        ("updateTopic -t A -c DefaultCluster -a x=y", 2, "+NAME=VALUE"),
        ("updateTopic -t A -b 127.0.0.1:1", 3, "cannot connect to 127.0.0.1:1"),
        ("topicStatus", 2, "--topic"),
        ("updateSubGroup -g A -b BROKER -p no", 2, "JSON"),
        ("sendMessage -t A -p x -i 1", 2, "-i needs -b"),
        ("printMsg -t Orders -c nosuch", 2, "charset"),
        ("updateOrderConf -t A -m put", 2, "-v broker-a:4"),
    ],
)
def test_wrong_use_is_told(mqadmin: Caller, line: str, code: int, hint: str) -> None:
    assert hint in mqadmin(line, code).err


def test_help_gives_examples_that_work(mqadmin: Caller) -> None:
    shown = pyledger("mqadmin", "--help").out
    assert all(f"  {name} " in shown for name in PLACES)
    for line in EXAMPLES.splitlines():
        if line.strip().startswith("pyledger mqadmin"):
            words = line.replace("-n 127.0.0.1:9876", "").split()[2:]
            mqadmin(" ".join(words))


def test_every_command_is_in_its_module() -> None:
    for name, commands in MODULES.items():
        found: dict[str, click.Command] = importlib.import_module(f"pyledger.cli.mqadmin.{name}").VERBS
        assert set(found) == set(commands)


def test_time_of_sends_is_told(mqadmin: Caller) -> None:
    mqadmin("updateTopic -t Timed -b BROKER -r 2 -w 2")
    lines = mqadmin("checkMsgSendRT -t Timed -a 3 -s 10").lines
    assert lines[0] == "#Broker Name                      #QID  #Send Result            #RT"
    assert [line.split()[:3] for line in lines[1:4]] == [["broker-a", qid, "true"] for qid in ("0", "1", "0")]
    assert lines[4].startswith("Avg RT: ")


def test_time_of_sends_to_each_broker_is_told(mqadmin: Caller) -> None:
    heads, row = mqadmin("clusterRT -a 3 -s 10 --rounds 1").lines
    assert (
        heads == "#Cluster Name             #Broker Name              #RT       #successCount     #failCount"
    )
    assert [row.split()[at] for at in (0, 1, 3, 4)] == ["DefaultCluster", "broker-a", "3", "0"]
    (found,) = map(json.loads, mqadmin("clusterRT -a 2 -c DefaultCluster --rounds 1 --json").lines)
    assert (found["brokerName"], found["sent"], found["failed"]) == ("broker-a", 2, 0)
    (line,) = mqadmin("clusterRT -a 2 -p true -m here --rounds 1").lines
    assert line.split("|")[1:4] == ["here", "DefaultCluster", "broker-a"]
    assert "no broker is registered in the cluster" in mqadmin("clusterRT -c Nowhere --rounds 1", code=2).err


def test_consumers_say_what_they_do(mqadmin: Caller, node: LocalBroker) -> None:
    consumer = PushConsumer("shown", node.address, listener=lambda _: None)
    consumer.subscribe("Orders", "food || drinks")
    with consumer:
        while not consumer.queues:
            time.sleep(0.01)
        member, *rest = mqadmin("consumerStatus -g shown").lines
        assert member.startswith("001  ")
        assert [line for line in rest if line] == [
            "Same subscription in the same group of consumer",
            "Rebalance OK",
        ]
        client_id = member.split()[1]
        lines = mqadmin(f"consumerStatus -g shown -i {client_id} -s").lines
        assert "#Consumer Properties#" in lines
        (wanted,) = [line for line in lines if " Topic: Orders " in line]
        assert wanted.endswith("SubExpression: food || drinks")
        details = [line for line in lines if "ProcessQueueInfo [commitOffset=" in line]
        orders = {queue.queue_id for queue in consumer.queues if queue.topic == "Orders"}
        assert len([line for line in details if line.startswith("Orders ")]) == len(orders)
        (found,) = map(json.loads, mqadmin("consumerStatus -g shown --json").lines)
        assert (found["clientId"], found["properties"]["PROP_CONSUME_TYPE"]) == (
            client_id,
            "CONSUME_PASSIVELY",
        )
        assert {one["queueId"] for one in found["mqTable"] if one["topic"] == "Orders"} == orders
        assert "no broker is connected to" in mqadmin("consumerStatus -g shown -i nobody", code=2).err
    assert "is not online" in mqadmin("consumerStatus -g nobody", code=2).err
