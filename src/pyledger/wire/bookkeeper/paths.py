"""Names of ledgers and marks below BookKeeper's root in ZooKeeper.

Source: BookKeeper meta/HierarchicalLedgerManager.java, LegacyHierarchicalLedgerManager.java,
LongHierarchicalLedgerManager.java, ZkLedgerUnderreplicationManager.java.
"""

import re

from pyledger.errors import LedgerMetadataError

LONG_FROM = 2**31 - 1
"""Ids from here on have longer paths."""
_SHORT, _LONG = (2, 4, 4), (3, 4, 4, 4, 4)
_LEDGER = re.compile(r"(\d\d/\d{4}/L\d{4}|\d{3}/\d{4}/\d{4}/\d{4}/L\d{4})")
_MARK = re.compile(r"(?:[0-9a-f]{4}/){4}urL(\d{10,19})")


def ledger_path(ledger_id: int) -> str:
    """Path of a ledger's metadata, below the root.

    Raises:
        LedgerMetadataError: No ledger has this id.
    """
    if not 0 <= ledger_id < 2**63:
        raise LedgerMetadataError(f"{ledger_id} is no ledger id")
    widths = _SHORT if ledger_id < LONG_FROM else _LONG
    digits, parts = f"{ledger_id:0{sum(widths)}d}", []
    for width in widths:
        parts.append(digits[:width])
        digits = digits[width:]
    return "/".join((*parts[:-1], f"L{parts[-1]}"))


def ledger_of(path: str) -> int | None:
    """The ledger whose metadata lies at a path below the root; None: something else lies there."""
    if _LEDGER.fullmatch(path) is None:
        return None
    ledger_id = int(path.replace("/", "").replace("L", ""))
    return ledger_id if ledger_id < 2**63 and ledger_path(ledger_id) == path else None


def mark_path(ledger_id: int) -> str:
    """Return the path of the mark of an under-replicated ledger, below `underreplication/ledgers`."""
    digits = f"{ledger_id:016x}"
    return "/".join((*(digits[at : at + 4] for at in range(0, 16, 4)), f"urL{ledger_id:010d}"))


def marked_ledger(path: str) -> int | None:
    """The ledger that a mark is for; None: something else lies there."""
    found = _MARK.fullmatch(path)
    if found is None:
        return None
    ledger_id = int(found[1])
    return ledger_id if ledger_id < 2**63 and mark_path(ledger_id) == path else None
