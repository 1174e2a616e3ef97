"""Bodies of every codec and of sizes around its blocks: what we write Java reads, and the other way round."""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyledger.client import AsyncPushConsumer, Message, Producer, ReceivedMessage
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from pyledger.wire.compression import CompressionType, compress
from tests.client.scenarios import until
from tests.golden.lines import as_line
from tests.interop.cases import Place
from tests.interop.java import JavaStore, JavaStores
from tests.interop.peers import RocketMQ
from tests.interop.servers import Node
from tests.interop.workload import encode_batch

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

LIMIT = 4 << 20
"""The largest body that a store takes."""
BLOCK = 64 << 10
"""Of an LZ4 frame."""
SIZES = (100, 4095, 4097, BLOCK - 1, BLOCK, BLOCK + 1, 1 << 20, (1 << 20) + 1, LIMIT - 100)
FILES = {"mapped_file_size_bytes": 16 << 20, "index_slots": 100, "index_entries": 4000}
CODECS = {"lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD, "zlib": CompressionType.ZLIB}


def plain_bodies() -> Iterator[bytes]:
    """One that shrinks and one that does not, of each size; the codec's own bytes need some room."""
    draw = random.Random(17)
    for size in SIZES:
        yield (b"abcdefg %d " % size * (size // 8))[:size]
        yield draw.randbytes(min(size, LIMIT - BLOCK))


def packed_bodies() -> Iterator[tuple[bytes, int, str]]:
    """Each body in each codec: its bytes, its sysFlag, and the digest of what it unpacks to."""
    for plain in plain_bodies():
        digest = hashlib.sha256(plain).hexdigest()
        yield plain, 0, digest
        for codec in CODECS.values():
            yield (*compress(plain, codec), digest)


def test_java_reads_what_we_pack(java: JavaStore, tmp_path: Path) -> None:
    folder, wanted = tmp_path / "store", []
    with StoreEngine.open(folder, **FILES) as store:
        alone = [(Message("one", body, sys_flag=flag), digest) for body, flag, digest in packed_bodies()]
        for message, digest in alone:
            store.put(message)
            wanted.append(digest)
        small = [(message, digest) for message, digest in alone if len(message.body) < LIMIT // 64]
        store.put_batch([message for message, _ in small])
        wanted += [digest for _, digest in small]
        items = [Message("one", b"%d" % size * (size // 8)) for size in SIZES[:-1]]
        store.append_encoded_batch(Message("one", encode_batch(items)))
        wanted += [hashlib.sha256(item.body).hexdigest() for item in items]
    seen = java.judge(folder)
    assert [line.get("plainSha256", line["bodySha256"]) for line in seen.messages] == wanted


def test_java_reads_large_inner_batches(java_store: JavaStores, tmp_path: Path) -> None:
    folder, wanted = tmp_path / "store", []
    with StoreEngine.open(folder, **FILES) as store:
        for size in SIZES[:-1]:
            # A batch is sent as it is: no client packs one.
            batch = encode_batch([Message("many", b"%d" % number * (size // 2)) for number in range(2)])
            store.append_inner_batch(Message("many", batch))
            wanted.append(hashlib.sha256(batch).hexdigest())
    seen = java_store("5.3.3").judge(folder)
    assert [line["bodySha256"] for line in seen.messages] == wanted


def test_we_read_what_java_packs(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    sizes = ",".join(map(str, SIZES))
    drawn = (
        "--mix",
        "zlib,lz4,zstd",
        "--plain-bytes",
        sizes,
        "--count",
        str(3 * len(SIZES)),
        "--queues",
        "1",
    )
    java.write(folder, *drawn, "--commitlog-file", str(16 << 20), "--index-slots", "100")
    seen = java.judge(folder)
    with StoreReader.open(folder) as reader:
        ours = {line["physicalOffset"]: line for line in map(as_line, reader.messages())}
        lengths = Counter(len(message.plain_body) for message in reader.messages())
    assert ours == {line["physicalOffset"]: line | {"kind": "message"} for line in seen.messages}
    assert lengths == dict.fromkeys(SIZES, 3)


@pytest.mark.parametrize("codec", [*CODECS, "none"])
def test_a_java_consumer_gets_all_that_our_producer_packs(
    rocketmq: RocketMQ, our_node: Node, codec: str
) -> None:
    topic = f"packed-{codec}-{rocketmq.version.replace('.', '_')}"
    with Producer("packers", our_node.namesrv, compression=codec) as producer:
        for body in plain_bodies():
            producer.send(Message(topic, body))
    lines = Place(rocketmq, our_node.namesrv, topic).consume(2 * len(SIZES))
    sizes = Counter(line["size"] for line in lines if line["event"] == "message")
    assert sizes == Counter(len(body) for body in plain_bodies())


@pytest.mark.parametrize("codec", CODECS)
def test_our_consumer_gets_all_that_a_java_producer_packs(
    rocketmq: RocketMQ, our_node: Node, codec: str
) -> None:
    topic = f"javas-{codec}-{rocketmq.version.replace('.', '_')}"
    sizes = ",".join(map(str, SIZES))
    options = ("--codec", codec.upper(), "--size", sizes)
    Place(rocketmq, our_node.namesrv, topic).produce(len(SIZES), *options)
    got: Counter[int] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        assert message.body.startswith(b"m-")
        got[len(message.body)] += 1

    async def consume() -> None:
        consumer = AsyncPushConsumer(
            f"G{topic}", our_node.namesrv, listener=listener, consume_from="first_offset"
        )
        consumer.subscribe(topic)
        async with consumer:
            await until(lambda: got.total() >= len(SIZES), "all bodies")

    asyncio.run(consume())
    assert got == Counter(SIZES)
