"""RocketMQ's own `mqadmin` looks at our broker and changes it."""

import asyncio
import re
from pathlib import Path

import pytest

from pyledger.client import AsyncProducer, AsyncPushConsumer
from pyledger.model.message import Message
from pyledger.net.loop import run
from tests.client.scenarios import until
from tests.interop.cases import Place, bodies, once
from tests.interop.peers import RocketMQ
from tests.interop.servers import our_cluster

LIMIT_S = 300
pytestmark = [pytest.mark.java, pytest.mark.timeout(LIMIT_S)]

TOPIC = "AdminTopic"
GROUP = f"G{TOPIC}"
MESSAGES = 8


def test_mqadmin_looks_and_changes(rocketmq: RocketMQ, tmp_path: Path) -> None:
    with our_cluster(tmp_path) as node:
        namesrv, broker = node.namesrv, node.broker

        def said(*words: object) -> str:
            text = rocketmq.admin(*words, "-n", namesrv)
            assert "Exception" not in text, text
            return text

        place = Place(rocketmq, namesrv, TOPIC)
        place.produce(MESSAGES)
        assert bodies(place.consume(MESSAGES)) == once(MESSAGES)

        assert ["DefaultCluster", "broker-a", "0", broker, "V5_3_3"] in [
            line.split()[:5] for line in said("clusterList").splitlines()
        ]
        runtime = dict(
            map(str.strip, line.split(":", 1))
            for line in said("brokerStatus", "-b", broker).splitlines()
            if ":" in line
        )
        assert (runtime["msgPutTotalTodayNow"], runtime["msgGetTotalTodayNow"]) == (str(MESSAGES),) * 2
        ends = [line.split()[:4] for line in said("topicStatus", "-t", TOPIC).splitlines()]
        assert sum(int(row[3]) for row in ends if row[:1] == ["broker-a"]) == MESSAGES
        assert "Diff Total: 0" in said("consumerProgress", "-g", GROUP)
        assert "brokerName" in said("getBrokerConfig", "-b", broker)

        said("updateTopic", "-t", "NewTopic", "-b", broker, "-r", 3, "-w", 3)
        assert "NewTopic" in said("topicList").split()
        said("updateSubGroup", "-g", "NewGroup", "-b", broker, "-r", 5)
        reset = said("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "2020-01-01#00:00:00:000")
        assert sorted(line.split() for line in reset.splitlines() if line.startswith("broker-a")) == [
            ["broker-a", str(queue_id), "0"] for queue_id in range(4)
        ]
        said("updateBrokerConfig", "-b", broker, "-k", "defaultTopicQueueNums", "-v", 6)
        said("deleteSubGroup", "-g", "NewGroup", "-b", broker)
        said("deleteTopic", "-t", "NewTopic", "-c", "DefaultCluster")
        assert "NewTopic" not in said("topicList").split()

        # All that was reset is consumed again, and nothing else.
        assert bodies(place.consume(MESSAGES)) == once(MESSAGES)


def test_mqadmin_asks_consumers_of_both_kinds(rocketmq: RocketMQ, tmp_path: Path) -> None:
    """`consumerStatus`: our broker passes the question on, and both consumers answer it."""

    async def answered(pattern: str, *words: object) -> str:
        """What `mqadmin` says; its calls are late on a busy machine, so they may be made again."""
        while True:
            text = await asyncio.to_thread(rocketmq.admin, *words, "-g", "status_group", "-n", namesrv)
            if re.search(pattern, text):
                return text

    async def main() -> None:
        where = ("--namesrv", namesrv, "--topic", "Status", "--group", "status_group")
        async with AsyncProducer("p", namesrv) as producer:
            await producer.send(Message("Status", b"first"))
            ours = AsyncPushConsumer(
                "status_group", namesrv, listener=seen.append, consume_from="first_offset"
            )
            ours.subscribe("Status")
            async with ours:
                await until(lambda: bool(seen), "the first message", 240)
                # Not one: it may get the first message once more, with the queue, and would be gone.
                java = rocketmq.start("Consume", *where, "--expect", 2, "--timeout", 240)
                await until(lambda: 0 < len(ours.queues) < 4, "a share for Java", 240)
                listed = await answered(r"\S+@\S+(?s:.*)\S+@\S+", "consumerConnection")
                members = re.findall(r"\S+@\S+", listed)
                assert len(members) == 2, listed
                for member in members:
                    status = await answered("PROP_CONSUME_TYPE", "consumerStatus", "-i", member)
                    assert status.count("Status ") >= 2, status
                for number in range(40):
                    await producer.send(Message("Status", b"%d" % number))
                await asyncio.to_thread(java.end)

    seen: list[object] = []
    with our_cluster(tmp_path) as node:
        namesrv = node.namesrv
        run(asyncio.wait_for(main(), LIMIT_S - 20))
