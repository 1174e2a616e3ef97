"""What a bookie does with the requests of its connections: rules, journals, answers.

An answer that needs the disk waits in the line of a journal, which rings once a batch is durable; all others
go at once. A reader that wants what is not confirmed yet is held until it is, or its time is over. Entries
that are not in memory are fetched by a thread, and the rules are asked again.

Source: BookKeeper proto/BookieRequestProcessor.java, LongPollReadEntryProcessorV3.java.
"""

import asyncio
import contextlib
import logging
import os
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
from pyledger.protocol.bookkeeper.bookie import BookieRules, Outcome, refusal
from pyledger.protocol.bookkeeper.held_reads import HeldReads
from pyledger.protocol.bookkeeper.messages import Status
from pyledger.store.bookkeeper.entry_log import PageNotCachedError
from pyledger.store.bookkeeper.store import BookieStore
from pyledger.wire.bookkeeper.journal import encode_record
from pyledger.wire.bookkeeper.protocol_version import encode_answer
from pyledger.wire.bookkeeper.version3 import VERSION

log = logger("bookie")

FETCHES_MAX = 3
"""Tries to bring an entry to memory before a read just waits for the disk."""
AUTH_DISABLED = "AuthDisabledPlugin"
BEHIND_BYTES_MAX = 64 << 20
"""Bytes that a journal may be behind; above, nothing is read from any connection."""
HELD_MAX = 100_000
"""Readers that may wait for an entry; one more is answered at once."""
HOLD_MS_MAX = 3_600_000
"""So long one waits at most, whatever it asks for: it may be gone."""
TOTAL_CAPACITY, FREE_SPACE = 1, 2


class Asker(NamedTuple):
    """Who waits for an answer."""

    connection: LedgerConnection
    request: m.Request
    manner: int
    woken: bool = False
    """It was held until more was confirmed."""
    fetches: int = 0
    """How often its entry was brought to memory."""


class Waiting(NamedTuple):
    """An answer that is sent once its journal has all before `appended` (bytes) on disk."""

    appended: int
    asker: Asker
    response: m.Response


class Run(NamedTuple):
    """Answers to a run of adds, in one piece; they wait like one."""

    appended: int
    connection: LedgerConnection
    answers: bytes
    adds: int


class Held(NamedTuple):
    """A reader of what is not confirmed yet."""

    asker: Asker
    timer: asyncio.TimerHandle


class BookieRequestProcessor:
    """Takes requests and answers them; belongs to one event loop.

    Attributes:
        rules: What is answered.
        on_full: Called when the cache of entries is full, so that a checkpoint is due.
    """

    def __init__(
        self,
        store: BookieStore,
        rules: BookieRules,
        disk: Executor,
        clock: Clock,
        on_full: Callable[[], None],
    ) -> None:
        """A desk at an open store, of the event loop that runs.

        Args:
            store: Whose reads do not wait from now on.
            rules: Over that store.
            disk: Threads that may wait for the disk.
            clock: Tells when a reader learned of an entry.
            on_full: See above.
        """
        self.rules, self.on_full = rules, on_full
        self._store, self._journals, self._disk, self._clock = store, store.journals, disk, clock
        self._loop = asyncio.get_running_loop()
        self._lines: list[deque[Waiting | Run]] = [deque() for _ in self._journals.writers]
        # By the asker's identity: of many readers of a ledger each goes by itself.
        self._held: dict[int, HeldReads[Held]] = {}
        self._holding: dict[LedgerConnection, dict[int, Asker]] = {}
        self._held_count = 0
        store.waits = False
        for which, writer in enumerate(self._journals.writers):
            self._loop.add_reader(writer.bell, self._rung, which)

    def close(self) -> None:
        """Hold nobody any more: the connections are gone."""
        for writer in self._journals.writers:
            self._loop.remove_reader(writer.bell)
        for held in self._held.values():
            for one in held:
                one.timer.cancel()
        self._held.clear()

    def full(self) -> bool:
        """Whether nothing more should be taken: disk or a journal cannot follow."""
        behind = self._journals.behind_bytes > BEHIND_BYTES_MAX
        return behind or self._store.cached_bytes > 2 * self._store.config.write_cache_bytes

    def take(self, connection: LedgerConnection, frames: list[Any]) -> list[Any]:
        """Handle frames of a connection, and requests that were put off; those that have to wait now."""
        rest: list[Any] = []
        at = 0
        while at < len(frames) and not connection.closed:
            if isinstance(frames[at], Asker):
                taken = 1
                self._handle(frames[at])
            elif (taken := self._take_adds(connection, frames, at)) == 0:
                taken = 1
                self._take_one(connection, frames[at])
            at += taken
            if connection.turn_is_over() or (connection.congested and connection.must_pause()):
                rest = frames[at:]
                break
        if self._store.cached_bytes > self._store.config.write_cache_bytes:
            self.on_full()
        return rest

    def _take_adds(self, connection: LedgerConnection, frames: list[Any], at: int) -> int:
        """Take the ordinary adds that come next, all at once; how many there were."""
        if self.rules.read_only or connection.must_secure:
            return 0
        store, version2 = self._store, connection.dialect.is_version2
        try:
            count, answers, ledger_ids = store.take_adds(frames, at, version2=version2)
        except StoreError:
            connection.abort()
            return len(frames) - at
        if count:
            connection.in_work += count
            which = self._journals.of(ledger_ids[0])
            self._lines[which].append(Run(self._journals.writers[which].appended, connection, answers, count))
            if self._held:
                for ledger_id in ledger_ids:
                    self._look_at_held(ledger_id)
        return count

    def _take_one(self, connection: LedgerConnection, frame: memoryview) -> None:
        try:
            request, manner = connection.dialect.decode(frame)
        except LedgerFrameError as error:
            connection.report(log, logging.WARNING, "frame refused", problem=error)
            connection.abort()
            return
        self._handle(Asker(connection, request, manner))

    # --- one request

    def _handle(self, asker: Asker) -> None:
        request = asker.request
        if (asker.manner < 0 and ~asker.manner > 2) or (asker.manner == 0 and request.version != VERSION):
            self._say(asker, refusal(request, Status.EBADVERSION))
            return
        if isinstance(request, m.StartTlsRequest) and asker.connection.may_secure:
            told = m.StartTlsResponse(status=Status.EOK, txn_id=request.txn_id)
            asker.connection.secure(b"".join(encode_answer(told, asker.manner)))
            return
        if asker.connection.must_secure:
            self._say(asker, refusal(request, Status.EUA))
            return
        if isinstance(request, m.ReadRequest) and self._holds(asker, request):
            return
        self._store.waits = asker.fetches >= FETCHES_MAX
        try:
            outcome = self._outcome(asker)
        except PageNotCachedError as miss:
            self._fetch(asker, miss)
            return
        except InvariantError:
            raise
        except Exception as error:  # noqa: BLE001 - one failed request concerns no other client
            what = {"request": type(request).__name__, "problem": error}
            unexpected = None if isinstance(error, PyLedgerError) else error
            asker.connection.report(log, logging.ERROR, "request failed", unexpected, **what)
            outcome = Outcome(refusal(request, Status.EIO))
        finally:
            self._store.waits = False
        assert outcome.response is not None
        if outcome.records:
            self._journal(asker, outcome, outcome.records[0].ledger_id)
        elif isinstance(request, m.ForceLedgerRequest):
            self._journal(asker, outcome, request.ledger_id)
        else:
            self._say(asker, outcome.response)

    def _outcome(self, asker: Asker) -> Outcome:
        request = asker.request
        match request:
            case m.AuthRequest():
                return Outcome(
                    m.AuthResponse(status=Status.EOK, txn_id=request.txn_id, plugin_name=AUTH_DISABLED)
                )
            case m.BookieInfoRequest():
                return Outcome(self._room(request))
            case m.ForceLedgerRequest():
                return Outcome(refusal(request, Status.EOK))
            case m.StartTlsRequest() | m.UnknownRequest():
                return Outcome(refusal(request, Status.EBADREQ))
        outcome = self.rules.handle(request)
        answer = outcome.response
        if asker.woken and isinstance(answer, m.ReadResponse) and answer.entry is not None:
            told = replace(answer, lac_update_timestamp=self._clock.now_ms())
            return replace(outcome, response=told)
        return outcome

    def _journal(self, asker: Asker, outcome: Outcome, ledger_id: int) -> None:
        """Answer once the journal of a ledger has the records, and all that came before."""
        assert outcome.response is not None
        which = self._journals.of(ledger_id)
        writer = self._journals.writers[which]
        appended = writer.appended
        try:
            for record in outcome.records:
                appended = writer.append(encode_record(record))
        except StoreError:
            self._say(asker, refusal(asker.request, Status.EIO))
            return
        if outcome.records:
            writer.kick()
        for record in outcome.records:
            self._store.changed.add(record.ledger_id)
            if record.ledger_id in self._held:
                self._look_at_held(record.ledger_id)
        asker.connection.begin()
        self._lines[which].append(Waiting(appended, asker, outcome.response))
        if not outcome.records and appended <= writer.synced:
            self._rung(which)

    def _say(self, asker: Asker, response: m.Response, done: int = 0) -> None:
        try:
            asker.connection.answer(encode_answer(response, asker.manner), done)
        except LedgerFrameError as error:
            asker.connection.report(log, logging.ERROR, "answer failed", problem=error)
            asker.connection.abort()

    def _room(self, request: m.BookieInfoRequest) -> m.BookieInfoResponse:
        room = self._store.disks.room()
        return m.BookieInfoResponse(
            status=Status.EOK,
            txn_id=request.txn_id,
            total_disk_capacity=room.total_bytes if request.requested & TOTAL_CAPACITY else None,
            free_disk_space=room.free_bytes if request.requested & FREE_SPACE else None,
        )

    # --- what waits

    def _rung(self, which: int) -> None:
        """A journal made more durable, or failed."""
        writer = self._journals.writers[which]
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(writer.bell)
        line, synced, failed = self._lines[which], writer.synced, writer.failed
        answers: dict[LedgerConnection, list[bytes]] = {}
        done: Counter[LedgerConnection] = Counter()
        while line and (line[0].appended <= synced or failed):
            one = line.popleft()
            if isinstance(one, Run):
                done[one.connection] += one.adds
                if one.appended > synced:
                    one.connection.abort()  # so all of them are lost to their writer
                else:
                    answers.setdefault(one.connection, []).append(one.answers)
                continue
            asker, response = one.asker, one.response
            if one.appended > synced:
                response = refusal(asker.request, Status.EIO)
            done[asker.connection] += 1
            answers.setdefault(asker.connection, []).extend(encode_answer(response, asker.manner))
        for connection, count in done.items():
            connection.answer(answers.get(connection, ()), count)

    def _fetch(self, asker: Asker, miss: PageNotCachedError) -> None:
        asker.connection.begin()
        work = self._loop.run_in_executor(self._disk, miss.load)

        def fetched(_work: asyncio.Future[None]) -> None:
            asker.connection.in_work -= 1
            if not asker.connection.closed:
                asker.connection.handle_later(asker._replace(fetches=asker.fetches + 1))
                asker.connection.go_on()

        work.add_done_callback(fetched)

    # --- readers of what is not confirmed yet

    def _holds(self, asker: Asker, request: m.ReadRequest) -> bool:
        """Whether a reader has to wait; it then will be answered."""
        ledger = self.rules.ledgers.get(request.ledger_id)
        if request.time_out is None or request.previous_lac is None or request.fence or ledger is None:
            return False
        if request.piggyback and request.entry_id != m.INVALID_ENTRY_ID:
            return False
        if ledger.last_add_confirmed > request.previous_lac or ledger.fenced or self._held_count >= HELD_MAX:
            return False
        hold_ms = min(max(request.time_out, 0), HOLD_MS_MAX)
        timer = self._loop.call_later(hold_ms / 1000, self._time_over, asker)
        held = self._held.setdefault(request.ledger_id, HeldReads())
        held.add(request.previous_lac, id(asker), Held(asker, timer))
        self._holding.setdefault(asker.connection, {})[id(asker)] = asker
        self._held_count += 1
        return True

    def gone(self, connection: LedgerConnection) -> None:
        """A connection has ended: nothing is held for it any more."""
        for asker in tuple(self._holding.get(connection, {}).values()):
            self._forget(self._drop(asker))

    def _look_at_held(self, ledger_id: int) -> None:
        """Answer the readers that wait for what is confirmed now."""
        held = self._held.get(ledger_id)
        if held is None:
            return
        ledger = self.rules.ledgers.get(ledger_id)
        taken = held.take_all() if ledger is None or ledger.fenced else held.take(ledger.last_add_confirmed)
        self._release(taken, woken=True)

    def _time_over(self, asker: Asker) -> None:
        self._release([self._drop(asker)], woken=False)

    def _drop(self, asker: Asker) -> Held:
        request = asker.request
        assert isinstance(request, m.ReadRequest)
        assert request.previous_lac is not None
        return self._held[request.ledger_id].drop(request.previous_lac, id(asker))

    def _forget(self, held: Held) -> Asker:
        """Forget a reader that is held no more; the question it asks now."""
        asker, request = held.asker, held.asker.request
        assert isinstance(request, m.ReadRequest)
        held.timer.cancel()
        holding = self._holding[asker.connection]
        del holding[id(asker)]
        if not holding:
            del self._holding[asker.connection]
        self._held_count -= 1
        if not self._held.get(request.ledger_id, True):
            del self._held[request.ledger_id]
        return asker._replace(request=replace(request, time_out=None))

    def _release(self, taken: list[Held], *, woken: bool) -> None:
        """Answer readers that are held no more."""
        # All are forgotten first: an answer may end its connection, and with it whatever is held for it.
        for asker in [self._forget(held) for held in taken]:
            if not asker.connection.closed:
                asker.connection.handle_later(asker._replace(woken=woken))
