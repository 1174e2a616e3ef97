"""One member of a group: the state machine that a shell drives.

`step` and `tick` take events and the time; `ready` returns the work that follows from them.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Protocol

from pyledger.config.dledger import DLedgerConfig
from pyledger.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    StoreError,
    StoreFullError,
)
from pyledger.protocol.dledger.ack_checker import QuorumAckChecker
from pyledger.protocol.dledger.entry_dispatcher import EntryDispatcher
from pyledger.protocol.dledger.entry_handler import EntryHandler
from pyledger.protocol.dledger.heartbeats import Heartbeats
from pyledger.protocol.dledger.leader_elector import Elector
from pyledger.protocol.dledger.leadership_transfer import Transfer
from pyledger.protocol.dledger.member_state import MemberState
from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MemberStatus,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushEntryResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    Request,
    Response,
    TermState,
    VoteRequest,
    VoteResponse,
)
from pyledger.protocol.dledger.outbox import Outbox
from pyledger.protocol.dledger.pending_calls import Calls
from pyledger.protocol.dledger.ports import LogStorage, RandomSource
from pyledger.protocol.dledger.read_index import ReadIndex
from pyledger.protocol.dledger.ready import (
    Answered,
    Appended,
    Appends,
    CallFailed,
    Event,
    Grown,
    Persist,
    Ready,
    Received,
    Role,
    Tokens,
    is_replication,
)
from pyledger.protocol.dledger.response_codes import ResponseCode

RESPONSES: Mapping[type[Request], type[Response]] = {
    VoteRequest: VoteResponse,
    HeartBeatRequest: HeartBeatResponse,
    PushEntryRequest: PushEntryResponse,
    LeadershipTransferRequest: LeadershipTransferResponse,
    AppendEntryRequest: AppendEntryResponse,
    GetEntriesRequest: GetEntriesResponse,
    MetadataRequest: MetadataResponse,
    ReadIndexRequest: ReadIndexResponse,
}


class Part(Protocol):
    """A part of the state machine with deadlines of its own."""

    def run(self, now_ms: int) -> None:
        """Do what is due."""

    def deadline_ms(self) -> int | None:
        """When that will be, in ms; None: not before something happens."""


class DLedgerNode:
    """A member of a DLedger group, without disk, network, clock and randomness of its own."""

    def __init__(
        self,
        *,
        group: str,
        self_id: str,
        peers: Mapping[str, str],
        storage: LogStorage,
        random: RandomSource,
        saved: TermState,
        now_ms: int,
        incarnation: int,
        config: DLedgerConfig | None = None,
    ) -> None:
        """Begin as a candidate.

        Args:
            group: Name of the group; requests for another are rejected.
            self_id: The own id, one of `peers`.
            peers: Addresses by id, of all members; every member has the same order.
            storage: The log, recovered.
            random: Source of random pauses.
            saved: The term file.
            now_ms: The time, in ms of any monotonic clock.
            incarnation: A number above 0 that no earlier process of this member had.
            config: None means the defaults.
        """
        self.config = config or DLedgerConfig()
        self.now_ms = now_ms
        self.storage = storage
        self.append_request = AppendEntryRequest(group=group, remote_id=self_id)
        """What the requests of `Appends` have in common."""
        self.outbox = Outbox(storage.end_index, flush_before_ack=self.config.flush_before_ack)
        self.state = MemberState(
            group, self_id, peers, storage, self.outbox, random, self.config, saved, incarnation
        )
        self.calls = Calls(self.outbox, self.config.rpc_timeout_ms)
        self.elector = Elector(self.state, self.calls, now_ms)
        self.heartbeats = Heartbeats(self.state, self.calls, self.elector)
        self.checker = QuorumAckChecker(self.state)
        self.dispatchers = {
            peer: EntryDispatcher(self.state, self.calls, self.checker, peer) for peer in self.state.others
        }
        self.handler = EntryHandler(self.state)
        self.read_index = ReadIndex(self.state, self.checker, self.heartbeats)
        self.transfer = Transfer(self.state, self.calls, self.elector, self.heartbeats, self.checker)
        self.state.role_changed.append(self._role_changed)
        always: Sequence[Part] = (self.calls, self.elector, self.handler, self.transfer)
        leading: Sequence[Part] = (
            self.heartbeats,
            self.read_index,
            *self.dispatchers.values(),
            self.checker,
        )
        self.runs: Sequence[Callable[[int], None]] = [part.run for part in always]
        self.leader_runs = [*self.runs, *(part.run for part in leading)]
        self.deadlines: Sequence[Callable[[], int | None]] = [part.deadline_ms for part in always]
        self.leader_deadlines = [*self.deadlines, *(part.deadline_ms for part in leading)]
        self.failure: str | None = None
        """Why this member has stopped: the state of its disk is unknown."""

    def _role_changed(self) -> None:
        state = self.state
        if state.is_leader and self.config.append_on_election:
            try:
                state.storage.append_bodies(state.term, (b"",))
            except StoreFullError as error:
                state.outbox.alarm(str(error))
            else:
                state.outbox.wrote_log(state.storage.end_index)

    @property
    def failed(self) -> bool:
        """Whether this member has stopped for good."""
        return self.failure is not None

    def step(self, event: Event, now_ms: int) -> None:
        """Take one event, at a time in ms."""
        self.step_all((event,), now_ms)

    def _take(self, event: Event) -> None:
        match event:
            case Received(token, request):
                self._receive(token, request)
            case Answered(call_id, response):
                self.calls.answered(call_id, response, self.now_ms)
            case Appends(tokens, bodies):
                self._append(tokens, self.append_request, bodies)
            case CallFailed(call_id):
                self.calls.answered(call_id, None, self.now_ms)
            case Grown():
                self.outbox.wrote_log(self.storage.end_index)

    def step_all(self, events: Sequence[Event], now_ms: int) -> None:
        """Take several events in their order, as `step` does.

        Cost: adjacent appends, pushes and their responses are evaluated together.
        """
        if self.failed:
            return
        self.now_ms = max(self.now_ms, now_ms)
        try:
            due = False
            for event in events:
                self._take(event)
                due = is_replication(event)
                if not due:
                    self._run()
            if due:
                self._run()
        except (StoreError, OSError) as error:
            self.fail(str(error))

    def tick(self, now_ms: int) -> None:
        """Let the time advance to `now_ms`."""
        self._go_on(now_ms)

    def _go_on(self, now_ms: int, persist: Persist | None = None) -> None:
        if self.failed:
            return
        self.now_ms = max(self.now_ms, now_ms)
        try:
            if persist is not None:
                self.outbox.persisted(persist, self.state.term)
            self._run()
        except (StoreError, OSError) as error:
            self.fail(str(error))

    def _run(self) -> None:
        state, now_ms = self.state, self.now_ms
        while True:
            led = state.role is Role.LEADER
            for run in self.leader_runs if led else self.runs:
                run(now_ms)
            if state.role is not Role.LEADER:
                return
            if led:
                self.checker.update_own()
                return

    def ready(self) -> Ready | None:
        """Return the work for the shell since the last call; None if there is no work."""
        return None if self.failed else self.outbox.take(self.storage.end_index)

    def advance(self, ready: Ready, now_ms: int) -> None:
        """Note that `ready.persist` is durable now."""
        if ready.persist is not None:
            self.persisted(ready.persist, now_ms)

    def persisted(self, persist: Persist, now_ms: int) -> None:
        """Note that a write is durable now, at a time in ms."""
        self._go_on(now_ms, persist)

    @property
    def takes_appends(self) -> bool:
        """Whether the shell may append entries: this member leads, and no transfer is in progress."""
        state = self.state
        leads = not self.failed and state.is_leader and state.transferee is None
        return leads and not self.storage.disk_full

    @property
    def damaged(self) -> bool:
        """Whether an entry could not be read. The shell should restart this member to recover the log."""
        return self.state.damaged

    def fail(self, why: str) -> None:
        """Stop for good, because the disk failed and its contents are unknown.

        Nothing is retried: after a failed flush the kernel may have dropped the pages.
        """
        self.failure = self.failure or why

    def deadline_ms(self) -> int | None:
        """When `tick` is needed at the latest, in ms of the clock that the other calls are given."""
        if self.failed:
            return None
        soonest = None
        for deadline in self.leader_deadlines if self.state.role is Role.LEADER else self.deadlines:
            time = deadline()
            if time is not None and (soonest is None or time < soonest):
                soonest = time
        return soonest

    def _receive(self, token: Hashable, request: Request) -> None:
        state, now_ms = self.state, self.now_ms
        if request.remote_id != state.self_id:
            self._reject(token, request, ResponseCode.UNKNOWN_MEMBER)
            return
        if request.group != state.group:
            self._reject(token, request, ResponseCode.UNKNOWN_GROUP)
            return
        match request:
            case PushEntryRequest():
                self.handler.handle(token, request, now_ms)
            case AppendEntryRequest():
                bodies = (request.body,) if request.batch_msgs is None else request.batch_msgs
                self._append((token,), request, bodies)
            case HeartBeatRequest():
                self.heartbeats.handle(token, request, now_ms)
            case VoteRequest():
                self.elector.handle_vote(token, request)
            case LeadershipTransferRequest():
                self.transfer.handle(token, request, now_ms)
            case ReadIndexRequest():
                self.read_index.add(token, now_ms)
            case GetEntriesRequest():
                self._get(token, request)
            case MetadataRequest():
                peers = tuple(state.addresses.items())
                answer = MetadataResponse(
                    group=state.group, leader_id=state.leader_id, peers=peers, status=self.status
                )
                self.outbox.reply_at_once(token, answer)

    @property
    def status(self) -> MemberStatus:
        """The state of this member, for an operator."""
        state, storage = self.state, self.storage
        return MemberStatus(
            state.role.value,
            state.term,
            state.vote,
            storage.begin_index,
            storage.end_index,
            storage.end_term,
            storage.committed_index,
            state.cannot_vote,
            storage.disk_full,
        )

    def _reject(self, token: Hashable, request: Request, code: ResponseCode) -> None:
        state = self.state
        leader = request.leader_id if isinstance(request, VoteRequest) else state.leader_id
        response = RESPONSES[type(request)](
            group=request.group,
            remote_id=request.remote_id,
            local_id=request.local_id,
            code=code,
            leader_id=leader,
            term=request.term,
        )
        self.outbox.reply(token, response)

    def _append(self, tokens: Tokens, request: AppendEntryRequest, bodies: Sequence[bytes]) -> None:
        """Append the bodies of one request, or those of several requests with one body each.

        If not all of several requests can be served, each is tried by itself.
        """
        code = self._check_append(len(tokens), bodies)
        try:
            if code is None:
                positions = self.storage.append_bodies(self.state.term, bodies)
                self.checker.wait(tokens, positions, self.now_ms)
                self.outbox.wrote_log(self.storage.end_index)
                return
        except StoreFullError:
            code = ResponseCode.DISK_FULL
        except RecordTooLargeError as error:
            self.outbox.alarm(str(error))
            code = ResponseCode.UNEXPECTED_ARGUMENT
        if len(tokens) == 1:
            (token,) = tokens
            self._reject(token, request, code)
        else:
            for token, body in zip(tokens, bodies, strict=True):
                self._append((token,), request, (body,))

    def _check_append(self, count: int, bodies: Sequence[bytes]) -> ResponseCode | None:
        """Return why this many requests cannot be served; None if they can."""
        if not self.state.is_leader:
            return ResponseCode.NOT_LEADER
        if self.state.transferee is not None:
            return ResponseCode.LEADER_TRANSFERRING
        if count > self.checker.free_count:
            return ResponseCode.LEADER_PENDING_FULL
        if not bodies:
            return ResponseCode.REQUEST_WITH_EMPTY_BODYS
        return ResponseCode.DISK_FULL if self.storage.disk_full else None

    def _get(self, token: Hashable, request: GetEntriesRequest) -> None:
        index, storage = request.begin_index, self.storage
        if not self.state.is_leader:
            self._reject(token, request, ResponseCode.NOT_LEADER)
        elif 0 <= index < storage.begin_index:
            self._reject(token, request, ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN)
        elif not 0 <= index <= storage.committed_index:
            self._reject(token, request, ResponseCode.INDEX_OUT_OF_RANGE)
        else:
            try:
                entries = (storage.entry(index),)
            except (OffsetOutOfRangeError, CorruptRecordError) as error:
                self.outbox.alarm(str(error))
                self._reject(token, request, ResponseCode.DISK_ERROR)
                return
            self.outbox.reply(token, GetEntriesResponse(group=self.state.group, entries=entries))

    def append_responses(self, appended: Appended) -> Iterator[tuple[Hashable, AppendEntryResponse]]:
        """Token and response of each request that is committed."""
        group, leader_id, term = self.state.group, self.state.self_id, appended.term
        for token, index, position in appended.each:
            yield (
                token,
                AppendEntryResponse(group=group, leader_id=leader_id, term=term, index=index, pos=position),
            )
