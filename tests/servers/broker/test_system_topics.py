"""No client reaches a topic that the broker acts upon itself, and what such topics hold comes to rest."""

import struct
from pathlib import Path
from typing import Any

import pytest

from pyledger.model import names
from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.protocol.broker.recall import RecallHandle
from pyledger.servers.broker.server import Broker
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from pyledger.wire.record.batch import BatchItem, encode_batch
from pyledger.wire.remoting.bodies.pop import CHECKPOINT_TAG, PopCheckpoint, PopHandle
from pyledger.wire.remoting.command import encode_frame
from tests.net.conftest import Run
from tests.net.peers import until
from tests.servers.broker.peers import (
    COMMIT,
    SMALL,
    WITH_SUBSCRIPTION,
    broker,
    heartbeat,
    make_request,
    peer,
    pull,
    send,
)
from tests.servers.broker.test_delivery import LateClock, send_back
from tests.servers.broker.test_pop import named, pop
from tests.servers.broker.test_timers import BASE_MS, SetClock

REVIVE_TOPIC = names.revive_topic("DefaultCluster")
INTERNAL = [
    names.SCHEDULE_TOPIC, names.TIMER_TOPIC, names.HALF_TOPIC, names.OP_TOPIC, names.CHECK_EXPIRED_TOPIC,
    names.SELF_TEST_TOPIC, names.OFFSET_MOVED_TOPIC, REVIVE_TOPIC, "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
    "rmq_sys_anything", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
]  # fmt: skip
DENIED = ResponseCode.NO_PERMISSION


def bodies_in(folder: Path) -> dict[str, list[bytes]]:
    """What the log of a closed store holds: bodies by topic."""
    found: dict[str, list[bytes]] = {}
    with StoreReader.open(folder / "store") as reader:
        for message in reader.messages():
            found.setdefault(message.topic, []).append(message.body)
    return found


@pytest.mark.parametrize("topic", INTERNAL)
def test_nothing_is_sent_to_it(run: Run, tmp_path: Path, topic: str) -> None:
    batch = encode_batch([BatchItem(b"evil", b"", 0)])
    handle = RecallHandle(topic, "broker-a", BASE_MS + 5000, "U").encode()
    place = PopHandle(0, 1, 10_000, 0, "0", "broker-a", 0, 0).encode()
    requests = [
        send(topic, b"evil"),
        send(topic, b"evil", code=RequestCode.SEND_MESSAGE),
        send(topic, b"evil", properties={"DELAY": "1"}),
        send(topic, b"evil", properties={"TIMER_DELAY_MS": "1000"}),
        send(topic, b"evil", properties={"TRAN_MSG": "true", "PGROUP": "P"}, sys_flag=4),
        send(topic, batch, batch=True, code=RequestCode.SEND_BATCH_MESSAGE),
        send(topic, b"evil", code=RequestCode.SEND_REPLY_MESSAGE_V2),
        make_request(RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle, producerGroup="P"),
        pop(topic),
        make_request(RequestCode.ACK_MESSAGE, **named(place, topic=topic)),
        make_request(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **named(place, topic=topic, invisibleTime=1000)
        ),
        make_request(
            RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, defaultTopic="TBW102",
            topicFilterType="SINGLE_TAG", perm=6, readQueueNums=9, writeQueueNums=9,
        ),
        make_request(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic),
    ]  # fmt: skip

    async def main() -> None:
        rules = {"recall": True}
        async with (
            broker(tmp_path, clock=SetClock(), delivery=rules, admin_enabled=True) as one,
            peer(one) as client,
        ):
            assert one.context is not None
            before = dict(one.context.tables.topics.topics)
            for request in requests:
                assert (await client.request(request)).code != 0, request
            assert one.context.tables.topics.topics == before
            assert one.store.max_offset == 0

    run(main())


def test_what_waits_in_it_is_not_sent_back(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            await client.request(heartbeat("c", "T"))
            await client.request(send("T", b"later", properties={"DELAY": "18"}))
            assert await send_back(client, 0) == DENIED
            assert one.store.queue_range("%RETRY%G", 0).max_offset == 0

    run(main())


@pytest.mark.parametrize("group", [names.TRANSACTION_GROUP, names.REVIVE_GROUP])
def test_offsets_of_the_broker_itself_stay(run: Run, tmp_path: Path, group: str) -> None:
    place = {"consumerGroup": group, "topic": "T", "queueId": 0}
    commits = WITH_SUBSCRIPTION | COMMIT
    requests = [
        make_request(RequestCode.UPDATE_CONSUMER_OFFSET, **place, commitOffset=7),
        pull("T", consumer_group=group, flags=commits, commit_offset=7),
        pull("T", consumer_group=group, flags=commits, commit_offset=7, hold_ms=10),
        pop(consumerGroup=group),
        make_request(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="T", group=group, timestamp=0, isForce="true"
        ),
        make_request(
            RequestCode.CLONE_GROUP_OFFSET, srcGroup="G", destGroup=group, topic="T", offline="true"
        ),
        make_request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=group, cleanOffset="true"),
    ]  # fmt: skip

    async def main() -> None:
        async with broker(tmp_path, admin_enabled=True) as one, peer(one) as client:
            await client.request(send("T"))
            await client.request(heartbeat("c", "T"))
            await client.request(
                make_request(
                    RequestCode.UPDATE_CONSUMER_OFFSET, **{**place, "consumerGroup": "G"}, commitOffset=1
                )
            )
            assert one.context is not None
            offsets = one.context.tables.offsets
            offsets.commit(group, "T", 0, 5, 0)
            for request in requests:
                assert (await client.request(request)).code != 0, request
            assert offsets.committed(group, "T", 0) == 5
            assert offsets.committed("G", "T", 0) == 1

    run(main())


@pytest.mark.parametrize(("queue_id", "offset"), [(-1, 0), (99, 0), (0, -1)])
def test_offsets_are_of_queues_that_there_are(run: Run, tmp_path: Path, queue_id: int, offset: int) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            await client.request(send("T"))
            commit = make_request(
                RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", topic="T", queueId=queue_id,
                commitOffset=offset,
            )  # fmt: skip
            assert (await client.request(commit)).code == ResponseCode.INVALID_PARAMETER
            assert one.context is not None
            assert one.context.tables.offsets.committed("G", "T", queue_id) is None

    run(main())


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
def test_internal_properties_are_dropped_from_a_message(run: Run, tmp_path: Path, code: RequestCode) -> None:
    """However it comes: natively, or by way of a command."""

    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            forged = {
                "REAL_TOPIC": names.SCHEDULE_TOPIC, "REAL_QID": "0", "TIMER_OUT_MS": "1",
                "TIMER_DELAY_MS": "999", "TRANSACTION_CHECK_TIMES": "15", "TRAN_PREPARED_QUEUE_OFFSET": "0",
                "INNER_NUM": "9", "INNER_BASE": "9", "TIMER_ROLL_TIMES": "1", "POP_CK": "x",
            }  # fmt: skip
            assert (
                await client.request(send("T", b"m", properties={**forged, "mine": "x"}, code=code))
            ).code == 0
            await until(lambda: one.store.queue_range("T", 0).max_offset == 1)
            (message,) = one.store.get("T", 0, 0).messages
            assert message.properties.keys().isdisjoint(forged)
            assert message.properties["mine"] == "x"

    run(main())


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
def test_illegal_sends_are_rejected(run: Run, tmp_path: Path, code: RequestCode) -> None:
    illegal = ResponseCode.MESSAGE_ILLEGAL
    wrong = ResponseCode.INVALID_PARAMETER
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("T", {"reconsume_times": -1}, illegal),
        ("T", {"sys_flag": 1 << 7}, illegal),
        ("T", {"properties": {"a": "x" * 32_700}}, illegal),
        ("T", {"queue_id": 99}, wrong),
        ("T", {"queue_id": 2**31 - 1}, wrong),
        ("%RETRY%%RETRY%x", {}, wrong),
        ("a\x01b", {}, wrong),
        ("a b", {}, wrong),
        ("../T", {}, wrong),
        ("t" * 128, {}, wrong),
        ("%RETRY%" + "t" * 249, {}, wrong),
    ]

    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            assert (await client.request(send("T", b"fine", queue_id=-5, code=code))).code == 0
            end_offset = one.store.max_offset
            for topic, fields, expected in cases:
                answer = await client.request(send(topic, code=code, **fields))
                assert answer.code == expected, (topic, fields)
            for found, expected in ((b"hello\\ud800", illegal), (b"zzz\\ud800", wrong)):
                request = send("zzz", code=code, properties={"hello": "hello"})
                await client.send(lengthened(encode_frame(request), found))
                assert (await client.receive()).code == expected, found
            assert one.store.max_offset == end_offset

    run(main())


def lengthened(frame: bytes, found: bytes) -> bytes:
    """A frame in JSON whose header has an escape of half a character behind a word."""
    word = found.partition(b"\\")[0]
    size, head_size = struct.unpack_from(">ii", frame)
    head, body = frame[8 : 8 + head_size], frame[8 + head_size :]
    head = head.replace(word, found)
    return struct.pack(">ii", size + len(head) - head_size, len(head)) + head + body


# --- what an older broker, or upstream's, has left


def poison(topic: str, body: bytes, **properties: str) -> Message:
    """A message in the topic of its own that a broker keeps what waits in."""
    return Message(topic, body, 0, properties=properties)


def waiting(real: str, number: int = 0) -> dict[str, str]:
    """What sends a waiting message to a topic."""
    return {
        "TIMER_OUT_MS": "1000",
        "REAL_TOPIC": real,
        "REAL_QID": str(number),
        "UNIQ_KEY": real,
    }


def checkpoint(topic: str, group: str, queue_id: int = 0) -> bytes:
    """A record that says that the first message of a queue was popped."""
    return PopCheckpoint(
        start_offset=0, pop_time=1, invisible_time=1000, count=1, queue_id=queue_id, topic=topic,
        group=group, differences=(0,), broker_name="broker-a",
    ).encode()  # fmt: skip


POISON = [
    *(poison(names.TIMER_TOPIC, b"timer", **waiting(real)) for real in INTERNAL if real != REVIVE_TOPIC),
    *(poison(names.SCHEDULE_TOPIC, b"delayed", **waiting(real)) for real in INTERNAL),
    poison(names.TIMER_TOPIC, b"timer", **waiting("T", 2**31)),
    poison(names.TIMER_TOPIC, b"timer", **waiting("../T")),
    poison(names.SCHEDULE_TOPIC, b"delayed", REAL_TOPIC="T", REAL_QID="9" * 5000),
    poison(names.HALF_TOPIC, b"half", **{**waiting(names.SCHEDULE_TOPIC), "PGROUP": "P"}),
    *(
        Message(REVIVE_TOPIC, checkpoint(*of), 0, CHECKPOINT_TAG)
        for of in [
            ("T", "../x"),
            ("T", "%RETRY%G"),
            (REVIVE_TOPIC, "G"),
            (names.TIMER_TOPIC, "G"),
            ("T", "G", -1),
        ]
    ),
]


def test_poisoned_folder_comes_to_rest(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with StoreEngine.open(tmp_path / "store", **SMALL) as store:
        for message in POISON:
            store.put(message)
    # The last message of each kind is delivered: those before it do not stand in its way.
    sound = [
        poison(names.TIMER_TOPIC, b"by timer", **waiting("T")),
        poison(names.SCHEDULE_TOPIC, b"by level", **waiting("T")),
    ]
    with StoreEngine.open(tmp_path / "store", **SMALL) as store:
        for message in sound:
            store.put(message)
    clock = LateClock()

    async def main() -> None:
        for _ in range(2):
            clock.ahead_ms += 3_600_000
            async with broker(tmp_path, clock=clock) as one:
                assert one.context is not None
                await until(lambda: one.store.queue_range("T", 0).max_offset == 2)
                await until(lambda: at_rest(one))
                await one.context.transactions.check()

    run(main())
    found = bodies_in(tmp_path)
    assert sorted(found.pop("T")) == [b"by level", b"by timer"]
    was = {topic: [m.body for m in POISON + sound if m.topic == topic] for topic in found}
    checked = found.pop(names.HALF_TOPIC)
    assert set(checked) == {b"half"}
    assert len(checked) <= 3
    assert found == {topic: bodies for topic, bodies in was.items() if topic != names.HALF_TOPIC}
    said = [record.message for record in caplog.records]
    for event in ("timer message has no destination", "delayed message has no destination", "dropped"):
        assert any(event in line for line in said), event


def at_rest(one: Broker) -> bool:
    """Whether nothing waits that is due."""
    assert one.context is not None
    tables, pops = one.context.tables, one.context.pops
    delayed = tables.delays.levels[1].offset == one.store.queue_range(names.SCHEDULE_TOPIC, 0).max_offset
    return delayed and not tables.timers.heap and not pops.open.by_key
