import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import FrameError
from pyledger.wire.remoting.framing import FRAME_SIZE_MAX_BYTES, FrameDecoder

frames = st.lists(st.binary(min_size=4, max_size=40), max_size=6)


def stream_of(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


@given(frames, st.lists(st.integers(0, 300)), st.sampled_from([bytes, bytearray, memoryview]))
def test_frames_come_out_however_the_stream_is_split(
    bodies: list[bytes], cuts: list[int], kind: type[bytes]
) -> None:
    stream = stream_of(bodies)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    decoder = FrameDecoder()
    found = []
    for start, end in itertools.pairwise(places):
        found += decoder.feed(kind(stream[start:end]))
    assert [bytes(frame) for frame in found] == bodies
    assert decoder.pending_bytes == 0


def test_frames_within_bytes_are_views_of_them() -> None:
    stream = stream_of([b"abcd", b"efgh"])
    for frame in FrameDecoder().feed(stream):
        assert frame.obj is stream
        assert frame.readonly


def test_buffers_of_the_caller_may_be_used_again() -> None:
    buffer = bytearray(stream_of([b"abcd"]) + b"\0\0")
    decoder = FrameDecoder()
    [frame] = decoder.feed(buffer)
    buffer[:] = bytes(len(buffer))
    assert frame == b"abcd"
    assert decoder.feed(b"\0\4efgh") == [b"efgh"]


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 3, FRAME_SIZE_MAX_BYTES - 3, 0x16030100])
def test_impossible_lengths_are_rejected_before_a_byte_is_kept(length: int) -> None:
    with pytest.raises(FrameError):
        FrameDecoder().feed(length.to_bytes(4, signed=True))


def test_the_largest_frame_is_taken() -> None:
    decoder = FrameDecoder()
    assert decoder.feed((FRAME_SIZE_MAX_BYTES - 4).to_bytes(4)) == []
    assert decoder.pending_bytes == 4
    with pytest.raises(FrameError):
        FrameDecoder(max_frame_bytes=100).feed((97).to_bytes(4))
    assert len(FrameDecoder(max_frame_bytes=100).feed((96).to_bytes(4) + bytes(96))) == 1
