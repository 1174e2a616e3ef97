"""Adds that are written and read without the protobuf library are the library's own bytes."""

from hypothesis import given
from hypothesis import strategies as st

from pyledger.protocol.bookkeeper.messages import AddRequest, AddResponse, ReadResponse, Response, Status
from pyledger.wire.ledger.quick_add import decode_added, encode_add
from pyledger.wire.ledger.version3 import encode_request, encode_response

NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 300)
FRAME_OF_THE_SPECIFICATION = bytes.fromhex("0a06080310021801aa0645080710031a14")


@given(NUMBERS, NUMBERS, NUMBERS, st.binary(max_size=300), st.booleans(), st.booleans())
def test_requests(
    number: int, ledger_id: int, entry_id: int, entry: bytes, deferred: bool, recovery: bool
) -> None:
    request = AddRequest(
        txn_id=number, ledger_id=ledger_id, entry_id=entry_id, master_key=b"k" * 20, entry=entry,
        deferred_sync=deferred, recovery=recovery,
    )  # fmt: skip
    body = encode_request(request)
    flags = {"deferred_sync": deferred, "recovery": recovery}
    parts = encode_add(number, ledger_id, entry_id, b"k" * 20, entry, **flags)
    assert b"".join(parts) == len(body).to_bytes(4) + body


def test_the_known_frame() -> None:
    before, _, _ = encode_add(1, 7, 3, b"k" * 20, bytes(41), deferred_sync=False)
    assert before[4:].startswith(FRAME_OF_THE_SPECIFICATION)
    assert before[:4] == bytes.fromhex("00000050")


@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from(Status))
def test_answers(number: int, ledger_id: int, entry_id: int, status: Status) -> None:
    response = AddResponse(txn_id=number, status=status, ledger_id=ledger_id, entry_id=entry_id)
    found = decode_added(memoryview(encode_response(response)))
    if status is Status.EOK:
        assert found is not None
        assert (found[0], found[1].status) == (number, Status.EOK)
    else:
        assert found is None


@given(NUMBERS, st.binary(max_size=40))
def test_other_answers(number: int, entry: bytes) -> None:
    response: Response = ReadResponse(txn_id=number, status=Status.EOK, ledger_id=7, entry_id=3, entry=entry)
    whole = encode_response(response)
    assert decode_added(memoryview(whole)) is None
    assert decode_added(memoryview(entry)) is None
    added = encode_response(AddResponse(txn_id=number, status=Status.EOK, ledger_id=7, entry_id=3))
    for end in range(9):
        assert decode_added(memoryview(added[:end])) is None
