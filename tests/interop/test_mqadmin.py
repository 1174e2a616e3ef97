"""RocketMQ's own `mqadmin` looks at our broker and changes it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT
from tests.interop.peers import RocketMQ, free_ports

pytestmark = [pytest.mark.java, pytest.mark.live, pytest.mark.timeout(600)]

TOPIC = "AdminTopic"
GROUP = "AdminGroup"
MESSAGES = 8


@contextmanager
def node(folder: Path) -> Iterator[tuple[str, str]]:
    """`pyledger serve --dev` as a process; addresses of its name server and its broker."""
    namesrv_port, broker_port = free_ports(2)
    ports = ("--namesrv-port", str(namesrv_port), "--port", str(broker_port))
    process = subprocess.Popen(
        [*COMMAND, "serve", "--dev", "--store", str(folder / "store"), *ports],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("READY node")
        yield f"127.0.0.1:{namesrv_port}", f"127.0.0.1:{broker_port}"
    finally:
        process.kill()
        process.communicate()


def test_mqadmin_looks_and_changes(rocketmq: RocketMQ, tmp_path: Path) -> None:
    with node(tmp_path) as (namesrv, broker):

        def said(*words: object) -> str:
            text = rocketmq.admin(*words, "-n", namesrv)
            assert "Exception" not in text, text
            return text

        rocketmq.run("Produce", "--namesrv", namesrv, "--topic", TOPIC, "--count", MESSAGES)
        place = ("--namesrv", namesrv, "--topic", TOPIC, "--group", GROUP)
        rocketmq.run("Consume", *place, "--expect", MESSAGES, "--timeout", 60)

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
        again = rocketmq.run("Consume", *place, "--expect", MESSAGES, "--timeout", 60)
        bodies = sorted(line["body"] for line in again if line["event"] == "message")
        assert bodies == sorted(f"m-{number}" for number in range(MESSAGES))
