import json
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyledger.errors import FrameError
from pyledger.model.remoting_codes import LanguageCode, RequestCode
from pyledger.wire.remoting.command import (
    HEADER_MAX_BYTES,
    LENIENT_HEADER_MAX_BYTES,
    RemotingCommand,
    SerializeType,
    decode,
    encode_frame,
    encode_head,
)
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader
from pyledger.wire.remoting.versions import version_name
from tests.golden.remoting_frames import recorded_frames

i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i16 = st.integers(-(1 << 15) + 1, (1 << 15) - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
commands = st.builds(
    RemotingCommand,
    i16,
    flag=i32,
    opaque=i32,
    language=st.sampled_from(LanguageCode),
    version=i16,
    remark=st.none() | texts.filter(bool),
    ext_fields=st.dictionaries(texts, texts, max_size=5),
    body=st.binary(max_size=30),
    serialize=st.sampled_from(SerializeType),
)


def facts(command: RemotingCommand) -> dict[str, object]:
    return {name: getattr(command, name) for name in RemotingCommand.__slots__}


def json_frame(header: str | bytes, body: bytes = b"") -> bytes:
    data = header.encode() if isinstance(header, str) else header
    return len(data).to_bytes(4) + data + body


@pytest.mark.parametrize("serialize", SerializeType)
def test_a_header_holds_the_properties_of_every_message_and_no_more(serialize: SerializeType) -> None:
    properties = "\x01" * 32_767
    command = RemotingCommand.request(10, ext_fields={"properties": properties}, serialize=serialize)
    assert decode(encode_frame(command)[4:]).ext_fields == {"properties": properties}
    too_large = RemotingCommand.request(10, ext_fields={"a": "x" * HEADER_MAX_BYTES}, serialize=serialize)
    with pytest.raises(FrameError):
        encode_frame(too_large)
    field = b"\0\1a" + HEADER_MAX_BYTES.to_bytes(4) + b"x" * HEADER_MAX_BYTES
    binary = bytes(17) + len(field).to_bytes(4) + field
    header = binary if serialize else b'{"extFields":{"a":"%s"}}' % (b"x" * HEADER_MAX_BYTES)
    with pytest.raises(FrameError, match="at most"):
        decode((serialize << 24 | len(header)).to_bytes(4) + header)


def test_references_in_a_header_are_plain_objects() -> None:
    """They would be written out in full: 1.4 KB of them are 80 MB."""
    again = ",".join(["{$ref:'$.x.aN'}"] * 10)
    levels = [f"a{number}:[{again.replace('N', str(number - 1))}]" for number in range(1, 9)]
    header = "{code:105,x:{a0:['lol']," + ",".join(levels) + "},extFields:{k:{$ref:'$.x.a8'}}}"
    assert decode(json_frame(header)).ext_fields == {"k": '{"$ref":"$.x.a8"}'}


@given(commands)
def test_commands_come_back(command: RemotingCommand) -> None:
    frame = encode_frame(command)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert facts(decode(frame[4:])) == facts(command)


@given(commands, st.integers(0, 1 << 20))
def test_a_head_counts_a_body_that_is_elsewhere(command: RemotingCommand, size: int) -> None:
    head = encode_head(command, size)
    assert int.from_bytes(head[:4]) == len(head) - 4 + size


@pytest.mark.parametrize("code", [200050, -200050, 1 << 15])
def test_codes_that_a_binary_header_would_truncate_travel_as_json(code: int) -> None:
    frame = encode_frame(RemotingCommand(code, serialize=SerializeType.ROCKETMQ))
    assert frame[4] == SerializeType.JSON
    assert decode(frame[4:]).code == code


def test_a_response_is_tied_to_its_request() -> None:
    request = RemotingCommand.request(10, ext_fields={"a": "b"}, serialize=SerializeType.ROCKETMQ)
    request.opaque = -7
    response = request.response(17, "no topic", ext_fields={"c": "d"}, body=b"x")
    assert (response.opaque, response.is_response, response.is_oneway) == (-7, True, False)
    assert (response.code, response.remark, response.serialize) == (17, "no topic", SerializeType.ROCKETMQ)
    assert RemotingCommand.request(10, oneway=True).is_oneway


def test_a_request_takes_the_short_names_of_its_code() -> None:
    header = SendMessageRequestHeader(
        producer_group="P",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=-1,
        sys_flag=0,
        born_timestamp=5,
        flag=0,
        unit_mode=False,
        bname="broker-a",
        ns="lost",
    )
    short = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, ext_fields={"x": "y"})
    assert list(short.ext_fields.items()) == list(
        zip(
            "abcdefghknx",
            ["P", "T", "TBW102", "4", "-1", "0", "5", "0", "false", "broker-a", "y"],
            strict=True,
        )
    )
    long = RemotingCommand.request(RequestCode.SEND_MESSAGE, header)
    assert long.ext_fields["producerGroup"] == "P"
    assert long.header(SendMessageRequestHeader) == header


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        ("{}", {"code": 0, "language": LanguageCode.JAVA, "opaque": 0, "remark": None}),
        ("{code:'10',opaque:7.0,version:\"12.00\"}", {"code": 10, "opaque": 7, "version": 12}),
        ('{"code":null,"flag":"","opaque":"null"}', {"code": 0, "flag": 0, "opaque": 0}),
        ("/* c */ {'code':1,} // end", {"code": 1}),
        ('{"code":1,"code":2}', {"code": 2}),
        ('{"Code":3,"OPAQUE":4,"ext_fields":{"a":"b"}}', {"code": 3, "opaque": 4, "ext_fields": {"a": "b"}}),
        ('{"language":"python"}', {"language": LanguageCode.PYTHON}),
        ('{"language":9}', {"language": LanguageCode.GO}),
        ('{"language":"COBOL"}', {"language": None}),
        ('{"language":99}', {"language": None}),
        ('{"remark":""}', {"remark": ""}),
        ('{"remark":5}', {"remark": "5"}),
        (
            '{"extFields":{"i":1,"f":1.50,"t":true,"n":null,"l":[1,{"a":2}]}}',
            {"ext_fields": {"i": "1", "f": "1.50", "t": "true", "l": '[1,{"a":2}]'}},
        ),
        ('{"extFields":{1:2}}', {"ext_fields": {"1": "2"}}),
        ('{"extFields":null,"new":{"a":[]}}', {"ext_fields": {}}),
        ('{"opaque":-2147483648}', {"opaque": -(1 << 31)}),
        (b'{"remark":"\xff"}', {"remark": "\ufffd"}),
    ],
)
def test_headers_are_read_as_fastjson_reads_them(header: str | bytes, fields: dict[str, object]) -> None:
    command = decode(json_frame(header))
    assert {name: getattr(command, name) for name in fields} == fields


@pytest.mark.parametrize(
    "header",
    [
        "",
        "null",
        "[]",
        "7",
        '{"code":1} x',
        '{"code":1',
        '{"code":2147483648}',
        '{"code":-2147483649}',
        '{"code":"ten"}',
        '{"code":[]}',
        '{"code":1e400}',
        '{"opaque":1e999999999}',
        '{"extFields":[]}',
        '{"extFields":7}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "{a:" * 5000,
        '{"code":' + "9" * 5000 + "}",
        "{x:'" + "x" * LENIENT_HEADER_MAX_BYTES + "'}",
        '{"x":"' + "x" * HEADER_MAX_BYTES + '"}',
    ],
)
def test_what_fastjson_rejects_is_rejected(header: str) -> None:
    with pytest.raises(FrameError):
        decode(json_frame(header))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0",
        b"\2\0\0\0",
        b"\0\0\0\5{}",
        b"\1\0\0\0",
        b"\1\0\0\x14" + bytes(20),
        b"\1\0\0\x15" + bytes(13) + (1 << 20).to_bytes(4) + bytes(4),
        b"\1\0\0\x15" + bytes(17) + b"\0\0\0\1",
        b"\1\0\0\x15" + bytes(13) + b"\xff\xff\xff\xff" + bytes(4),
        b"\1\0\0\x1b" + bytes(17) + b"\0\0\0\6" + b"\xff\xff\0\0\0\0",
        b"\1\0\0\x1b" + bytes(17) + b"\0\0\0\6" + b"\0\0\xff\xff\xff\xff",
        b"\1\0\0\x1b" + bytes(17) + b"\0\0\0\6" + b"\0\0\0\0\0\1",
        b"\1\0\0\x17" + bytes(17) + b"\0\0\0\2" + b"\0\0",
    ],
)
def test_lengths_that_do_not_fit_are_rejected(frame: bytes) -> None:
    with pytest.raises(FrameError):
        decode(frame)


@given(st.binary(max_size=200))
@example(b"\0\0\0\2{}")
def test_any_bytes_are_a_command_or_a_frame_error(frame: bytes) -> None:
    try:
        command = decode(frame)
    except FrameError:
        return
    assert isinstance(command, RemotingCommand)


@given(st.data())
def test_damaged_frames_are_a_command_or_a_frame_error(data: st.DataObject) -> None:
    frame = bytearray(data.draw(st.sampled_from(recorded_frames())).data[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, min(len(frame), 300) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(0, len(frame))) :]
    try:
        command = decode(frame)
    except FrameError:
        return
    assert all(isinstance(one, str) for pair in command.ext_fields.items() for one in pair)
    encode_frame(command)


def test_a_claimed_length_takes_no_memory() -> None:
    frames = [b"\1\0\0\x15" + bytes(13) + (1 << 30).to_bytes(4) + bytes(4), b"\0\xff\xff\xff{}"]
    tracemalloc.start()
    for frame in frames:
        with pytest.raises(FrameError):
            decode(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_text_is_escaped_as_java_does() -> None:
    command = RemotingCommand(0, remark='a\x01"\\/\x0b\x1f\x7f\u2028é')
    header = encode_frame(command)[8:].decode()
    assert '"remark":"a\\u0001\\"\\\\/\\u000B\\u001F\\u007F\\u2028é"' in header
    assert json.loads(header)["remark"] == command.remark


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (479, "V5_3_3"),
        (413, "V5_0_0"),
        (412, "V5_0_0_SNAPSHOT"),
        (213, "V4_0_0"),
        (401, "V4_9_4"),
        (353, "V4_7_0"),
        (37, "V3_0_11"),
        (100, "V3_x"),
        (612, "HIGHER_VERSION"),
    ],
)
def test_versions_have_names(number: int, name: str) -> None:
    assert version_name(number) == name
