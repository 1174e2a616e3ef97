"""How entries of a ledger are guarded."""

from enum import Enum


class DigestType(Enum):
    """The value is the number in a ledger's metadata."""

    CRC32 = 1
    HMAC = 2
    """HMAC-SHA1 by a key from the password; Java's API names it MAC."""
    CRC32C = 3
    DUMMY = 4
    """Not at all."""
