"""An entry of a ledger, and its digest type."""

from dataclasses import dataclass
from enum import Enum


class DigestType(Enum):
    """Digest of the entries of a ledger; the value is the number in its metadata."""

    CRC32 = 1
    HMAC = 2
    """HMAC-SHA1 by a key from the password; Java's API names it MAC."""
    CRC32C = 3
    DUMMY = 4
    """No digest."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An entry, as its writer sent it."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    """The LAC of the writer when it sent this entry; -1: no entry."""
    length: int
    """Bytes of all payloads up to and including this one."""
    payload: bytes
