"""Store the metadata that a writer or a recovery proposes, with retries until the result is known."""

import asyncio

from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.errors import MetadataUnreachableError, NodeVersionError
from pyledger.metadata.ledgers import LedgerTable, StoredMetadata
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata

RETRY_PAUSE_S = 0.1


class MetadataUpdateLoop:
    """Updates of one ledger's metadata.

    Attributes:
        stored: The last known stored metadata.
    """

    def __init__(self, table: LedgerTable, stored: StoredMetadata, config: BookkeeperConfig) -> None:
        """Start with the stored metadata."""
        self._table, self._config = table, config
        self.stored = stored

    async def put(self, wanted: LedgerMetadata) -> bool:
        """Store `wanted`; return False if the ledger was changed in another way, see `stored`.

        False is also returned if a lost response leaves open which change was stored.

        Raises:
            MetadataUnreachableError: The store did not answer in time; it is not known whether it was stored.
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
