"""Records of pulls: those that Java's broker sent, and damaged ones."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import MalformedRecordError
from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.record.record import ReceivedMessage, decode_records
from pyledger.wire.remoting.command import decode
from pyledger.wire.remoting.framing import FrameDecoder
from pyledger.wire.remoting.headers.pull import PullMessageRequestHeader
from tests.golden.remoting_frames import recorded_frames

PULLS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}


def pulled() -> list[tuple[PullMessageRequestHeader, bytes]]:
    """Bodies of pulls that found something."""
    found = []
    for frame in recorded_frames():
        if frame.answers is None or frame.answers["code"] not in PULLS or frame.described["code"] != 0:
            continue
        [view] = FrameDecoder().feed(frame.data)
        fields = {name: str(value) for name, value in frame.answers["extFields"].items()}
        found.append((PullMessageRequestHeader.decode(fields), bytes(decode(view).body)))
    return found


def test_records_of_java_decode() -> None:
    bodies = pulled()
    assert len(bodies) > 20
    for expected, body in bodies:
        messages = list(decode_records(body))
        assert sum(one.store_size for one in messages) == len(body)
        assert [one.queue_offset for one in messages] == sorted(one.queue_offset for one in messages)
        assert messages[0].queue_offset >= expected.queue_offset
        for one in messages:
            assert one.topic == expected.topic
            assert one.queue_id == expected.queue_id
            assert len(one.unique_key or "") in {0, 32, 56}
            assert one.born_host.startswith("127.0.0.1:")
            assert len(one.msg_id) == 32
            assert one.body
            assert names.TAGS in one.properties or one.tags is None


@given(st.data())
def test_damaged_records_are_reported(data: st.DataObject) -> None:
    bodies = pulled()
    body = bytearray(data.draw(st.sampled_from(bodies))[1])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = body[: data.draw(st.integers(0, len(body)))]
    try:
        for message in decode_records(cut):
            assert len(message.stored_body) <= len(cut)
            _ = message.properties, message.born_host
    except MalformedRecordError:
        pass


@pytest.mark.parametrize("size", [-1, 0, 39, 1 << 30])
def test_sizes_that_cannot_be(size: int) -> None:
    with pytest.raises(MalformedRecordError, match="size"):
        list(decode_records(struct.pack(">i", size) + bytes(200)))


def record(born_v6: bool, store_v6: bool, magic: int = 0xDAA320A7) -> bytes:
    born = bytes(15) + b"\x01" if born_v6 else bytes([10, 0, 0, 1])
    store = bytes(15) + b"\x02" if store_v6 else bytes([10, 0, 0, 2])
    flags = (0x10 if born_v6 else 0) | (0x20 if store_v6 else 0)
    topic = b"Topic"
    length = struct.pack(">B" if magic == 0xDAA320A7 else ">H", len(topic))
    rest = struct.pack(">IiiiqqiQ", magic, 5, 2, 3, 4, 5, flags, 6) + born + struct.pack(">i", 99)
    rest += struct.pack(">q", 7) + store + struct.pack(">iiqi", 98, 8, 9, 4) + b"body" + length + topic
    rest += struct.pack(">h", 8) + b"TAGS\x01A\x02\x02"[:8]
    return struct.pack(">i", len(rest) + 4) + rest


@pytest.mark.parametrize("magic", [0xDAA320A7, 0xDAA320AB])
@pytest.mark.parametrize("store_v6", [False, True])
@pytest.mark.parametrize("born_v6", [False, True])
def test_hosts_of_both_kinds(born_v6: bool, store_v6: bool, magic: int) -> None:
    found: list[ReceivedMessage] = list(decode_records(record(born_v6, store_v6, magic)))
    [one] = found
    assert one.born_host == ("[::1]:99" if born_v6 else "10.0.0.1:99")
    assert one.store_host == ("[::2]:98" if store_v6 else "10.0.0.2:98")
    assert (one.topic, one.body, one.tags) == ("Topic", b"body", "A")
    assert (one.queue_id, one.flag, one.queue_offset, one.physical_offset) == (2, 3, 4, 5)
    assert (one.born_timestamp, one.store_timestamp, one.reconsume_times) == (6, 7, 8)
    assert len(one.msg_id) == (56 if store_v6 else 32)
