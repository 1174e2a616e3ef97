"""Sends that native code prepares, encodes and gets answers of, against the Python code, their model."""

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyledger.client.producer.message_preparation import properties_of
from pyledger.client.producer.send_result import SendStatus, result_of
from pyledger.model import names
from pyledger.model.message import Message, MessageQueue
from pyledger.wire.record.batch import BatchItem, encode_batch
from pyledger.wire.record.properties import encode_properties
from pyledger.wire.remoting.command import RemotingCommand, SerializeType, decode_in_python, encode_frame
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader
from pyledger.wire.remoting.native_codec import (
    PendingSend,
    SendHead,
    UniqueIds,
    decode_frames,
    prepare_message,
    prepare_messages,
)
from tests.golden.remoting_frames import recorded_frames

LIMIT = 1 << 24
SENDS = {10, 310, 320}
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)


def ids() -> UniqueIds:
    return UniqueIds(bytes([10, 0, 0, 1]), 7, 8, lambda _now_ms: (0, 1 << 60))


messages = st.builds(
    Message,
    topic=st.just("T"),
    body=st.binary(max_size=40),
    tags=st.none() | texts,
    keys=st.none() | texts,
    properties=st.dictionaries(words | texts, words | texts, max_size=3),
    delay_level=st.sampled_from([0, 0, 3]),
    flag=i32,
)


def model_properties(message: Message, key: str) -> bytes:
    return encode_properties({**properties_of(message), names.UNIQUE_KEY: key})


@given(messages)
def test_prepared_message(message: Message) -> None:
    out = prepare_message(message, ids(), 5, 30)
    key = ids().next(5)
    if out is None:
        return
    assert 0 < len(message.body) < 30
    assert (out.topic, out.body, out.flag, out.unique_key) == ("T", message.body, message.flag, key)
    assert out.properties == model_properties(message, key)


def test_ordinary_messages_are_prepared_natively() -> None:
    for message in (
        Message("T", b"x"),
        Message("T", b"x", tags="A", keys="k l", flag=7, delay_level=3),
        Message("T", b"x", properties={"colour": "röt"}),
    ):
        assert prepare_message(message, ids(), 5, 30) is not None
    for unusual in (
        Message("T", b""),
        Message("T", b"x" * 30),
        Message("T", bytearray(b"x")),
        Message("T", b"x", properties={names.UNIQUE_KEY: "mine"}),
        Message("T", b"x", properties={"a": ""}),
        Message("T", b"x", properties={"a\x01": "b"}),
        Message("T", b"x", tags="\ud800"),
        Message("T", b"x", tags="x" * 40_000),
    ):
        assert prepare_message(unusual, ids(), 5, 30) is None


@given(st.lists(messages, max_size=5))
def test_prepared_batch(many: list[Message]) -> None:
    out = prepare_messages(many, ids(), 5, LIMIT)
    if out is None:
        return
    made = ids()
    keys = [made.next(5) for _ in many]
    assert out.unique_key == ",".join(keys)
    assert out.is_batch
    assert out.body == encode_batch(
        BatchItem(bytes(one.body), model_properties(one, key), one.flag)
        for one, key in zip(many, keys, strict=True)
    )


def test_batches_that_are_left_to_python() -> None:
    good = Message("T", b"x")
    assert prepare_messages([good, good], ids(), 5, LIMIT) is not None
    assert prepare_messages([good, good], ids(), 5, 50) is None
    for bad in (Message("U", b"x"), Message("T", b""), Message("T", b"x", delay_level=1)):
        assert prepare_messages([good, bad], ids(), 5, LIMIT) is None
    assert prepare_messages([], ids(), 5, LIMIT) is None


@given(
    topic=texts,
    broker=texts,
    body=st.binary(max_size=30),
    properties=texts,
    numbers=st.tuples(i32, i32, i32),
    born_ms=st.integers(0, 1 << 50),
    code=st.sampled_from([310, 320]),
    serialize=st.sampled_from(SerializeType),
)
def test_encoded_request(
    topic: str,
    broker: str,
    body: bytes,
    properties: str,
    numbers: tuple[int, int, int],
    born_ms: int,
    code: int,
    serialize: SerializeType,
) -> None:
    flag, sys_flag, opaque = numbers
    header = SendMessageRequestHeader(
        producer_group="G",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=sys_flag,
        born_timestamp=born_ms,
        flag=flag,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=code == 320,
        bname=broker,
    )
    command = RemotingCommand.request(code, header, body, serialize=serialize)
    command.opaque = opaque
    fields = header.encode(code)
    head = SendHead(
        None,
        code,
        serialize == SerializeType.ROCKETMQ,
        {letter: fields[letter] for letter in "abcde"},
        {letter: value for letter, value in fields.items() if letter > "i"},
    )
    out = PendingSend(topic, body, properties.encode(), "", flag, sys_flag)
    assert head.encode(out, opaque, born_ms, True) == encode_frame(command)
    assert head.encode(out, opaque, born_ms, False) + body == encode_frame(command)


def waiting(queue_id: int) -> PendingSend:
    out = PendingSend("T", b"x", b"", "key")
    out.target = MessageQueue("T", "broker", queue_id)
    return out


def test_answers_of_recorded_brokers() -> None:
    seen = 0
    for frame in recorded_frames():
        if frame.answers is None or frame.answers["code"] not in SENDS:
            continue
        command = decode_in_python(memoryview(frame.data)[4:])
        if "msgId" not in command.ext_fields or command.code:
            continue
        header = command.header(SendMessageResponseHeader)
        out = waiting(header.queue_id)
        calls: dict[int, Any] = {command.opaque: out, command.opaque + 1: None}
        found, taken = decode_frames(frame.data, LIMIT, calls)
        assert (found, taken) == ([out], len(frame.data))
        assert out.result == result_of(out, out.target, command, "")
        assert out.result.status is SendStatus.OK
        assert list(calls) == [command.opaque + 1]
        # Another queue than was asked for, or another opaque: Python looks at it.
        for calls in ({command.opaque: waiting(header.queue_id + 1)}, {command.opaque + 1: out}, {}):
            before = dict(calls)
            [view], _ = decode_frames(frame.data, LIMIT, calls)
            assert isinstance(view, memoryview)
            assert (bytes(view), calls) == (frame.data[4:], before)
        seen += 1
    assert seen > 20


@given(st.data())
def test_damaged_answers_fail_only_their_request(data: st.DataObject) -> None:
    header = SendMessageResponseHeader(msg_id="ID", queue_id=1, queue_offset=5, transaction_id="é")
    command = RemotingCommand.request(0, header, serialize=data.draw(st.sampled_from(SerializeType)))
    command.flag = 1
    frame = bytearray(encode_frame(command))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    out = waiting(1)
    calls: dict[int, Any] = {0: out}
    [found], _ = decode_frames(bytes(frame), LIMIT, calls)
    if found is out:
        decoded = decode_in_python(memoryview(frame)[4:])
        assert decoded.code == 0
        assert result_of(out, out.target, decoded, "") == out.result
        assert not calls
    else:
        assert calls == {0: out}


def test_result_is_like_one_of_python() -> None:
    header = SendMessageResponseHeader(msg_id="ID", queue_id=1, queue_offset=5)
    command = RemotingCommand.request(0, header)
    command.flag = 1
    out = waiting(1)
    decode_frames(encode_frame(command), LIMIT, {0: out})
    assert out.result == result_of(out, out.target, command, "")
    assert dataclasses.replace(out.result, queue_offset=6).queue_offset == 6
    assert hash(out.result)
