"""Plain reads, which are encoded and decoded without the protobuf library, against the library."""

from hypothesis import given
from hypothesis import strategies as st

from pyledger.protocol.bookkeeper.messages import ReadRequest, ReadResponse, Status
from pyledger.wire.bookkeeper import version2
from pyledger.wire.bookkeeper.protocol_version import PROTOBUF, ProtocolVersion
from pyledger.wire.bookkeeper.protocol_version import encode_response as encode_frame
from pyledger.wire.bookkeeper.version3 import (
    _decode_found,
    decode_response,
    encode_read,
    encode_request,
    encode_response,
    parse_response,
)

NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 300)
LACS = st.none() | st.integers(-(2**63), 2**63 - 1)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_requests(number: int, ledger_id: int, entry_id: int) -> None:
    body = encode_request(ReadRequest(txn_id=number, ledger_id=ledger_id, entry_id=entry_id))
    assert encode_read(number, ledger_id, entry_id) == len(body).to_bytes(4) + body


@st.composite
def responses(draw: st.DrawFn) -> ReadResponse:
    return ReadResponse(
        txn_id=draw(NUMBERS),
        status=draw(st.sampled_from(Status)),
        ledger_id=draw(NUMBERS),
        entry_id=draw(NUMBERS | st.just(-1)),
        entry=draw(st.none() | st.binary(max_size=300)),
        max_lac=draw(LACS),
        lac_update_timestamp=draw(LACS),
    )


@given(responses())
def test_answers(response: ReadResponse) -> None:
    frame = memoryview(encode_response(response))
    found = _decode_found(frame)
    plain = response.status is Status.EOK and response.entry is not None and response.entry_id >= 0
    assert found == (parse_response(frame) if plain else None)
    assert decode_response(frame) == parse_response(frame)


@given(responses())
def test_answers_in_parts(response: ReadResponse) -> None:
    frame = encode_frame(response, PROTOBUF)
    body = encode_response(response)
    assert b"".join(frame) == len(body).to_bytes(4) + body
    if response.status is Status.EOK and response.entry is not None:
        assert any(part is response.entry for part in frame)
    old = encode_frame(response, ProtocolVersion(False, 2))
    assert b"".join(old)[4:] == version2.encode_response(response)


@given(responses(), st.data())
def test_frames_that_are_truncated_or_changed(response: ReadResponse, draw: st.DataObject) -> None:
    """Nothing is read out of a frame that the library would not read."""
    whole = bytearray(encode_response(response))
    cut = draw.draw(st.integers(0, len(whole) - 1))
    assert _decode_found(memoryview(bytes(whole[:cut]))) is None
    whole[draw.draw(st.integers(0, len(whole) - 1))] = draw.draw(st.integers(0, 255))
    found = _decode_found(memoryview(bytes(whole)))
    if found is not None:
        assert found == parse_response(memoryview(bytes(whole)))
