"""Adds that are written without the protobuf library are the library's own bytes."""

from hypothesis import given
from hypothesis import strategies as st

from pyledger.protocol.bookkeeper.messages import AddRequest
from pyledger.wire.bookkeeper.fast_add import encode_add
from pyledger.wire.bookkeeper.version3 import encode_request

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
