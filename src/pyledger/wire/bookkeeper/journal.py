"""Bytes of a bookie's journal: a header, records, padding.

Records have no checksum: a length of zero or a short read ends the file, so a writer must leave only zeros
after its end. In files of our bookies, every batch that was synced together ends with a seal. It is in the
padding, which readers that do not know it skip: i32 "PLJS", the CRC-32C of file number, batch position and
batch, i64 the position (bytes) of the batch. A flag in the header marks such files.

Source: BookKeeper bookie/Journal.java, JournalChannel.java.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pyledger.errors import LedgerFileError
from pyledger.model.digest import crc32c
from pyledger.protocol.bookkeeper.bookie import EntryRecord, FenceRecord, KeyRecord, LacRecord, Record

MAGIC = b"BKLG"
VERSION = 6
VERSIONS = range(1, VERSION + 1)
HEADER_BYTES = 512
"""From version 5 on; 8 in versions 2 to 4, none in version 1."""
ALIGNMENT_BYTES = 512

KEY_MARK, FENCE_MARK, FORCE_MARK, LAC_MARK = -0x1000, -0x2000, -0x4000, -0x8000
PADDING_MARK = -0x100
SEAL_MAGIC = 0x504C4A53
SEALED = b"sealed"
"""Marks a file with sealed batches, in its header."""
_LENGTH = struct.Struct(">i")
_IDS = struct.Struct(">qq")
_MARK = struct.Struct(">qq")
_SEAL = struct.Struct(">iIq")
_SEALED_PADDING = re.compile(
    re.escape(_LENGTH.pack(PADDING_MARK)) + b"...." + re.escape(_LENGTH.pack(SEAL_MAGIC)) + b".{12}",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """A record, and the position of its length (bytes from the start of the file)."""

    position: int
    record: Record


def header(*, sealed: bool = False) -> bytes:
    """What a new journal file begins with."""
    return (MAGIC + _LENGTH.pack(VERSION) + (SEALED if sealed else b"")).ljust(HEADER_BYTES, b"\0")


def encode_record(record: Record) -> bytes:
    """Bytes of a record, its length included."""
    match record:
        case EntryRecord():
            body = record.entry
        case KeyRecord():
            body = _IDS.pack(record.ledger_id, KEY_MARK) + _counted(record.master_key)
        case FenceRecord():
            body = _IDS.pack(record.ledger_id, FENCE_MARK)
        case LacRecord():
            body = _IDS.pack(record.ledger_id, LAC_MARK) + _counted(record.packet)
    return _counted(body)


def padding(position: int, alignment_bytes: int = ALIGNMENT_BYTES) -> bytes:
    """What brings a file from `position` to a multiple of the alignment."""
    if (missing := -position % alignment_bytes) == 0:
        return b""
    head_bytes = 2 * _LENGTH.size
    fill = missing - head_bytes if missing >= head_bytes else missing - head_bytes + alignment_bytes
    return _LENGTH.pack(PADDING_MARK) + _counted(bytes(fill))


def start_of(path: str, data: memoryview) -> int:
    """Where the records of a file begin (bytes).

    Raises:
        LedgerFileError: Its version is not known.
    """
    if bytes(data[: len(MAGIC)]) != MAGIC:
        return 0
    if len(data) < len(MAGIC) + _LENGTH.size:
        return len(data)
    (version,) = _LENGTH.unpack_from(data, len(MAGIC))
    if version not in VERSIONS:
        raise LedgerFileError(path, len(MAGIC), f"a journal of version {version}; {VERSION} is known")
    return HEADER_BYTES if version >= 5 else len(MAGIC) + _LENGTH.size  # the header grew with version 5


def records(path: str, data: memoryview, start: int) -> Iterator[JournalRecord]:
    """Records from a position on, up to the end that a crash or preallocation left.

    Raises:
        LedgerFileError: A record is not valid. Records before it were yielded.
    """
    at = start
    while at + _LENGTH.size <= len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        if size == 0:
            return
        if size == PADDING_MARK:
            at = _after_padding(path, data, at)
            continue
        if size < 0:
            raise LedgerFileError(path, at, f"a record of {size} bytes")
        body = data[at + _LENGTH.size : at + _LENGTH.size + size]
        if len(body) < size:
            return
        if (record := _record(path, at, body)) is not None:
            yield JournalRecord(at, record)
        at += _LENGTH.size + size


def whole_end(path: str, number: int, data: memoryview, start: int) -> int:
    """Return where the last complete batch of a file ends (bytes), or `start`; the rest was not acknowledged.

    A file without seals is used up to its last record.

    Args:
        path: For errors.
        number: Of the file, as in its name.
        data: The file.
        start: Where a batch begins (bytes).

    Raises:
        LedgerFileError: A batch is damaged that a whole one follows.
    """
    flag = data[len(MAGIC) + _LENGTH.size : len(MAGIC) + _LENGTH.size + len(SEALED)]
    if bytes(data[: len(MAGIC)]) != MAGIC or bytes(flag) != SEALED:
        return len(data)
    end = at = batch = start
    while at + _LENGTH.size <= len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        if size != PADDING_MARK:
            if size <= 0:
                break
            at += _LENGTH.size + size
            continue
        seal_at = at + 2 * _LENGTH.size
        after = _after_padding(path, data, at)
        if after > len(data) or not _is_sealed(number, data, batch, at, seal_at):
            break
        end = at = batch = after
    _refuse_later_seals(path, number, data, end)
    return end


def _is_sealed(number: int, data: memoryview, batch: int, records_end: int, seal_at: int) -> bool:
    if seal_at + _SEAL.size > len(data):
        return False
    magic, crc, position = _SEAL.unpack_from(data, seal_at)
    bound = crc32c(_MARK.pack(number, batch))
    return (magic, position, crc) == (SEAL_MAGIC, batch, crc32c(data[batch:records_end], bound))


def _refuse_later_seals(path: str, number: int, data: memoryview, end: int) -> None:
    """A batch was synced before the next was written: one that is torn is the last."""
    for found in _SEALED_PADDING.finditer(data, end):
        _, _, batch = _SEAL.unpack_from(data, found.start() + 2 * _LENGTH.size)
        if end < batch < found.start() and _is_sealed(
            number, data, batch, found.start(), found.start() + 2 * _LENGTH.size
        ):
            raise LedgerFileError(path, end, "a damaged batch that a whole one follows")


def encode_mark(log_id: int, position: int) -> bytes:
    """Bytes of `lastMark`: all before a position of a journal file is in the entry logs and their index."""
    return _MARK.pack(log_id, position)


def decode_mark(data: bytes) -> tuple[int, int] | None:
    """Journal file and position (bytes); None: it is no mark."""
    return _MARK.unpack(data) if len(data) == _MARK.size else None


def _counted(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _after_padding(path: str, data: memoryview, at: int) -> int:
    if at + 2 * _LENGTH.size > len(data):
        return len(data)
    (size,) = _LENGTH.unpack_from(data, at + _LENGTH.size)
    if size < 0:
        raise LedgerFileError(path, at, f"padding of {size} bytes")
    return int(at + 2 * _LENGTH.size + size)


def _record(path: str, at: int, body: memoryview) -> Record | None:
    """A record; None for one of a kind that is read over."""
    if len(body) < _IDS.size:
        raise LedgerFileError(path, at, f"a record of {len(body)} bytes, too few for its ids")
    ledger_id, entry_id = _IDS.unpack_from(body)
    if entry_id >= 0:
        return EntryRecord(ledger_id, entry_id, bytes(body))
    if entry_id == FENCE_MARK:
        return FenceRecord(ledger_id)
    if entry_id not in (KEY_MARK, LAC_MARK):
        return None
    rest = body[_IDS.size :]
    (size,) = _LENGTH.unpack_from(rest) if len(rest) >= _LENGTH.size else (-1,)
    value = bytes(rest[_LENGTH.size : _LENGTH.size + max(size, 0)])
    if size < 0 or len(value) < size:
        raise LedgerFileError(path, at, "a record is shorter than its length field")
    return KeyRecord(ledger_id, value) if entry_id == KEY_MARK else LacRecord(ledger_id, value)
