"""Vectors of what lies in folders and in ZooKeeper, worked out with independent implementations."""

from dataclasses import replace
from pathlib import Path

from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, LedgerState, Segment
from pyledger.store.bookkeeper.disks import LedgerDisks
from pyledger.store.bookkeeper.entry_log import EntryLogs
from pyledger.wire.bookkeeper.availability import encode_availability
from pyledger.wire.bookkeeper.entry import EntryDigest, master_key, pack_entry
from pyledger.wire.bookkeeper.entry_log import (
    decode_index,
    encode_index_header,
    encode_ledgers_map,
    log_header,
)
from pyledger.wire.bookkeeper.ledger_metadata import decode_metadata, encode_metadata
from pyledger.wire.bookkeeper.paths import mark_path, marked_ledger

SEGMENTS = (Segment(0, ("b1:3181", "b2:3181", "b3:3181")), Segment(2, ("b1:3181", "b4:3181", "b3:3181")))
CLOSED = LedgerMetadata(
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    segments=SEGMENTS,
    state=LedgerState.CLOSED,
    last_entry_id=3,
    length=17,
    digest=DigestType.CRC32C,
    password=b"\x00foo",
)
LINES = (
    "BookieMetadataFormatVersion\t1\n3\n3\n17\n0\tb1:3181\tb2:3181\tb3:3181\n"
    "2\tb1:3181\tb4:3181\tb3:3181\n3\tCLOSED"
)
TEXT = """BookieMetadataFormatVersion\t2
quorumSize: 3
ensembleSize: 3
length: 17
lastEntryId: 3
state: CLOSED
segment {
  ensembleMember: "b1:3181"
  ensembleMember: "b2:3181"
  ensembleMember: "b3:3181"
  firstEntryId: 0
}
segment {
  ensembleMember: "b1:3181"
  ensembleMember: "b4:3181"
  ensembleMember: "b3:3181"
  firstEntryId: 2
}
digestType: CRC32C
password: "\\000foo"
ackQuorumSize: 2
"""
KEY = master_key(b"")


def test_metadata_of_version_1() -> None:
    lines = replace(CLOSED, ack_quorum=3, digest=None, password=None, format_version=1)
    assert decode_metadata(LINES.encode()) == lines
    assert encode_metadata(lines) == LINES.encode()


def test_metadata_of_version_2() -> None:
    text = replace(CLOSED, format_version=2)
    assert decode_metadata(TEXT.encode()) == text
    assert encode_metadata(text).decode() == TEXT


def test_metadata_of_an_open_ledger() -> None:
    still_open = replace(
        CLOSED, state=LedgerState.OPEN, last_entry_id=-1, length=0, password=b"", token=0x0102030405060708
    )
    body = encode_metadata(still_open).partition(b"\n")[2]
    assert body.hex() == (
        "61080310031800" + "20ffffffffffffffffff01" + "2801"
        "321d0a0762313a333138310a0762323a333138310a0762333a333138311000"
        "321d0a0762313a333138310a0762343a333138310a0762333a333138311002"
        "38034200480260888e98a8c0e0808101"
    )
    assert decode_metadata(encode_metadata(still_open)) == still_open


def test_keys_of_passwords() -> None:
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    assert master_key(b"foo").hex() == "3a0e704a758fbcf665879e1820fbd20472774f25"


def test_entry_logs(tmp_path: Path) -> None:
    assert log_header().hex().startswith("424b4c4f00000001000000000000000000000000")
    assert encode_ledgers_map({7: 0x2D}).hex() == (
        "00000024" + "ffffffffffffffff" + "fffffffffffffffe" + "00000001" + "0000000000000007000000000000002d"
    )
    (tmp_path / "4.log").touch()
    logs = EntryLogs(LedgerDisks([str(tmp_path)], 95, 95), 1 << 20)
    entry = pack_entry(EntryDigest(DigestType.CRC32C), 7, 3, 2, 17, b"hello")
    assert logs.append(7, [entry]) == [0x0000000500000404]
    logs.close()


def test_the_header_of_an_index() -> None:
    head = encode_index_header(KEY, fenced=True, packet=None)
    assert head.hex().startswith("424b4c450000000100000014" + KEY.hex() + "0000000100000000")
    found = decode_index("7.idx", memoryview(head.ljust(1024, b"\0")))
    assert (found.master_key, found.fenced, found.packet) == (KEY, True, None)


def test_marks_of_under_replicated_ledgers() -> None:
    for ledger_id, path in (
        (7, "0000/0000/0000/0007/urL0000000007"),
        (2**33 + 1, "0000/0002/0000/0001/urL8589934593"),
    ):
        assert mark_path(ledger_id) == path
        assert marked_ledger(path) == ledger_id


def test_a_list_of_entries() -> None:
    assert encode_availability([range(5)]).hex() == (
        "0000000000000001" + "00" * 56 + "0000000000000000" * 2 + "0000000500000000"
    )
