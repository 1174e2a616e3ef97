"""Entries out of answers: a digest is checked before anything is believed."""

from typing import Any

from pyledger.errors import EntryDigestError
from pyledger.protocol.bookkeeper.entry import LedgerEntry
from pyledger.protocol.bookkeeper.messages import ReadResponse, Status
from pyledger.protocol.bookkeeper.result_codes import Result, result_of
from pyledger.wire.bookkeeper.entry import EntryDigest, unpack_entry, unpack_lac


def read_result(
    digest: EntryDigest, ledger_id: int, entry_id: int, response: Any
) -> tuple[Result, LedgerEntry | None]:
    """How a read ended, and the entry; a good answer without one had a wrong digest.

    Args:
        digest: Of the ledger.
        ledger_id: Which.
        entry_id: The requested id; negative: any.
        response: What the bookie answered; None: nothing.
    """
    if response is None:
        return Result.BOOKIE_NOT_AVAILABLE, None
    result = result_of(response.status, Result.READ)
    if result is not Result.OK or not isinstance(response, ReadResponse) or response.entry is None:
        return result, None
    return result, checked(digest, ledger_id, None if entry_id < 0 else entry_id, response.entry)


def added_result(response: Any) -> Result:
    """How an add ended; None is no answer."""
    return Result.BOOKIE_NOT_AVAILABLE if response is None else result_of(response.status, Result.WRITE)


def checked(digest: EntryDigest, ledger_id: int, entry_id: int | None, entry: bytes) -> LedgerEntry | None:
    """An entry; None: it is not what its writer made."""
    try:
        return unpack_entry(digest, ledger_id, entry_id, entry)
    except EntryDigestError:
        return None


def lac_result(digest: EntryDigest, ledger_id: int, response: Any) -> tuple[Result, int]:
    """How the question for the last confirmed entry ended, and the highest that the answer proves.

    Args:
        digest: Of the ledger.
        ledger_id: Which.
        response: What the bookie answered; None: nothing.
    """
    if response is None:
        return Result.BOOKIE_NOT_AVAILABLE, -1
    result, lac = result_of(response.status, Result.READ), -1
    if response.last_entry is not None:
        entry = checked(digest, ledger_id, None, response.last_entry)
        if entry is None:
            # Upstream counts such a bookie as known, which may hide confirmed entries.
            return Result.DIGEST_MATCH, lac
        lac = entry.last_add_confirmed
    if response.packet is not None:
        try:
            lac = max(lac, unpack_lac(digest, ledger_id, response.packet))
        except EntryDigestError:
            return Result.DIGEST_MATCH, lac
    return (Result.OK if response.status is Status.EOK else result), lac
