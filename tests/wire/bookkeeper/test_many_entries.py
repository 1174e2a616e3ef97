"""Entries that are handled many at a time, natively, are handled as one by one."""

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger._core import read_indexed_entries
from pyledger.errors import EntryDigestError, FrameError, LedgerFrameError
from pyledger.protocol.bookkeeper.entry import DigestType, LedgerEntry
from pyledger.protocol.bookkeeper.messages import AddRequest, AddResponse, ReadResponse, Status
from pyledger.wire.bookkeeper.entry import (
    EntryDigest,
    count_whole,
    is_whole,
    master_key,
    pack_entry,
    unpack_entries,
    unpack_entry,
)
from pyledger.wire.bookkeeper.request_frames import add_encoder
from pyledger.wire.bookkeeper.version3 import encode_request, encode_response
from pyledger.wire.remoting.native_codec import (
    AddEncoder,
    added_number,
    encode_adds,
    split_entries,
    split_responses,
)

LENGTH_BYTES = 4
IDS = st.integers(0, 2**63 - 1) | st.integers(0, 300)
LEDGER, FIRST = 7, 40
KINDS = st.sampled_from(DigestType)
RECORD_BYTES = 4


def encode_add(
    number: int, ledger_id: int, entry_id: int, key: bytes, entry: bytes, *, deferred_sync: bool
) -> bytes:
    """The frame of an add, by the protobuf library."""
    request = AddRequest(
        txn_id=number, ledger_id=ledger_id, entry_id=entry_id, master_key=key, entry=entry,
        deferred_sync=deferred_sync,
    )  # fmt: skip
    body = encode_request(request)
    return len(body).to_bytes(LENGTH_BYTES) + body


@st.composite
def runs(draw: st.DrawFn) -> tuple[EntryDigest, list[bytes]]:
    """Entries that follow one another, some of them spoilt, short, or others."""
    digest = EntryDigest(draw(KINDS), b"pw")
    found = []
    for at in range(draw(st.integers(0, 6))):
        payload = draw(st.binary(max_size=80))
        ledger_id = draw(st.sampled_from([LEDGER] * 9 + [8]))
        entry = pack_entry(digest, ledger_id, FIRST + at, draw(st.integers(-1, 2**62)), 1 << at, payload)
        match draw(st.integers(0, 9)):
            case 0:
                bit = draw(st.integers(0, 8 * len(entry) - 1))
                entry = (int.from_bytes(entry) ^ 1 << bit).to_bytes(len(entry))
            case 1:
                entry = entry[: draw(st.integers(0, len(entry)))]
        found.append(entry)
    return digest, found


@given(runs())
def test_runs_of_entries_end_where_one_is_not_whole(run: tuple[EntryDigest, list[bytes]]) -> None:
    digest, entries = run
    expected: list[LedgerEntry] = []
    for entry_id, entry in enumerate(entries, FIRST):
        try:
            expected.append(unpack_entry(digest, LEDGER, entry_id, entry))
        except EntryDigestError:
            break
    assert unpack_entries(digest, LEDGER, FIRST, entries) == expected
    assert count_whole(digest, LEDGER, FIRST, entries) == len(expected)
    whole = takewhile(lambda one: is_whole(digest, LEDGER, *one), enumerate(entries, FIRST))
    assert len(list(whole)) == len(expected)


def test_an_entry_stays_what_it_is() -> None:
    digest = EntryDigest(DigestType.CRC32C)
    (entry,) = unpack_entries(digest, 1, 2, [pack_entry(digest, 1, 2, 1, 5, b"hello")])
    assert entry == LedgerEntry(1, 2, 1, 5, b"hello")
    assert hash(entry) == hash(LedgerEntry(1, 2, 1, 5, b"hello"))
    with pytest.raises(AttributeError):
        entry.payload = b""  # type: ignore[misc]


@given(st.lists(st.binary(max_size=20)), st.integers(0, 30), st.integers(-3, 3))
def test_batches_are_split(entries: list[bytes], cut_bytes: int, lie: int) -> None:
    body = b"".join(len(one).to_bytes(4, "big") + one for one in entries)
    assert split_entries(body) == tuple(entries)
    assert split_entries(memoryview(b"x" + body)[1:]) == tuple(entries)
    if 0 < cut_bytes < 4:
        assert split_entries(body + bytes(cut_bytes)) is None
    if entries and lie:
        size = len(entries[-1]) + lie
        lying = body[: len(body) - len(entries[-1]) - 4] + size.to_bytes(4, "big", signed=True) + entries[-1]
        found = split_entries(lying)
        assert found is None or b"".join(found) != b"".join(entries)


@given(
    IDS,
    IDS,
    IDS,
    st.integers(-1, 2**62),
    st.integers(0, 2**62),
    st.binary(max_size=300),
    KINDS,
    st.booleans(),
)
def test_adds_are_encoded(
    number: int, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes, kind: DigestType,
    deferred: bool,
) -> None:  # fmt: skip
    key = master_key(b"pw")
    digest = EntryDigest(kind, b"pw")
    entry = pack_entry(digest, ledger_id, entry_id, lac, length + len(payload), payload)
    encoder = add_encoder(ledger_id, key, digest, deferred_sync=deferred)
    found = encoder.encode_batch(number, entry_id, lac, length, [payload])
    assert found == encode_add(number, ledger_id, entry_id, key, entry, deferred_sync=deferred)


@given(
    st.integers(0, 2**62), IDS, st.binary(max_size=200), KINDS,
    st.lists(st.tuples(IDS, st.binary(max_size=300)), max_size=5), st.booleans(),
)  # fmt: skip
def test_whole_entries_are_encoded(
    number: int, ledger_id: int, key: bytes, kind: DigestType, about: list[tuple[int, bytes]], deferred: bool
) -> None:
    digest = EntryDigest(kind, b"pw")
    entries = [pack_entry(digest, ledger_id, entry_id, -1, 0, payload) for entry_id, payload in about]
    expected = b"".join(
        encode_add(number + at, ledger_id, entry_id, key, entry, deferred_sync=deferred)
        for at, ((entry_id, _), entry) in enumerate(zip(about, entries, strict=True))
    )
    assert encode_adds(number, ledger_id, key, entries, deferred_sync=deferred) == expected


def test_adds_that_cannot_be() -> None:
    digest = EntryDigest(DigestType.DUMMY)
    for entry in (b"", bytes(31), pack_entry(digest, 1, -1, -1, 0, b"")):
        with pytest.raises(LedgerFrameError):
            encode_adds(1, 1, b"", [pack_entry(digest, 1, 0, -1, 0, b""), entry])
    with pytest.raises(TypeError):
        encode_adds(1, 1, b"", [bytearray(32)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="digest"):
        AddEncoder(1, b"", DigestType.HMAC.value)
    with pytest.raises(LedgerFrameError):
        AddEncoder(1, b"", DigestType.CRC32.value).encode_batch(1, -1, 0, 0, [b""])


@given(IDS, IDS, IDS, st.sampled_from(Status))
def test_successful_answers_give_their_number(
    number: int, ledger_id: int, entry_id: int, status: Status
) -> None:
    response = AddResponse(txn_id=number, status=status, ledger_id=ledger_id, entry_id=entry_id)
    whole = encode_response(response)
    assert added_number(whole) == (number if status is Status.EOK else -1)
    assert all(added_number(whole[:end]) == -1 for end in range(13))
    other = encode_response(ReadResponse(txn_id=number, status=status, ledger_id=7, entry_id=3, entry=b"e"))
    assert added_number(other) == -1


@given(st.binary(max_size=40))
def test_anything_else_is_another_answer(data: bytes) -> None:
    assert added_number(data) == -1 or data.startswith(b"\x0a")
    split_entries(data)


@given(
    st.lists(st.binary(max_size=30), min_size=1, max_size=6),
    st.integers(0, 60),
    st.integers(0, 5),
    st.sampled_from(["good", "moved", "none", "other log", "other entry"]),
)
def test_a_log_is_split_into_pieces(payloads: list[bytes], missing: int, at: int, fault: str) -> None:
    digest, location = EntryDigest(DigestType.CRC32C), 3 << 32 | 1024
    data, slots, entries = b"", [], []
    for entry_id, payload in enumerate(payloads):
        wrong = fault == "other entry" and entry_id == at
        entries.append(pack_entry(digest, LEDGER, entry_id + wrong, -1, 0, payload))
        slots.append(location + len(data) + RECORD_BYTES)
        data += len(entries[-1]).to_bytes(4, "big") + entries[-1]
    whole = 0
    while whole < len(entries) and slots[whole] + len(entries[whole]) <= location + len(data) - missing:
        whole += 1
    if at < len(slots):
        moves = {"moved": slots[at] + 1, "none": 0, "other log": slots[at] + (1 << 32)}
        slots[at] = moves.get(fault, slots[at])
        whole = min(whole, at) if fault != "good" else whole
    found = read_indexed_entries(
        data[: len(data) - missing] if missing else data,
        location,
        b"".join(slot.to_bytes(8, "big") for slot in slots),
        LEDGER,
        0,
    )
    assert found == entries[:whole]


@given(IDS, st.integers(0, 2**62), st.integers(-1, 2**62), st.integers(0, 2**40), KINDS,
       st.lists(st.binary(max_size=300), min_size=1, max_size=5))  # fmt: skip
def test_batches_of_adds_are_encoded(
    number: int, entry_id: int, lac: int, length: int, kind: DigestType, payloads: list[bytes]
) -> None:
    number %= 2**62
    encoder = add_encoder(7, master_key(b"pw"), EntryDigest(kind, b"pw"), deferred_sync=False)
    expected, before = b"", length
    for at, payload in enumerate(payloads):
        expected += encoder.encode_batch(number + at, entry_id + at, lac, length, [payload])
        length += len(payload)
    assert encoder.encode_batch(number, entry_id, lac, before, payloads) == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 2**40), st.integers(1, 4)) | st.binary(min_size=4, max_size=9), max_size=6
    ),
    st.integers(0, 40),
)
def test_answers_are_split(parts: list[tuple[int, int] | bytes], missing: int) -> None:
    frames: list[tuple[int | None, bytes]] = []
    for part in parts:
        if isinstance(part, bytes):
            frames.append((None, b"\1" + part))
            continue
        for number in range(part[0], sum(part)):
            good = AddResponse(txn_id=number, status=Status.EOK, ledger_id=1, entry_id=2)
            frames.append((number, encode_response(good)))
    data = b"".join(len(frame).to_bytes(4, "big") + frame for _, frame in frames)
    data = data[: max(0, len(data) - missing)]
    found, taken = split_responses(data, 1000)
    whole: list[int | bytes] = []
    for one in found:
        if isinstance(one, tuple):
            whole += range(one[0], sum(one))
        else:
            whole.append(bytes(one))
    expected: list[int | bytes] = []
    size = 0
    for known, frame in frames:
        if size + 4 + len(frame) > len(data):
            break
        size += 4 + len(frame)
        expected.append(frame if known is None else known)
    assert (whole, taken) == (expected, size)


@pytest.mark.parametrize("length", [-1, 0, 3, 997])
def test_lengths_that_cannot_be(length: int) -> None:
    with pytest.raises(FrameError, match=str(length)):
        split_responses(length.to_bytes(4, "big", signed=True) + bytes(100), 1000)
