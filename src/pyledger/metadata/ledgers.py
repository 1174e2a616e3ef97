"""Metadata of ledgers in a store, at BookKeeper's paths.

Every change is a compare-and-set. If the outcome of a change is unknown, it is tried again: a version can be
replaced only once.

Source: BookKeeper meta/HierarchicalLedgerManager.java, AbstractZkLedgerManager.java,
ZkLedgerIdGenerator.java, LongZkLedgerIdGenerator.java.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from pyledger.errors import (
    LedgerExistsError,
    MetadataUnreachableError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeVersionError,
    NoNodeError,
    NoSuchLedgerError,
)
from pyledger.metadata.store import SEQUENCE_DIGITS, MetadataStore
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.wire.bookkeeper.ledger_metadata import decode_metadata, encode_metadata
from pyledger.wire.bookkeeper.paths import LONG_FROM, ledger_of, ledger_path

ATTEMPTS_MAX = 3
"""Attempts of a change to which the store does not respond."""
SHORT_IDS, LONG_IDS, LONG_PREFIX = "idgen", "idgen-long", "HOB-"
LEVELS = {2: 3, 3: 5}
"""Number of parts of a ledger's path, by the digits of its first part."""


@dataclass(frozen=True, slots=True)
class StoredMetadata:
    """Metadata of a ledger, and its version in the store."""

    ledger_id: int
    metadata: LedgerMetadata
    version: int


class LedgerTable:
    """The ledgers of one cluster."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        """Create it in a store that is started.

        Args:
            store: The metadata store.
            root: Path of the cluster.
        """
        self._store, self._root = store, root

    async def create(self, metadata: LedgerMetadata, ledger_id: int | None = None) -> StoredMetadata:
        """Store a new ledger.

        Args:
            metadata: Its token distinguishes it from a ledger that another client creates with the same id.
            ledger_id: Id of the ledger; None: the next free id.

        Raises:
            LedgerExistsError: A ledger with this id exists.
        """
        chosen = await self.next_id() if ledger_id is None else ledger_id
        while True:
            if await self._created(chosen, metadata):
                return StoredMetadata(chosen, metadata, 0)
            if ledger_id is not None:
                raise LedgerExistsError(ledger_id)
            chosen += 1  # as Java's writers do: another client has chosen this id itself

    async def get(self, ledger_id: int) -> StoredMetadata:
        """Read a ledger's metadata.

        Raises:
            NoSuchLedgerError: The ledger does not exist.
            LedgerMetadataError: It is malformed.
        """
        node = await self._store.get(self.path(ledger_id))
        if node is None:
            raise NoSuchLedgerError(ledger_id)
        return StoredMetadata(ledger_id, decode_metadata(node.data), node.version)

    async def put(self, stored: StoredMetadata, wanted: LedgerMetadata) -> StoredMetadata:
        """Change a ledger that has not changed since it was `stored`.

        Raises:
            NodeVersionError: Another client changed it, or this change was made but its response was lost.
            NoSuchLedgerError: It was deleted.
        """
        path, data = self.path(stored.ledger_id), encode_metadata(wanted)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                version = await self._store.set(path, data, stored.version)
            except NoNodeError:
                raise NoSuchLedgerError(stored.ledger_id) from None
            except MetadataUnreachableError:
                if attempt == ATTEMPTS_MAX:
                    raise
            else:
                return StoredMetadata(stored.ledger_id, wanted, version)
        raise NodeVersionError(path)

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger. Bookies delete its entries at their next garbage collection.

        Raises:
            NoSuchLedgerError: The ledger does not exist.
        """
        path = self.path(ledger_id)
        try:
            await self._store.delete(path)
        except NoNodeError:
            raise NoSuchLedgerError(ledger_id) from None
        above = path.rpartition("/")[0]
        with contextlib.suppress(NodeNotEmptyError, NoNodeError):
            while above != self._root:
                await self._store.delete(above)
                above = above.rpartition("/")[0]

    async def watch(self, ledger_id: int) -> AsyncGenerator[StoredMetadata, None]:
        """Yield a ledger's metadata now, then after each change.

        Raises:
            NoSuchLedgerError: It does not exist, or was deleted.
        """
        states = self._store.watch(self.path(ledger_id))
        async with contextlib.aclosing(states):
            async for node in states:
                if node is None:
                    raise NoSuchLedgerError(ledger_id)
                yield StoredMetadata(ledger_id, decode_metadata(node.data), node.version)

    async def ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers, ascending.

        A parent node that disappears during the listing had no ledger left. Any other failure ends the
        listing, so that a caller never sees an incomplete list.
        """
        names = await self._store.children(self._root)
        for first in sorted(names, key=lambda name: (len(name), name)):
            if first.isdigit() and len(first) in LEVELS:
                async for ledger_id in self._below(first, LEVELS[len(first)] - 1):
                    yield ledger_id

    async def next_id(self) -> int:
        """Return an id that the store gives to no other client."""
        if await self._store.get(f"{self._root}/{LONG_IDS}") is None:
            number = await self._number(f"{self._root}/{SHORT_IDS}")
            if 0 <= number < LONG_FROM:
                return number
        return await self._next_long_id()

    def path(self, ledger_id: int) -> str:
        """Return the path of a ledger's metadata."""
        return f"{self._root}/{ledger_path(ledger_id)}"

    # --- inside

    async def _created(self, ledger_id: int, metadata: LedgerMetadata) -> bool:
        path, data = self.path(ledger_id), encode_metadata(metadata)
        await self._store.ensure(path.rpartition("/")[0])
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                await self._store.create(path, data)
            except NodeExistsError:
                # Our earlier attempt, whose response was lost, has our token.
                found = await self._store.get(path)
                return bool(attempt > 1 and found is not None and metadata.token and found.data == data)
            except NoNodeError:
                # A client that deleted the last ledger there also deleted the parent.
                await self._store.ensure(path.rpartition("/")[0])
            except MetadataUnreachableError:
                if attempt == ATTEMPTS_MAX:
                    raise
            else:
                return True
        raise NoNodeError(path)

    async def _below(self, part: str, levels: int) -> AsyncIterator[int]:
        try:
            names = await self._store.children(f"{self._root}/{part}")
        except NoNodeError:
            return
        for name in names:
            if levels > 1:
                async for ledger_id in self._below(f"{part}/{name}", levels - 1):
                    yield ledger_id
            elif (found := ledger_of(f"{part}/{name}")) is not None:
                yield found

    async def _number(self, folder: str) -> int:
        await self._store.ensure(folder)
        path = await self._store.create(f"{folder}/ID-", ephemeral=True, sequence=True)
        with contextlib.suppress(NoNodeError):
            await self._store.delete(path)
        return int(path.rpartition("ID-")[2])

    async def _next_long_id(self) -> int:
        folder = f"{self._root}/{LONG_IDS}"
        await self._store.ensure(folder)
        names = [name for name in await self._store.children(folder) if name.startswith(LONG_PREFIX)]
        high = max((int(name.removeprefix(LONG_PREFIX)) for name in names), default=1)
        while True:
            low = await self._number(f"{folder}/{LONG_PREFIX}{high:0{SEQUENCE_DIGITS}d}")
            if 0 <= low < LONG_FROM:
                return high << 32 | low
            high += 1
