"""Traces of RocketMQ's clients and of ours: each side's tools read both."""

import itertools

import pytest

from pyledger.client.blocking.producer import Producer
from pyledger.config.client import ClientConfig
from pyledger.model.message import Message
from pyledger.store.reading.reader import StoreReader
from pyledger.wire.remoting.bodies.trace import BeginTrace, EndTrace, SendTrace, decode_traces
from tests.cli.command_line import pyledger
from tests.interop.cases import Place
from tests.interop.peers import RocketMQ
from tests.interop.servers import Node

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def traced(node: Node, topic: str) -> tuple[list[str], set[str]]:
    """Bodies of the trace topic, and ids of messages of a topic that were traced on all their way."""
    with StoreReader.open(node.store) as reader:
        ids = {one.unique_key for one in reader.messages(topics=[topic])}
        written = [one.plain_body.decode() for one in reader.messages(topics=[TRACE_TOPIC])]
    found = [one for text in written for one in decode_traces(text)]
    kinds = [
        {one.msg_id for one in found if isinstance(one, kind)} for kind in (SendTrace, BeginTrace, EndTrace)
    ]
    return written, set.intersection({one for one in ids if one is not None}, *kinds)


def test_traces_are_read_by_both(rocketmq: RocketMQ, our_node: Node) -> None:
    topic = f"Traced{rocketmq.version.replace('.', '')}"
    place = Place(rocketmq, our_node.namesrv, topic)
    # Java's clients flush every five seconds, and may lose what is left when they end.
    for linger_ms in itertools.count(6_000, 6_000):
        place.produce(5, "--trace", "--linger", linger_ms)
        place.consume(5, "--trace", "--linger", linger_ms)
        written, ids = traced(our_node, topic)
        if ids:
            break
    if rocketmq.version.startswith("5"):
        # What was read is written again byte for byte.
        for text in written:
            records = list(decode_traces(text))
            if any(one.msg_id in ids for one in records):
                assert "".join(one.encode() for one in records) == text
    for msg_id in sorted(ids):
        said = pyledger("mqadmin", "queryMsgTraceById", "-n", our_node.namesrv, "-i", msg_id)
        assert [line.split()[:2] for line in said.lines if line.startswith(("Pub", "Sub"))] == [
            ["Pub", "interop_producer"],
            ["Sub", f"G{topic}"],
        ], said.out
    config = ClientConfig(name_servers=our_node.namesrv, trace_enabled=True)
    with Producer("ours", client=config) as producer:
        sent = producer.send(Message(topic, b"hello", keys="k1"))
    text = rocketmq.admin("queryMsgTraceById", "-n", our_node.namesrv, "-i", sent.unique_key)
    assert [line.split()[:2] for line in text.splitlines() if line.startswith("Pub")] == [["Pub", "ours"]], (
        text
    )
