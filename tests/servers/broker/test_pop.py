"""Pops over a real socket: messages are hidden, acknowledged, put back, and known after a restart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.servers.broker.server import Broker
from pyledger.wire.record.record import ReceivedMessage, decode_records
from pyledger.wire.remoting.bodies.pop import BatchAck, BatchAckRequest, PopHandle, encode_bit_set
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from tests.net.conftest import Run
from tests.net.peers import RawPeer, until
from tests.servers.broker.peers import broker, make_request, peer, send
from tests.servers.broker.test_timers import SetClock

HIDDEN_MS = 10_000


def pop(topic: str = "T", **fields: Any) -> RemotingCommand:
    """A consumer's pop from all queues."""
    values = {
        "consumerGroup": "G",
        "topic": topic,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": HIDDEN_MS,
        "pollTime": 0,
        "bornTime": 0,
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": "false",
        **fields,
    }
    return make_request(RequestCode.POP_MESSAGE, **values)


def popped(response: RemotingCommand) -> list[tuple[bytes, str]]:
    """Bodies of an answer with their handles, made as a client makes them."""
    if response.code != ResponseCode.SUCCESS:
        return []
    fields = response.ext_fields
    starts = {
        int(queue_id): int(start)
        for retry, queue_id, start in (one.split(" ") for one in fields["startOffsetInfo"].split(";"))
        if retry == "0"
    }
    return [(message.body, handle_of(message, fields, starts)) for message in decode_records(response.body)]


def handle_of(message: ReceivedMessage, fields: Mapping[str, str], starts: Mapping[int, int]) -> str:
    given = message.properties.get("POP_CK")
    if given is not None:
        return given
    start = starts[message.queue_id]
    numbers = (start, int(fields["popTime"]), int(fields["invisibleTime"]), int(fields["reviveQid"]))
    return PopHandle(*numbers, "0", "broker-a", message.queue_id, message.queue_offset).encode()


def named(handle: str, **fields: Any) -> dict[str, Any]:
    """The fields of a request about a popped message."""
    found = PopHandle.decode(handle)
    assert found is not None
    topic = "T" if found.retry == "0" else "%RETRY%G_T"
    place = {"topic": topic, "queueId": found.queue_id, "offset": found.queue_offset}
    return {"consumerGroup": "G", "extraInfo": handle, **place, **fields}


async def ack(client: RawPeer, handle: str) -> int:
    return (await client.request(make_request(RequestCode.ACK_MESSAGE, **named(handle)))).code


async def put_back(one: Broker, count: int) -> None:
    """Wait until so many messages stand in the retry topic."""
    await until(lambda: one.store.queue_range("%RETRY%G_T", 0).max_offset >= count)


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_unacknowledged_message_comes_again(run: Run, tmp_path: Path, flush: str) -> None:
    async def main() -> None:
        clock = SetClock()
        kind = {"flush_disk_type": flush}
        async with broker(tmp_path, clock=clock, store=kind) as one, peer(one) as client:
            for number in range(4):
                await client.request(send("T", b"%d" % number, queue_id=number % 2))
            answer = await client.request(pop())
            first = dict(popped(answer))
            assert sorted(first) == [b"0", b"1", b"2", b"3"]
            assert (answer.ext_fields["restNum"], answer.remark) == ("0", "FOUND")
            assert sorted(answer.ext_fields["msgOffsetInfo"].split(";")) == ["0 0 0,1", "0 1 0,1"]
            empty = await client.request(pop())
            assert (empty.code, popped(empty)) == (ResponseCode.POLLING_TIMEOUT, [])
            for body in (b"0", b"1", b"3"):
                assert await ack(client, first[body]) == 0
            clock.time_ms += HIDDEN_MS
            await put_back(one, 1)
            again = await client.request(pop())
            ((body, handle),) = popped(again)
            assert body == b"2"
            (message,) = decode_records(again.body)
            assert (message.topic, message.reconsume_times) == ("T", 1)
            assert message.properties["1ST_POP_TIME"] == answer.ext_fields["popTime"]
            assert handle.split(" ")[4] == "1"
            assert await ack(client, handle) == 0
            clock.time_ms += 10 * HIDDEN_MS
            assert (await client.request(pop())).code == ResponseCode.POLLING_TIMEOUT
            assert one.context is not None
            await until(lambda: one.context is not None and not one.context.pops.open.by_key)

    run(main())


def test_restart_knows_what_is_hidden(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            for number in range(3):
                await client.request(send("T", b"%d" % number))
            handles = dict(popped(await client.request(pop())))
            assert await ack(client, handles[b"0"]) == 0
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            assert popped(await client.request(pop())) == []
            assert await ack(client, handles[b"1"]) == 0
            clock.time_ms += HIDDEN_MS
            await put_back(one, 1)
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            ((body, handle),) = popped(await client.request(pop()))
            assert body == b"2"
            assert await ack(client, handle) == 0
        clock.time_ms += 10 * HIDDEN_MS
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            assert popped(await client.request(pop())) == []
            assert one.store.queue_range("%RETRY%G_T", 0).max_offset == 1

    run(main())


def test_time_of_hiding_is_changed(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            await client.request(send("T", b"slow"))
            ((_, handle),) = popped(await client.request(pop()))
            clock.time_ms += 5000
            values = named(handle, invisibleTime=60_000)
            changed = await client.request(make_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **values))
            assert (changed.code, changed.ext_fields["invisibleTime"]) == (0, "60000")
            clock.time_ms += 59_000
            assert popped(await client.request(pop())) == []
            assert one.context is not None
            (waiting,) = one.context.pops.open.by_key.values()
            assert waiting.due_ms == int(changed.ext_fields["popTime"]) + 60_000
            clock.time_ms += 1000
            await put_back(one, 1)
            beyond = make_request(RequestCode.ACK_MESSAGE, **named(handle, offset=99))
            answer = await client.request(beyond)
            assert answer.code == ResponseCode.NO_MESSAGE
            assert answer.remark == "offset is illegal, key:T@0, commit:99, store:0~1"

    run(main())


def test_batch_is_acknowledged(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            for number in range(5):
                await client.request(send("T", b"%d" % number))
            answer = await client.request(pop())
            acks = BatchAck(
                consumer_group="G",
                topic="T",
                retry="0",
                queue_id=0,
                pop_time=int(answer.ext_fields["popTime"]),
                bit_set=encode_bit_set([0, 1, 4]),
            )
            body = BatchAckRequest(broker_name="broker-a", acks=(acks,)).encode()
            request = RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, body=body)
            assert (await client.request(request)).code == 0
            assert one.context is not None
            (left,) = one.context.pops.open.by_key.values()
            assert left.open == {2, 3}
            nothing = RemotingCommand.request(
                RequestCode.BATCH_ACK_MESSAGE, body=BatchAckRequest(acks=()).encode()
            )
            assert (await client.request(nothing)).code == ResponseCode.NO_MESSAGE

    run(main())


def test_pop_waits_for_a_message(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as consumer, peer(one) as producer:
            await producer.request(send("T", b"zero", queue_id=1))
            assert len(popped(await consumer.request(pop()))) == 1
            await consumer.send(encode_frame(pop(pollTime=30_000, exp="A")))
            assert one.context is not None
            await until(lambda: one.context is not None and one.context.held.count)
            info = await producer.request(
                make_request(RequestCode.POLLING_INFO, consumerGroup="G", topic="T", queueId=-1)
            )
            assert info.ext_fields["pollingNum"] == "1"
            await producer.request(send("T", b"other", queue_id=2, properties={"TAGS": "B"}))
            await producer.request(send("T", b"mine", queue_id=3, properties={"TAGS": "A"}))
            ((body, _),) = popped(await consumer.receive())
            assert body == b"mine"
            assert one.context.held.count == 0
            await consumer.send(encode_frame(pop(pollTime=50)))
            assert (await consumer.receive()).code == ResponseCode.POLLING_TIMEOUT

    run(main())


def test_consumer_is_notified_and_may_peek(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as consumer, peer(one) as producer:
            await producer.request(send("T", b"zero"))
            values = {"consumerGroup": "G", "topic": "T", "queueId": -1, "pollTime": 30_000, "bornTime": 0}
            notification = await consumer.request(make_request(RequestCode.NOTIFICATION, **values))
            assert notification.ext_fields["hasMsg"] == "true"
            peek = make_request(
                RequestCode.PEEK_MESSAGE, consumerGroup="G", topic="T", queueId=0, maxMsgNums=4
            )
            assert [one.body for one in decode_records((await consumer.request(peek)).body)] == [b"zero"]
            assert len(popped(await consumer.request(pop()))) == 1
            assert (await consumer.request(peek)).code == ResponseCode.PULL_NOT_FOUND
            await consumer.send(encode_frame(make_request(RequestCode.NOTIFICATION, **values)))
            await until(lambda: one.context is not None and one.context.held.count)
            await producer.request(send("T", b"more", queue_id=2))
            assert (await consumer.receive()).ext_fields["hasMsg"] == "true"

    run(main())


def test_pop_is_checked(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            await client.request(send("T", b"zero"))
            for fields, code in (
                ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST),
                ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER),
                ({"queueId": 99}, ResponseCode.INVALID_PARAMETER),
                ({"bornTime": 1}, ResponseCode.POLLING_TIMEOUT),
                ({"expType": "SQL92", "exp": "a >"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
            ):
                answer = await client.request(pop(**fields))
                assert (answer.code, answer.ext_fields["popTime"]) == (code, "0")
            assert one.store.queue_range(names.revive_topic("DefaultCluster"), 0).max_offset == 0

    run(main())
