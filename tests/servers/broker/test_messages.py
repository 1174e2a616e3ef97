"""Messages go into a broker and come out of it: over a real socket, from a real store."""

import struct
from pathlib import Path

import pytest

from pyledger.config.net import NetConfig
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.topic import TopicConfig
from pyledger.store.reading.reader import StoreReader
from pyledger.wire.record.batch import BatchItem, encode_batch
from pyledger.wire.record.properties import encode_properties
from pyledger.wire.record.record import decode_records
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from tests.net.conftest import Run
from tests.net.peers import until
from tests.servers.broker.peers import (
    SUSPEND,
    WITH_SUBSCRIPTION,
    broker,
    heartbeat,
    make_request,
    peer,
    pull,
    send,
)
from tests.servers.broker.test_pop import pop

MAGIC_V1 = 0xDAA320A7


def bodies(response: RemotingCommand) -> list[bytes]:
    """Bodies of the records in the answer to a pull."""
    found, at, data = [], 0, bytes(response.body)
    while at < len(data):
        size, magic = struct.unpack_from(">iI", data, at)
        assert magic == MAGIC_V1
        (length,) = struct.unpack_from(">i", data, at + 84)
        found.append(data[at + 88 : at + 88 + length])
        at += size
    assert at == len(data)
    return found


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_sent_messages_are_pulled_and_stored(run: Run, tmp_path: Path, flush: str) -> None:
    async def main() -> None:
        async with broker(tmp_path, store={"flush_disk_type": flush}) as one, peer(one) as client:
            sent = await client.request(send("T", b"one", properties={"TAGS": "A", "KEYS": "k"}))
            assert sent.code == 0
            fields = sent.ext_fields
            assert (fields["queueId"], fields["queueOffset"], fields["transactionId"]) == ("0", "0", "U1")
            assert (fields["MSG_REGION"], fields["TRACE_ON"]) == ("DefaultRegion", "true")
            assert (await client.request(send("T", b"two"))).ext_fields["queueOffset"] == "1"
            found = await client.request(pull("T"))
            assert (found.code, found.remark, bodies(found)) == (0, "FOUND", [b"one", b"two"])
            assert found.ext_fields["nextBeginOffset"] == "2"
            viewed = await client.request(
                make_request(RequestCode.VIEW_MESSAGE_BY_ID, offset=int(fields["msgId"][16:], 16))
            )
            assert bodies(viewed) == [b"one"]
            by_key = make_request(
                RequestCode.QUERY_MESSAGE,
                topic="T",
                key="k",
                maxNum=8,
                beginTimestamp=0,
                endTimestamp=1 << 50,
            )
            assert bodies(await client.request(by_key)) == [b"one"]

    run(main())
    with StoreReader.open(tmp_path / "store") as reader:
        assert reader.clean
        first, second = reader.messages()
        assert (first.body, first.tags, first.born_timestamp) == (b"one", "A", 1_700_000_000_000)
        assert first.properties["CLUSTER"] == "DefaultCluster"
        assert second.queue_offset == 1
        assert first.born_host.startswith("127.0.0.1:")


def test_batch_becomes_messages_of_their_own(run: Run, tmp_path: Path) -> None:
    batch = encode_batch([BatchItem(b"m%d" % n, encode_properties({"UNIQ_KEY": f"U{n}"})) for n in range(3)])

    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            sent = await client.request(send("T", batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
            assert (sent.code, sent.ext_fields["queueOffset"]) == (0, "0")
            assert len(set(sent.ext_fields["msgId"].split(","))) == 3
            assert bodies(await client.request(pull("T"))) == [b"m0", b"m1", b"m2"]
            broken = await client.request(
                send("T", batch[:-1], code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
            )
            assert broken.code == ResponseCode.MESSAGE_ILLEGAL

    run(main())


def test_batch_in_a_queue_of_batches_has_one_id(run: Run, tmp_path: Path) -> None:
    """Java's producer with `autoBatch` gives up if it gets neither this id nor one for each message."""
    batch = encode_batch([BatchItem(b"m%d" % n, encode_properties({"UNIQ_KEY": f"U{n}"})) for n in range(3)])

    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            assert one.context is not None
            of_batches = TopicConfig("B", 1, 1, attributes={"+queue.type": "BatchCQ"})
            assert one.context.tables.topics.update(of_batches, 0) is None
            for topic, batch_id in (("B", "U1"), ("T", None)):
                sent = await client.request(
                    send(topic, batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
                )
                assert (sent.code, sent.ext_fields.get("batchUniqId")) == (0, batch_id)

    run(main())


def test_held_pull_is_answered_when_a_wanted_message_comes(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as consumer, peer(one) as producer:
            assert (await producer.request(send("T", b"zero"))).code == 0
            flags = WITH_SUBSCRIPTION | SUSPEND
            waiting = pull("T", 0, 1, flags=flags, subscription="A", hold_ms=30_000)
            waiting.opaque = 77
            await consumer.send(encode_frame(waiting))
            assert one.context is not None
            await until(lambda: one.context is not None and one.context.held.count == 1)
            await producer.request(send("T", b"other", properties={"TAGS": "B"}))
            assert one.context.held.count == 1
            await producer.request(send("T", b"wanted", properties={"TAGS": "A"}))
            answer = await consumer.receive()
            assert (answer.opaque, answer.code, bodies(answer)) == (77, 0, [b"wanted"])
            assert answer.ext_fields["nextBeginOffset"] == "3"

    run(main())


def test_unknown_topic_is_rejected_unless_allowed(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path, delivery={"auto_create_topics": False}) as one, peer(one) as client:
            answer = await client.request(send("Mistyped"))
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
            assert one.context is not None
            assert one.context.tables.topics.find("Mistyped") is None

    run(main())


def test_members_of_a_group_are_notified_of_each_other(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as first, peer(one) as second:
            notice = await first.request(heartbeat("c1", "T"))
            assert (notice.code, notice.ext_fields) == (
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                {"consumerGroup": "G"},
            )
            assert (await first.receive()).ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
            assert (await second.request(heartbeat("c2", "T"))).is_oneway
            assert (await first.receive()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            await second.receive()
            members = await first.request(
                make_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="G")
            )
            assert bytes(members.body) == b'{"consumerIdList":["c1","c2"]}'
            second.socket.close()
            assert (await first.receive()).ext_fields == {"consumerGroup": "G"}

    run(main())


def test_answer_with_many_messages_stays_below_the_limit_of_a_frame(run: Run, tmp_path: Path) -> None:
    """Large messages with one key, in every queue: a query gives the newest, pops and peeks what fits."""
    body, count = bytes(800 << 10), 28
    query = {"topic": "T", "key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 50}

    async def main() -> None:
        async with broker(tmp_path, store={"mapped_file_size_bytes": 32 << 20}) as one, peer(one) as client:
            for number in range(count):
                tagged = {"KEYS": "k", "UNIQ_KEY": f"U{number}"}
                await client.request(send("T", body, queue_id=number % 4, properties=tagged))
            await until(lambda: len(one.store.query("T", "k")) == count)
            answer = await client.request(make_request(RequestCode.QUERY_MESSAGE, **query))
            found = [message.properties["UNIQ_KEY"] for message in decode_records(answer.body)]
            fit = NetConfig().frame_max_bytes // (len(body) + 200)
            assert found == [f"U{number}" for number in range(count - fit, count)]

            huge = bytes(3 << 20)
            for number in range(8):
                await client.request(send("H", huge, queue_id=number, default_topic_queue_nums=8))
            fields = {"topic": "H", "consumerGroup": "G", "queueId": -1, "maxMsgNums": 32}
            peeked = await client.request(make_request(RequestCode.PEEK_MESSAGE, **fields))
            assert bodies(peeked) == [huge] * 5
            popped = [await client.request(pop("H")) for _ in range(2)]
            assert [bodies(one) for one in popped] == [[huge] * 5, [huge] * 3]
            assert [one.ext_fields["restNum"] for one in popped] == ["3", "0"]

    run(main())
