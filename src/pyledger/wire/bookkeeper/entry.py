"""Entries and LAC packets: 32 (or 16) bytes of header, a digest over header and payload, the payload.

The same bytes travel in requests, lie in the journal and the entry log, and come back in answers. `length` is
the sum of all payloads of the ledger up to and with this entry.

Source: BookKeeper proto/checksum/DigestManager.java and its subclasses.
"""

import hashlib
import hmac
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

from pyledger.errors import EntryDigestError
from pyledger.model.digest import crc32, crc32c
from pyledger.protocol.bookkeeper.entry import DigestType, LedgerEntry
from pyledger.wire.remoting.native_codec import count_whole_entries, take_entries

HEADER = struct.Struct(">qqqq")
LAC_HEADER = struct.Struct(">qq")
DIGEST_BYTES = {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}
Buffer = bytes | bytearray | memoryview


@lru_cache(maxsize=256)
def master_key(password: bytes) -> bytes:
    """Return the 20 bytes that authorize requests on a ledger."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


@lru_cache(maxsize=256)
def mac_key(password: bytes) -> bytes:
    """The key of HMAC digests."""
    return hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()


class EntryDigest:
    """The digest of one ledger's entries.

    Attributes:
        type: Which.
        size_bytes: What it takes in every entry.
    """

    __slots__ = ("_key", "size_bytes", "type")

    def __init__(self, kind: DigestType, password: bytes = b"") -> None:
        """A digest of a kind; the password matters to HMAC alone."""
        self.type = kind
        self.size_bytes = DIGEST_BYTES[kind]
        self._key = mac_key(password)

    def of(self, header: Buffer, payload: Buffer = b"") -> bytes:
        """Digest of a header and what follows the digest."""
        if self.type is DigestType.CRC32C:
            return crc32c(payload, crc32c(header)).to_bytes(4, "big")
        if self.type is DigestType.CRC32:
            return crc32(payload, crc32(header)).to_bytes(8, "big")
        if self.type is DigestType.HMAC:
            mac = hmac.new(self._key, header, hashlib.sha1)
            mac.update(payload)
            return mac.digest()
        return b""


def pack_entry(
    digest: EntryDigest, ledger_id: int, entry_id: int, last_add_confirmed: int, length: int, payload: Buffer
) -> bytes:
    """Bytes of an entry; `length` counts this payload too."""
    header = HEADER.pack(ledger_id, entry_id, last_add_confirmed, length)
    return b"".join((header, digest.of(header, payload), payload))


def unpack_entry(digest: EntryDigest, ledger_id: int, entry_id: int | None, entry: Buffer) -> LedgerEntry:
    """Check an entry and take it apart.

    Args:
        digest: Of its ledger.
        ledger_id: Where it has to belong.
        entry_id: Which it has to be; None: any.
        entry: Whole.

    Raises:
        EntryDigestError: It is too short, its digest is wrong, or it is another entry.
    """
    header, payload = _checked(digest, ledger_id, entry_id, HEADER.size, memoryview(entry))
    found_ledger, found_entry, confirmed, length = HEADER.unpack(header)
    if found_ledger != ledger_id:
        raise EntryDigestError(ledger_id, entry_id, f"it belongs to ledger {found_ledger}")
    if entry_id is not None and found_entry != entry_id:
        raise EntryDigestError(ledger_id, entry_id, f"it is entry {found_entry}")
    return LedgerEntry(found_ledger, found_entry, confirmed, length, bytes(payload))


def is_whole(digest: EntryDigest, ledger_id: int, entry_id: int, entry: Buffer) -> bool:
    """Whether an entry is what its writer made.

    Args:
        digest: Of its ledger.
        ledger_id: Where it has to belong.
        entry_id: Which it has to be.
        entry: Whole.
    """
    try:
        header, _ = _checked(digest, ledger_id, entry_id, HEADER.size, memoryview(entry))
    except EntryDigestError:
        return False
    found_ledger, found_entry, _, _ = HEADER.unpack(header)
    return bool((found_ledger, found_entry) == (ledger_id, entry_id))


def unpack_entries(
    digest: EntryDigest, ledger_id: int, first_entry_id: int, entries: Sequence[bytes]
) -> list[LedgerEntry]:
    """Take entries apart, up to the first that is not what its writer made.

    Args:
        digest: Of their ledger.
        ledger_id: Where they have to belong.
        first_entry_id: Which the first one has to be; the others follow.
        entries: Whole.
    """
    if digest.type is not DigestType.HMAC:
        return take_entries(LedgerEntry, digest.type.value, ledger_id, first_entry_id, entries)
    found = []
    for entry_id, entry in enumerate(entries, first_entry_id):
        try:
            found.append(unpack_entry(digest, ledger_id, entry_id, entry))
        except EntryDigestError:
            break
    return found


def count_whole(digest: EntryDigest, ledger_id: int, first_entry_id: int, entries: Sequence[bytes]) -> int:
    """How many entries are what their writer made, up to the first that is not; see `unpack_entries`."""
    if digest.type is not DigestType.HMAC:
        return count_whole_entries(digest.type.value, ledger_id, first_entry_id, entries)
    whole = (is_whole(digest, ledger_id, *one) for one in enumerate(entries, first_entry_id))
    return sum(1 for _ in takewhile(bool, whole))


def digest_found(entry: Buffer) -> EntryDigest | None:
    """The digest that an entry bears, where it can be known without its password.

    None: it is damaged, or guarded by HMAC or not at all.
    """
    view = memoryview(entry)
    for digest in _KEYLESS:
        head_bytes = HEADER.size + digest.size_bytes
        header, payload = view[: HEADER.size], view[head_bytes:]
        if len(view) >= head_bytes and digest.of(header, payload) == view[HEADER.size : head_bytes]:
            return digest
    return None


_KEYLESS = (EntryDigest(DigestType.CRC32C), EntryDigest(DigestType.CRC32))


def pack_lac(digest: EntryDigest, ledger_id: int, last_add_confirmed: int) -> bytes:
    """Bytes of a LAC packet."""
    header = LAC_HEADER.pack(ledger_id, last_add_confirmed)
    return header + digest.of(header)


def unpack_lac(digest: EntryDigest, ledger_id: int, packet: Buffer) -> int:
    """Check a LAC packet and return its last confirmed entry.

    Raises:
        EntryDigestError: It is too short, its digest is wrong, or it belongs to another ledger.
    """
    header, _ = _checked(digest, ledger_id, None, LAC_HEADER.size, memoryview(packet))
    found_ledger, confirmed = LAC_HEADER.unpack(header)
    if found_ledger != ledger_id:
        raise EntryDigestError(ledger_id, None, f"its LAC packet belongs to ledger {found_ledger}")
    return int(confirmed)


def _checked(
    digest: EntryDigest, ledger_id: int, entry_id: int | None, header_bytes: int, whole: memoryview
) -> tuple[memoryview, memoryview]:
    """Header and payload of bytes whose digest is right."""
    head_bytes = header_bytes + digest.size_bytes
    if len(whole) < head_bytes:
        raise EntryDigestError(ledger_id, entry_id, f"{len(whole)} bytes are too few")
    header, payload = whole[:header_bytes], whole[head_bytes:]
    if not hmac.compare_digest(digest.of(header, payload), whole[header_bytes:head_bytes]):
        raise EntryDigestError(ledger_id, entry_id, f"its {digest.type.name} digest is wrong")
    return header, payload
