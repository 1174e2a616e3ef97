"""How fast are frames decoded and responses encoded? Native against Python, for the headers that Java sends.

One round is a receive buffer of 100 equal frames, as a busy connection brings them. The Python side,
which any command takes (its head is cut natively), ends with typed headers, as the native one does.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pyledger.wire.remoting.command import RemotingCommand, SerializeType, decode, encode_frame
from pyledger.wire.remoting.framing import FRAME_SIZE_MAX_BYTES, FrameDecoder
from pyledger.wire.remoting.headers.pull import PullMessageRequestHeader
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader
from pyledger.wire.remoting.native_codec import RequestDecoder, encode_send_response

FRAMES = 100
BODY = bytes(256)
PROPERTIES = "UNIQ_KEY\x01FD00000000000000000000000000000236885FFD2B2769\x02WAIT\x01true\x02TAGS\x01TagA\x02"
SEND = SendMessageRequestHeader(
    producer_group="ProducerGroup",
    topic="BenchmarkTest",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=3,
    sys_flag=0,
    born_timestamp=1_700_000_000_000,
    flag=0,
    properties=PROPERTIES,
    reconsume_times=0,
    unit_mode=False,
    batch=False,
    bname="broker-a",
)
PULL = PullMessageRequestHeader(
    consumer_group="ConsumerGroup",
    topic="BenchmarkTest",
    queue_id=3,
    queue_offset=123_456,
    max_msg_nums=32,
    sys_flag=3,
    commit_offset=123_400,
    suspend_timeout_millis=15_000,
    sub_version=1_700_000_000_000,
    expression_type="TAG",
    max_msg_bytes=262_144,
    bname="broker-a",
)
REQUESTS: dict[str, RemotingCommand] = {
    "send": RemotingCommand.request(310, SEND, BODY),
    "pull": RemotingCommand.request(11, PULL),
}


def decode_by_python(stream: bytes) -> list[Any]:
    kinds = {310: SendMessageRequestHeader, 11: PullMessageRequestHeader}
    commands = [decode(frame) for frame in FrameDecoder(FRAME_SIZE_MAX_BYTES).feed(stream)]
    return [command.header(kinds[command.code]) for command in commands]


def decode_natively(stream: bytes) -> list[Any]:
    return list(RequestDecoder(FRAME_SIZE_MAX_BYTES).feed(stream))


DECODERS: dict[str, Callable[[bytes], list[Any]]] = {"python": decode_by_python, "native": decode_natively}


@pytest.mark.parametrize("implementation", DECODERS, ids="impl={}".format)
@pytest.mark.parametrize("serialize", SerializeType, ids=lambda one: f"header={one.name.lower()}")
@pytest.mark.parametrize("request_name", REQUESTS, ids="request={}".format)
def bench_decode(
    measured: BenchmarkFixture, request_name: str, serialize: SerializeType, implementation: str
) -> None:
    """The baseline is `python`; a round is 100 frames."""
    measured.group = f"decode request={request_name} header={serialize.name.lower()}"
    command = REQUESTS[request_name]
    command.serialize = serialize
    stream = encode_frame(command) * FRAMES
    found = measured(DECODERS[implementation], stream)
    assert [one.topic for one in found] == ["BenchmarkTest"] * FRAMES


def encode_by_python(serialize: SerializeType) -> bytes:
    request = RemotingCommand(310, opaque=7, serialize=serialize)
    header = SendMessageResponseHeader(
        msg_id="0" * 32, queue_id=3, queue_offset=123_456, transaction_id="F" * 48
    )
    beside = {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
    return encode_frame(request.response(0, None, header, ext_fields=beside))


def encode_natively(serialize: SerializeType) -> bytes:
    return encode_send_response(serialize, 7, 0, None, "0" * 32, 3, 123_456, "F" * 48, "DefaultRegion", True)


ENCODERS: dict[str, Callable[[SerializeType], bytes]] = {
    "python": encode_by_python,
    "native": encode_natively,
}


@pytest.mark.parametrize("implementation", ENCODERS, ids="impl={}".format)
@pytest.mark.parametrize("serialize", SerializeType, ids=lambda one: f"header={one.name.lower()}")
def bench_encode_send_response(
    measured: BenchmarkFixture, serialize: SerializeType, implementation: str
) -> None:
    """The baseline is `python`; a round is 100 responses."""
    measured.group = f"encode send response header={serialize.name.lower()}"
    encode = ENCODERS[implementation]

    def run() -> bytes:
        return b"".join([encode(serialize) for _ in range(FRAMES)])

    assert measured(run) == encode_by_python(serialize) * FRAMES
