"""Storing what a writer or a recovery proposes, until it is known what became of it."""

import asyncio

from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.errors import MetadataUnreachableError, NodeVersionError
from pyledger.metadata.ledgers import LedgerTable, StoredMetadata
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata

RETRY_PAUSE_S = 0.1


class MetadataUpdateLoop:
    """Changes of one ledger's metadata.

    Attributes:
        stored: As last known.
    """

    def __init__(self, table: LedgerTable, stored: StoredMetadata, config: BookkeeperConfig) -> None:
        """Begin with what is stored."""
        self._table, self._config = table, config
        self.stored = stored

    async def put(self, wanted: LedgerMetadata) -> bool:
        """Store `wanted`; False: the ledger was changed otherwise, or perhaps so, see `stored`.

        Raises:
            MetadataUnreachableError: The store did not answer for too long; what became of it is not known.
            NoSuchLedgerError: The ledger was deleted.
        """
        deadline = asyncio.get_running_loop().time() + self._config.metadata_timeout_ms / 1000
        while True:
            try:
                self.stored = await self._table.put(self.stored, wanted)
            except NodeVersionError:
                self.stored = await self._read(deadline)
                return False
            except MetadataUnreachableError:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                return True

    async def _read(self, deadline: float) -> StoredMetadata:
        while True:
            try:
                return await self._table.get(self.stored.ledger_id)
            except MetadataUnreachableError:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(RETRY_PAUSE_S)
