"""The Spark source with Java at the other end: its brokers are read, and its store opens what is written."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark_pyledger.publishing import publish
from pyspark_pyledger.staging import stage_rows, staging_folder
from pyspark_pyledger.write_options import WriteOptions

from pyledger.broker.background import BackgroundNode
from pyledger.client.blocking import Producer
from pyledger.message import Message
from tests.interop.java import JavaStore
from tests.interop.peers import RocketMQ
from tests.spark.test_brokers import SEND_TIMEOUT_MS, read
from tests.spark.test_equal_rows import TOPICS, send
from tests.spark.ways import as_rows, batch_table, cat_rows, java_rows, stream_table

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def test_rows_of_a_broker_of_java(java_namesrv: str, rocketmq: RocketMQ) -> None:
    topic = "SparkReads"
    with Producer("spark", java_namesrv, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        sent = [
            producer.send(Message(topic, b"%d" % number, tags="AB"[number % 2], keys=f"k{number}"))
            for number in range(100)
        ]
    rows = read(java_namesrv, topic=topic, columns="queueId,queueOffset,body,tags,keys,msgId")
    wanted = [
        (one.queue.queue_id, one.queue_offset, b"%d" % number, "AB"[number % 2], f"k{number}")
        for number, one in enumerate(sent)
    ]
    assert sorted(tuple(row.values())[:5] for row in rows) == sorted(wanted)
    assert {row["msgId"] for row in rows} == {one.offset_msg_id for one in sent}
    tagged = read(java_namesrv, topic=topic, columns="body", tags="B")
    assert sorted(int(row["body"]) for row in tagged) == list(range(1, 100, 2))


def test_every_way_gives_what_java_finds(java: JavaStore, tmp_path: Path) -> None:
    names = ",".join(TOPICS)
    with BackgroundNode(tmp_path / "store") as node:
        send(node.address, 90)
        live = {"namesrv": node.address, "topics": names}
        found = [batch_table(**live), stream_table(**live, maxOffsetsPerTrigger="40")]
    folder = {"path": str(node.folder), "topics": names}
    found += [batch_table(**folder), stream_table(**folder, maxOffsetsPerTrigger="40")]
    wanted = java_rows(line for line in java.judge(node.folder).messages if line["topic"] in TOPICS)
    assert len(wanted) == 90
    for table in found:
        assert as_rows(table) == wanted
    assert cat_rows(node.folder, *(word for topic in TOPICS for word in ("--topic", topic))) == wanted


def test_java_opens_what_is_written(java: JavaStore, tmp_path: Path) -> None:
    store = tmp_path / "store"
    options = WriteOptions(str(store), topic="orders", log_file_size_bytes=1 << 20)
    bodies = [b"body %d" % number for number in range(3000)]
    rows = {"body": bodies, "keys": [f"k{number}" if number % 2 else None for number in range(3000)]}
    for turn in range(2):
        folder = staging_folder(str(store), "sink")
        staged = stage_rows(folder, pa.table(rows).to_batches(max_chunksize=700), "orders")
        assert publish(options, "sink", turn, [staged]) == 3000
    seen = java.judge(store)
    wanted = sorted(2 * [hashlib.sha256(body).hexdigest() for body in bodies])
    assert sorted(line["bodySha256"] for line in seen.of_kind("message")) == wanted
    assert not seen.summary["abortFile"]
