"""RocketMQ's own `mqadmin` looks at our broker and changes it."""

from pathlib import Path

import pytest

from tests.interop.cases import Place, bodies, once
from tests.interop.peers import RocketMQ
from tests.interop.servers import our_cluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

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
