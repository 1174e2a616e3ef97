"""What a log over many ledgers keeps in the metadata store: JSON, a node for the log, one for each cursor."""

import json
from typing import Any

from pyledger.errors import LedgerMetadataError
from pyledger.protocol.bookkeeper.managed_ledger import (
    CursorState,
    LogIndex,
    ManagedLedgerSegment,
    Position,
    joined,
)

VERSION = 1


def encode_index(index: LogIndex) -> bytes:
    """Bytes of a log's node."""
    ledgers = [
        {"ledgerId": one.ledger_id, "lastEntryId": one.last_entry_id, "length": one.length}
        for one in index.ledgers
    ]
    return _encode({"version": VERSION, "ledgers": ledgers})


def decode_index(data: bytes) -> LogIndex:
    """Read a log's node.

    Raises:
        LedgerMetadataError: It is malformed, or of a version that is not known.
    """
    whole = _decode(data)
    try:
        ledgers = tuple(
            ManagedLedgerSegment(
                int(one["ledgerId"]),
                None if one["lastEntryId"] is None else int(one["lastEntryId"]),
                int(one["length"]),
            )
            for one in whole["ledgers"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerMetadataError(f"the node of a log is malformed: {error!r}") from None
    return LogIndex(ledgers).check()


def encode_cursor(state: CursorState) -> bytes:
    """Bytes of a cursor's node."""
    mark = None if state.mark is None else [state.mark.ledger_id, state.mark.entry_id]
    runs = [
        [ledger_id, run.start, run.stop - 1]
        for ledger_id, found in state.acknowledged.items()
        for run in found
    ]
    return _encode({"version": VERSION, "mark": mark, "acknowledged": runs})


def decode_cursor(data: bytes) -> CursorState:
    """Read a cursor's node.

    Raises:
        LedgerMetadataError: It is malformed, or of a version that is not known.
    """
    whole = _decode(data)
    try:
        mark = None if whole["mark"] is None else Position(*map(int, whole["mark"]))
        runs: dict[int, list[range]] = {}
        for ledger_id, first, last in whole["acknowledged"]:
            runs.setdefault(int(ledger_id), []).append(range(int(first), int(last) + 1))
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerMetadataError(f"the node of a cursor is malformed: {error!r}") from None
    return CursorState(mark, {ledger_id: joined(found) for ledger_id, found in runs.items()})


def _encode(whole: dict[str, Any]) -> bytes:
    return json.dumps(whole, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    try:
        whole = json.loads(data)
    except ValueError as error:
        raise LedgerMetadataError(f"the node of a log is no JSON: {error}") from None
    if not isinstance(whole, dict) or whole.get("version") != VERSION:
        raise LedgerMetadataError(f"the node of a log is not of version {VERSION}")
    return whole
