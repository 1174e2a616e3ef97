"""Handle the requests of a bookie's connections with its rules and journals.

Responses to adds are sent when their journal batch is durable, all others immediately. A read of an
unconfirmed entry is held until the entry is confirmed or the read times out. A thread loads entries that are
not in memory; the request is then handled again.

Source: BookKeeper proto/BookieRequestProcessor.java, LongPollReadEntryProcessorV3.java.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, NamedTuple

from pyledger.clock import Clock
from pyledger.errors import InvariantError, LedgerFrameError, PyLedgerError, StoreError
from pyledger.log_events import logger
from pyledger.net.bookkeeper.server import LedgerConnection
from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.bookie import BookieRules, Outcome, rejection
from pyledger.protocol.bookkeeper.held_reads import HeldReads
from pyledger.protocol.bookkeeper.messages import Status
from pyledger.store.bookkeeper.entry_log import PageNotCachedError
from pyledger.store.bookkeeper.store import BookieStore
from pyledger.wire.bookkeeper.journal import encode_record
from pyledger.wire.bookkeeper.protocol_version import OLD_VERSION_MAX, ProtocolVersion, encode_response
from pyledger.wire.bookkeeper.version3 import VERSION

log = logger("bookie")

FETCHES_MAX = 3
"""Attempts to load an entry to memory before a read blocks on the disk."""
AUTH_DISABLED = "AuthDisabledPlugin"
LAG_BYTES_MAX = 64 << 20
"""Bytes that the journals may lag; above it no connection is read."""
HELD_MAX = 100_000
"""Reads that may be held; one more is answered immediately."""
HOLD_MS_MAX = 3_600_000
"""Maximum time for which a read is held, whatever it requests: its client may be gone."""
TOTAL_CAPACITY, FREE_SPACE = 1, 2


class PendingRequest(NamedTuple):
    """A request without a response."""

    connection: LedgerConnection
    request: m.Request
    protocol_version: ProtocolVersion
    woken: bool = False
    """It was held until more entries were confirmed."""
    fetches: int = 0
    """How often its entry was loaded to memory."""


class PendingResponse(NamedTuple):
    """Responses of one connection, sent once their journal is durable up to `appended` (bytes)."""

    appended: int
    connection: LedgerConnection
    frames: tuple[bytes, ...]
    requests: int
    rejected: PendingRequest | None = None
    """The request to reject if the journal fails; for a batch of adds None: its connection is closed."""


class Held(NamedTuple):
    """A held read of an unconfirmed entry."""

    pending: PendingRequest
    timer: asyncio.TimerHandle


class BookieRequestProcessor:
    """Handles requests and responds to them; belongs to one event loop.

    Attributes:
        rules: The rules that determine the responses.
        on_full: Called when the entry cache is full and a checkpoint is due.
    """

    def __init__(
        self,
        store: BookieStore,
        rules: BookieRules,
        disk: Executor,
        clock: Clock,
        on_full: Callable[[], None],
    ) -> None:
        """Create a processor for an open store, in the running event loop.

        Args:
            store: The open store; its reads no longer block.
            rules: The rules over that store.
            disk: Threads that may block on the disk.
            clock: For the time at which a held read is answered.
            on_full: See the attribute.
        """
        self.rules, self.on_full = rules, on_full
        self._store, self._journals, self._disk, self._clock = store, store.journals, disk, clock
        self._loop = asyncio.get_running_loop()
        # By journal, in the order of its records.
        self._responses: list[deque[PendingResponse]] = [deque() for _ in self._journals.writers]
        # Keyed by the request's identity, because each read of a ledger is released separately.
        self._held: dict[int, HeldReads[Held]] = {}
        self._holding: dict[LedgerConnection, dict[int, PendingRequest]] = {}
        self._held_count = 0
        store.waits = False
        for which, writer in enumerate(self._journals.writers):
            self._loop.add_reader(writer.event_fd, self._on_durable, which)

    def close(self) -> None:
        """Drop all held reads: the connections are closed."""
        for writer in self._journals.writers:
            self._loop.remove_reader(writer.event_fd)
        for held in self._held.values():
            for one in held:
                one.timer.cancel()
        self._held.clear()

    def full(self) -> bool:
        """Return whether the disk or a journal cannot keep up, so that no more requests should be read."""
        lags = self._journals.lag_bytes > LAG_BYTES_MAX
        return lags or self._store.cached_bytes > 2 * self._store.config.write_cache_bytes

    def take(self, connection: LedgerConnection, frames: list[Any], at: int) -> int:
        """Handle the request at an index: a batch of plain adds, or one other request.

        Returns: How many frames were handled.
        """
        if isinstance(frames[at], PendingRequest):  # its entry was loaded, or it was held
            self._handle(frames[at])
            return 1
        count = 0
        if not (self.rules.read_only or connection.must_secure):
            count = self._take_adds(connection, frames, at)
        if not count:
            count = 1
            self._take_one(connection, frames[at])
        if self._store.cached_bytes > self._store.config.write_cache_bytes:
            self.on_full()
        return count

    def _take_adds(self, connection: LedgerConnection, frames: list[Any], at: int) -> int:
        """Take the next plain adds as one batch, and return how many there were."""
        version2 = connection.versions.is_version2
        try:
            count, responses, ledger_ids = self._store.take_adds(frames, at, version2=version2)
        except StoreError:
            connection.abort()
            return len(frames) - at
        if count:
            which = self._journals.of(ledger_ids[0])
            appended = self._journals.writers[which].appended
            self._respond_later(which, PendingResponse(appended, connection, (responses,), count))
            if self._held:
                for ledger_id in ledger_ids:
                    self._check_held(ledger_id)
        return count

    def _take_one(self, connection: LedgerConnection, frame: memoryview) -> None:
        try:
            request, protocol_version = connection.versions.decode(frame)
        except LedgerFrameError as error:
            connection.report(log, logging.WARNING, "frame rejected", problem=error)
            connection.abort()
            return
        self._handle(PendingRequest(connection, request, protocol_version))

    # --- one request

    def _handle(self, pending: PendingRequest) -> None:
        request, version = pending.request, pending.protocol_version
        supported = request.version == VERSION if version.is_protobuf else version.number <= OLD_VERSION_MAX
        if not supported:
            self._respond(pending, rejection(request, Status.EBADVERSION))
            return
        if isinstance(request, m.StartTlsRequest) and pending.connection.may_secure:
            response = m.StartTlsResponse(status=Status.EOK, txn_id=request.txn_id)
            pending.connection.secure(b"".join(encode_response(response, version)))
            return
        if pending.connection.must_secure:
            self._respond(pending, rejection(request, Status.EUA))
            return
        if isinstance(request, m.ReadRequest) and self._hold(pending, request):
            return
        self._store.waits = pending.fetches >= FETCHES_MAX
        try:
            outcome = self._outcome(pending)
        except PageNotCachedError as miss:
            self._fetch(pending, miss)
            return
        except InvariantError:
            raise
        except Exception as error:  # noqa: BLE001 - one failed request concerns no other client
            what = {"request": type(request).__name__, "problem": error}
            unexpected = None if isinstance(error, PyLedgerError) else error
            pending.connection.report(log, logging.ERROR, "request failed", unexpected, **what)
            outcome = Outcome(rejection(request, Status.EIO))
        finally:
            self._store.waits = False
        assert outcome.response is not None
        if outcome.records:
            self._journal(pending, outcome, outcome.records[0].ledger_id)
        elif isinstance(request, m.ForceLedgerRequest):
            self._journal(pending, outcome, request.ledger_id)
        else:
            self._respond(pending, outcome.response)

    def _outcome(self, pending: PendingRequest) -> Outcome:
        request = pending.request
        match request:
            case m.AuthRequest():
                return Outcome(
                    m.AuthResponse(status=Status.EOK, txn_id=request.txn_id, plugin_name=AUTH_DISABLED)
                )
            case m.BookieInfoRequest():
                return Outcome(self._bookie_info(request))
            case m.ForceLedgerRequest():
                return Outcome(rejection(request, Status.EOK))
            case m.StartTlsRequest() | m.UnknownRequest():
                return Outcome(rejection(request, Status.EBADREQ))
        outcome = self.rules.handle(request)
        response = outcome.response
        if pending.woken and isinstance(response, m.ReadResponse) and response.entry is not None:
            stamped = replace(response, lac_update_timestamp=self._clock.now_ms())
            return replace(outcome, response=stamped)
        return outcome

    def _journal(self, pending: PendingRequest, outcome: Outcome, ledger_id: int) -> None:
        """Respond once the journal of a ledger is durable up to and including the records."""
        assert outcome.response is not None
        which = self._journals.of(ledger_id)
        writer = self._journals.writers[which]
        appended = writer.appended
        try:
            for record in outcome.records:
                appended = writer.append(encode_record(record))
        except StoreError:
            self._respond(pending, rejection(pending.request, Status.EIO))
            return
        if outcome.records:
            writer.kick()
        for record in outcome.records:
            self._store.changed.add(record.ledger_id)
            if record.ledger_id in self._held:
                self._check_held(record.ledger_id)
        frames = self._encode(pending, outcome.response)
        self._respond_later(which, PendingResponse(appended, pending.connection, frames, 1, pending))
        if not outcome.records and appended <= writer.synced:
            self._on_durable(which)

    def _respond(self, pending: PendingRequest, response: m.Response) -> None:
        pending.connection.respond(self._encode(pending, response), 0)

    def _encode(self, pending: PendingRequest, response: m.Response) -> tuple[bytes, ...]:
        try:
            return encode_response(response, pending.protocol_version)
        except LedgerFrameError as error:
            pending.connection.report(log, logging.ERROR, "response not encoded", problem=error)
            pending.connection.abort()
            return ()

    def _bookie_info(self, request: m.BookieInfoRequest) -> m.BookieInfoResponse:
        space = self._store.disks.space()
        return m.BookieInfoResponse(
            status=Status.EOK,
            txn_id=request.txn_id,
            total_disk_capacity=space.total_bytes if request.requested & TOTAL_CAPACITY else None,
            free_disk_space=space.free_bytes if request.requested & FREE_SPACE else None,
        )

    # --- deferred responses

    def _respond_later(self, which: int, response: PendingResponse) -> None:
        response.connection.in_flight += response.requests
        self._responses[which].append(response)

    def _on_durable(self, which: int) -> None:
        """Send the responses that waited for a journal, which has synced a batch or failed."""
        writer = self._journals.writers[which]
        writer.clear_event()
        responses, synced, failed = self._responses[which], writer.synced, writer.failed
        frames: dict[LedgerConnection, list[bytes]] = {}
        done: Counter[LedgerConnection] = Counter()
        while responses and (responses[0].appended <= synced or failed):
            one = responses.popleft()
            connection = one.connection
            done[connection] += one.requests
            if one.appended <= synced:
                frames.setdefault(connection, []).extend(one.frames)
            elif one.rejected is None:
                connection.abort()  # the writer then treats all of them as failed
            else:
                response = rejection(one.rejected.request, Status.EIO)
                frames.setdefault(connection, []).extend(self._encode(one.rejected, response))
        for connection, count in done.items():
            connection.respond(frames.get(connection, ()), count)

    def _fetch(self, pending: PendingRequest, miss: PageNotCachedError) -> None:
        pending.connection.in_flight += 1
        fetching = self._loop.run_in_executor(self._disk, miss.load)

        def fetched(_fetching: asyncio.Future[None]) -> None:
            pending.connection.in_flight -= 1
            if not pending.connection.closed:
                pending.connection.handle_later(pending._replace(fetches=pending.fetches + 1))
                pending.connection.go_on()

        fetching.add_done_callback(fetched)

    # --- held reads

    def _hold(self, pending: PendingRequest, request: m.ReadRequest) -> bool:
        """Hold a read until more entries are confirmed; return False if it can be answered now."""
        ledger = self.rules.ledgers.get(request.ledger_id)
        if request.time_out is None or request.previous_lac is None or request.fence or ledger is None:
            return False
        if request.piggyback and request.entry_id != m.INVALID_ENTRY_ID:
            return False
        if ledger.last_add_confirmed > request.previous_lac or ledger.fenced or self._held_count >= HELD_MAX:
            return False
        hold_ms = min(max(request.time_out, 0), HOLD_MS_MAX)
        timer = self._loop.call_later(hold_ms / 1000, self._on_timeout, pending)
        held = self._held.setdefault(request.ledger_id, HeldReads())
        held.add(request.previous_lac, id(pending), Held(pending, timer))
        self._holding.setdefault(pending.connection, {})[id(pending)] = pending
        self._held_count += 1
        return True

    def on_closed(self, connection: LedgerConnection) -> None:
        """Drop the held reads of a closed connection."""
        for pending in tuple(self._holding.get(connection, {}).values()):
            self._forget(self._drop(pending))

    def _check_held(self, ledger_id: int) -> None:
        """Answer the held reads whose entries are confirmed now."""
        held = self._held.get(ledger_id)
        if held is None:
            return
        ledger = self.rules.ledgers.get(ledger_id)
        taken = held.take_all() if ledger is None or ledger.fenced else held.take(ledger.last_add_confirmed)
        self._release(taken, woken=True)

    def _on_timeout(self, pending: PendingRequest) -> None:
        self._release([self._drop(pending)], woken=False)

    def _drop(self, pending: PendingRequest) -> Held:
        request = pending.request
        assert isinstance(request, m.ReadRequest)
        assert request.previous_lac is not None
        return self._held[request.ledger_id].drop(request.previous_lac, id(pending))

    def _forget(self, held: Held) -> PendingRequest:
        """Forget a read that is no longer held, and return its request without a timeout."""
        pending, request = held.pending, held.pending.request
        assert isinstance(request, m.ReadRequest)
        held.timer.cancel()
        holding = self._holding[pending.connection]
        del holding[id(pending)]
        if not holding:
            del self._holding[pending.connection]
        self._held_count -= 1
        if not self._held.get(request.ledger_id, True):
            del self._held[request.ledger_id]
        return pending._replace(request=replace(request, time_out=None))

    def _release(self, taken: list[Held], *, woken: bool) -> None:
        """Answer reads that are no longer held."""
        # Forget all of them first: a response may close its connection, which drops its other held reads.
        for pending in [self._forget(held) for held in taken]:
            if not pending.connection.closed:
                pending.connection.handle_later(pending._replace(woken=woken))
