"""Transactions over a real socket: half messages, their ends, checks, a restart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pyledger.clock import SystemClock
from pyledger.model import names
from pyledger.model.message import PutResult
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.servers.broker.server import Broker
from pyledger.wire.record.message_id import decode_message_id
from pyledger.wire.record.record import decode_records
from pyledger.wire.record.rewrite import readdressed
from pyledger.wire.remoting.bodies.heartbeat import Heartbeat, ProducerEntry
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from tests.net.conftest import Run
from tests.net.peers import RawPeer
from tests.servers.broker.peers import broker, make_request, peer, pull, send

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF = {"TRAN_MSG": "true", "PGROUP": "P"}


class LateClock(SystemClock):
    """The machine's clock, set forward by a test."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def half(client: RawPeer, body: bytes, born_ms: int, **properties: str) -> dict[str, int]:
    """Store a half message; where it stands."""
    sent = await client.request(
        send("T", body, queue_id=1, properties={**HALF, **properties}, sys_flag=4, born_timestamp=born_ms)
    )
    assert sent.code == 0
    place = decode_message_id(sent.ext_fields["msgId"])[-1]
    return {"tranStateTableOffset": int(sent.ext_fields["queueOffset"]), "commitLogOffset": place}


def end(place: dict[str, Any], how: int, **fields: Any) -> RemotingCommand:
    """A producer's END_TRANSACTION."""
    values = {"producerGroup": "P", "commitOrRollback": how, "msgId": "U1", **place, **fields}
    return make_request(RequestCode.END_TRANSACTION, **values)


async def stored(client: RawPeer, topic: str = "T", queue_id: int = 1) -> list[Any]:
    """The messages of a queue."""
    return list(decode_records((await client.request(pull(topic, queue_id))).body))


async def become_producer(client: RawPeer) -> None:
    said = Heartbeat(client_id="p1", producer_data_set=(ProducerEntry(group_name="P"),))
    assert (
        await client.request(RemotingCommand.request(RequestCode.HEART_BEAT, body=said.encode()))
    ).code == 0


async def check(one: Broker) -> None:
    assert one.context is not None
    await one.context.transactions.check()


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_commit_delivers_and_rollback_does_not(run: Run, tmp_path: Path, flush: str) -> None:
    async def main() -> None:
        clock = LateClock()
        async with (
            broker(tmp_path, store={"flush_disk_type": flush}, clock=clock) as one,
            peer(one) as client,
        ):
            first = await half(client, b"yes", clock.now_ms())
            second = await half(client, b"no", clock.now_ms())
            assert await stored(client) == []
            wrong = await client.request(end(first, COMMIT, producerGroup="Other"))
            assert wrong.code == ResponseCode.SYSTEM_ERROR
            assert (await client.request(end(second, ROLLBACK))).code == 0
            assert (await client.request(end(first, COMMIT))).code == 0
            assert (await client.request(end(first, COMMIT))).code == 0
            (message,) = await stored(client)
            assert (message.body, message.sys_flag & 0xC, message.queue_id) == (b"yes", 8, 1)
            assert message.prepared_transaction_offset == first["commitLogOffset"]
            assert message.properties["REAL_TOPIC"] == "T"
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            assert [op.body for op in await stored(client, names.OP_TOPIC, 0)] == [b"1,0,"]
            clock.ahead_ms += 60_000
            await become_producer(client)
            await check(one)
            assert one.context is not None
            offsets = one.context.tables.offsets
            assert offsets.committed(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0) == 2
            assert offsets.committed(names.TRANSACTION_GROUP, names.OP_TOPIC, 0) == 1

    run(main())


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_open_transaction_is_checked_at_its_producer(run: Run, tmp_path: Path, flush: str) -> None:
    """Its answer is taken however soon it comes."""

    async def main() -> None:
        clock = LateClock()
        async with (
            broker(tmp_path, store={"flush_disk_type": flush}, clock=clock) as one,
            peer(one) as client,
        ):
            place = await half(client, b"open", clock.now_ms(), KEYS="k")
            await become_producer(client)
            await check(one)
            clock.ahead_ms += 7_000
            checking = asyncio.create_task(check(one))
            question = await client.receive()
            assert (question.code, question.is_oneway) == (RequestCode.CHECK_TRANSACTION_STATE, True)
            fields = question.ext_fields
            assert (fields["topic"], fields["msgId"], fields["transactionId"]) == (
                names.HALF_TOPIC,
                "U1",
                "U1",
            )
            assert (fields["tranStateTableOffset"], fields["bname"]) == ("1", "broker-a")
            (record,) = decode_records(question.body)
            assert (record.topic, record.queue_id, record.body, record.keys) == ("T", 1, b"open", "k")
            assert (record.queue_offset, str(record.physical_offset)) == (1, fields["commitLogOffset"])
            assert record.msg_id == fields["offsetMsgId"]
            assert record.properties["TRANSACTION_CHECK_TIMES"] == "1"
            answer = {name: fields[name] for name in ("topic", "tranStateTableOffset", "commitLogOffset")}
            assert (await client.request(end(answer, COMMIT, fromTransactionCheck="true"))).code == 0
            await checking
            assert [message.body for message in await stored(client)] == [b"open"]
            assert place["commitLogOffset"] < int(fields["commitLogOffset"])
            clock.ahead_ms += 60_000
            await check(one)
            await client.send(encode_frame(make_request(RequestCode.GET_MAX_OFFSET, topic="T", queueId=1)))
            assert (await client.receive()).ext_fields["offset"] == "1"

    run(main())


def test_bytes_of_a_half_message_in_a_body_are_no_half_message(run: Run, tmp_path: Path) -> None:
    """A record in the body of a message ends nobody's transaction, and goes nowhere."""

    async def main() -> None:
        clock = LateClock()
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            place = await half(client, b"open", clock.now_ms())
            real = one.store.message_at(place["commitLogOffset"])
            first = await client.request(send("T", b"where", queue_id=0))
            at = decode_message_id(first.ext_fields["msgId"])[-1]
            size = one.store.max_offset - at
            # The body begins as far behind the start of its record as in the one before.
            body_at = one.store.max_offset + bytes(one.store.message_at(at).record_view).index(b"where")
            forged = readdressed(
                real.record_view, names.HALF_TOPIC, 0, dict(real.properties),
                PutResult(body_at, size, place["tranStateTableOffset"], real.store_timestamp, ""),
            )  # fmt: skip
            await client.request(send("T", bytes(forged), queue_id=0))
            assert one.store.message_at(body_at).topic == names.HALF_TOPIC
            lie = {**place, "commitLogOffset": body_at}
            for how in (ROLLBACK, COMMIT):
                assert (await client.request(end(lie, how))).code == ResponseCode.SYSTEM_ERROR
            assert await stored(client) == []
            assert (await client.request(end(place, COMMIT))).code == 0
            assert [message.body for message in await stored(client)] == [b"open"]

    run(main())


def test_transaction_without_an_end_is_given_up(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = LateClock()
        rules = {"transaction_checks_max": 1}
        async with broker(tmp_path, clock=clock, delivery=rules) as one, peer(one) as client:
            await half(client, b"lost", clock.now_ms())
            for _ in range(3):
                clock.ahead_ms += 60_000
                await check(one)
            given_up = await stored(client, names.CHECK_EXPIRED_TOPIC, 0)
            assert [message.body for message in given_up] == [b"lost"]
            assert await stored(client) == []

    run(main())


def test_producer_that_connects_later_gets_the_check(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = LateClock()
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            await half(client, b"open", clock.now_ms())
        clock.ahead_ms += 60_000
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            await check(one)
            await become_producer(client)
            clock.ahead_ms += 60_000
            await check(one)
            question = await client.receive()
            assert question.code == RequestCode.CHECK_TRANSACTION_STATE
            (record,) = decode_records(question.body)
            assert record.properties["TRANSACTION_CHECK_TIMES"] == "2"

    run(main())
