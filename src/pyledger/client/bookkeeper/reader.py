"""The reader of a ledger on asyncio: a shell around `protocol.bookkeeper.entry_reader` and `.quorum`."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any, Self

from pyledger.client.bookkeeper.bookie_watcher import RETRY_PAUSE_S, BookieWatcher
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.errors import (
    EntryReadError,
    LedgerOperationError,
    MetadataUnreachableError,
    NoSuchEntryError,
    NoSuchLedgerError,
)
from pyledger.metadata.change_signal import Signal
from pyledger.metadata.ledgers import LedgerTable, StoredMetadata
from pyledger.protocol.bookkeeper.entry import LedgerEntry
from pyledger.protocol.bookkeeper.entry_reader import EntryRead
from pyledger.protocol.bookkeeper.messages import (
    INVALID_ENTRY_ID,
    BatchReadRequest,
    BatchReadResponse,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Status,
)
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.protocol.bookkeeper.quorum import Coverage
from pyledger.protocol.bookkeeper.result_codes import ABSENT, Result
from pyledger.wire.bookkeeper.entry import EntryDigest, unpack_entries
from pyledger.wire.bookkeeper.response_entries import lac_result, read_result

LAC_MAX = 2**62
"""A larger value means that the ledger is fenced; it is not an entry id."""
CHUNKS_AHEAD = 2
CHUNK_ENTRIES_MAX = 2048
HEAD_BYTES = 64
"""Maximum size of an entry without its payload."""


class AsyncLedgerReader:
    """Reads one ledger. Belongs to one event loop."""

    ledger_id: int
    """Id of the ledger."""
    last_add_confirmed: int
    """Id of the last entry that can be read, -1 if there is none. It grows while the ledger is open."""

    def __init__(
        self,
        bookies: BookieWatcher,
        table: LedgerTable,
        stored: StoredMetadata,
        digest: EntryDigest,
        config: BookkeeperConfig,
    ) -> None:
        """Made by `AsyncLedgerClient.open`."""
        self.ledger_id = stored.ledger_id
        self.last_add_confirmed = INVALID_ENTRY_ID
        self._bookies, self._table, self._config, self._digest = bookies, table, config, digest
        self._loop = asyncio.get_running_loop()
        self._metadata = stored.metadata
        self._changed = Signal()
        self._following: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._batches = config.batch_read_enabled
        self._take(stored)

    @property
    def metadata(self) -> LedgerMetadata:
        """The last known stored metadata."""
        return self._metadata

    @property
    def closed(self) -> bool:
        """Whether the ledger is closed, so that its last entry is fixed."""
        return self._metadata.closed

    @property
    def length(self) -> int:
        """Bytes of all payloads of a closed ledger; 0 while it is open."""
        return self._metadata.length

    async def close(self) -> None:
        """Stop reading. The ledger does not change."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    # --- entries

    async def entry(self, entry_id: int, *, unconfirmed: bool = False) -> LedgerEntry:
        """Return one entry.

        Args:
            entry_id: Its id, from 0.
            unconfirmed: Allow an entry after the last confirmed one, which a recovery may drop.

        Raises:
            NoSuchEntryError: The id is after the last entry, or none of its bookies has it.
            EntryReadError: It cannot be read now.
        """
        self._check_range(entry_id, entry_id, unconfirmed)
        return await self._read(entry_id)

    async def entries(self, entry_ids: Sequence[int]) -> list[LedgerEntry]:
        """Return some entries, all requested at once; they need not be confirmed.

        Raises:
            NoSuchEntryError: All bookies of an entry report that they do not have it.
            EntryReadError: An entry cannot be read now.
        """
        return await self._singles(entry_ids) if entry_ids else []

    async def read(
        self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False
    ) -> AsyncGenerator[LedgerEntry, None]:
        """Yield entries in order.

        Args:
            first: Id of the first one.
            last: Id of the last one; None: the last confirmed one as of now.
            unconfirmed: Allow entries after the last confirmed one, which a recovery may drop.

        Raises:
            NoSuchEntryError: An id is after the last entry, or none of its bookies has it.
            EntryReadError: An entry cannot be read now.
        """
        end = self.last_add_confirmed if last is None else last
        if end < first:
            return
        self._check_range(first, end, unconfirmed)
        step = self._config.reads_ahead
        chunks: deque[asyncio.Task[list[LedgerEntry]]] = deque()
        try:
            while True:
                while len(chunks) < CHUNKS_AHEAD and first <= end:
                    last_of_chunk = min(first + step - 1, end)
                    chunks.append(self._loop.create_task(self._chunk(first, last_of_chunk)))
                    first = last_of_chunk + 1
                if not chunks:
                    return
                entries = await chunks[0]
                for entry in entries:
                    yield entry
                if self._in_batches:
                    # Larger chunks save requests; the bytes that are read ahead stay bounded.
                    bytes_each = sum(len(entry.payload) for entry in entries) // len(entries) + HEAD_BYTES
                    step = max(1, min(CHUNK_ENTRIES_MAX, self._config.batch_read_bytes // 2 // bytes_each))
                chunks.popleft()
        finally:
            for task in chunks:
                task.cancel()
            await asyncio.gather(*chunks, return_exceptions=True)

    async def tail(self, first: int = 0) -> AsyncGenerator[LedgerEntry, None]:
        """Yield entries in order, also later ones, until the ledger is closed.

        Raises:
            NoSuchLedgerError: The ledger was deleted.
            EntryReadError: An entry cannot be read now.
        """
        self._follow()
        at = first
        while True:
            if at <= self.last_add_confirmed:
                async with contextlib.aclosing(self.read(at)) as entries:
                    async for entry in entries:
                        at = entry.entry_id + 1
                        yield entry
            elif self.closed:
                return
            else:
                await self.wait_beyond(at - 1)

    # --- the last confirmed entry

    async def read_last_confirmed(self) -> int:
        """Query enough bookies to see every entry confirmed before this call; return the last one's id.

        Raises:
            EntryReadError: Too few of them answer.
            NoSuchLedgerError: The ledger was deleted.
        """
        self._take(await self._table.get(self.ledger_id))
        if self.closed:
            return self.last_add_confirmed
        metadata, coverage = self._metadata, Coverage(self._metadata)
        ensemble = metadata.segments[-1].ensemble
        answers: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
        for index, bookie in enumerate(ensemble):
            done = partial(_put, answers, index)
            request = ReadLacRequest(ledger_id=self.ledger_id)
            self._bookies.request(bookie, request, self._config.read_timeout_ms, done)
        # All entries before the last segment are confirmed.
        found = metadata.segments[-1].first_entry_id - 1
        for _ in ensemble:
            index, response = await answers.get()
            result, lac = lac_result(self._digest, self.ledger_id, response)
            found = max(found, lac)
            coverage.answered(index, result)
            if coverage.covered:
                self._advance(found)
                return self.last_add_confirmed
        raise EntryReadError(self.ledger_id, Result.READ, "too few bookies report their last confirmed entry")

    async def wait_beyond(self, entry_id: int) -> int:
        """Wait until a later entry is confirmed or the ledger is closed; return the last confirmed entry.

        Raises:
            NoSuchLedgerError: The ledger was deleted.
        """
        self._follow()
        while self.last_add_confirmed <= entry_id and not self.closed:
            if self._failure is not None:
                raise self._failure
            seen = self._changed.count
            ensemble = self._metadata.segments[-1].ensemble
            request = ReadRequest(
                ledger_id=self.ledger_id,
                entry_id=INVALID_ENTRY_ID,
                piggyback=True,
                previous_lac=self.last_add_confirmed,
                time_out=self._config.long_poll_ms,
            )
            limit_ms = self._config.long_poll_ms + self._config.read_timeout_ms
            polled: asyncio.Task[Any] = self._loop.create_task(self._poll(ensemble, request, limit_ms))
            moved: asyncio.Task[Any] = self._loop.create_task(self._changed.wait(seen))
            try:
                await asyncio.wait([moved, polled], return_when=asyncio.FIRST_COMPLETED)
                if not moved.done() and not polled.result():
                    # No bookie answered: the ensemble may change, or they may come back.
                    await asyncio.sleep(RETRY_PAUSE_S)
            finally:
                for task in (moved, polled):
                    task.cancel()
                await asyncio.gather(moved, polled, return_exceptions=True)
        return self.last_add_confirmed

    # --- inside

    async def _poll(self, ensemble: tuple[str, ...], request: ReadRequest, limit_ms: int) -> bool:
        """Long-poll an ensemble for a later confirmed entry; return whether any bookie answered."""
        return any(await asyncio.gather(*(self._poll_one(one, request, limit_ms) for one in ensemble)))

    async def _poll_one(self, bookie: str, request: ReadRequest, limit_ms: int) -> bool:
        response = await self._bookies.answer(bookie, request, limit_ms)
        if not isinstance(response, ReadResponse) or response.status is not Status.EOK:
            return False
        if response.max_lac is not None and response.max_lac < LAC_MAX:
            self._advance(response.max_lac)
        return True

    def _advance(self, last_add_confirmed: int) -> None:
        if last_add_confirmed > self.last_add_confirmed and not self.closed:
            self.last_add_confirmed = last_add_confirmed
            self._changed.give()

    def _take(self, stored: StoredMetadata) -> None:
        self._metadata = stored.metadata
        if self.closed:
            self.last_add_confirmed = stored.metadata.last_entry_id
        self._changed.give()

    def _follow(self) -> None:
        if self._following is None and not self.closed:
            self._following = self._loop.create_task(self._follow_metadata())

    async def _follow_metadata(self) -> None:
        while not self.closed:
            states = self._table.watch(self.ledger_id)
            try:
                async with contextlib.aclosing(states):
                    async for stored in states:
                        self._take(stored)
                        if stored.metadata.closed:
                            return
            except MetadataUnreachableError:
                await asyncio.sleep(RETRY_PAUSE_S)
            except NoSuchLedgerError as error:
                self._failure = error
                self._changed.give()
                return

    def _check_range(self, first: int, last: int, unconfirmed: bool) -> None:
        if first < 0:
            raise LedgerOperationError(self.ledger_id, -14, f"{first} is not an entry id")
        if last > self.last_add_confirmed and (self.closed or not unconfirmed):
            problem = f"entry {last} is after the last confirmed one, {self.last_add_confirmed}"
            raise NoSuchEntryError(self.ledger_id, Result.NO_SUCH_ENTRY, problem)

    @property
    def _in_batches(self) -> bool:
        """Whether one bookie has all entries, so that a request can return many."""
        return self._batches and self._metadata.ensemble_size == self._metadata.write_quorum

    async def _chunk(self, first: int, last: int) -> list[LedgerEntry]:
        found: list[LedgerEntry] = []
        while first + len(found) <= last:
            at = first + len(found)
            if self._in_batches:
                batch = await self._batch(at, last)
                found += batch
                if batch:
                    continue
            found += await self._singles(range(at, last + 1))
        return found

    async def _singles(self, entry_ids: Sequence[int]) -> list[LedgerEntry]:
        """Read entries one by one, each from its preferred bookie, and after a timeout from any."""
        found: dict[int, LedgerEntry] = {}
        tried: dict[int, str] = {}
        waiting, over = len(entry_ids), self._loop.create_future()

        def answered(bookie: str, entry_id: int, response: Any) -> None:
            nonlocal waiting
            waiting -= 1
            _, entry = self._taken(bookie, entry_id, response)
            if entry is not None:
                found[entry_id] = entry
            if not waiting and not over.done():
                over.set_result(None)

        for entry_id in entry_ids:
            ensemble = self._metadata.segment_of(entry_id).ensemble
            held = [ensemble[index] for index in self._metadata.write_set(entry_id)]
            bookie = tried[entry_id] = self._bookies.prefer(held)[0]
            frame = self._bookies.frames.encode_read(self.ledger_id, entry_id)
            done = partial(answered, bookie, entry_id)
            self._bookies.send(bookie, frame, self._config.read_timeout_ms, done)
        speculative_ms = self._config.speculative_read_timeout_ms
        await asyncio.wait([over], timeout=speculative_ms / 1000 if speculative_ms else None)
        left = [entry_id for entry_id in entry_ids if entry_id not in found]
        reads = [self._loop.create_task(self._read(entry_id, tried[entry_id])) for entry_id in left]
        try:
            found |= {entry.entry_id: entry for entry in await asyncio.gather(*reads)}
        finally:
            for task in reads:
                task.cancel()
        return [found[entry_id] for entry_id in entry_ids]

    async def _batch(self, first: int, last: int) -> list[LedgerEntry]:
        """Read entries from `first` on: as many valid ones as one bookie returns at once, or none."""
        metadata = self._metadata
        starts = [segment.first_entry_id for segment in metadata.segments if segment.first_entry_id > first]
        count = min([last + 1, *starts]) - first
        request = BatchReadRequest(
            ledger_id=self.ledger_id,
            entry_id=first,
            count_max=count,
            bytes_max=self._config.batch_read_bytes,
        )
        bookie = self._bookies.prefer(metadata.segment_of(first).ensemble)[0]
        response = await self._bookies.answer(bookie, request, self._config.read_timeout_ms, version=2)
        if response is None:
            # Bookies before 4.17 drop the connection at this request.
            self._batches = False
        if not isinstance(response, BatchReadResponse) or response.status is not Status.EOK:
            return []
        return unpack_entries(self._digest, self.ledger_id, first, response.entries[:count])

    async def _read(self, entry_id: int, tried: str | None = None) -> LedgerEntry:
        """Read one entry from any bookie; the one that was tried before comes last."""
        ensemble = self._metadata.segment_of(entry_id).ensemble
        prefer = self._bookies.prefer(ensemble)
        prefer.sort(key=lambda one: one == tried)
        speculative_ms = self._config.speculative_read_timeout_ms or None
        machine = EntryRead(
            self._metadata, entry_id, self._now_ms(), prefer=prefer, speculative_ms=speculative_ms
        )
        progress, silent = Signal(), dict[str, str]()

        def answered(bookie: str, response: Any) -> None:
            if response is None:
                silent[bookie] = self._bookies.problem(bookie)
            machine.answered(bookie, *self._taken(bookie, entry_id, response), self._now_ms())
            progress.give()

        while machine.result is None:
            seen = progress.count
            for send in machine.ready():
                request = ReadRequest(ledger_id=self.ledger_id, entry_id=entry_id)
                done = partial(answered, send.bookie)
                self._bookies.request(send.bookie, request, self._config.read_timeout_ms, done)
            deadline = machine.deadline_ms()
            try:
                async with asyncio.timeout_at(None if deadline is None else deadline / 1000 + 0.001):
                    await progress.wait(seen)
            except TimeoutError:
                machine.tick(self._now_ms())
        if machine.entry is not None:
            return machine.entry
        if await self._moved(entry_id, ensemble):
            return await self._read(entry_id)
        result = machine.result
        if result in ABSENT:
            raise NoSuchEntryError(self.ledger_id, result, f"its bookies do not have entry {entry_id}")
        why = "".join(f"; {bookie}: {problem}" for bookie, problem in silent.items())
        raise EntryReadError(self.ledger_id, result, f"entry {entry_id} cannot be read: {result.name}{why}")

    def _taken(self, bookie: str, entry_id: int, response: Any) -> tuple[Result, LedgerEntry | None]:
        """Return result and entry of a response; note a failed bookie or a later confirmed entry."""
        result, entry = read_result(self._digest, self.ledger_id, entry_id, response)
        if response is None:
            self._bookies.note_failure(bookie)
        elif result is Result.OK and response.max_lac is not None and response.max_lac < LAC_MAX:
            self._advance(response.max_lac)
        return result, entry

    async def _moved(self, entry_id: int, ensemble: tuple[str, ...]) -> bool:
        """Return whether the ensemble of an entry has changed since it was requested."""
        with contextlib.suppress(MetadataUnreachableError, NoSuchLedgerError):
            self._take(await self._table.get(self.ledger_id))
        return self._metadata.segment_of(entry_id).ensemble != ensemble

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def _put(answers: asyncio.Queue[tuple[int, Any]], index: int, response: Any) -> None:
    answers.put_nowait((index, response))
