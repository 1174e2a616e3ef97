"""Clients of ledgers: of Java's bookies or ours."""

from pyledger.client.ledger.blocking import (
    AdvancedLedgerWriter,
    LedgerClient,
    LedgerLog,
    LedgerReader,
    LedgerWriter,
    LogCursor,
)
from pyledger.client.ledger.client import AsyncLedgerClient
from pyledger.client.ledger.log import AsyncLedgerLog, AsyncLogCursor
from pyledger.client.ledger.reader import AsyncLedgerReader
from pyledger.client.ledger.writer import AsyncAdvancedLedgerWriter, AsyncLedgerWriter
from pyledger.config.bookkeeper_client import LedgerConfig
from pyledger.protocol.bookkeeper.entry import DigestType

__all__ = [
    "AdvancedLedgerWriter",
    "AsyncAdvancedLedgerWriter",
    "AsyncLedgerClient",
    "AsyncLedgerLog",
    "AsyncLedgerReader",
    "AsyncLedgerWriter",
    "AsyncLogCursor",
    "DigestType",
    "LedgerClient",
    "LedgerConfig",
    "LedgerLog",
    "LedgerReader",
    "LedgerWriter",
    "LogCursor",
]
