"""Pulls of ours that native code encodes and gets answers of, against the Python code, their model."""

import asyncio
import copy
import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyledger.client.consumer.pull_api import OWN_FIELDS, STATUS_OF_CODE
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.record.record import ReceivedMessage, decode_records
from pyledger.wire.remoting.command import RemotingCommand, SerializeType, decode_in_python, encode_frame
from pyledger.wire.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pyledger.wire.remoting.native_codec import PullFuture, PullHead, decode_frames
from tests.golden.remoting_frames import recorded_frames
from tests.wire.record.test_record import record

LIMIT = 1 << 24
PULLS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=12)


class Waiter:
    """As much of a future as a pull needs."""

    def __init__(self) -> None:
        self.given: Any = None

    def done(self) -> bool:
        return self.given is not None

    def set_result(self, value: object) -> None:
        self.given = value

    set_exception = set_result


@given(
    topic=texts,
    broker=texts,
    subscription=st.none() | texts,
    offsets=st.tuples(i64, i64),
    numbers=st.tuples(i32, i32),
    serialize=st.sampled_from(SerializeType),
)
def test_encoded_request(
    topic: str,
    broker: str,
    subscription: str | None,
    offsets: tuple[int, int],
    numbers: tuple[int, int],
    serialize: SerializeType,
) -> None:
    header = PullMessageRequestHeader(
        consumer_group="G",
        topic=topic,
        queue_id=3,
        queue_offset=offsets[0],
        max_msg_nums=32,
        sys_flag=numbers[0],
        commit_offset=offsets[1],
        suspend_timeout_millis=15_000,
        subscription=subscription,
        sub_version=7,
        expression_type="TAG",
        max_msg_bytes=262_144,
        bname=broker,
    )
    command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header, serialize=serialize)
    command.opaque = numbers[1]
    parts: tuple[dict[str, str], ...] = ({}, {}, {})
    at = 0
    for name, value in header.encode().items():
        if name in OWN_FIELDS:
            at = OWN_FIELDS[name]
        else:
            parts[at][name] = value
    head = PullHead(RequestCode.PULL_MESSAGE, serialize == SerializeType.ROCKETMQ, *parts)
    assert head.encode(numbers[1], offsets[0], numbers[0], offsets[1]) == encode_frame(command)


def test_answers_of_recorded_brokers() -> None:
    found_some = 0
    for frame in recorded_frames():
        if frame.answers is None or frame.answers["code"] not in PULLS:
            continue
        command = decode_in_python(memoryview(frame.data)[4:])
        if command.code not in STATUS_OF_CODE:
            continue
        header = command.header(PullMessageResponseHeader)
        waiter = Waiter()
        call = PullFuture(waiter)
        calls: dict[int, Any] = {command.opaque: call}
        assert decode_frames(frame.data, LIMIT, calls) == ([call], len(frame.data))
        assert not calls
        call.finish(None)
        assert waiter.given is call
        assert (call.code, call.body) == (command.code, bytes(command.body))
        assert call.suggest_which_broker_id == header.suggest_which_broker_id
        assert call.next_begin_offset == header.next_begin_offset
        assert (call.min_offset, call.max_offset) == (header.min_offset, header.max_offset)
        assert call.offset_delta == (header.offset_delta or 0)
        found_some += command.code == 0
    assert found_some > 20


def test_rejection_is_left_to_python() -> None:
    answer = RemotingCommand.request(24, ext_fields={})
    answer.flag, answer.remark = 1, "no subscription"
    waiter = Waiter()
    calls: dict[int, Any] = {0: PullFuture(waiter)}
    [view], _ = decode_frames(encode_frame(answer), LIMIT, calls)
    assert isinstance(view, memoryview)
    calls[0].finish(answer)
    assert waiter.given is answer


def test_answer_after_the_timeout_is_ignored() -> None:
    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        PullFuture(future).finish(None)

    asyncio.run(main())


def attributes(message: ReceivedMessage) -> dict[str, object]:
    names = [name for name in dir(message) if not name.startswith("_")]
    return {name: found for name in names if not callable(found := getattr(message, name))}


def test_message_in_a_pickle() -> None:
    [message] = decode_records(record(True, False), "broker")
    message.reconsume_times += 1
    for other in (pickle.loads(pickle.dumps(message)), copy.deepcopy(message), message.copied()):
        assert attributes(other) == attributes(message)
    assert attributes(message)["broker_name"] == "broker"


def test_consumer_sets_what_it_knows() -> None:
    [message] = decode_records(record(False, False), "broker", 9, 100)
    assert (message.queue_id, message.queue_offset, message.broker_name) == (9, 104, "broker")
    assert (message.tags, message.keys, message.property("TAGS")) == ("A", None, "A")
    message.stored_body = b"other"
    assert (message.body, message.body_length) == (b"other", 5)
