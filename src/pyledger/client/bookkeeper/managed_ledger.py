"""An append-only log over many ledgers, with cursors: a small form of Pulsar's managed ledger.

The log's metadata node lists its ledgers; each cursor's node has its position. Both are written by
compare-and-set, so a log has one writer: opening it closes the last ledger, which fences the previous writer.
If a writer dies between creating a ledger and listing it, the ledger stays empty; its custom metadata names
the log.
"""

import asyncio
import contextlib
import re
from dataclasses import dataclass
from functools import partial

from pyledger.client.bookkeeper.client import AsyncLedgerClient
from pyledger.client.bookkeeper.reader import AsyncLedgerReader
from pyledger.client.bookkeeper.writer import AsyncLedgerWriter
from pyledger.client.lifecycle import Lifecycle
from pyledger.errors import (
    LedgerFencedError,
    LedgerMetadataError,
    LedgerOperationError,
    MetadataUnreachableError,
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    NoSuchLedgerError,
)
from pyledger.metadata.store import MetadataStore
from pyledger.protocol.bookkeeper.managed_ledger import CursorState, LogIndex, Position
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.wire.bookkeeper.managed_ledger import decode_cursor, decode_index, encode_cursor, encode_index

APPLICATION = b"pyledger-log"
ROLL_BYTES = 64 << 20
ROLL_MS = 3_600_000
EARLIEST, LATEST = "earliest", "latest"
_NAME = re.compile(r"[\w-][\w.-]{0,254}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of a log."""

    position: Position
    payload: bytes


class LogNodes:
    """The metadata nodes of one log, beside those of the cluster."""

    def __init__(self, client: AsyncLedgerClient, name: str) -> None:
        """Use the metadata store of a started client.

        Raises:
            LedgerMetadataError: The name is not valid.
        """
        self.store: MetadataStore = client.cluster.store
        above = client.cluster.root.rpartition("/")[0]
        self.path = f"{above}/pyledger/logs/{checked_name(name)}"

    async def index(self) -> tuple[LogIndex, int]:
        """Return the log's ledgers, and the version of its node.

        Raises:
            NoNodeError: the log does not exist.
        """
        node = await self.store.get(self.path)
        if node is None:
            raise NoNodeError(self.path)
        return decode_index(node.data), node.version

    async def open_index(self) -> tuple[LogIndex, int]:
        """Return the same as `index`; a missing log is created."""
        await self.store.ensure(self.path.rpartition("/")[0])
        with contextlib.suppress(NodeExistsError):
            await self.store.create(self.path, encode_index(LogIndex()))
        return await self.index()

    async def put(self, path: str, data: bytes, version: int) -> int:
        """Change a node and return its new version; after a lost response, read the node to find the result.

        Raises:
            NodeVersionError: Another client has changed it.
        """
        try:
            return await self.store.set(path, data, version)
        except MetadataUnreachableError:
            node = await self.store.get(path)
            if node is not None and node.version == version + 1 and node.data == data:
                return node.version
            raise

    def cursor_path(self, name: str) -> str:
        """Return the path of a cursor's node."""
        return f"{self.path}/{checked_name(name)}"

    async def cursors(self) -> tuple[str, ...]:
        """Return the names of the log's cursors."""
        return await self.store.children(self.path)


class AsyncManagedLedger(Lifecycle):
    """Appends to a log. Use it with `async with`, or start and close it. Belongs to one event loop."""

    def __init__(
        self,
        client: AsyncLedgerClient,
        name: str,
        *,
        ensemble_size: int = 3,
        write_quorum_size: int = 2,
        ack_quorum_size: int = 2,
        password: bytes = b"",
        roll_bytes: int = ROLL_BYTES,
        roll_ms: int = ROLL_MS,
    ) -> None:
        """Create a writer of a log; `start` opens it.

        Args:
            client: A started client.
            name: Name of the log.
            ensemble_size: Number of bookies that each of its ledgers is spread over.
            write_quorum_size: Replicas of each entry.
            ack_quorum_size: Replicas that are durable when an entry is confirmed.
            password: Password of its ledgers.
            roll_bytes: Bytes after which a new ledger is started.
            roll_ms: Age in milliseconds after which the next append starts a new ledger.
        """
        self._client, self.name = client, name
        self._nodes = LogNodes(client, name)
        self._create = partial(
            client.create,
            ensemble_size=ensemble_size,
            write_quorum_size=write_quorum_size,
            ack_quorum_size=ack_quorum_size,
            password=password,
        )
        self._password = password
        self._roll_bytes, self._roll_ms = roll_bytes, roll_ms
        self._index, self._version = LogIndex(), 0
        self._writer: AsyncLedgerWriter | None = None
        self._pushed_bytes = self._began_ms = 0
        self._rolling = asyncio.Lock()

    @property
    def index(self) -> LogIndex:
        """The log's ledgers as last known to this writer."""
        return self._index

    async def start(self) -> None:
        """Become the only writer of the log; the previous writer is fenced.

        Raises:
            LedgerFencedError: Another client opened the log at the same time.
            LedgerRecoveryError: The last entry of the last ledger cannot be determined now.
            NotEnoughBookiesError: Too few bookies are writable.
        """
        self._index, self._version = await self._nodes.open_index()
        if (growing := self._index.growing) is not None:
            try:
                reader = await self._client.open(growing.ledger_id, self._password)
            except NoSuchLedgerError:
                self._index = self._index.ended(-1, 0)
            else:
                self._index = self._index.ended(reader.last_add_confirmed, reader.length)
        await self._begin(growing.ledger_id if growing is not None else None)

    async def close(self) -> None:
        """Close the last ledger. Idempotent.

        Raises:
            LedgerFencedError: Another client has opened the log.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            await self._end(writer)
            await self._put(self._index)

    async def append(self, payload: bytes) -> Position:
        """Append an entry and return its position once it is confirmed.

        Raises:
            AddFailedError: it is not known whether the entry is in the log; reopen the log.
            LedgerFencedError: Another client has opened the log.
        """
        async with self._rolling:
            writer = self._writer
            if writer is None:
                raise LedgerOperationError(-1, Result.LEDGER_CLOSED, f"the log {self.name!r} is not open")
            old = self._now_ms() - self._began_ms >= self._roll_ms and writer.last_add_pushed >= 0
            if self._pushed_bytes >= self._roll_bytes or old:
                writer = await self._roll(writer)
            self._pushed_bytes += len(payload)
            adding = writer.submit_add(payload)
        return Position(writer.ledger_id, await adding)

    async def trim(self) -> tuple[int, ...]:
        """Delete the ledgers that all cursors have acknowledged; return their ids.

        Without a cursor nothing is deleted.

        Raises:
            LedgerFencedError: Another client has opened the log.
        """
        async with self._rolling:
            needed = []
            for name in await self._nodes.cursors():
                node = await self._nodes.store.get(self._nodes.cursor_path(name))
                state = CursorState() if node is None else decode_cursor(node.data)
                following = state.next_of(self._index, state.mark)
                # A cursor at the end of the log needs the last ledger: its position is in it.
                needed.append(self._index.ledgers[-1].ledger_id if following is None else following.ledger_id)
            index, gone = self._index.without_before(needed)
            if gone:
                await self._put(index)
        for ledger_id in gone:
            await self._forget(ledger_id)
        return gone

    # --- ledgers

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def _roll(self, writer: AsyncLedgerWriter) -> AsyncLedgerWriter:
        await self._end(writer)
        return await self._begin(None)

    async def _end(self, writer: AsyncLedgerWriter) -> None:
        closed = await writer.close()
        self._index = self._index.ended(closed.last_entry_id, closed.length)
        if closed.last_entry_id < 0:
            await self._forget(writer.ledger_id)

    async def _begin(self, left: int | None) -> AsyncLedgerWriter:
        """Start a new ledger; `left` is the last ledger of the previous writer, which may be empty."""
        custom = {"application": APPLICATION, "log": self.name.encode()}
        writer = await self._create(custom=custom)
        try:
            await self._put(self._index.begun(writer.ledger_id))
        except LedgerFencedError:
            await writer.close()
            await self._forget(writer.ledger_id)
            raise
        if left is not None and all(one.ledger_id != left for one in self._index.ledgers):
            await self._forget(left)  # it was empty
        self._writer, self._pushed_bytes, self._began_ms = writer, 0, self._now_ms()
        return writer

    async def _put(self, index: LogIndex) -> None:
        try:
            self._version = await self._nodes.put(self._nodes.path, encode_index(index), self._version)
        except NodeVersionError:
            problem = f"another client has opened the log {self.name!r}"
            raise LedgerFencedError(-1, Result.LEDGER_FENCED, problem) from None
        self._index = index

    async def _forget(self, ledger_id: int) -> None:
        with contextlib.suppress(NoSuchLedgerError):
            await self._client.delete(ledger_id)


class AsyncManagedCursor(Lifecycle):
    """Reads a log from the stored position of a cursor. Belongs to one event loop; has one user at a time."""

    def __init__(
        self, client: AsyncLedgerClient, log: str, name: str, *, password: bytes = b"", begin: str = EARLIEST
    ) -> None:
        """Create a cursor; `start` opens it.

        Args:
            client: A started client.
            log: Name of the log.
            name: Name of the cursor.
            password: Password of the log's ledgers.
            begin: `earliest` or `latest`: where a new cursor begins.
        """
        self._client, self.name, self._password, self._begin = client, name, password, begin
        self._nodes = LogNodes(client, log)
        self._path = self._nodes.cursor_path(name)
        self._index, self._state, self._version = LogIndex(), CursorState(), 0
        self._at: Position | None = None
        self._readers: dict[int, AsyncLedgerReader] = {}

    @property
    def state(self) -> CursorState:
        """The acknowledged positions."""
        return self._state

    async def start(self) -> None:
        """Open the cursor; create it if it does not exist.

        Raises:
            NoNodeError: the log does not exist.
        """
        self._index, _ = await self._nodes.index()
        if await self._nodes.store.get(self._path) is None:
            first = CursorState(await self._last() if self._begin == LATEST else None)
            with contextlib.suppress(NodeExistsError):
                await self._nodes.store.create(self._path, encode_cursor(first))
        node = await self._nodes.store.get(self._path)
        if node is None:
            raise NoNodeError(self._path)
        self._state, self._version = decode_cursor(node.data), node.version
        self.rewind()

    async def close(self) -> None:
        """Close the readers; the cursor remains stored."""
        for reader in self._readers.values():
            await reader.close()
        self._readers.clear()

    def rewind(self) -> None:
        """Go back to the first entry that is not acknowledged."""
        self._at = self._state.mark

    async def read(self, count_max: int) -> list[LogEntry]:
        """Return the next confirmed entries that are not acknowledged, at most `count_max`.

        Raises:
            EntryReadError: an entry cannot be read now.
        """
        self._index, _ = await self._nodes.index()
        found: list[LogEntry] = []
        while len(found) < count_max:
            following = self._state.next_of(self._index, self._at)
            if following is None:
                break
            reader, last = await self._reader(following.ledger_id)
            if following.entry_id > last:
                break
            last = min(last, following.entry_id + count_max - len(found) - 1)
            async with contextlib.aclosing(reader.read(following.entry_id, last)) as entries:
                async for entry in entries:
                    self._at = Position(entry.ledger_id, entry.entry_id)
                    if not self._state.has(self._index, self._at):
                        found.append(LogEntry(self._at, entry.payload))
        return found

    async def acknowledge(self, *positions: Position) -> None:
        """Acknowledge entries; durable when this returns.

        Raises:
            NodeVersionError: another client uses the cursor.
        """
        self._index, _ = await self._nodes.index()
        self._state.acknowledge(self._index, positions)
        await self._save()

    async def acknowledge_through(self, position: Position) -> None:
        """Acknowledge all entries up to a position; durable when this returns.

        Raises:
            NodeVersionError: another client uses the cursor.
        """
        self._index, _ = await self._nodes.index()
        self._state.acknowledge_through(self._index, position)
        await self._save()

    # --- inside

    async def _reader(self, ledger_id: int) -> tuple[AsyncLedgerReader, int]:
        """Return a reader of a ledger, and the last entry that it may read now."""
        reader = self._readers.get(ledger_id)
        if reader is None:
            # Ledgers are read in order, so the previous one is no longer needed.
            await self.close()
            reader = await self._client.open(ledger_id, self._password, recover=False)
            self._readers[ledger_id] = reader
        known = self._index.ledgers[self._index.index_of(ledger_id)].last_entry_id
        last = await reader.read_last_confirmed()
        return reader, last if known is None else known

    async def _last(self) -> Position | None:
        if not self._index.ledgers:
            return None
        ledger_id = self._index.ledgers[-1].ledger_id
        _, last = await self._reader(ledger_id)
        return Position(ledger_id, last)

    async def _save(self) -> None:
        data = encode_cursor(self._state)
        self._version = await self._nodes.put(self._path, data, self._version)


def checked_name(name: str) -> str:
    """Return a name that may be part of a path.

    Raises:
        LedgerMetadataError: It may not.
    """
    if _NAME.fullmatch(name) is None:
        raise LedgerMetadataError(
            f"{name!r} is not a valid name of a log or a cursor; use letters, digits, '.', '-', '_'"
        )
    return name
