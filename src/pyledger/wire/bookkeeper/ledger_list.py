"""Bytes of a bookie's list of ledgers: what its indexes must hold, recorded a second time.

A header and records of 64 bytes each, appended by every checkpoint; the last one of a ledger counts.
BookKeeper has no such file and reads over it.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

from pyledger.errors import LedgerFileError

MAGIC, VERSION = b"PLLL", 1
RECORD_BYTES = 64
KEY_BYTES_MAX = 20
LEDGER, REMOVED, MARK = 1, 2, 3
_HEADER = struct.Struct(">4siq")
_CRC = struct.Struct(">I")
_BODY = struct.Struct(">BBBxqqq20s12x")


@dataclass(frozen=True, slots=True)
class ListedLedger:
    """What a checkpoint has made durable of a ledger."""

    master_key: bytes
    fenced: bool
    last_entry_id: int
    """The highest entry that its index names; -1: none."""
    count: int
    """How many entries its index names."""


@dataclass(slots=True)
class ListContent:
    """The contents of a list file.

    Attributes:
        generation: Of several lists, the one with the highest generation is valid.
        ledgers: All ledgers of the bookie that it has not removed.
        marks: For each journal: the file and position up to which the list includes it.
    """

    generation: int
    ledgers: dict[int, ListedLedger]
    marks: dict[int, tuple[int, int]]


def encode_list_header(generation: int) -> bytes:
    """What a list begins with."""
    return _HEADER.pack(MAGIC, VERSION, generation).ljust(RECORD_BYTES, b"\0")


def encode_listed(ledger_id: int, ledger: ListedLedger) -> bytes:
    """A record of what is known of a ledger."""
    key = ledger.master_key
    return _record(LEDGER, ledger.fenced, len(key), ledger_id, ledger.last_entry_id, ledger.count, key)


def encode_removed(ledger_id: int) -> bytes:
    """A record of a ledger that was deleted."""
    return _record(REMOVED, False, 0, ledger_id)


def encode_list_mark(journal: int, mark: tuple[int, int]) -> bytes:
    """A record of how far the list covers a journal (its number in the settings)."""
    return _record(MARK, False, 0, journal, *mark)


def _record(
    kind: int, flag: bool, key_bytes: int, one: int, two: int = 0, three: int = 0, key: bytes = b""
) -> bytes:
    body = _BODY.pack(kind, flag, key_bytes, one, two, three, key)
    return _CRC.pack(crc32(body)) + body


def decode_list(path: str, data: bytes) -> ListContent:
    """Read a list. Torn records at its end are ignored: a crash interrupted writing them.

    Raises:
        LedgerFileError: It is not a list, or valid records follow a damaged one.
    """
    if len(data) < RECORD_BYTES or data[:4] != MAGIC:
        raise LedgerFileError(path, 0, "this is not a list of ledgers")
    _, version, generation = _HEADER.unpack_from(data)
    if version != VERSION:
        raise LedgerFileError(path, 4, f"a list of ledgers of version {version}")
    content = ListContent(generation, {}, {})
    for kind, flag, key_bytes, one, two, three, key in _bodies(path, data):
        if kind == LEDGER:
            content.ledgers[one] = ListedLedger(key[:key_bytes], bool(flag), two, three)
        elif kind == REMOVED:
            content.ledgers.pop(one, None)
        elif kind == MARK:
            content.marks[one] = two, three
    return content


def _bodies(path: str, data: bytes) -> Iterator[tuple[int, int, int, int, int, int, bytes]]:
    damaged = 0
    for at in range(RECORD_BYTES, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        body = data[at + _CRC.size : at + RECORD_BYTES]
        if _CRC.unpack_from(data, at)[0] != crc32(body):
            damaged = damaged or at
        elif damaged:
            raise LedgerFileError(path, damaged, "a record of the list of ledgers is damaged")
        else:
            yield _BODY.unpack(body)


def is_behind(content: ListContent, marks: Mapping[int, tuple[int, int]]) -> bool:
    """Whether a journal was moved on without the list: another program has written since then."""
    return any(mark > content.marks.get(which, (0, 0)) for which, mark in marks.items())
