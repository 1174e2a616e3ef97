"""Clients of BookKeeper's ledgers: of Java's bookies or ours.

    from pyledger.bookkeeper import LedgerClient

    with LedgerClient("sqlite:/var/ledgers/cluster.db") as client, client.create() as writer:
        writer.add(b"one")

Classes whose names begin with `Async` are for asyncio; the others block and are thread-safe.
"""

from pyledger.client.blocking.bookkeeper import (
    AdvancedLedgerWriter,
    LedgerClient,
    LedgerReader,
    LedgerWriter,
)
from pyledger.client.blocking.managed_ledger import ManagedCursor, ManagedLedger
from pyledger.client.bookkeeper.client import AsyncLedgerClient
from pyledger.client.bookkeeper.managed_ledger import AsyncManagedCursor, AsyncManagedLedger
from pyledger.client.bookkeeper.reader import AsyncLedgerReader
from pyledger.client.bookkeeper.writer import AsyncAdvancedLedgerWriter, AsyncLedgerWriter
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.protocol.bookkeeper.entry import DigestType

__all__ = [
    "AdvancedLedgerWriter",
    "AsyncAdvancedLedgerWriter",
    "AsyncLedgerClient",
    "AsyncLedgerReader",
    "AsyncLedgerWriter",
    "AsyncManagedCursor",
    "AsyncManagedLedger",
    "BookkeeperConfig",
    "DigestType",
    "LedgerClient",
    "LedgerReader",
    "LedgerWriter",
    "ManagedCursor",
    "ManagedLedger",
]
