"""Clients that trace: where each message went can be asked for."""

import time
from pathlib import Path

import pytest

from pyledger.client.blocking.admin import Admin
from pyledger.client.blocking.consumer import PushConsumer
from pyledger.client.blocking.producer import Producer
from pyledger.client.listener import ReconsumeLater
from pyledger.config.client import ClientConfig
from pyledger.model.message import Message
from pyledger.servers.local.rocketmq import LocalBroker
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.bodies.trace import BeginTrace, EndTrace, SendTrace, Trace, decode_traces
from tests.cli.command_line import pyledger

pytestmark = pytest.mark.timeout(120)
TOPIC = "RMQ_SYS_TRACE_TOPIC"


def traces_of(node: LocalBroker) -> list[Trace]:
    return [one for body in node.bodies(TOPIC) for one in decode_traces(body.decode())]


def test_way_of_a_message_is_told(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "store") as node:
        config = ClientConfig(name_servers=node.address, trace_enabled=True)
        with Producer("shop", client=config) as producer:
            sent = producer.send(Message("Orders", b"hello", tags="A", keys="k1 k2"))
            results = [producer.send(Message("Orders", b"%d" % number)) for number in range(30)]
        times: list[int] = []

        def listener(message: ReceivedMessage) -> ReconsumeLater | None:
            times.append(message.reconsume_times)
            return ReconsumeLater(1) if message.keys and not message.reconsume_times else None

        with PushConsumer(
            "billing", listener=listener, client=config, consume_from="first_offset"
        ) as consumer:
            consumer.subscribe("Orders")
            while len(times) < 32:
                time.sleep(0.01)
        found = traces_of(node)
        # What is traced is not traced again.
        assert {one.topic for one in found if isinstance(one, SendTrace)} == {"Orders"}
        sends = {one.msg_id: one for one in found if isinstance(one, SendTrace)}
        assert sends.keys() == {sent.unique_key, *(one.unique_key for one in results)}
        first = sends[sent.unique_key]
        assert (first.group, first.tags, first.keys, first.body_bytes) == ("shop", "A", "k1 k2", 5)
        assert (first.store_host, first.offset_msg_id) == (node.broker_address, sent.offset_msg_id)
        begun = [one for one in found if isinstance(one, BeginTrace) and one.msg_id == sent.unique_key]
        ended = [one for one in found if isinstance(one, EndTrace) and one.msg_id == sent.unique_key]
        assert [one.reconsume_times for one in begun] == [0, 1]
        assert [one.request_id for one in begun] == [one.request_id for one in ended]
        assert [(one.succeeded, one.end, one.group) for one in ended] == [
            (False, 4, "billing"),
            (True, 0, "billing"),
        ]
        assert len([one for one in found if isinstance(one, EndTrace)]) == 32
        with Admin(node.address) as admin:
            assert admin.query(TOPIC, "k2")
        done = pyledger("mqadmin", "queryMsgTraceById", "-n", node.address, "-i", sent.unique_key)
        assert [line.split()[:2] + line.split()[-2:-1] for line in done.lines if line] == [
            ["#Type", "#ProducerGroup", "#CostTimes"],
            ["Pub", "shop", f"{first.took_ms}ms"],
            ["#Type", "#ConsumerGroup", "#CostTimes"],
            ["Sub", "billing", f"{ended[0].took_ms}ms"],
            ["Sub", "billing", f"{ended[1].took_ms}ms"],
        ], (done.out, done.err)
        rows = pyledger(
            "mqadmin", "queryMsgTraceById", "-n", node.address, "-i", sent.unique_key, "--json"
        ).json
        assert [row["status"] for row in rows] == ["success", "failed", "success"]


def test_nothing_is_traced_unless_asked_for(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "store") as node:
        with Producer("shop", node.address) as producer:
            producer.send(Message("Orders", b"hello"))
        assert traces_of(node) == []
