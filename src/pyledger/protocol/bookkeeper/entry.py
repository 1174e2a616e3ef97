"""An entry of a ledger, and how it is guarded."""

from dataclasses import dataclass
from enum import Enum


class DigestType(Enum):
    """How entries of a ledger are guarded; the value is the number in its metadata."""

    CRC32 = 1
    HMAC = 2
    """HMAC-SHA1 by a key from the password; Java's API names it MAC."""
    CRC32C = 3
    DUMMY = 4
    """Not at all."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An entry, as its writer made it."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    """What the writer knew as confirmed when it sent this entry; -1: nothing."""
    length: int
    """Bytes of all payloads up to and with this one."""
    payload: bytes
