"""Nodes below `underreplication`: marks of under-replicated ledgers, locks, votes, the time of a check.

Source: BookKeeper meta/ZkLedgerUnderreplicationManager.java, ZkLedgerAuditorManager.java.
"""

from dataclasses import dataclass
from typing import Any

from pyledger.errors import LedgerMetadataError
from pyledger.wire.bookkeeper.schema import DecodeError, format_text, message, parse_text

LAYOUT_TYPE, LAYOUT_VERSION = "BASIC", 1
EVERY_ENTRY = "every-entry"
"""An entry in a mark's list of bookies: a check of the fragments' ends does not find what is missing."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of an under-replicated ledger.

    Attributes:
        replicas: Bookies whose replicas are missing, in the order of detection; and `EVERY_ENTRY`.
        ctime: When it was marked first, in milliseconds since 1970; None if it is not known.
    """

    replicas: tuple[str, ...]
    ctime: int | None = None

    @property
    def bookies(self) -> tuple[str, ...]:
        """Bookies whose copies are missing."""
        return tuple(one for one in self.replicas if one != EVERY_ENTRY)

    @property
    def every_entry(self) -> bool:
        """Whether a worker must check every entry."""
        return EVERY_ENTRY in self.replicas


def encode_mark(mark: Mark) -> bytes:
    """Text of a mark."""
    return format_text(message("UnderreplicatedLedgerFormat")(replica=mark.replicas, ctime=mark.ctime))


def decode_mark(data: bytes) -> Mark:
    """Read a mark.

    Raises:
        LedgerMetadataError: It is malformed.
    """
    whole = parsed("UnderreplicatedLedgerFormat", data, "the mark of an under-replicated ledger")
    return Mark(tuple(whole.replica), whole.ctime if whole.HasField("ctime") else None)


def encode_lock(holder: str) -> bytes:
    """Text of a lock; Java's workers write the name of their host."""
    return format_text(message("LockDataFormat")(bookieId=holder))


def encode_vote(candidate: str) -> bytes:
    """Text of a vote, or of the winner."""
    return format_text(message("AuditorVoteFormat")(bookieId=candidate))


def decode_vote(data: bytes) -> str:
    """Return the candidate of a vote; empty if the vote names none.

    Raises:
        LedgerMetadataError: It is malformed.
    """
    return str(parsed("AuditorVoteFormat", data, "a vote for an auditor").bookieId)


def encode_layout() -> bytes:
    """Encode the layout of the marks as text."""
    whole = message("LedgerRereplicationLayoutFormat")(type=LAYOUT_TYPE, version=LAYOUT_VERSION)
    return format_text(whole)


def check_layout(data: bytes) -> None:
    """Make sure that marks are laid out in the way that is known.

    Raises:
        LedgerMetadataError: They are not.
    """
    whole = parsed("LedgerRereplicationLayoutFormat", data, "the layout of marks")
    if (whole.type, whole.version) != (LAYOUT_TYPE, LAYOUT_VERSION):
        raise LedgerMetadataError(
            f"marks have the layout {whole.type!r} {whole.version}; {LAYOUT_TYPE} {LAYOUT_VERSION} is known"
        )


def encode_check_time(time_ms: int) -> bytes:
    """Bytes of the time of the last check, in milliseconds since 1970."""
    encoded: bytes = message("CheckAllLedgersFormat")(checkAllLedgersCTime=time_ms).SerializeToString()
    return encoded


def decode_check_time(data: bytes) -> int:
    """When the last check was, in milliseconds since 1970.

    Raises:
        LedgerMetadataError: It is malformed.
    """
    try:
        return int(message("CheckAllLedgersFormat").FromString(data).checkAllLedgersCTime)
    except DecodeError as error:
        raise LedgerMetadataError(f"the time of the last check is malformed: {error}") from None


def parsed(kind: str, data: bytes, what: str) -> Any:
    """A message in text form; `what` names it in the error."""
    try:
        return parse_text(kind, data)
    except ValueError as error:
        raise LedgerMetadataError(f"{what} is malformed: {error}") from None
