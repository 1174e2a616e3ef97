"""Clients of ledgers for programs without asyncio: each call waits. Any thread may use them.

They run the asyncio clients on one thread of the process; arguments, results and errors are the same.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Self

from pyledger.client.blocking.base import Blocking, background
from pyledger.client.bookkeeper.client import AsyncLedgerClient
from pyledger.client.bookkeeper.managed_ledger import AsyncManagedCursor, AsyncManagedLedger, LogEntry
from pyledger.client.bookkeeper.reader import AsyncLedgerReader
from pyledger.client.bookkeeper.writer import AsyncAdvancedLedgerWriter, AsyncLedgerWriter
from pyledger.metadata.bookies import RegisteredBookies
from pyledger.protocol.bookkeeper.entry import LedgerEntry
from pyledger.protocol.bookkeeper.managed_ledger import Position
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata

ENTRIES_AT_ONCE = 64


class LedgerWriter:
    """Adds entries to one ledger; `with` closes the ledger at its end."""

    def __init__(self, inner: AsyncLedgerWriter) -> None:
        """Made by `LedgerClient.create`."""
        self._inner = inner
        self.ledger_id = inner.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """As last known to be stored."""
        return self._inner.metadata

    @property
    def last_add_confirmed(self) -> int:
        """All entries up to this one are safe; -1: none."""
        return self._inner.last_add_confirmed

    @property
    def length(self) -> int:
        """Bytes of all payloads up to the last confirmed entry."""
        return self._inner.length

    def add(self, payload: bytes) -> int:
        """Add an entry and wait until it is confirmed; see `AsyncLedgerWriter.add`."""
        return background().wait(self._inner.add(payload))

    def add_many(self, payloads: Iterable[bytes]) -> int:
        """Add entries, many on their way at once; see `AsyncLedgerWriter.add_many`."""
        return background().wait(self._inner.add_many(payloads))

    def add_soon(self, payload: bytes) -> "Future[int]":
        """Add an entry; the future has its id. The caller bounds what is on its way."""
        return background().start(partial(self._inner.add_soon, payload))

    def force(self) -> int:
        """Put on disk what was added with deferred sync; see `AsyncLedgerWriter.force`."""
        return background().wait(self._inner.force())

    def close(self) -> LedgerMetadata:
        """End the ledger; see `AsyncLedgerWriter.close`."""
        return background().wait(self._inner.close())

    def abandon(self) -> None:
        """Leave the ledger as it is; see `AsyncLedgerWriter.abandon`."""
        background().wait(self._inner.abandon())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class AdvancedLedgerWriter(LedgerWriter):
    """Adds entries whose ids the caller chose."""

    _inner: AsyncAdvancedLedgerWriter

    def add_at(self, entry_id: int, payload: bytes) -> int:
        """Add an entry and wait until it and all below it are confirmed."""
        return background().wait(self._inner.add_at(entry_id, payload))

    def add_at_soon(self, entry_id: int, payload: bytes) -> "Future[int]":
        """Add an entry; the future has the id. See `AsyncAdvancedLedgerWriter.add_at`."""
        return background().start(partial(self._inner.add_at_soon, entry_id, payload))


class LedgerReader:
    """Reads one ledger."""

    def __init__(self, inner: AsyncLedgerReader) -> None:
        """Made by `LedgerClient.open`."""
        self._inner = inner
        self.ledger_id = inner.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """As last known to be stored."""
        return self._inner.metadata

    @property
    def closed(self) -> bool:
        """Whether the ledger's end is fixed."""
        return self._inner.closed

    @property
    def last_add_confirmed(self) -> int:
        """All entries up to this one can be read; -1: none."""
        return self._inner.last_add_confirmed

    def entry(self, entry_id: int, *, unconfirmed: bool = False) -> LedgerEntry:
        """One entry; see `AsyncLedgerReader.entry`."""
        return background().wait(self._inner.entry(entry_id, unconfirmed=unconfirmed))

    def read(
        self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False
    ) -> Iterator[LedgerEntry]:
        """Entries in order; see `AsyncLedgerReader.read`."""
        return _iterate(self._inner.read(first, last, unconfirmed=unconfirmed), ENTRIES_AT_ONCE)

    def tail(self, first: int = 0) -> Iterator[LedgerEntry]:
        """Entries in order, those that come later too; see `AsyncLedgerReader.tail`."""
        return _iterate(self._inner.tail(first), 1)

    def read_last_confirmed(self) -> int:
        """Ask the bookies how far the ledger goes; see `AsyncLedgerReader.read_last_confirmed`."""
        return background().wait(self._inner.read_last_confirmed())

    def close(self) -> None:
        """Read no more. The ledger stays as it is."""
        background().wait(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class LedgerClient(Blocking[AsyncLedgerClient]):
    """Ledgers of one cluster. Use it with `with`, or `start` and `close` it."""

    def __init__(self, metadata: str, **options: Any) -> None:
        """A client that connects once it is started; takes what `AsyncLedgerClient` takes."""
        super().__init__(AsyncLedgerClient(metadata, **options))

    def create(
        self,
        ensemble: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        *,
        custom: Mapping[str, bytes] | None = None,
        **options: Any,
    ) -> LedgerWriter:
        """Make a ledger and write to it; see `AsyncLedgerClient.create`."""
        made = self._inner.create(ensemble, write_quorum, ack_quorum, custom=custom, **options)
        return LedgerWriter(background().wait(made))

    def create_advanced(
        self, ensemble: int = 3, write_quorum: int = 2, ack_quorum: int = 2, **options: Any
    ) -> AdvancedLedgerWriter:
        """Make a ledger whose entry ids the caller chooses; see `AsyncLedgerClient.create_advanced`."""
        made = self._inner.create_advanced(ensemble, write_quorum, ack_quorum, **options)
        return AdvancedLedgerWriter(background().wait(made))

    def open_log(self, name: str, **options: Any) -> "ManagedLedger":
        """Append to a log over many ledgers; takes what `AsyncManagedLedger` takes."""
        return ManagedLedger(AsyncManagedLedger(self._inner, name, **options))

    def open_cursor(self, log: str, name: str, **options: Any) -> "ManagedCursor":
        """Read a log from where the last user of a cursor was; takes what `AsyncManagedCursor` takes."""
        return ManagedCursor(AsyncManagedCursor(self._inner, log, name, **options))

    def open(self, ledger_id: int, password: bytes = b"", **options: Any) -> LedgerReader:
        """Read a ledger; see `AsyncLedgerClient.open`."""
        return LedgerReader(background().wait(self._inner.open(ledger_id, password, **options)))

    def delete(self, ledger_id: int) -> None:
        """Delete a ledger; see `AsyncLedgerClient.delete`."""
        background().wait(self._inner.delete(ledger_id))

    def ledgers(self) -> list[int]:
        """Ids of all ledgers, ascending."""

        async def ids() -> list[int]:
            return [ledger_id async for ledger_id in self._inner.ledgers()]

        return background().wait(ids())

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Metadata of a ledger, as it is stored now; see `AsyncLedgerClient.metadata`."""
        return background().wait(self._inner.metadata(ledger_id))

    def bookies(self) -> RegisteredBookies:
        """The bookies that are there now."""
        return background().wait(self._inner.bookies())


class ManagedLedger(Blocking[AsyncManagedLedger]):
    """Appends to a log over many ledgers. Made by `LedgerClient.open_log`; use it with `with`."""

    def append(self, payload: bytes) -> Position:
        """Append an entry and wait until it is confirmed; see `AsyncManagedLedger.append`."""
        return background().wait(self._inner.append(payload))

    def trim(self) -> tuple[int, ...]:
        """Delete the ledgers that every cursor is done with; their ids."""
        return background().wait(self._inner.trim())


class ManagedCursor(Blocking[AsyncManagedCursor]):
    """Reads a log. Made by `LedgerClient.open_cursor`; use it with `with`."""

    def read(self, count_max: int) -> list[LogEntry]:
        """The next entries that are there, perhaps none; see `AsyncManagedCursor.read`."""
        return background().wait(self._inner.read(count_max))

    def acknowledge(self, *positions: Position) -> None:
        """These entries are done with, for ever."""
        background().wait(self._inner.acknowledge(*positions))

    def acknowledge_through(self, position: Position) -> None:
        """All entries up to a position are done with, for ever."""
        background().wait(self._inner.acknowledge_through(position))

    def rewind(self) -> None:
        """Read again what was read and not acknowledged."""
        self._inner.rewind()


def _iterate(entries: AsyncGenerator[LedgerEntry, None], at_once: int) -> Iterator[LedgerEntry]:
    async def take() -> list[LedgerEntry]:
        found = []
        async for entry in entries:
            found.append(entry)
            if len(found) == at_once:
                break
        return found

    try:
        while taken := background().wait(take()):
            yield from taken
    finally:
        background().wait(entries.aclose())
