"""Sends and pulls answered in native batches against batches of one: same records, same answers."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pyledger.model.remoting_codes import RequestCode
from pyledger.servers.broker.message_puts import PutOutcome, prepared
from pyledger.servers.broker.server import Broker
from pyledger.wire.record.batch import BatchItem, encode_batch
from pyledger.wire.record.properties import encode_properties
from pyledger.wire.remoting.command import RemotingCommand, SerializeType, encode_frame
from tests.net.conftest import Run
from tests.servers.broker.peers import (
    COMMIT,
    SUSPEND,
    WITH_SUBSCRIPTION,
    broker,
    heartbeat,
    peer,
    pull,
    send,
)
from tests.servers.broker.test_messages import bodies

NAMES = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "MYDELAY", "CLUSTER", "POP_CK", "XWAIT", "a"]
)
BATCH = encode_batch(
    BatchItem(b"body" * number, encode_properties({"UNIQ_KEY": f"U{number}", "n": "1"}), number)
    for number in range(1, 4)
)
REQUESTS = st.tuples(
    st.sampled_from(["plain", "plain", "batch", "odd", "elsewhere"]),
    st.sampled_from([0, 0, 1, 99]),
    st.integers(0, 1),
)
PULLS = st.tuples(
    st.sampled_from(["plain", "plain", "tag", "silent", "unheard", "sql", "commit", "wide"]),
    st.sampled_from([0, 0, 1, 2, 99]),
    st.sampled_from([0, 0, 1, 3, 19, 20, 21]),
    st.sampled_from([0, 0, 0, 1]),
)
VALUES = st.sampled_from(["A", "false", "true", "0", "k1 k2", "ü"])


async def sent(one: Broker, command: RemotingCommand) -> tuple[RemotingCommand, dict[str, Any] | None]:
    """The answer to a send, and the message as it is stored."""
    async with peer(one) as client:
        answer = await client.request(command)
    if answer.code:
        return answer, None
    offset = int(answer.ext_fields["msgId"].partition(",")[0][16:], 16)
    if one.store.config.flush_disk_type == "sync":
        # One that does not wait for its flush cannot be read before.
        assert one.store.wait_flushed(offset + 1, 10_000)
    found = one.store.message_at(offset)
    facts = (
        "topic",
        "queue_id",
        "body",
        "properties",
        "flag",
        "sys_flag",
        "reconsume_times",
        "born_timestamp",
    )
    return answer, {name: getattr(found, name) for name in facts}


def meaning(answer: RemotingCommand) -> tuple[Any, ...]:
    """What an answer says beside where the message stands."""
    fields = {k: v for k, v in answer.ext_fields.items() if k not in {"msgId", "queueOffset"}}
    return answer.code, answer.remark, fields, answer.opaque, answer.flag


def stored_bytes(one: Broker) -> list[bytes]:
    """All records in order, without what depends on where and when they were stored."""
    found = []
    for message in one.store.messages():
        record = bytearray(message.record_view)
        for at, size in ((28, 8), (48, 24)):  # physical offset; born host, store timestamp, store host
            record[at : at + size] = bytes(size)
        found.append(bytes(record))
    return found


def frames_of(requests: list[tuple[str, int, int]]) -> bytes:
    """Requests that come together: kind, queue, one-way or not."""
    encoded = []
    for number, (kind, queue_id, oneway) in enumerate(requests):
        properties = {"UNIQ_KEY": f"K{number}", "TAGS": "A", **({"TRACE_ON": "x"} if kind == "odd" else {})}
        body = BATCH if kind == "batch" else b"b%d" % number
        topic = "Other" if kind == "elsewhere" else "T"
        command = send(topic, body, queue_id=queue_id, properties=properties, batch=kind == "batch")
        command.opaque, command.serialize = number, list(SerializeType)[number % 2]
        command.flag |= 2 * oneway
        encoded.append(encode_frame(command))
    return b"".join(encoded)


def pull_frames(pulls: list[tuple[str, int, int, int]]) -> bytes:
    """Pulls that come together: kind, queue, offset, one-way or not."""
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "tag": {"subscription": "A || C"},
        "silent": {"flags": 0, "subscription": None},
        "unheard": {"consumer_group": "H"},
        "sql": {"subscription": "n > 1", "expression_type": "SQL92"},
        "commit": {"flags": WITH_SUBSCRIPTION | COMMIT, "commit_offset": 1},
        "wide": {"max_msg_nums": 64},
    }
    encoded = []
    for number, (kind, queue_id, offset, oneway) in enumerate(pulls):
        command = pull("T", queue_id, offset, **{"max_msg_nums": 5, **options[kind]})
        command.opaque, command.serialize = number, list(SerializeType)[number % 2]
        command.flag |= 2 * oneway
        encoded.append(encode_frame(command))
    return b"".join(encoded)


def answer_singly(one: Broker) -> Any:
    """Answer each request as a command, without native batches; return what to set to undo it."""
    batches, one._handlers._batches = one._handlers._batches, {}
    return batches


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_native_send_stores_and_answers_what_a_single_one_does(
    run: Run, tmp_path: Path, flush: str
) -> None:
    async def main() -> None:
        async with broker(tmp_path, store={"flush_disk_type": flush}) as one:
            await sent(one, send("T"))

            async def compare(command: RemotingCommand) -> None:
                batches = answer_singly(one)
                expected, stored = await sent(one, command)
                one._handlers._batches = batches
                answer, record = await sent(one, command)
                assert meaning(answer) == meaning(expected)
                assert record == stored

            for serialize in SerializeType:
                for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
                    command = send("T", b"x" * 300, code=code, flag=7, properties={"TAGS": "A", "ü": "ö"})
                    command.serialize, command.opaque = serialize, -5
                    await compare(command)
            await compare(send("T", queue_id=99))
            await compare(send("Unheard/of"))
            await compare(send("SCHEDULE_TOPIC_XXXX"))
            await compare(send("T", properties={"DELAY": "3"}))
            await compare(send("T", properties={"MYDELAY": "3", "WAIT": "false"}))
            await compare(send("T", b""))
            await compare(send("T", b"x" * (4 << 20)))
            for properties in ({}, {"WAIT": "false"}, {"TRAN_MSG": "true"}, {"DELAY": "1"}):
                for body in (BATCH, BATCH[:-1], b""):
                    await compare(
                        send(
                            "T", body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties=properties
                        )
                    )
            await compare(send("T", BATCH, batch=True, sys_flag=4))

    run(main())


def test_any_properties_are_stored_alike(run: Run, tmp_path: Path) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(pairs=st.lists(st.tuples(NAMES, VALUES), max_size=6), closed=st.booleans())
    @example(pairs=[("UNIQ_KEY", "U"), ("DELAY", "0")], closed=False)
    def alike(pairs: list[tuple[str, str]], closed: bool) -> None:
        text = "\x02".join(f"{name}\x01{value}" for name, value in dict(pairs).items())
        drawn.append(text + "\x02" if closed and text else text)

    drawn: list[str] = []
    alike()

    async def main() -> None:
        async with broker(tmp_path) as one:
            await sent(one, send("T"))
            for text in drawn:
                command = send("T")
                command.ext_fields["i"] = text
                batches = answer_singly(one)
                expected, stored = await sent(one, command)
                one._handlers._batches = batches
                answer, record = await sent(one, command)
                assert (meaning(answer), record) == (meaning(expected), stored), text

    run(main())


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_sends_that_come_together_are_stored_and_answered_as_one_by_one(
    run: Run, tmp_path: Path, flush: str
) -> None:
    drawn: list[list[tuple[str, int, int]]] = []

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(REQUESTS, max_size=12))
    @example([("plain", 0, 0)] * 600)
    @example([("plain", 0, 0), ("batch", 0, 0), ("plain", 0, 1), ("batch", 0, 0)])
    def draw(requests: list[tuple[str, int, int]]) -> None:
        drawn.append(requests)

    draw()

    async def main() -> None:
        expected: list[Any] = []
        for native in (False, True):
            async with broker(tmp_path / str(native), store={"flush_disk_type": flush}) as one:
                await sent(one, send("T"))
                await sent(one, send("Other"))
                if not native:
                    answer_singly(one)
                results: list[Any] = []
                for requests in drawn:
                    async with peer(one) as client:
                        await client.send(frames_of(requests))
                        count = sum(not oneway for _, _, oneway in requests)
                        answers = [await client.receive() for _ in range(count)]
                        await client.request(pull("T"))
                    facts = {a.opaque: (meaning(a), a.ext_fields.get("queueOffset")) for a in answers}
                    results.append(facts)
                one.store.flush()
                results.append(stored_bytes(one))
                counted = one.context.counts.put.counters if one.context else {}
                results.append({topic: (c.messages, c.size_bytes, c.calls) for topic, c in counted.items()})
                if native:
                    assert results == expected
                expected = results

    run(main())


def test_a_native_pull_answers_what_a_single_one_does(run: Run, tmp_path: Path) -> None:
    commands = [
        pull("T"),
        pull("T", 0, 1, max_msg_nums=1),
        pull("T", 0, 2),
        pull("T", 0, 3),
        pull("T", 0, 2, flags=WITH_SUBSCRIPTION | SUSPEND, hold_ms=20),
        pull("T", subscription="A"),
        pull("T", subscription="||"),
        pull("T", subscription="n > 1", expression_type="SQL92"),
        pull("T", 9),
        pull("Nowhere"),
        pull("T", flags=0, subscription=None, sub_version=5),
        pull("T", flags=0, subscription=None, sub_version=6),
        pull("T", flags=0, consumer_group="nobody", subscription=None),
    ]

    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as member, peer(one) as client:
            for n in range(2):
                await sent(one, send("T", b"m%d" % n, properties={"TAGS": "AB"[n], "n": str(n + 1)}))
            await member.request(heartbeat("c", "T", version=5))
            for command in commands:
                for serialize in SerializeType:
                    command.serialize = serialize
                    batches = answer_singly(one)
                    expected = await client.request(command)
                    one._handlers._batches = batches
                    answer = await client.request(command)
                    assert (answer.code, answer.remark, answer.ext_fields, bodies(answer)) == (
                        expected.code,
                        expected.remark,
                        expected.ext_fields,
                        bodies(expected),
                    ), command

    run(main())


def test_records_are_pulled_alike_with_a_copy_and_without(run: Run, tmp_path: Path) -> None:
    async def pulled(copied: bool) -> list[tuple[int, dict[str, str], bytes]]:
        async with broker(tmp_path, transfer_by_heap=copied) as one, peer(one) as client:
            if not copied:
                # Of two queues in turns, so that the records of one do not stand together.
                for n in range(40):
                    await sent(one, send("T", b"%d" % n * 99, queue_id=n % 2))
            answers = [await client.request(pull("T", 0, 0, max_msg_nums=count)) for count in (1, 5, 20, 64)]
            return [(one.code, one.ext_fields, bytes(one.body)) for one in answers]

    async def main() -> None:
        mapped, copied = await pulled(False), await pulled(True)
        assert mapped == copied
        assert [offset["nextBeginOffset"] for _, offset, _ in mapped] == ["1", "5", "20", "20"]

    run(main())


@pytest.mark.parametrize("copied", [True, False])
def test_pulls_that_come_together_are_answered_as_one_by_one(run: Run, tmp_path: Path, copied: bool) -> None:
    drawn: list[list[tuple[str, int, int, int]]] = []

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(PULLS, max_size=12))
    @example([("plain", 0, 0, 0)] * 50)
    @example([("plain", 0, 0, 0), ("plain", 1, 3, 0), ("plain", 0, 20, 0), ("commit", 1, 0, 0)])
    def draw(pulls: list[tuple[str, int, int, int]]) -> None:
        drawn.append(pulls)

    draw()

    async def results(one: Broker) -> list[Any]:
        assert one.context is not None
        tables, counts = one.context.tables, one.context.counts
        before = counts.pulls_found, counts.pulls_missed
        found: list[Any] = []
        for number, pulls in enumerate(drawn):
            if number == len(drawn) // 2:
                tables.offsets.reset("G", "T", 0, 1)
            async with peer(one) as client:
                await client.send(pull_frames(pulls))
                count = sum(not oneway for *_, oneway in pulls)
                answers = [await client.receive() for _ in range(count)]
            found.append({a.opaque: (a.code, a.remark, a.ext_fields, bytes(a.body)) for a in answers})
            found += [
                {key: dict(at) for key, at in table.items() if at and key[0] == "T"}
                for table in (tables.offsets.pulled, tables.offsets.offsets)
            ]
        given = {key: (c.messages, c.size_bytes, c.calls) for key, c in counts.given.counters.items()}
        return [*found, given, counts.pulls_found - before[0], counts.pulls_missed - before[1]]

    async def main() -> None:
        async with broker(tmp_path, transfer_by_heap=copied) as one, peer(one) as client:
            # Of two queues in turns, so that the records of one do not stand together.
            for n in range(40):
                tags = {"TAGS": "ABC"[n % 3], "n": str(n)}
                await sent(one, send("T", b"%d" % n * 99, queue_id=n % 2, properties=tags))
            await client.request(pull("T", 0, 99))
            native = await results(one)
        async with broker(tmp_path, transfer_by_heap=copied) as one, peer(one) as client:
            assert one.context is not None
            one.context.tables.offsets.offsets.clear()
            answer_singly(one)
            assert await results(one) == native

    run(main())


def test_prepared_answer_is_used_only_when_all_is_well() -> None:
    statuses: list[str] = []

    def then(outcome: PutOutcome) -> str:
        statuses.append(outcome.status)
        return outcome.status.lower()

    answer = prepared(then)
    assert [answer(PutOutcome(status)) for status in ("PUT_OK", "FLUSH_SLAVE_TIMEOUT")] == [
        "put_ok",
        "flush_slave_timeout",
    ]
    assert statuses == ["PUT_OK", "FLUSH_SLAVE_TIMEOUT"]
    assert answer(PutOutcome("PUT_OK", problem="but")) == "put_ok"
    assert statuses[2:] == ["PUT_OK"]
