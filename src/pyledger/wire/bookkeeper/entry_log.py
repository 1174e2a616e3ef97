"""Bytes of a bookie's entry logs, and of the index files of its interleaved and sorted storages.

The upper half of a location is the entry log; the lower half is the position of the entry, after its size.

Source: BookKeeper bookie/DefaultEntryLogger.java, FileInfo.java.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyledger.errors import LedgerFileError

LOG_MAGIC, INDEX_MAGIC = b"BKLO", b"BKLE"
LOG_HEADER_BYTES = INDEX_HEADER_BYTES = 1024
LEDGERS_MAP_MARK = (-1, -2)
MAP_ITEMS_MAX = 10_000
FENCED = 1
_LOG_HEADER = struct.Struct(">4siqi")
_SIZE = struct.Struct(">i")
_IDS = struct.Struct(">qq")
_MAP_ITEM = struct.Struct(">qq")
_INDEX_HEAD = struct.Struct(">4sii")


@dataclass(frozen=True, slots=True)
class LoggedEntry:
    """An entry, and the position (bytes) of its first byte in its log."""

    ledger_id: int
    entry_id: int
    position: int
    entry: memoryview


@dataclass(frozen=True, slots=True)
class LedgerIndex:
    """The header of a ledger's index file. A slot for each entry follows, from entry 0 on."""

    master_key: bytes
    fenced: bool
    packet: bytes | None


def logged_entries(path: str, data: memoryview) -> Iterator[LoggedEntry]:
    """Yield all entries of a log in the order of writing; its map of ledgers is skipped.

    Raises:
        LedgerFileError: It is not an entry log, or an entry is truncated. Entries before it were yielded.
    """
    if len(data) == 0:
        return  # preallocated
    if len(data) < LOG_HEADER_BYTES or bytes(data[:4]) != LOG_MAGIC:
        raise LedgerFileError(path, 0, "this is no entry log")
    at = LOG_HEADER_BYTES
    while at + _SIZE.size <= len(data):
        (size,) = _SIZE.unpack_from(data, at)
        if size <= 0:
            at += _SIZE.size  # preallocated space, or the padding of a direct logger
            continue
        entry = data[at + _SIZE.size : at + _SIZE.size + size]
        if len(entry) < size or size < _IDS.size:
            raise LedgerFileError(path, at, f"an entry of {size} bytes, of which {len(entry)} are there")
        ledger_id, entry_id = _IDS.unpack_from(entry)
        if ledger_id >= 0 and entry_id >= 0:
            yield LoggedEntry(ledger_id, entry_id, at + _SIZE.size, entry)
        at += _SIZE.size + size


def entry_at(path: str, data: memoryview, position: int, ledger_id: int, entry_id: int) -> memoryview:
    """Return the entry at a position that an index contains.

    Raises:
        LedgerFileError: The position holds another entry, or none. That is damage, not a missing entry.
    """
    at = position - _SIZE.size
    if at < LOG_HEADER_BYTES or position + _IDS.size > len(data):
        raise LedgerFileError(path, position, f"entry {entry_id} of ledger {ledger_id} lies outside the log")
    (size,) = _SIZE.unpack_from(data, at)
    entry = data[position : position + max(size, 0)]
    if size < _IDS.size or len(entry) < size or _IDS.unpack_from(entry) != (ledger_id, entry_id):
        raise LedgerFileError(path, position, f"entry {entry_id} of ledger {ledger_id} is not here")
    return entry


def decode_index(path: str, data: memoryview) -> LedgerIndex:
    """Read the beginning of the index file of a ledger.

    Raises:
        LedgerFileError: It is none.
    """
    if len(data) < INDEX_HEADER_BYTES or bytes(data[:4]) != INDEX_MAGIC:
        raise LedgerFileError(path, 0, "this is no index of a ledger")
    _, version, key_bytes = _INDEX_HEAD.unpack_from(data)
    at = _INDEX_HEAD.size + key_bytes
    if version not in (0, 1) or not 0 <= key_bytes <= INDEX_HEADER_BYTES - _INDEX_HEAD.size - 2 * _SIZE.size:
        raise LedgerFileError(path, 4, f"an index of version {version} with a key of {key_bytes} bytes")
    (state,) = _SIZE.unpack_from(data, at)
    packet = None
    if version == 1:
        (packet_bytes,) = _SIZE.unpack_from(data, at + _SIZE.size)
        start = at + 2 * _SIZE.size
        if not 0 <= packet_bytes <= INDEX_HEADER_BYTES - start:
            raise LedgerFileError(path, at, f"a LAC packet of {packet_bytes} bytes")
        packet = bytes(data[start : start + packet_bytes]) or None
    key = bytes(data[_INDEX_HEAD.size : at])
    return LedgerIndex(key, bool(state & FENCED), packet)


def map_position(data: memoryview) -> int:
    """Return the position (bytes) of the log's map of ledgers according to its header; 0: it has none."""
    return int(_LOG_HEADER.unpack_from(data)[2])


def ledgers_map(path: str, data: memoryview) -> dict[int, int] | None:
    """Ledgers of a closed log, and the bytes of their entries with their sizes; None: the log was not closed.

    Raises:
        LedgerFileError: The map is damaged.
    """
    if len(data) < LOG_HEADER_BYTES:
        return None
    _, version, at, count = _LOG_HEADER.unpack_from(data)
    # A count of 0 means "not counted"; upstream has deleted live data by taking it literally.
    if version < 1 or at == 0 or count <= 0:
        return None
    found: dict[int, int] = {}
    while len(found) < count:
        head = _SIZE.size + _IDS.size + _SIZE.size
        if at < LOG_HEADER_BYTES or at + head > len(data):
            raise LedgerFileError(path, at, f"the map of ledgers ends after {len(found)} of {count}")
        (size,) = _SIZE.unpack_from(data, at)
        (items,) = _SIZE.unpack_from(data, at + _SIZE.size + _IDS.size)
        wrong = _IDS.unpack_from(data, at + _SIZE.size) != LEDGERS_MAP_MARK
        if wrong or items <= 0 or at + head + items * _MAP_ITEM.size > len(data):
            raise LedgerFileError(path, at, "this is no map of ledgers")
        for item in range(items):
            ledger_id, total_bytes = _MAP_ITEM.unpack_from(data, at + head + item * _MAP_ITEM.size)
            found[ledger_id] = total_bytes
        at += _SIZE.size + size
    return found


def log_header(map_position: int = 0, ledgers: int = 0) -> bytes:
    """What an entry log begins with: position (bytes) and length of its map; 0 until it is closed."""
    return _LOG_HEADER.pack(LOG_MAGIC, 1, map_position, ledgers).ljust(LOG_HEADER_BYTES, b"\0")


def encode_ledgers_map(sizes: Mapping[int, int]) -> bytes:
    """The map that ends a closed log: bytes of each ledger's entries with their sizes."""
    items = sorted(sizes.items())
    parts: list[bytes] = []
    for at in range(0, len(items), MAP_ITEMS_MAX):
        batch = items[at : at + MAP_ITEMS_MAX]
        body = b"".join(
            (_IDS.pack(*LEDGERS_MAP_MARK), _SIZE.pack(len(batch)), *(_MAP_ITEM.pack(*i) for i in batch))
        )
        parts += (_SIZE.pack(len(body)), body)
    return b"".join(parts)


def encode_index_header(master_key: bytes, *, fenced: bool, packet: bytes | None) -> bytes:
    """The first 1024 bytes of the index of a ledger.

    Raises:
        LedgerFileError: Key and packet do not fit.
    """
    parts = (
        _INDEX_HEAD.pack(INDEX_MAGIC, 1, len(master_key)),
        master_key,
        _SIZE.pack(FENCED if fenced else 0),
        _SIZE.pack(len(packet or b"")),
        packet or b"",
    )
    encoded = b"".join(parts)
    if len(encoded) > INDEX_HEADER_BYTES:
        raise LedgerFileError("", 0, f"{len(encoded)} bytes are too many for the header of an index")
    return encoded.ljust(INDEX_HEADER_BYTES, b"\0")
