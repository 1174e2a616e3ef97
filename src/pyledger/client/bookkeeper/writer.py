"""The writer of a ledger on asyncio: a shell around the machine of `protocol.bookkeeper.writer`."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any, Self

from pyledger.client.bookkeeper.bookie_watcher import BookieWatcher
from pyledger.client.bookkeeper.metadata_updates import MetadataUpdateLoop
from pyledger.client.bookkeeper.throttle import Pace
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.errors import (
    AddFailedError,
    DuplicateEntryIdError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerOperationError,
    LedgerPasswordError,
    MetadataUnreachableError,
    NoSuchLedgerError,
    PyLedgerError,
)
from pyledger.metadata.ledgers import LedgerTable, StoredMetadata
from pyledger.net.bookkeeper.bookie_client import RequestBatch
from pyledger.protocol.bookkeeper.ledger_writer import LedgerWriter, Proposal, SendBatch
from pyledger.protocol.bookkeeper.messages import ForceLedgerRequest, Status, WriteLacRequest
from pyledger.protocol.bookkeeper.metadata import INVALID_ENTRY_ID, LedgerMetadata
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.wire.bookkeeper.entry import EntryDigest, master_key, pack_lac
from pyledger.wire.bookkeeper.request_frames import add_encoder
from pyledger.wire.bookkeeper.response_entries import added_result

LAG_FACTOR = 8
"""A slow bookie is not waited for, until it lags by this many times `adds_pending_max` entries."""
_FAILURES: dict[Result, tuple[type[LedgerOperationError], str]] = {
    Result.LEDGER_FENCED: (LedgerFencedError, "somebody else has recovered it"),
    Result.LEDGER_CLOSED: (LedgerClosedError, "it is closed"),
    Result.METADATA_VERSION: (LedgerFencedError, "somebody else has closed it, at another entry"),
    Result.UNAUTHORIZED: (LedgerPasswordError, "a bookie refuses its password, or whoever speaks no TLS"),
    Result.NOT_ENOUGH_BOOKIES: (AddFailedError, "a bookie failed and there is no other one"),
    Result.ADD_QUORUM_TIMEOUT: (AddFailedError, "too few bookies answered in time"),
    Result.WRITE: (AddFailedError, "its ensemble changed too often"),
}


def failure_of(ledger_id: int, result: Result) -> LedgerOperationError:
    """The error that tells a result."""
    kind, problem = _FAILURES.get(result, (AddFailedError, f"it failed with {result.name}"))
    return kind(ledger_id, result, problem)


class AsyncLedgerWriter:
    """Adds entries to one ledger. Belongs to one event loop; `async with` closes the ledger at its end.

    An add that fails leaves it unknown whether its entry is part of the ledger: a recovery may find it.
    """

    ledger_id: int
    """Of the ledger that it writes."""

    def __init__(
        self,
        bookies: BookieWatcher,
        table: LedgerTable,
        stored: StoredMetadata,
        digest: EntryDigest,
        config: BookkeeperConfig,
        *,
        deferred_sync: bool = False,
    ) -> None:
        """Made by `AsyncLedgerClient.create`."""
        self.ledger_id = stored.ledger_id
        self._bookies, self._config, self._digest = bookies, config, digest
        self._loop = asyncio.get_running_loop()
        self._changes = MetadataUpdateLoop(table, stored, config)
        self._key = master_key(stored.metadata.password or b"")
        self._machine = LedgerWriter(
            stored.metadata,
            bookies.replace,
            add_quorum_timeout_ms=config.add_quorum_timeout_ms or None,
            # Entries that are not forced yet are on no disk, so nothing may be built on their copies.
            ensemble_changes_max=0 if deferred_sync else config.max_num_ensemble_changes,
        )
        self._deferred = deferred_sync
        self._pace = Pace(config.throttle)
        self._forced = INVALID_ENTRY_ID
        self._encoder = add_encoder(self.ledger_id, self._key, digest, deferred_sync=deferred_sync)
        # Entries that each bookie was sent and has not answered.
        self._unanswered: Counter[str] = Counter()
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._room: deque[asyncio.Future[None]] = deque()
        self._ended: asyncio.Future[Result] | None = None
        self._scheduled = False
        self._storing: asyncio.Task[None] | None = None
        self._problem: PyLedgerError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._told_lac = INVALID_ENTRY_ID
        self._lac_timer: asyncio.TimerHandle | None = None
        if config.explicit_lac_interval_ms:
            self._tell_lac_later()

    # --- what it knows

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as last known to be stored."""
        return self._machine.metadata

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that is durable; -1: none. With deferred sync, the last one forced."""
        return self._forced if self._deferred else self._machine.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """The last entry that was given to `add`; -1: none."""
        return self._machine.last_add_pushed

    @property
    def length(self) -> int:
        """Bytes of all payloads up to the last confirmed entry."""
        return self._machine.length

    @property
    def pending(self) -> int:
        """Entries in flight."""
        machine = self._machine
        return machine.last_add_pushed - machine.last_add_confirmed if self._waiting else 0

    # --- what one can do

    async def add(self, payload: bytes) -> int:
        """Add an entry and return its id once it is confirmed; wait while `adds_pending_max` are in flight.

        Raises:
            AddFailedError: it is not known whether the entry is part of the ledger.
            LedgerFencedError: another client is recovering the ledger.
            LedgerClosedError: it is closed.
        """
        await self._wait_for_room()
        return await self.submit_add(payload)

    async def add_many(self, payloads: Iterable[bytes]) -> int:
        """Add entries, many in flight at once; return the id of the last once all are confirmed.

        Raises:
            AddFailedError: It is not known whether an entry is part of the ledger, nor the entries after it.
        """
        last: asyncio.Future[int] | None = None
        source = iter(payloads)
        while True:
            await self._wait_for_room()
            # What is throttled goes one by one. A machine that failed tells so at each add.
            room = 1 if self._config.throttle else max(1, self._config.adds_pending_max - self.pending)
            batch = list(islice(source, room))
            if not batch or (last is not None and last.done() and last.exception() is not None):
                return INVALID_ENTRY_ID if last is None else await last
            if last is not None:
                # Entries are confirmed in order, so the last one tells of all.
                last.add_done_callback(_forget)
            last = self._add(batch)

    def submit_add(self, payload: bytes) -> asyncio.Future[int]:
        """Add an entry and return a future of its id; the caller bounds how many adds are in flight."""
        return self._add([payload])

    def _add(self, payloads: list[bytes]) -> asyncio.Future[int]:
        """Add entries; the future of the last."""
        future: asyncio.Future[int] = self._loop.create_future()
        if (size_bytes := max(map(len, payloads))) > self._config.payload_max_bytes:
            problem = f"a payload of {size_bytes} bytes does not fit into a frame"
            future.set_exception(LedgerOperationError(self.ledger_id, -14, problem))
        elif (failure := self._rejection()) is not None:
            future.set_exception(failure)
        else:
            self._waiting[self._machine.add(list(map(bytes, payloads)), self._now_ms())] = future
            self._follow()
        return future

    async def flush(self) -> None:
        """Wait until no add is in flight."""
        while self._waiting:
            await asyncio.wait([self._waiting[next(reversed(self._waiting))]])

    async def force(self) -> int:
        """Flush entries added with deferred sync; return the last entry that is durable now.

        Raises:
            AddFailedError: a bookie did not flush; no more entries are known to be durable.
        """
        head = self._machine.last_add_confirmed
        request = ForceLedgerRequest(ledger_id=self.ledger_id)
        ensemble = self.metadata.segments[-1].ensemble
        answers = await asyncio.gather(
            *(self._bookies.answer(bookie, request, self._config.add_timeout_ms) for bookie in ensemble)
        )
        for bookie, answer in zip(ensemble, answers, strict=True):
            if answer is None or answer.status is not Status.EOK:
                said = "nothing" if answer is None else answer.status.name
                problem = f"bookie {bookie} answered {said} to a force"
                raise AddFailedError(self.ledger_id, Result.WRITE, problem)
        self._forced = max(self._forced, head)
        return self._forced

    async def close(self) -> LedgerMetadata:
        """Wait for adds in flight, then close the ledger after the last confirmed entry. Idempotent.

        Raises:
            LedgerFencedError: another client is recovering it, or closed it at another entry.
            MetadataUnreachableError: it is not known whether the ledger is closed.
        """
        await self.flush()
        if self._deferred and self.last_add_confirmed < self._machine.last_add_confirmed:
            await self.force()
        if self._ended is None:
            self._ended = self._loop.create_future()
            self._machine.close()
            self._follow()
        result = await asyncio.shield(self._ended)
        self._stop()
        if self._problem is not None:
            raise self._problem
        if result is not Result.OK:
            raise failure_of(self.ledger_id, result)
        return self.metadata

    async def abandon(self) -> None:
        """Stop adding and leave the ledger open: another client must recover it."""
        self._stop()
        self._problem = self._problem or LedgerClosedError(
            self.ledger_id, Result.LEDGER_CLOSED, "its writer has left it"
        )
        self._machine.fail(Result.LEDGER_CLOSED)
        self._follow()
        if self._storing is not None:
            self._storing.cancel()
            await asyncio.gather(self._storing, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    # --- the machine

    def _follow(self) -> None:
        """Do what the machine wants."""
        self._scheduled = False
        machine = self._machine
        while (ready := machine.ready()) is not None:
            for send in ready.sends:
                self._send(send)
            if ready.proposal is not None:
                self._storing = self._loop.create_task(self._store(ready.proposal))
            for added in ready.added:
                future = self._waiting.pop(added.entry_id, None)
                if future is None or future.done():
                    continue
                if added.result is Result.OK:
                    future.set_result(added.entry_id)
                else:
                    future.set_exception(self._problem or failure_of(self.ledger_id, added.result))
            if ready.closed is not None and self._ended is not None and not self._ended.done():
                self._ended.set_result(ready.closed)
        while self._room and self.pending < self._config.adds_pending_max:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break
        self._set_timer()

    def _send(self, send: SendBatch) -> None:
        confirmed = self._forced if self._deferred else send.last_add_confirmed
        self._told_lac = max(self._told_lac, confirmed)
        first, count = send.first_entry_id, len(send.payloads)
        number = self._bookies.frames.numbers(count)
        frames = self._encoder.encode_batch(number, first, confirmed, send.length, send.payloads)
        for bookie in send.bookies:
            self._unanswered[bookie] += count
            done = partial(self._answered, bookie, first - number)
            batch = RequestBatch(number, number + count, done)
            self._bookies.send_batch(bookie, batch, frames, self._config.add_timeout_ms)

    def _answered(self, bookie: str, shift: int, number: int, count: int, response: Any) -> None:
        self._unanswered[bookie] -= count
        result = added_result(response)
        if result is not Result.OK:
            self._bookies.note_failure(bookie)
        self._machine.answered(bookie, number + shift, result, count)
        self._follow_soon()

    def _follow_soon(self) -> None:
        if self._machine.last_add_pushed == self._machine.last_add_confirmed:
            # No other answer is waited for: whoever waits for this one is told a turn of the loop sooner.
            self._follow()
        elif not self._scheduled:
            # Many answers come together: what follows from them is done once.
            self._scheduled = True
            self._loop.call_soon(self._follow)

    async def _store(self, proposal: Proposal) -> None:
        try:
            stored = await self._changes.put(proposal.wanted)
        except (MetadataUnreachableError, NoSuchLedgerError) as error:
            # What became of the change cannot be explained, so nothing more is confirmed.
            self._problem = error
            self._machine.fail(Result.METADATA_VERSION)
        else:
            tell = self._machine.stored if stored else self._machine.refused
            tell(self._changes.stored.metadata)
        self._follow()

    # --- inside

    def _rejection(self) -> PyLedgerError | None:
        if self._machine.failure is not None:
            return self._problem or failure_of(self.ledger_id, self._machine.failure)
        return None if self._ended is None else failure_of(self.ledger_id, Result.LEDGER_CLOSED)

    async def _wait_for_room(self) -> None:
        try:
            while self._lags() or self.pending >= self._config.adds_pending_max:
                waiter = self._loop.create_future()
                self._room.append(waiter)
                await waiter
            if self._config.throttle:
                await self._pace.wait(1)
        except asyncio.CancelledError:
            # Its turn may have come: then it is the next one's.
            self._follow_soon()
            raise

    def _lags(self) -> bool:
        """Whether the slowest bookie lags so far that its answers would come too late."""
        most = max(map(self._unanswered.__getitem__, self.metadata.segments[-1].ensemble))
        return most > LAG_FACTOR * self._config.adds_pending_max

    def _set_timer(self) -> None:
        deadline = self._machine.deadline_ms()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self._loop.call_at(deadline / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._machine.tick(self._now_ms())
        self._follow()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _tell_lac_later(self) -> None:
        self._lac_timer = self._loop.call_later(self._config.explicit_lac_interval_ms / 1000, self._tell_lac)

    def _tell_lac(self) -> None:
        """Tell the last confirmed entry, unless an entry that was sent since has told it."""
        confirmed = self.last_add_confirmed
        if confirmed > self._told_lac:
            self._told_lac = confirmed
            packet = pack_lac(self._digest, self.ledger_id, confirmed)
            request = WriteLacRequest(
                ledger_id=self.ledger_id, lac=confirmed, master_key=self._key, packet=packet
            )
            ensemble = self.metadata.segments[-1].ensemble
            for place in self.metadata.write_set(confirmed):
                self._bookies.request(ensemble[place], request, self._config.add_timeout_ms, _ignore)
        self._tell_lac_later()

    def _stop(self) -> None:
        for timer in (self._timer, self._lac_timer):
            if timer is not None:
                timer.cancel()


class AsyncAdvancedLedgerWriter(AsyncLedgerWriter):
    """Adds entries whose ids the caller chose; an entry waits until all below it were given."""

    def __init__(
        self,
        bookies: BookieWatcher,
        table: LedgerTable,
        stored: StoredMetadata,
        digest: EntryDigest,
        config: BookkeeperConfig,
    ) -> None:
        """Made by `AsyncLedgerClient.create_advanced`."""
        super().__init__(bookies, table, stored, digest, config)
        self._early: dict[int, tuple[bytes, asyncio.Future[int]]] = {}

    async def add_at(self, entry_id: int, payload: bytes) -> int:
        """Add an entry under an id and return the id once it and all below it are confirmed.

        Raises:
            DuplicateEntryIdError: the id is taken.
        """
        return await self.submit_add_at(entry_id, payload)

    def submit_add_at(self, entry_id: int, payload: bytes) -> asyncio.Future[int]:
        """Add an entry under an id and return a future of the id."""
        next_id = self._machine.last_add_pushed + 1
        future: asyncio.Future[int] = self._loop.create_future()
        if entry_id < next_id or entry_id in self._early:
            problem = f"entry {entry_id} was added already"
            future.set_exception(DuplicateEntryIdError(self.ledger_id, -22, problem))
            return future
        self._early[entry_id] = (payload, future)
        while next_id in self._early:
            early, waits = self._early.pop(next_id)
            self.submit_add(early).add_done_callback(partial(_pass_on, waits))
            next_id += 1
        return future

    async def close(self) -> LedgerMetadata:
        """See `AsyncLedgerWriter.close`; entries that wait for lower ones fail."""
        early, self._early = self._early, {}
        for _, future in early.values():
            future.set_exception(failure_of(self.ledger_id, Result.LEDGER_CLOSED))
            future.add_done_callback(_forget)
        return await super().close()


def _pass_on(waits: asyncio.Future[int], source: asyncio.Future[int]) -> None:
    if waits.done() or source.cancelled():
        return
    if (error := source.exception()) is not None:
        waits.set_exception(error)
    else:
        waits.set_result(source.result())


def _forget(future: asyncio.Future[int]) -> None:
    """Whoever waits for a later entry is told; this one's error need not be fetched."""
    if not future.cancelled():
        future.exception()


def _ignore(_answer: object) -> None:
    """Nothing depends on this answer."""
