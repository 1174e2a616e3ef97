"""Vectors worked out with independent implementations, and what malformed bytes give."""

from contextlib import suppress
from itertools import accumulate, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import EntryDigestError, LedgerFileError, LedgerFrameError, LedgerMetadataError
from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.bookie import EntryRecord, FenceRecord, KeyRecord, LacRecord
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, LedgerState, Segment
from pyledger.wire.bookkeeper import journal, version2, version3
from pyledger.wire.bookkeeper.availability import decode_availability, encode_availability
from pyledger.wire.bookkeeper.bookies import (
    Cookie,
    check_bookie_id,
    decode_cookie,
    decode_registration,
    encode_cookie,
)
from pyledger.wire.bookkeeper.entry import EntryDigest, master_key, pack_entry, pack_lac, unpack_entry
from pyledger.wire.bookkeeper.entry_log import ledgers_map, logged_entries
from pyledger.wire.bookkeeper.ledger_metadata import decode_metadata, encode_metadata
from pyledger.wire.bookkeeper.paths import ledger_of, ledger_path, mark_path, marked_ledger

EMPTY_KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
CRC32C = EntryDigest(DigestType.CRC32C)
ENTRY = pack_entry(CRC32C, 7, 3, 2, 17, b"hello")
ADD = m.AddRequest(ledger_id=7, entry_id=3, master_key=EMPTY_KEY, entry=ENTRY, txn_id=1)


@pytest.mark.parametrize(
    ("kind", "digest", "lac"),
    [
        (DigestType.CRC32, "00000000715d3f14", "0000000066d447b0"),
        (DigestType.CRC32C, "b4402c1a", "642b2407"),
        (
            DigestType.HMAC,
            "d230d994e305dd5df1fa3990c8430eea23345888",
            "f632e2cd7506df64ff01bb90cedd0ee10137975e",
        ),
        (DigestType.DUMMY, "", ""),
    ],
)
def test_digests(kind: DigestType, digest: str, lac: str) -> None:
    of = EntryDigest(kind, b"foo")
    header = "0000000000000007000000000000000300000000000000020000000000000011"
    assert pack_entry(of, 7, 3, 2, 17, b"hello").hex() == header + digest + b"hello".hex()
    assert pack_lac(of, 7, 2).hex() == "00000000000000070000000000000002" + lac


def test_frames_of_version_2() -> None:
    assert master_key(b"") == EMPTY_KEY
    assert version2.encode_request(ADD).hex() == "02010000" + EMPTY_KEY.hex() + ENTRY.hex()
    answer = m.AddResponse(status=m.Status.EOK, ledger_id=7, entry_id=3)
    assert version2.encode_response(answer).hex() == "020100000000000000000000000000070000000000000003"
    fence = m.ReadRequest(ledger_id=7, entry_id=-1, master_key=EMPTY_KEY, fence=True)
    assert (
        version2.encode_request(fence).hex() == "020200010000000000000007ffffffffffffffff" + EMPTY_KEY.hex()
    )
    batch = m.BatchReadRequest(ledger_id=7, entry_id=0, txn_id=42, count_max=10, bytes_max=5 << 20)
    assert version2.encode_request(batch).hex() == (
        "0207000000000000000000070000000000000000000000000000002a0000000a0000000000500000"
    )


def test_frames_of_version_3() -> None:
    assert version3.encode_request(ADD).hex() == (
        "0a06080310021801aa0645080710031a14" + EMPTY_KEY.hex() + "2229" + ENTRY.hex()
    )
    answer = m.AddResponse(status=m.Status.EOK, ledger_id=7, entry_id=3, txn_id=1)
    assert version3.encode_response(answer).hex() == "0a060803100218011000aa0606080010071803"
    read = m.ReadRequest(
        ledger_id=7, entry_id=3, master_key=EMPTY_KEY, fence=True, txn_id=2, priority=m.PRIORITY_HIGH
    )
    number_order = "0a080803100118022064a2061d080710031a14" + EMPTY_KEY.hex() + "a00601"
    declared_order = "0a080803100118022064a2061da00601080710031a14" + EMPTY_KEY.hex()
    assert version3.encode_request(read).hex() == number_order
    assert version3.decode_request(memoryview(bytes.fromhex(declared_order))) == read


METADATA = LedgerMetadata(
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    segments=(
        Segment(0, ("b1:3181", "b2:3181", "b3:3181")),
        Segment(2, ("b1:3181", "b4:3181", "b3:3181")),
    ),
    state=LedgerState.CLOSED,
    last_entry_id=3,
    length=17,
    digest=DigestType.CRC32C,
    password=b"",
    token=0x0102030405060708,
)


def test_metadata_to_the_byte() -> None:
    assert encode_metadata(METADATA).hex() == (
        "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a"
        "5808031003181120032803"
        "321d0a0762313a333138310a0762323a333138310a0762333a333138311000"
        "321d0a0762313a333138310a0762343a333138310a0762333a333138311002"
        "38034200480260888e98a8c0e0808101"
    )


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "00/0000/L0000"),
        (12345, "00/0001/L2345"),
        (2147483646, "21/4748/L3646"),
        (2147483647, "000/0000/0021/4748/L3647"),
        (2**33 + 1, "000/0000/0085/8993/L4593"),
        (2**63 - 1, "922/3372/0368/5477/L5807"),
    ],
)
def test_paths_of_ledgers(ledger_id: int, path: str) -> None:
    assert ledger_path(ledger_id) == path
    assert ledger_of(path) == ledger_id


def test_paths_that_are_no_ledgers() -> None:
    assert ledger_of("000/0000/0000/0000/L0001") is None, "a short id under a long path"
    assert ledger_of("999/9999/9999/9999/L9999") is None, "above the largest id"
    assert ledger_of("idgen/ID-0000000001") is None
    assert mark_path(2**33 + 1) == "0000/0002/0000/0001/urL8589934593"
    assert marked_ledger("0000/0000/0000/0007/urL0000000008") is None, "folder and name differ"


def test_cookie_to_the_byte() -> None:
    cookie = Cookie("b1:3181", ("/j",), ("/l",), "an-id", ("/l",))
    text = (
        '5\nbookieHost: "b1:3181"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\n'
        'instanceId: "an-id"\nindexDirs: "1\\t/l"\n'
    )
    assert encode_cookie(cookie).decode() == text
    assert decode_cookie(text.encode()) == cookie


@given(st.lists(st.integers(1, 9), max_size=20))
def test_lists_of_entries_come_back(steps: list[int]) -> None:
    """Runs of some length, with a hole of the same length between them."""
    ends = list(accumulate(steps, initial=0))
    runs = [range(2 * end, 2 * end + step) for end, step in zip(ends, steps, strict=False)]
    assert list(decode_availability(encode_availability(runs))) == runs


def test_list_with_a_period() -> None:
    data = bytes.fromhex("0000000000000001") + bytes(56)
    data += bytes.fromhex("0000000000000000" + "0000000000000006" + "00000002" + "00000003")
    assert list(decode_availability(data)) == [range(2), range(3, 5), range(6, 8)]


def test_an_entry_must_be_the_requested_one() -> None:
    assert unpack_entry(CRC32C, 7, 3, ENTRY).payload == b"hello"
    for ledger_id, entry_id, what in ((8, 3, "ledger 7"), (7, 4, "entry 3")):
        with pytest.raises(EntryDigestError, match=f"it (belongs to|is) {what}"):
            unpack_entry(CRC32C, ledger_id, entry_id, ENTRY)


@given(st.integers(0, len(ENTRY) * 8 - 1))
def test_any_flipped_bit_is_found(bit: int) -> None:
    bad = bytearray(ENTRY)
    bad[bit // 8] ^= 1 << bit % 8
    with pytest.raises(EntryDigestError):
        unpack_entry(CRC32C, 7, 3, bad)


@given(st.integers(0, len(ENTRY) - 1))
def test_a_truncated_entry_is_found(size: int) -> None:
    with pytest.raises(EntryDigestError):
        unpack_entry(CRC32C, 7, 3, ENTRY[:size])


@given(st.binary(max_size=80) | st.builds(lambda tail: ADD_FRAME[: len(tail)] + tail, st.binary(max_size=60)))
def test_garbage_gives_a_clear_error(data: bytes) -> None:
    view = memoryview(data)
    for codec in (version2, version3):
        for decode in (codec.decode_request, codec.decode_response):
            with suppress(LedgerFrameError):
                decode(view)
    for decode_text in (decode_metadata, decode_cookie, lambda raw: decode_registration("b", raw)):
        with suppress(LedgerMetadataError):
            decode_text(data)
    with suppress(LedgerFrameError):
        list(islice(decode_availability(data), 100))


ADD_FRAME = version2.encode_request(ADD)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "does not begin"),
        (b"BookieMetadataFormatVersion\t4\n", "version 4 is not known"),
        (b"BookieMetadataFormatVersion\t3\n\x05\x08", "ends after 1 of 5"),
        (b"BookieMetadataFormatVersion\t3\n", "no length"),
        (b"BookieMetadataFormatVersion\t2\nquorumSize: 3\n", "ensembleSize, length, state missing"),
        (b"BookieMetadataFormatVersion\t1\n3\n3\nx\n", "lines of version 1"),
        (b"BookieMetadataFormatVersion\t1\n3\n3\n0\n5\ta:1\tb:1\tc:1\n", r"begin at entries \[5\]"),
        (b"BookieMetadataFormatVersion\t1\n3\n3\n0\n0\ta:1\tb:1\n", "2 bookies instead of 3"),
        (b"BookieMetadataFormatVersion\t1\n3\n2\n0\n0\ta:1\tb:1\n", "must fall"),
    ],
)
def test_metadata_that_is_rejected(text: bytes, problem: str) -> None:
    with pytest.raises(LedgerMetadataError, match=problem):
        decode_metadata(text)


def test_what_java_accepts_of_other_writers() -> None:
    one_line = (
        b"BookieMetadataFormatVersion\t2\nquorumSize: 1 ensembleSize: 1, length: 0 state: OPEN "
        b"segment < ensembleMember: 'b:1' firstEntryId: 0 > nobody_knows: 5"
    )
    found = decode_metadata(one_line)
    assert found.segments == (Segment(0, ("b:1",)),)
    assert found.ack_quorum == 1
    assert found.digest is None, "without a password the digest is not believed"


@pytest.mark.parametrize("bookie_id", ["readonly", "ReadOnly", "", "a/b", "a b", "ä:1"])
def test_bookie_ids_that_are_rejected(bookie_id: str) -> None:
    with pytest.raises(LedgerMetadataError):
        check_bookie_id(bookie_id)


def test_bookie_ids_that_java_accepts() -> None:
    for bookie_id in ("127.0.0.1:3181", "bookie-1.example.org:3181", "a;<=>?@[\\]^_"):
        assert check_bookie_id(bookie_id) == bookie_id


def test_journal_to_the_byte() -> None:
    assert journal.header().hex() == "424b4c4700000006" + "00" * 504
    key = KeyRecord(7, EMPTY_KEY)
    parts = journal.header() + journal.encode_record(key) + journal.encode_record(EntryRecord(7, 3, ENTRY))
    assert parts[512:].hex() == (
        "000000280000000000000007fffffffffffff00000000014" + EMPTY_KEY.hex() + "00000029" + ENTRY.hex()
    )
    assert len(parts) == 601
    padded = parts + journal.padding(len(parts))
    assert padded[601:609].hex() == "ffffff000000019f"
    assert len(padded) == 1024
    fence = journal.encode_record(FenceRecord(7))
    assert fence.hex() == "000000100000000000000007ffffffffffffe000"
    lac = journal.encode_record(LacRecord(7, pack_lac(CRC32C, 7, 2)))
    assert lac.hex() == (
        "000000280000000000000007ffffffffffff800000000014" + "00000000000000070000000000000002642b2407"
    )
    assert journal.encode_mark(0x18C2E4D0A01, 1024).hex() == "0000018c2e4d0a010000000000000400"
    whole = memoryview(padded + fence + lac + bytes(50))
    found = [one.record for one in journal.records("a", whole, journal.start_of("a", whole))]
    assert found == [key, EntryRecord(7, 3, ENTRY), FenceRecord(7), LacRecord(7, pack_lac(CRC32C, 7, 2))]


@pytest.mark.parametrize(
    ("position", "fill", "end"), [(509, 507, 1024), (504, 0, 512), (503, 1, 512), (512, None, 512)]
)
def test_padding_of_a_journal(position: int, fill: int | None, end: int) -> None:
    padding = journal.padding(position)
    assert position + len(padding) == end
    assert fill is None or padding[4:8] == fill.to_bytes(4, "big")


def test_a_map_of_ledgers_is_read() -> None:
    head = bytes.fromhex("424b4c4f" + "00000001" + "0000000000000400" + "00000001")
    items = "00000024ffffffffffffffff" + "fffffffffffffffe" + "00000001" + "0000000000000007000000000000002d"
    data = memoryview(head.ljust(1024, b"\0") + bytes.fromhex(items))
    assert ledgers_map("0.log", data) == {7: 0x2D}
    assert list(logged_entries("0.log", data)) == [], "the map is no entry"
    with pytest.raises(LedgerFileError, match="ends after 0 of 1"):
        ledgers_map("0.log", data[:-20])
    assert ledgers_map("0.log", memoryview(bytes.fromhex("424b4c4f00000001").ljust(1024, b"\0"))) is None
