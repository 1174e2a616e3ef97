"""The native codec against the Python one, which is its model."""

import dataclasses
import gc
import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyledger.errors import FrameError, HeaderFieldError
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.remoting.command import (
    RemotingCommand,
    SerializeType,
    command_of,
    decode,
    decode_in_python,
    encode_frame,
    encode_head,
)
from pyledger.wire.remoting.framing import FrameDecoder
from pyledger.wire.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader
from pyledger.wire.remoting.native_codec import (
    DecodedRequest,
    PullRequest,
    RequestDecoder,
    SendRequest,
    decode_frames,
    decode_head,
    encode_pull_response,
    encode_send_response,
)
from tests.golden.remoting_frames import recorded_frames
from tests.wire.remoting.test_command import commands, json_frame
from tests.wire.remoting.test_headers import values_of

HOT_CODES = {10, 11, 310, 320, 361}
LIMIT = 1 << 24
ELSEWHERE = {"ns", "nsd", "oway", "lo", "proxy_froward_client_id"}
"""Fields that stay in the frame."""

i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
serializes = st.sampled_from(SerializeType)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
remarks = st.none() | texts.filter(bool)


def model(frame: bytes) -> RemotingCommand:
    """What the Python code makes of one frame, given without its length word."""
    return decode_in_python(memoryview(frame))


def native(frame: bytes) -> Any:
    """What the native code makes of it."""
    [found], taken_bytes = decode_frames(len(frame).to_bytes(4) + frame, LIMIT)
    assert taken_bytes == len(frame) + 4
    return found


def assert_equals_model(found: DecodedRequest, frame: bytes) -> None:
    command = model(frame)
    kind = SendMessageRequestHeader if isinstance(found, SendRequest) else PullMessageRequestHeader
    header = command.header(kind)
    assert (bytes(found.frame), bytes(found.body)) == (frame, bytes(command.body))
    for name in ("code", "flag", "opaque", "language", "version", "serialize", "is_oneway"):
        assert getattr(found, name) == getattr(command, name), name
    assert not command.is_response
    assert not command.remark
    for field in dataclasses.fields(header):
        if field.name not in ELSEWHERE:
            wanted = getattr(header, field.name)
            if field.name == "properties" and wanted is not None:
                wanted = wanted.encode()
            if field.name in {"unit_mode", "batch"}:
                wanted = bool(wanted)
            got = getattr(found, "message_flag" if field.name == "flag" else field.name)
            assert (type(got), got) == (type(wanted), wanted), field.name


def check(frame: bytes) -> bool:
    """Whether a frame is decoded natively; what is, is what Python says."""
    if decode_head(frame) is not None:
        wanted, got = model(frame), decode(frame)
        assert {name: getattr(got, name) for name in RemotingCommand.__slots__} == {
            name: getattr(wanted, name) for name in RemotingCommand.__slots__
        }
        assert list(got.ext_fields) == list(wanted.ext_fields)
    found = native(frame)
    if isinstance(found, memoryview):
        assert bytes(found) == frame
        return False
    assert_equals_model(found, frame)
    return True


def test_recorded_sends_and_pulls_are_decoded_natively() -> None:
    for frame in recorded_frames():
        command = decode(frame.data[4:])
        try:
            is_hot = command.code in HOT_CODES and not command.is_response
            if is_hot:
                command.header(
                    PullMessageRequestHeader if command.code in {11, 361} else SendMessageRequestHeader
                )
        except HeaderFieldError:
            is_hot = False
        assert check(frame.data[4:]) == is_hot, frame.name


@given(
    st.sampled_from(sorted(HOT_CODES)),
    st.data(),
    serializes,
    i32,
    st.integers(-32768, 32767),
    st.binary(max_size=9),
)
def test_any_send_or_pull_is_what_python_decodes(
    code: int, data: st.DataObject, serialize: SerializeType, opaque: int, version: int, body: bytes
) -> None:
    kind = PullMessageRequestHeader if code in {11, 361} else SendMessageRequestHeader
    header = data.draw(values_of(kind))
    command = RemotingCommand.request(code, header, body, serialize=serialize, ext_fields={"ReqT": "0"})
    command.opaque, command.version = opaque, version
    frame = encode_frame(command)[4:]
    found = native(frame)
    if isinstance(found, DecodedRequest):
        assert_equals_model(found, frame)
        assert found.has_other_fields
    else:
        # Half characters, and numbers of nineteen digits, are Python's.
        fields = command.ext_fields.values()
        assert any(len(one) > 18 or not one.isascii() for one in fields)


def test_recorded_heads_are_decoded_natively() -> None:
    for frame in recorded_frames():
        assert decode_head(frame.data[4:]) is not None, frame.name


@given(commands)
def test_any_command_is_what_python_decodes(command: RemotingCommand) -> None:
    check(encode_frame(command)[4:])


@settings(max_examples=500)
@given(st.data())
def test_damaged_requests_are_what_python_decodes_or_left_to_it(data: st.DataObject) -> None:
    frame = bytearray(data.draw(st.sampled_from(recorded_frames())).data[4:])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(frame), 400) - 1))
        frame[at] = data.draw(st.sampled_from(b'"\\{}[]:,0\x00\xff\xc3aAtu-+ ') | st.integers(0, 255))
    check(bytes(frame))


@given(st.binary(max_size=120))
@example(b"\1\0\0\x15" + bytes(17) + b"\xff\xff\xff\xff")
@example(b"\1\0\0\x1b" + bytes(17) + b"\0\0\0\6" + b"\x7f\xff\0\0\0\0")
def test_any_bytes_are_left_to_python(frame: bytes) -> None:
    if len(frame) >= 4:
        check(frame)


SEND = dict.fromkeys("abcdefgh", "1")


@pytest.mark.parametrize(
    ("header", "is_native"),
    [
        (json.dumps({"code": 310, "extFields": SEND}), True),
        (json.dumps({"extFields": SEND, "code": 310}, indent=2) + "\n", True),
        (json.dumps({"code": 310, "extFields": SEND, "remark": ""}), True),
        (json.dumps({"code": 310, "extFields": SEND | {"i": 'a\x01"\\/\n\u2028\U0001f600é'}}), True),
        (json.dumps({"code": 310, "extFields": SEND | {"i": "\ud800"}}), False),
        (json.dumps({"code": 310, "extFields": SEND | {"e": 1, "m": True, "k": "TRUE"}}), True),
        (json.dumps({"code": 310, "extFields": SEND | {"e": -1}}), True),
        (json.dumps({"code": 310, "extFields": SEND | {"e": 1.0}}), False),
        (json.dumps({"code": 310, "extFields": SEND | {"i": None}}), False),
        (json.dumps({"code": 310, "extFields": SEND | {"i": {}}}), False),
        (json.dumps({"code": 310, "extFields": SEND | {"e": "x"}}), False),
        (json.dumps({"code": 310, "extFields": SEND | {"j": "x"}}), False),
        (json.dumps({"code": "310", "extFields": SEND}), False),
        (json.dumps({"code": 310, "extFields": SEND, "flag": 1}), False),
        (json.dumps({"code": 310, "extFields": SEND, "remark": "r"}), False),
        (json.dumps({"code": 310, "extFields": SEND, "else": 1}), False),
        (json.dumps({"code": 310, "extFields": SEND, "language": 1}), False),
        (json.dumps({"code": 310, "extFields": SEND, "language": "COBOL"}), False),
        (json.dumps({"code": 310, "extFields": SEND, "opaque": 1 << 31}), False),
        (json.dumps({"code": 310, "extFields": SEND | {str(one): "1" for one in range(40)}}), False),
        (json.dumps({"code": 310, "extFields": SEND}) + "x", False),
        (json.dumps({"code": 310, "extFields": SEND})[:-1], False),
        ('{"code":310,"extFields":{"a":"1"},"extFields":' + json.dumps(SEND) + "}", False),
        ('{"code":310,"code":311,"extFields":' + json.dumps(SEND) + "}", False),
        ("{'code':310,\"extFields\":" + json.dumps(SEND) + "}", False),
        ('{"code":310,"extFields":{"a":"1",' + json.dumps(SEND)[1:] + "}", True),
        ('{"code":310,"extFields":{"a":01,' + json.dumps(SEND)[1:] + "}", False),
        ('{"code":310,"extFields":{"a":-0,' + json.dumps(SEND)[1:] + "}", False),
        ('{"code":310,"extFields":{"a":"\\x",' + json.dumps(SEND)[1:] + "}", False),
        ('{"code":310,"extFields":{"else":"\\u00",' + json.dumps(SEND)[1:] + "}", False),
        ('{"code":310,"extFields":' + json.dumps(SEND)[:-1] + ",}}", False),
        ('{"code":310,"extFields":' + json.dumps(SEND)[:-1] + ',"i":"\\q"}}', False),
        ('{"code":310,"extFields":' + json.dumps(SEND)[:-1] + ',"i":"\\u12g4"}}', False),
        ('{"code":310,"extFields":' + json.dumps(SEND)[:-1] + ',"i":"a\tb"}}', False),
        (b'{"code":310,"extFields":' + json.dumps(SEND).encode()[:-1] + b',"i":"\xff"}}', False),
    ],
)
def test_only_usual_headers_are_decoded_natively(header: str | bytes, is_native: bool) -> None:
    assert check(json_frame(header, b"body")) == is_native


def test_a_field_that_comes_again_hides_the_first_one() -> None:
    header = '{"code":310,"extFields":{"i":"\\u0041",' + json.dumps(SEND | {"i": "last"})[1:] + "}"
    found = native(json_frame(header))
    assert found.properties == b"last"


@given(st.lists(st.sampled_from(recorded_frames()), max_size=5), st.lists(st.integers(0, 3000)))
def test_requests_come_out_however_the_stream_is_split(frames: list[Any], cuts: list[int]) -> None:
    stream = b"".join(one.data for one in frames)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    decoder, plain = RequestDecoder(), FrameDecoder()
    found, wanted = [], []
    for start, end in itertools.pairwise(places):
        found += decoder.feed(stream[start:end])
        wanted += plain.feed(stream[start:end])
    assert decoder.pending_bytes == plain.pending_bytes == 0
    assert [bytes(one.frame if isinstance(one, DecodedRequest) else one) for one in found] == wanted
    for one in found:
        assert command_of(one).code == (one.code if isinstance(one, DecodedRequest) else decode(one).code)


@pytest.mark.parametrize("length", [-1, 0, 3, LIMIT - 3, 0x16030100])
def test_impossible_lengths_are_rejected(length: int) -> None:
    with pytest.raises(FrameError) as caught:
        RequestDecoder().feed(length.to_bytes(4, signed=True))
    with pytest.raises(FrameError) as wanted:
        FrameDecoder().feed(length.to_bytes(4, signed=True))
    assert str(caught.value) == str(wanted.value)


def test_a_request_keeps_its_bytes_alive() -> None:
    frame = json_frame(json.dumps({"code": 310, "extFields": SEND}), b"body" * 100)
    [found], _ = decode_frames(bytearray(len(frame).to_bytes(4) + frame), LIMIT)
    assert isinstance(found, SendRequest)
    body = found.body
    del found
    gc.collect()
    assert body == b"body" * 100
    assert body.readonly


def test_requests_are_made_by_decoding_only() -> None:
    for kind in (DecodedRequest, SendRequest, PullRequest):
        with pytest.raises(TypeError):
            kind()
    with pytest.raises(TypeError):
        decode_frames(memoryview(b"\0\0\0\4\0\0\0\0"), LIMIT)  # type: ignore[arg-type]


@given(
    serializes,
    i32,
    st.sampled_from([0, 10, 11, 12, 200050]),
    remarks,
    texts,
    i32,
    i64,
    st.none() | texts,
    texts,
    st.booleans(),
)
@example(SerializeType.JSON, 1, 0, '\x00\x0b\x1f\x7f\x9f\u2028\\"\ud800', "A", 0, 0, None, "", False)
def test_send_responses_are_the_bytes_of_python(
    serialize: SerializeType,
    opaque: int,
    code: int,
    remark: str | None,
    msg_id: str,
    queue_id: int,
    queue_offset: int,
    transaction_id: str | None,
    region: str,
    trace_on: bool,
) -> None:
    request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque=opaque, serialize=serialize)
    header = SendMessageResponseHeader(
        msg_id=msg_id, queue_id=queue_id, queue_offset=queue_offset, transaction_id=transaction_id
    )
    beside = {"TRACE_ON": str(trace_on).lower(), "MSG_REGION": region}
    wanted = encode_frame(request.response(code, remark, header, ext_fields=beside))
    found = encode_send_response(
        serialize, opaque, code, remark, msg_id, queue_id, queue_offset, transaction_id, region, trace_on
    )
    assert found == wanted


@given(
    serializes,
    i32,
    st.sampled_from([0, 19, 20, 21]),
    remarks,
    i64,
    i64,
    i64,
    i64,
    i32,
    i32,
    st.integers(0, 1 << 24),
)
def test_pull_responses_are_the_bytes_of_python(
    serialize: SerializeType,
    opaque: int,
    code: int,
    remark: str | None,
    broker: int,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    topic_flag: int,
    group_flag: int,
    body_size: int,
) -> None:
    request = RemotingCommand(RequestCode.PULL_MESSAGE, opaque=opaque, serialize=serialize)
    header = PullMessageResponseHeader(
        suggest_which_broker_id=broker,
        next_begin_offset=next_offset,
        min_offset=min_offset,
        max_offset=max_offset,
        topic_sys_flag=topic_flag,
        group_sys_flag=group_flag,
    )
    wanted = encode_head(request.response(code, remark, header), body_size)
    found = encode_pull_response(
        serialize,
        opaque,
        code,
        remark,
        broker,
        next_offset,
        min_offset,
        max_offset,
        topic_flag,
        group_flag,
        body_size,
    )
    assert found == wanted


def test_responses_that_fit_in_no_frame_are_rejected() -> None:
    with pytest.raises(FrameError):
        encode_pull_response(0, 0, 0, None, 0, 0, 0, 0, 0, 0, (1 << 31) - 10)
    with pytest.raises(FrameError):
        encode_pull_response(1, 0, 0, None, 0, 0, 0, 0, 0, 0, -1)
    with pytest.raises(FrameError):
        encode_send_response(0, 0, 0, None, "x" * (1 << 24), 0, 0, None, "", False)
