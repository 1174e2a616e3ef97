"""The Spark source with Java at the other end: its brokers are read, and its store opens what is written."""

import asyncio
import hashlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark_pyledger.broker_tail import read_range
from pyspark_pyledger.commit import publish
from pyspark_pyledger.options import parse_read_options
from pyspark_pyledger.schema import schema_of
from pyspark_pyledger.staging import stage_rows, staging_folder
from pyspark_pyledger.stream_reader import StreamReader
from pyspark_pyledger.stream_source import plan_brokers
from pyspark_pyledger.write_options import WriteOptions

from pyledger.client.blocking.producer import Producer
from pyledger.model.message import Message
from pyledger.net.loop import run
from pyledger.servers.local.rocketmq import LocalBroker
from tests.interop.java import JavaStore
from tests.interop.peers import PEER_VERSIONS, Peers, RocketMQ
from tests.interop.test_ha import FILES, java_broker
from tests.servers.ha.pair import brokers, until
from tests.spark.test_brokers import MANY, SEND_TIMEOUT_MS, TOPIC, produce, read
from tests.spark.test_equal_rows import TOPICS, send
from tests.spark.ways import COLUMNS, as_rows, batch_table, cat_rows, in_order, java_rows, stream_table

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

SENT = 3000


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


def test_a_stream_follows_the_folder_of_a_broker_of_java(
    java_namesrv: str, java_folder: Path, rocketmq: RocketMQ
) -> None:
    topic = "SparkFollows"
    options = parse_read_options({"path": str(java_folder / "store"), "topic": topic, "columns": COLUMNS})
    stream = StreamReader(schema_of(options.columns), options)
    start, found = stream.initialOffset(), []
    assert start == {}
    where = ("--namesrv", java_namesrv, "--topic", topic, "--quiet")
    for round_ in (1, 2):
        sending = rocketmq.start("Produce", *where, "--count", SENT // 2, "--size", 300, "--tags", "A,B")
        while sum(batch.num_rows for batch in found) < round_ * SENT // 2:
            end = stream.latestOffset(start, stream.getDefaultReadLimit())
            for part in stream.partitions(start, end):
                found += stream.read(part)
            start = end
        sending.end()
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) == start
    stream.stop()
    table = in_order(found, options)
    assert table.num_rows == SENT
    assert batch_table(path=str(java_folder / "store"), topic=topic).equals(table)
    assert batch_table(namesrv=java_namesrv, topic=topic).equals(table)
    assert stream_table(namesrv=java_namesrv, topic=topic, maxOffsetsPerTrigger="500").equals(table)


@pytest.mark.parametrize("version", PEER_VERSIONS)
def test_a_master_of_java_that_goes_away_in_the_middle(peers: Peers, tmp_path: Path, version: str) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            address = pair.name_server.address
            async with java_broker(version, tmp_path, pair, "ASYNC_MASTER", 0):
                slave = await pair.start(1, "slave", store=FILES)
                await asyncio.to_thread(produce, address, MANY)
                await until(lambda: slave.store.queue_range(TOPIC, 0).max_offset == MANY)
                await until(lambda: TOPIC in slave.context.tables.topics.topics)
                options = parse_read_options(
                    {"namesrv": address, "topic": TOPIC, "columns": "body", "batchRows": "1"}
                )
                [part] = [one for one in await asyncio.to_thread(plan_brokers, options) if one.end]
                rows = read_range(part, pa.schema([("body", pa.binary())]), options)
                found = [await asyncio.to_thread(next, rows)]
            found += await asyncio.to_thread(list, rows)
            assert [batch["body"][0].as_py() for batch in found] == [b"%d" % n for n in range(MANY)]

    run(main())


def test_every_way_gives_what_java_finds(java: JavaStore, tmp_path: Path) -> None:
    names = ",".join(TOPICS)
    with LocalBroker(tmp_path / "store") as node:
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
    for round_ in range(2):
        folder = staging_folder(str(store), "sink")
        staged = stage_rows(folder, pa.table(rows).to_batches(max_chunksize=700), "orders")
        assert publish(options, "sink", round_, [staged]) == 3000
    seen = java.judge(store)
    wanted = sorted(2 * [hashlib.sha256(body).hexdigest() for body in bodies])
    assert sorted(line["bodySha256"] for line in seen.of_kind("message")) == wanted
    assert not seen.summary["abortFile"]
