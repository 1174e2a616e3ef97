"""What comes later: delayed messages, messages sent back, dead letters, offsets that outlive a restart."""

import json
from pathlib import Path

import pytest

from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.wire.remoting.bodies.heartbeat import MessageModel
from pyledger.wire.remoting.bodies.membership import LockBatchRequest, LockBatchResponse
from tests.net.conftest import Run
from tests.net.peers import RawPeer, until
from tests.servers.broker.peers import (
    COMMIT,
    WITH_SUBSCRIPTION,
    broker,
    heartbeat,
    make_request,
    peer,
    pull,
    send,
)
from tests.servers.broker.test_messages import bodies
from tests.servers.broker.test_transactions import LateClock

MINUTE_MS = 60_000


async def send_back(client: RawPeer, offset: int, **fields: object) -> int:
    """Give a message back as group G; the answer's code."""
    values = {"offset": offset, "group": "G", "delayLevel": 0, "maxReconsumeTimes": 1, **fields}
    return (await client.request(make_request(RequestCode.CONSUMER_SEND_MSG_BACK, **values))).code


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_delayed_message_comes_when_it_is_due_and_not_again(run: Run, tmp_path: Path, flush: str) -> None:
    async def first() -> None:
        clock = LateClock()
        settings = {"store": {"flush_disk_type": flush}, "clock": clock}
        async with broker(tmp_path, **settings) as one, peer(one) as client:
            assert (await client.request(send("T", b"now"))).code == 0
            assert (
                await client.request(send("T", b"late", properties={"DELAY": "5", "TAGS": "A"}))
            ).code == 0
            assert bodies(await client.request(pull("T"))) == [b"now"]
            assert one.store.queue_range("SCHEDULE_TOPIC_XXXX", 4).max_offset == 1
            clock.ahead_ms = 2 * MINUTE_MS
            await until(lambda: one.store.queue_range("T", 0).max_offset == 2)
            assert bodies(await client.request(pull("T"))) == [b"now", b"late"]
            (message,) = one.store.get("T", 0, 1).messages
            assert (message.tags, message.properties["REAL_TOPIC"]) == ("A", "T")

    async def second() -> None:
        clock = LateClock()
        clock.ahead_ms = 2 * MINUTE_MS
        async with broker(tmp_path, clock=clock) as one:
            assert one.context is not None
            delays = one.context.tables.delays
            await until(lambda: delays.levels[5].next_ms > clock.now_ms())
            assert delays.levels[5].offset == 1
            assert one.store.queue_range("T", 0).max_offset == 2

    run(first())
    found = json.loads(
        (tmp_path / "store" / "config" / "delayOffset.json").read_text().replace("{5:", '{"5":')
    )
    assert found["offsetTable"] == {"5": 1}
    run(second())


def test_message_sent_back_is_tried_again_and_then_dead(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = LateClock()
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            sent = await client.request(send("T", b"poison", properties={"TAGS": "A", "KEYS": "k"}, flag=3))
            first = int(sent.ext_fields["msgId"][16:], 16)
            assert await send_back(client, first) == 0
            clock.ahead_ms = MINUTE_MS
            await until(lambda: one.store.queue_range("%RETRY%G", 0).max_offset == 1)
            (again,) = one.store.get("%RETRY%G", 0, 0).messages
            assert (again.body, again.reconsume_times, again.flag) == (b"poison", 1, 3)
            assert again.properties["RETRY_TOPIC"] == "T"
            assert again.properties["ORIGIN_MESSAGE_ID"] == sent.ext_fields["msgId"]
            assert again.born_timestamp == 1_700_000_000_000
            assert await send_back(client, again.physical_offset) == 0
            (dead,) = one.store.get("%DLQ%G", 0, 0).messages
            assert (dead.body, dead.reconsume_times) == (b"poison", 2)
            assert dead.properties["ORIGIN_MESSAGE_ID"] == sent.ext_fields["msgId"]
            assert await send_back(client, 1 << 40) == ResponseCode.SYSTEM_ERROR

    run(main())


def test_offsets_outlive_a_restart_but_not_the_end_of_their_queue(run: Run, tmp_path: Path) -> None:
    def query(group: str, topic: str = "T") -> object:
        return make_request(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=0)

    async def first() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            for _ in range(3):
                await client.request(send("T"))
            assert (await client.request(query("G"))).ext_fields == {"offset": "0"}
            assert (await client.request(query("G", "Empty"))).code == ResponseCode.QUERY_NOT_FOUND
            update = make_request(
                RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", topic="T", queueId=0, commitOffset=2
            )
            assert (await client.request(update)).code == 0
            with_pull = pull(
                "T", 0, 3, flags=WITH_SUBSCRIPTION | COMMIT, commit_offset=99, consumer_group="H"
            )
            assert (await client.request(with_pull)).code == ResponseCode.PULL_NOT_FOUND
            # As a power cut leaves it that took all of a queue.
            one.context.tables.offsets.commit("L", "T", 1, 5, 0)

    async def second() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            assert (await client.request(query("G"))).ext_fields == {"offset": "2"}
            assert (await client.request(query("H"))).ext_fields == {"offset": "3"}
            assert one.context.tables.offsets.committed("L", "T", 1) == 0
            # The topic is known though no message created it this time.
            assert (await client.request(pull("T"))).code == 0

    run(first())
    run(second())


def test_queue_has_one_owner_at_a_time(run: Run, tmp_path: Path) -> None:
    queue = MessageQueue("T", "broker-a", 0)

    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:

            async def lock(client_id: str, code: RequestCode = RequestCode.LOCK_BATCH_MQ) -> bytes:
                body = LockBatchRequest(client_id=client_id, consumer_group="G", mq_set=(queue,)).encode()
                answer = await client.request(make_request(code, body))
                assert answer.code == 0
                return bytes(answer.body)

            mine = LockBatchResponse(lock_ok_mq_set=(queue,)).encode()
            assert await lock("a") == mine
            assert await lock("b") == LockBatchResponse().encode()
            await lock("b", RequestCode.UNLOCK_BATCH_MQ)
            assert await lock("a") == mine
            await lock("a", RequestCode.UNLOCK_BATCH_MQ)
            assert await lock("b") == mine

    run(main())


def test_second_kind_of_heartbeat_keeps_subscriptions(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:

            async def beat(**facts: object) -> str:
                answer = await client.request(
                    heartbeat("c", "T", model=MessageModel.BROADCASTING, **facts)  # type: ignore[arg-type]
                )
                return answer.ext_fields["IS_SUB_CHANGE"]

            assert one.context is not None
            consumers = one.context.tables.consumers
            assert await beat(heartbeat_fingerprint=5) == "true"
            assert await beat(heartbeat_fingerprint=5, without_sub=True) == "false"
            assert await beat(heartbeat_fingerprint=6, without_sub=True) == "true"
            assert consumers.subscription("G", "T") is not None
            assert await beat() == "true"

    run(main())


def test_delayed_messages_are_delivered_after_the_clock_was_set_back(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = LateClock()
        async with broker(tmp_path, clock=clock) as one, peer(one) as client:
            assert (await client.request(send("T", b"before", properties={"DELAY": "1"}))).code == 0
            clock.ahead_ms -= 3_600_000
            assert (await client.request(send("T", b"after", properties={"DELAY": "1"}))).code == 0
            await until(lambda: one.store.queue_range("T", 0).max_offset == 2)

    run(main())
