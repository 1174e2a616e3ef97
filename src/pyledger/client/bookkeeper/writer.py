"""The writer of a ledger on asyncio: a shell around `protocol.bookkeeper.ledger_writer`."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any, Self

from pyledger.client.bookkeeper.bookie_watcher import BookieWatcher
from pyledger.client.bookkeeper.metadata_updates import MetadataUpdateLoop
from pyledger.client.bookkeeper.throttle import Throttle
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.config.fields import checked_type
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

PAYLOAD = bytes | bytearray | memoryview
LAG_FACTOR = 8
"""Adds wait for the slowest bookie once it lags by this many times `adds_pending_max` entries."""
_FAILURES: dict[Result, tuple[type[LedgerOperationError], str]] = {
    Result.LEDGER_FENCED: (LedgerFencedError, "another client has recovered it"),
    Result.LEDGER_CLOSED: (LedgerClosedError, "it is closed"),
    Result.METADATA_VERSION: (LedgerFencedError, "another client has closed it, at another entry"),
    Result.UNAUTHORIZED: (LedgerPasswordError, "a bookie rejects its password, or requires TLS"),
    Result.NOT_ENOUGH_BOOKIES: (AddFailedError, "a bookie failed and no other bookie is available"),
    Result.ADD_QUORUM_TIMEOUT: (AddFailedError, "too few bookies answered in time"),
    Result.WRITE: (AddFailedError, "its ensemble changed too often"),
}


def failure_of(ledger_id: int, result: Result) -> LedgerOperationError:
    """Return the error for a result."""
    kind, problem = _FAILURES.get(result, (AddFailedError, f"it failed with {result.name}"))
    return kind(ledger_id, result, problem)


class AsyncLedgerWriter:
    """Adds entries to one ledger. Belongs to one event loop; `async with` closes the ledger at its end.

    After a failed add it is not known whether its entry is part of the ledger: a recovery may find it.
    """

    ledger_id: int
    """Id of the ledger."""

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
            # Entries that are not forced yet are on no disk, so an ensemble change could lose them.
            ensemble_changes_max=0 if deferred_sync else config.max_num_ensemble_changes,
        )
        self._deferred = deferred_sync
        self._throttle = Throttle(config.throttle)
        self._forced = INVALID_ENTRY_ID
        self._encoder = add_encoder(self.ledger_id, self._key, digest, deferred_sync=deferred_sync)
        # Entries sent to each bookie without a response yet.
        self._unanswered: Counter[str] = Counter()
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._ended: asyncio.Future[Result] | None = None
        self._scheduled = False
        self._storing: asyncio.Task[None] | None = None
        self._problem: PyLedgerError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_lac = INVALID_ENTRY_ID
        self._lac_timer: asyncio.TimerHandle | None = None
        if config.explicit_lac_interval_ms:
            self._schedule_lac()

    # --- state

    @property
    def metadata(self) -> LedgerMetadata:
        """The last known stored metadata."""
        return self._machine.metadata

    @property
    def last_add_confirmed(self) -> int:
        """Id of the last durable entry, -1 if there is none. With deferred sync: the last forced one."""
        return self._forced if self._deferred else self._machine.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """Id of the last entry passed to `add`, -1 if there is none."""
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

    # --- operations

    async def add(self, payload: bytes) -> int:
        """Add an entry and return its id once it is confirmed; wait while `adds_pending_max` are in flight.

        Raises:
            AddFailedError: it is not known whether the entry is part of the ledger.
            LedgerFencedError: another client is recovering the ledger.
            LedgerClosedError: it is closed.
        """
        await self._wait_for_capacity()
        return await self.submit_add(payload)

    async def add_many(self, payloads: Iterable[bytes]) -> int:
        """Add entries, many in flight at once; return the id of the last once all are confirmed.

        Raises:
            AddFailedError: It is not known whether an entry, and those after it, are part of the ledger.
        """
        last: asyncio.Future[int] | None = None
        source = iter(payloads)
        while True:
            await self._wait_for_capacity()
            # With a throttle, entries are added one by one. After a failure, each add raises the error.
            capacity = 1 if self._config.throttle else max(1, self._config.adds_pending_max - self.pending)
            batch = list(islice(source, capacity))
            if not batch or (last is not None and last.done() and last.exception() is not None):
                return INVALID_ENTRY_ID if last is None else await last
            if last is not None:
                # Entries are confirmed in order, so the future of the last one suffices.
                last.add_done_callback(_forget)
            last = self._add(batch)

    def submit_add(self, payload: bytes) -> asyncio.Future[int]:
        """Add an entry and return a future of its id; the caller bounds how many adds are in flight."""
        return self._add([payload])

    def _add(self, payloads: list[bytes]) -> asyncio.Future[int]:
        """Add entries and return the future of the last."""
        if not all(isinstance(payload, PAYLOAD) for payload in payloads):
            for payload in payloads:
                checked_type("payload", payload, PAYLOAD)
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
                status = "nothing" if answer is None else answer.status.name
                problem = f"bookie {bookie} answered {status} to a force"
                raise AddFailedError(self.ledger_id, Result.WRITE, problem)
        self._forced = max(self._forced, head)
        return self._forced

    async def close(self) -> LedgerMetadata:
        """Wait for adds in flight, then close the ledger after the last confirmed entry. Idempotent.

        Raises:
            LedgerFencedError: another client is recovering it, or closed it at another entry.
            MetadataUnreachableError: it is not known whether the ledger was closed.
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

    # --- the state machine

    def _follow(self) -> None:
        """Perform what the state machine has ready."""
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
        while self._waiters and self.pending < self._config.adds_pending_max:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break
        self._set_timer()

    def _send(self, send: SendBatch) -> None:
        confirmed = self._forced if self._deferred else send.last_add_confirmed
        self._sent_lac = max(self._sent_lac, confirmed)
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
            # No other response is awaited: complete this add now, not in the next iteration of the loop.
            self._follow()
        elif not self._scheduled:
            # Responses arrive in batches: process them together.
            self._scheduled = True
            self._loop.call_soon(self._follow)

    async def _store(self, proposal: Proposal) -> None:
        try:
            stored = await self._changes.put(proposal.wanted)
        except (MetadataUnreachableError, NoSuchLedgerError) as error:
            # It is not known whether the change was stored, so no further entry may be confirmed.
            self._problem = error
            self._machine.fail(Result.METADATA_VERSION)
        else:
            on_stored = self._machine.stored if stored else self._machine.rejected
            on_stored(self._changes.stored.metadata)
        self._follow()

    # --- inside

    def _rejection(self) -> PyLedgerError | None:
        if self._machine.failure is not None:
            return self._problem or failure_of(self.ledger_id, self._machine.failure)
        return None if self._ended is None else failure_of(self.ledger_id, Result.LEDGER_CLOSED)

    async def _wait_for_capacity(self) -> None:
        try:
            while self._lags() or self.pending >= self._config.adds_pending_max:
                waiter = self._loop.create_future()
                self._waiters.append(waiter)
                await waiter
            if self._config.throttle:
                await self._throttle.wait(1)
        except asyncio.CancelledError:
            # This waiter may have been woken already: wake the next one.
            self._follow_soon()
            raise

    def _lags(self) -> bool:
        """Return whether the slowest bookie lags too far for its responses to arrive in time."""
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

    def _schedule_lac(self) -> None:
        self._lac_timer = self._loop.call_later(self._config.explicit_lac_interval_ms / 1000, self._send_lac)

    def _send_lac(self) -> None:
        """Send the last confirmed entry id, unless an entry sent since has carried it."""
        confirmed = self.last_add_confirmed
        if confirmed > self._sent_lac:
            self._sent_lac = confirmed
            packet = pack_lac(self._digest, self.ledger_id, confirmed)
            request = WriteLacRequest(
                ledger_id=self.ledger_id, lac=confirmed, master_key=self._key, packet=packet
            )
            ensemble = self.metadata.segments[-1].ensemble
            for index in self.metadata.write_set(confirmed):
                self._bookies.request(ensemble[index], request, self._config.add_timeout_ms, _ignore)
        self._schedule_lac()

    def _stop(self) -> None:
        for timer in (self._timer, self._lac_timer):
            if timer is not None:
                timer.cancel()


class AsyncAdvancedLedgerWriter(AsyncLedgerWriter):
    """Adds entries with ids chosen by the caller; an entry is sent once all below it have been given."""

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
            DuplicateEntryIdError: the id is in use.
        """
        return await self.submit_add_at(entry_id, payload)

    def submit_add_at(self, entry_id: int, payload: bytes) -> asyncio.Future[int]:
        """Add an entry under an id and return a future of the id."""
        checked_type("entry_id", entry_id, int)
        checked_type("payload", payload, PAYLOAD)
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
        """Close the ledger; entries that wait for lower ids fail. See `AsyncLedgerWriter.close`."""
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
    """Retrieve the error, which the future of a later entry raises as well."""
    if not future.cancelled():
        future.exception()


def _ignore(_answer: object) -> None:
    """Ignore a response."""
