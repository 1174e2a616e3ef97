"""Producers against scripted brokers: what they send, and what they try again."""

import asyncio
import os
from functools import partial
from typing import Any

import pytest

from pyledger.client.identity import PROCESS_IDS
from pyledger.client.producer.message_preparation import MessageEncoder
from pyledger.client.producer.producer import AsyncProducer
from pyledger.client.producer.send_result import SendStatus, TransactionState
from pyledger.client.producer.transaction_producer import AsyncTransactionProducer
from pyledger.config.client import ClientConfig, ProducerConfig
from pyledger.errors import (
    BrokerError,
    ClientStateError,
    ConfigError,
    IllegalMessageError,
    NoRouteError,
    RecordTooLargeError,
    ReplyTimeoutError,
    SendError,
)
from pyledger.model import names
from pyledger.model.message import Message, MessageQueue
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.sys_flag import TransactionType
from pyledger.model.tags import java_hash
from pyledger.protocol.client.send_retry import RETRY_CODES
from pyledger.wire.compression import decompress
from pyledger.wire.record.batch import decode_batch
from pyledger.wire.record.properties import decode_properties
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.bodies.heartbeat import Heartbeat
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.send import EndTransactionRequestHeader, SendMessageRequestHeader
from pyledger.wire.remoting.signature import sign
from tests.client.peers import Cluster, ScriptedBroker, cluster
from tests.net.conftest import Run

SEND = RequestCode.SEND_MESSAGE_V2
ORDER = Message("Orders", b"one", tags="A", keys="k1 k2", properties={"colour": "red"})


def sent(broker: ScriptedBroker, code: int = SEND) -> list[SendMessageRequestHeader]:
    return [one.header(SendMessageRequestHeader) for one in broker.of(code)]


def test_message_arrives_as_it_was_given(run: Run) -> None:
    async def main() -> None:
        async with cluster() as peers, AsyncProducer("G", peers.address) as producer:
            result = await producer.send(ORDER)
            [broker] = peers.brokers
            [request], [header] = broker.of(SEND), sent(broker)
            assert request.body == b"one"
            assert (header.producer_group, header.topic, header.bname) == ("G", "Orders", "broker-a")
            assert (header.sys_flag, header.batch, header.reconsume_times) == (0, False, 0)
            assert decode_properties((header.properties or "").encode()) == {
                "colour": "red",
                names.TAGS: "A",
                names.KEYS: "k1 k2",
                names.UNIQUE_KEY: result.unique_key,
            }
            assert result.status is SendStatus.OK
            assert result.queue == MessageQueue("Orders", "broker-a", header.queue_id)

    run(main())


def test_retried_message_says_how_often_in_its_header(run: Run) -> None:
    async def main() -> None:
        async with cluster() as peers, AsyncProducer("G", peers.address) as producer:
            topic = names.retry_topic("C")
            peers.topics[topic] = 1
            for properties in ({names.RECONSUME_TIME: "3"}, {names.MAX_RECONSUME_TIMES: "5"}):
                await producer.send(Message(topic, b"again", properties=properties, flag=7))
            first, second = sent(peers.brokers[0])
            assert (first.reconsume_times, first.max_reconsume_times, first.flag) == (3, None, 7)
            assert (second.reconsume_times, second.max_reconsume_times) == (0, 5)

    run(main())


def test_queues_are_taken_in_turn(run: Run) -> None:
    async def main() -> None:
        async with cluster("a", "b") as peers, AsyncProducer("G", peers.address) as producer:
            queues = [(await producer.send(ORDER)).queue for _ in range(8)]
            assert len(set(queues)) == 4
            assert queues[:4] == queues[4:]

    run(main())


def test_queue_keeps_its_turn_while_its_broker_is_connected_anew(run: Run) -> None:
    async def main() -> None:
        async with cluster("a", "b") as peers, AsyncProducer("G", peers.address) as producer:
            for broker in peers.brokers:
                broker.refuse(SEND, ResponseCode.GO_AWAY)
            queues = [(await producer.send(ORDER)).queue for _ in range(8)]
            assert len(set(queues[:4])) == 4
            assert queues[:4] == queues[4:]

    run(main())


@pytest.mark.parametrize("code", sorted(RETRY_CODES - {ResponseCode.GO_AWAY}))
def test_some_refusals_are_tried_at_the_other_broker(run: Run, code: int) -> None:
    async def main() -> None:
        async with cluster("a", "b") as peers, AsyncProducer("G", peers.address) as producer:
            for broker in peers.brokers:
                broker.refuse(SEND, code)
            result = await producer.send(ORDER)
            tried = [len(broker.of(SEND)) for broker in peers.brokers]
            assert sorted(tried) == [1, 2]
            assert tried[["a", "b"].index(result.queue.broker_name)] == 2

    run(main())


def test_three_attempts_are_all(run: Run) -> None:
    async def main() -> None:
        async with cluster() as peers, AsyncProducer("G", peers.address) as producer:
            peers.brokers[0].refuse(SEND, ResponseCode.SYSTEM_BUSY, times=4)
            with pytest.raises(SendError, match=r"3 attempts at broker-a.*code 2") as caught:
                await producer.send(ORDER)
            assert isinstance(caught.value.__cause__, BrokerError)
            assert len(peers.brokers[0].of(SEND)) == 3

    run(main())


@pytest.mark.parametrize("fields", [{}, {"queueId": "z", "queueOffset": "1", "msgId": "x"}])
def test_malformed_response_fails_only_its_send(run: Run, fields: dict[str, str]) -> None:
    def malformed(request: RemotingCommand) -> RemotingCommand:
        answer = request.response(ResponseCode.SUCCESS)
        answer.ext_fields = dict(fields)
        return answer

    async def main() -> None:
        async with cluster("broker-a") as peers, AsyncProducer("G", peers.address) as producer:
            for _connection in ("opened by a task", "open already"):
                peers.brokers[0].scripts[SEND].append(malformed)
                with pytest.raises(SendError, match=r"queueId|msgId|queueOffset"):
                    await producer.send(ORDER)
            await producer.send(ORDER)

    run(main())


@pytest.mark.parametrize("timeout_ms", ["100", 1.5])
def test_timeout_that_is_not_a_whole_number_is_an_error(run: Run, timeout_ms: Any) -> None:
    async def main() -> None:
        async with cluster("broker-a") as peers, AsyncProducer("G", peers.address) as producer:
            with pytest.raises(ConfigError, match="timeout_ms"):
                await producer.send(ORDER, timeout_ms=timeout_ms)
            await producer.send(ORDER)

    run(main())


def test_queue_of_another_topic_is_an_error(run: Run) -> None:
    async def main() -> None:
        async with cluster("broker-a") as peers, AsyncProducer("G", peers.address) as producer:
            with pytest.raises(IllegalMessageError, match="Other"):
                await producer.send(ORDER, queue=MessageQueue("Other", "broker-a", 0))
            assert not peers.brokers[0].of(SEND)

    run(main())


def test_name_servers_without_an_address_are_an_error() -> None:
    with pytest.raises(ConfigError, match="name_servers"):
        AsyncProducer("G", ";")


@pytest.mark.parametrize("mode", ["other code", "async", "queue", "key"])
def test_sends_that_are_tried_once(run: Run, mode: str) -> None:
    async def main() -> None:
        async with cluster("a", "b") as peers, AsyncProducer("G", peers.address) as producer:
            code = ResponseCode.MESSAGE_ILLEGAL if mode == "other code" else ResponseCode.SYSTEM_BUSY
            for broker in peers.brokers:
                broker.refuse(SEND, code)
            queue = MessageQueue("Orders", "a", 1) if mode == "queue" else None
            sending = (
                producer.submit(ORDER)
                if mode == "async"
                else producer.send(ORDER, queue=queue, sharding_key="k" if mode == "key" else None)
            )
            with pytest.raises(SendError, match="1 attempt at"):
                await sending
            assert sum(len(broker.of(SEND)) for broker in peers.brokers) == 1

    run(main())


def test_dead_broker_is_left_for_another(run: Run) -> None:
    async def main() -> None:
        async with cluster("a", "b") as peers, AsyncProducer("G", peers.address) as producer:
            await producer.queues("Orders")
            dead = peers.brokers[0].server
            assert dead is not None
            await dead.close()
            results = await asyncio.gather(*[producer.submit(ORDER) for _ in range(8)])
            assert {one.queue.broker_name for one in results} == {"b"}

    run(main())


def test_time_limit_stands_over_all_attempts(run: Run) -> None:
    async def main() -> None:
        async with cluster() as peers, AsyncProducer("G", peers.address) as producer:
            await producer.send(ORDER)
            peers.brokers[0].ignore(SEND, times=3)
            loop = asyncio.get_running_loop()
            started = loop.time()
            with pytest.raises(SendError, match="no response"):
                await producer.send(ORDER, timeout_ms=300)
            assert 0.25 < loop.time() - started < 5
            assert len(peers.brokers[0].of(SEND)) == 2

    run(main())


@pytest.mark.parametrize("again", [False, True])
def test_stored_but_not_on_disk(run: Run, again: bool) -> None:
    async def main() -> None:
        async with (
            cluster("a", "b") as peers,
            AsyncProducer("G", peers.address, retry_when_not_stored_ok=again) as producer,
        ):
            late = int(ResponseCode.FLUSH_DISK_TIMEOUT)
            for broker in peers.brokers:
                broker.scripts[SEND].append(partial(ScriptedBroker.stored, broker, code=late))
            result = await producer.send(ORDER)
            assert result.status is (SendStatus.OK if again else SendStatus.FLUSH_DISK_TIMEOUT)

    run(main())


def test_unknown_topic_takes_the_template_or_is_an_error(run: Run) -> None:
    async def main() -> None:
        async with cluster() as peers, AsyncProducer("G", peers.address, topic_queue_count=3) as producer:
            with pytest.raises(SendError, match="no route for the topic New") as caught:
                await producer.send(Message("New", b"x"))
            assert isinstance(caught.value.__cause__, NoRouteError)
            peers.topics["TBW102"] = 8
            queues = {(await producer.send(Message("New", b"x"))).queue.queue_id for _ in range(6)}
            assert queues == {0, 1, 2}
            assert sent(peers.brokers[0])[-1].default_topic_queue_nums == 3

    run(main())


def test_batch_is_one_request(run: Run) -> None:
    async def main() -> None:
        async with cluster() as peers, AsyncProducer("G", peers.address) as producer:
            many = [Message("Orders", b"%d" % n, tags=f"T{n}", flag=n) for n in range(3)]
            result = await producer.send(many)
            [request] = peers.brokers[0].of(RequestCode.SEND_BATCH_MESSAGE)
            items = decode_batch(request.body)
            assert [(item.body, item.flag) for item in items] == [(b"0", 0), (b"1", 1), (b"2", 2)]
            found = [decode_properties(item.properties) for item in items]
            assert [one[names.TAGS] for one in found] == ["T0", "T1", "T2"]
            assert [one[names.UNIQUE_KEY] for one in found] == result.unique_key.split(",")
            header = request.header(SendMessageRequestHeader)
            assert (header.batch, header.properties) == (True, "")
            for wrong in ([], [ORDER, Message("Other", b"x")], [Message("Orders", b"x", delay_level=1)]):
                with pytest.raises(IllegalMessageError):
                    await producer.send(wrong)

    run(main())


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd", "none"])
def test_large_bodies_are_packed(kind: str) -> None:
    config = ProducerConfig(compression=kind)
    for size in (4095, 4096):
        out = MessageEncoder(config, PROCESS_IDS.of("127.0.0.1")).message(Message("T", b"x" * size))
        assert decompress(out.body, out.sys_flag) == b"x" * size
        assert (len(out.body) < 200) is (size == 4096 and kind != "none")


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message("", b"x"), IllegalMessageError),
        (Message("a b", b"x"), IllegalMessageError),
        (Message("T" * 128, b"x"), IllegalMessageError),
        (Message(names.SCHEDULE_TOPIC, b"x"), IllegalMessageError),
        (Message("T", b""), IllegalMessageError),
        (Message("T", "text"), IllegalMessageError),  # type: ignore[arg-type]
        (Message("T", b"x", properties={"a": ""}), IllegalMessageError),
        (Message("T", bytes((4 << 20) + 1)), RecordTooLargeError),
    ],
)
def test_messages_that_no_broker_takes_are_not_sent(message: Message, error: type[Exception]) -> None:
    with pytest.raises(error):
        MessageEncoder(ProducerConfig(), PROCESS_IDS.of("127.0.0.1")).message(message)


def test_messages_of_one_key_go_to_one_queue(run: Run) -> None:
    async def main() -> None:
        async with cluster("a", "b") as peers, AsyncProducer("G", peers.address) as producer:
            queues = await producer.queues("Orders")
            for key in ("order-1", "order-2", "Überweisung"):
                result = await producer.send(ORDER, sharding_key=key)
                assert result.queue == queues[abs(java_hash(key)) % 4]

    run(main())


def test_brokers_learn_of_a_producer_and_of_its_end(run: Run) -> None:
    async def main() -> None:
        async with cluster() as peers:
            async with AsyncProducer("G", peers.address) as producer:
                await producer.send(ORDER)
                broker = peers.brokers[0]
                while not broker.of(RequestCode.HEART_BEAT):
                    broker.arrived.clear()
                    await broker.arrived.wait()
                heartbeat = Heartbeat.decode(broker.of(RequestCode.HEART_BEAT)[0].body)
                assert heartbeat.client_id == producer.client.client_id
                assert {one.group_name for one in heartbeat.producer_data_set} == {
                    "G",
                    "CLIENT_INNER_PRODUCER",
                }
            left = [one.ext_fields["producerGroup"] for one in broker.of(RequestCode.UNREGISTER_CLIENT)]
            assert left == ["G", "CLIENT_INNER_PRODUCER"]

    run(main())


def test_requests_are_signed(run: Run) -> None:
    async def main() -> None:
        keys = ClientConfig(access_key="me", secret_key="secret", security_token="token")
        async with cluster() as peers, AsyncProducer("G", peers.address, client=keys) as producer:
            await producer.send(ORDER)
            for request in peers.brokers[0].requests:
                fields = request.ext_fields
                assert (fields["AccessKey"], fields["SecurityToken"]) == ("me", "token")
                assert fields["Signature"] == sign(fields, request.body, "secret")

    run(main())


def half(request: RemotingCommand, broker: ScriptedBroker) -> RemotingCommand:
    header = request.header(SendMessageRequestHeader)
    assert header.sys_flag & TransactionType.ROLLBACK == TransactionType.PREPARED
    assert "TRAN_MSG\x01true" in (header.properties or "")
    return broker.stored(request)


@pytest.mark.parametrize("state", list(TransactionState))
def test_end_of_a_transaction_is_told(run: Run, state: TransactionState) -> None:
    async def main() -> None:
        async with (
            cluster() as peers,
            AsyncTransactionProducer("G", peers.address, check=lambda _message: state) as producer,
        ):
            broker = peers.brokers[0]
            broker.scripts[SEND].append(lambda request: half(request, broker))
            result = await producer.send_in_transaction(ORDER, lambda _message, _id: state)
            assert result.state is state
            end = await ended(broker)
            assert (end.commit_or_rollback, end.from_transaction_check) == (state.value, False)
            assert end.tran_state_table_offset == result.sent.queue_offset

    run(main())


async def ended(broker: ScriptedBroker) -> EndTransactionRequestHeader:
    while not broker.of(RequestCode.END_TRANSACTION):
        broker.arrived.clear()
        await broker.arrived.wait()
    return broker.of(RequestCode.END_TRANSACTION)[-1].header(EndTransactionRequestHeader)


def test_half_message_that_is_not_on_disk_is_rolled_back(run: Run) -> None:
    async def main() -> None:
        def never(_message: Message, _id: str) -> TransactionState:
            raise AssertionError("must not be executed")

        async with (
            cluster() as peers,
            AsyncTransactionProducer("G", peers.address, check=unknown) as producer,
        ):
            broker = peers.brokers[0]
            broker.scripts[SEND].append(lambda request: broker.stored(request, 10))
            result = await producer.send_in_transaction(ORDER, never)
            assert result.state is TransactionState.ROLLBACK
            assert (await ended(broker)).commit_or_rollback == 12

    run(main())


def unknown(_message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


def test_failed_execution_leaves_the_transaction_open(run: Run) -> None:
    async def main() -> None:
        async def fail(_message: Message, _id: str) -> TransactionState:
            raise ValueError("no")

        async with (
            cluster() as peers,
            AsyncTransactionProducer("G", peers.address, check=unknown) as producer,
        ):
            with pytest.raises(ValueError, match="no"):
                await producer.send_in_transaction(ORDER, fail)
            assert (await ended(peers.brokers[0])).commit_or_rollback == 0
            assert "ValueError" in (peers.brokers[0].of(RequestCode.END_TRANSACTION)[0].remark or "")

    run(main())


def test_request_without_reply_is_an_error(run: Run) -> None:
    async def main() -> None:
        async with cluster() as peers, AsyncProducer("G", peers.address) as producer:
            with pytest.raises(ReplyTimeoutError, match="Orders within 200 ms"):
                await producer.request(ORDER, timeout_ms=200)
            found = decode_properties((sent(peers.brokers[0])[0].properties or "").encode())
            assert found[names.REPLY_TO_CLIENT] == producer.client.client_id
            assert not producer.client.inbound.replies
            # The broker knew whom to hand the reply to before it had the request.
            codes = [one.code for one in peers.brokers[0].requests]
            assert codes.index(RequestCode.HEART_BEAT) < codes.index(SEND)

    run(main())


def test_producer_that_does_not_run_says_so(run: Run) -> None:
    async def main(peers: Cluster | None = None) -> None:
        producer = AsyncProducer("G", "127.0.0.1:1")
        with pytest.raises(ClientStateError, match="start it"):
            await producer.send(ORDER)
        await producer.close()

    run(main())


def test_fork_has_ids_of_its_own() -> None:
    """Made from the same producer group and address, at one moment, in a parent and its child."""
    made = PROCESS_IDS.of("127.0.0.1").next(1_700_000_000_000)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, PROCESS_IDS.of("127.0.0.1").next(1_700_000_000_000).encode())
        os._exit(0)
    os.waitpid(child, 0)
    other = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert len(other) == len(made) == 32
    assert other[8:20] != made[8:20]


def test_who_takes_the_place_of_a_dead_broker_is_found_at_once(run: Run) -> None:
    """Not when all routes are looked at next, which is an hour away here."""
    late = ClientConfig(poll_name_server_interval_ms=3_600_000)

    async def main() -> None:
        async with (
            cluster("broker-a") as peers,
            cluster("broker-a") as others,
            AsyncProducer("G", peers.address, client=late, retries=0) as producer,
        ):
            await producer.send(ORDER)
            [dead] = peers.brokers
            assert dead.server is not None
            await dead.server.close()
            peers.brokers = others.brokers
            failed = 0
            async with asyncio.timeout(10):
                while not others.brokers[0].of(SEND):
                    try:
                        await producer.send(ORDER)
                    except SendError:
                        failed += 1
                        await asyncio.sleep(0.01)
            # One question or, on a busy machine, a few: not one for each message that failed.
            assert 2 <= len(peers.questions) <= 2 + failed

    run(main())
