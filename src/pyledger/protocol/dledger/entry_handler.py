"""A follower's side of replication: pushes in their order, comparisons, truncations.

Pushes of entries wait in `write_requests` until they fit the end of the log. A comparison or a truncation
empties it, because it makes all earlier pushes obsolete.
Source: DLedger DLedgerEntryPusher.java (EntryHandler).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from pyledger.errors import CorruptRecordError, OffsetOutOfRangeError, StoreFullError
from pyledger.protocol.dledger.member_state import MemberState
from pyledger.protocol.dledger.messages import NO_INDEX, Entry, PushEntryRequest, PushEntryResponse, PushType
from pyledger.protocol.dledger.ready import Role
from pyledger.protocol.dledger.response_codes import ResponseCode


@dataclass(frozen=True, slots=True)
class WaitingPush:
    """A push that cannot be served yet."""

    token: Hashable
    request: PushEntryRequest
    since_ms: int


class EntryHandler:
    """Handles what a leader pushes to a member."""

    def __init__(self, state: MemberState) -> None:
        self.state, self.config = state, state.config
        self.write_requests: dict[int, WaitingPush] = {}
        self.held: WaitingPush | None = None
        """A comparison or truncation by a leader whose heartbeat has not arrived yet."""
        self.compared = False
        """The leader has compared since the last change of role, so it has dropped older acknowledgements."""
        state.role_changed.append(self._role_changed)

    def _role_changed(self) -> None:
        self.compared = False
        waiting, self.write_requests = self.write_requests, {}
        for one in waiting.values():
            self._reject(one.token, one.request, ResponseCode.NOT_FOLLOWER)

    def handle(self, token: Hashable, request: PushEntryRequest, now_ms: int) -> None:
        """Handle a push."""
        if request.type is not PushType.COMMIT and not request.entries:
            self._reject(token, request, ResponseCode.UNEXPECTED_ARGUMENT)
        elif request.type is PushType.APPEND:
            self._keep(WaitingPush(token, request, now_ms))
            self._write()
        elif request.type is PushType.COMMIT:
            self._serve(token, request)
        else:
            self.write_requests.clear()
            if self._is_early(request):
                if self.held is not None:
                    self._reject(self.held.token, self.held.request, ResponseCode.NOT_FOLLOWER)
                self.held = WaitingPush(token, request, now_ms)
            else:
                self._serve(token, request)

    def _is_early(self, request: PushEntryRequest) -> bool:
        """Return whether a new leader sends this before its first heartbeat arrives."""
        state = self.state
        known = state.role is Role.FOLLOWER and request.term == state.term
        return not known and request.term >= state.term and not state.is_leader

    def run(self, now_ms: int) -> None:
        """Serve the held request, and reject a push that has not fitted the log for too long."""
        held = self.held
        if held is not None:
            late = now_ms - held.since_ms >= self.config.max_push_time_out_ms
            if late or not self._is_early(held.request):
                self.held = None
                self._serve(held.token, held.request)
        if self.write_requests:
            self._reject_gap(now_ms)

    def _reject_gap(self, now_ms: int) -> None:
        """Reject a push that would leave a gap, so that the leader compares again."""
        limit_ms = now_ms - self.config.max_push_time_out_ms
        late = [first for first, one in self.write_requests.items() if one.since_ms <= limit_ms]
        if late:
            one = self.write_requests.pop(min(late))
            self._reject(one.token, one.request, ResponseCode.INCONSISTENT_STATE)

    def _keep(self, push: WaitingPush) -> None:
        first = push.request.entries[0].index
        if first in self.write_requests:
            self._reject(push.token, push.request, ResponseCode.REPEATED_PUSH)
        elif len(self.write_requests) >= self.config.max_pending_pushes:
            self._reject(push.token, push.request, ResponseCode.PUSH_REQUEST_IS_FULL)
        else:
            self.write_requests[first] = push

    def _write(self) -> None:
        """Take all pushes that begin at the end of the log or before it."""
        storage = self.state.storage
        while self.write_requests:
            push = self.write_requests.pop(storage.end_index + 1, None)
            if push is None:
                first = min(self.write_requests)
                if first > storage.end_index:
                    return
                push = self.write_requests.pop(first)
            code = self._check(push.request)
            if code is None:
                try:
                    code = self._take(push)
                except CorruptRecordError as error:
                    self.state.found_damage(error)
                    code = ResponseCode.DISK_ERROR
            if code is not None:
                self._reject(push.token, push.request, code)

    def _take(self, push: WaitingPush) -> ResponseCode | None:
        request, state = push.request, self.state
        storage, entries = state.storage, push.request.entries
        first = entries[0].index
        before = max(min(storage.end_index + 1 - first, len(entries)), 0)
        known = min(max(state.verified_index + 1 - first, 0), before)  # came from this leader already
        if before > known and not all(self._stored(entry) for entry in entries[known:before]):
            return ResponseCode.INCONSISTENT_STATE
        new: Sequence[Entry] = () if before == len(entries) else entries[before:] if before else entries
        taken = len(new)
        if new:
            try:
                taken = storage.append_entries(new)
            except StoreFullError:
                return ResponseCode.DISK_FULL
            if taken:
                state.outbox.wrote_log(storage.end_index)
        if taken < len(new):  # with files of another size the positions of the two logs differ
            entry = new[taken]
            state.outbox.alarm(f"entry {entry.index} of {request.leader_id} does not fit offset {entry.pos}")
            return ResponseCode.INCONSISTENT_STATE
        self._verified(first + len(entries) - 1)
        self._commit(request)
        response = self._response(request, ResponseCode.SUCCESS, first, len(entries))
        state.outbox.acknowledge(push.token, response)
        return None

    def _stored(self, entry: Entry) -> bool:
        """Return whether the log has exactly this entry."""
        storage = self.state.storage
        try:
            return storage.begin_index <= entry.index and storage.entry(entry.index).same_as(entry)
        except OffsetOutOfRangeError:
            return False
        except CorruptRecordError as error:
            self.state.found_damage(error)
            return False

    def _compared_by(self, request: PushEntryRequest) -> bool:
        """Return whether the leader sent a push after it compared the present log.

        Such a leader counts nothing that was acknowledged before the last start. Java's leaders send no
        incarnation; their pushes arrive in the order in which they were sent.
        """
        return self.compared and request.incarnation in (None, self.state.incarnation)

    def _check(self, request: PushEntryRequest) -> ResponseCode | None:
        """Return why a push must not be served; None if it may be."""
        state = self.state
        if state.damaged:
            # A truncation could remove the damaged entry; recovery would not notice that some are missing.
            return ResponseCode.DISK_ERROR
        if state.role is not Role.FOLLOWER:
            return ResponseCode.NOT_FOLLOWER
        if not self.config.check_pushes and request.type in {PushType.COMPARE, PushType.COMMIT}:
            return None
        if request.term != state.term:
            return ResponseCode.INCONSISTENT_TERM
        if request.leader_id != state.leader_id:
            return ResponseCode.INCONSISTENT_LEADER
        if request.type is PushType.APPEND and state.lost_tail and not self._compared_by(request):
            return ResponseCode.INCONSISTENT_STATE  # the leader must drop what was acknowledged before
        return None

    def _serve(self, token: Hashable, request: PushEntryRequest) -> None:
        code = self._check(request)
        if code is not None:
            self._reject(token, request, code)
            return
        try:
            if request.type is PushType.COMPARE:
                self._compare(token, request)
            elif request.type is PushType.TRUNCATE:
                self._truncate(token, request)
            else:
                self._commit(request)
                response = self._response(request, ResponseCode.SUCCESS, None, 0)
                self.state.outbox.reply(token, response)
        except CorruptRecordError as error:
            self.state.found_damage(error)
            self._reject(token, request, ResponseCode.DISK_ERROR)

    def _compare(self, token: Hashable, request: PushEntryRequest) -> None:
        entry = request.entries[0]
        same = self._stored(entry)
        if self.state.damaged:
            self._reject(token, request, ResponseCode.DISK_ERROR)
            return
        self.compared = True
        if same:
            self._verified(entry.index)
        code = ResponseCode.SUCCESS if same else ResponseCode.INCONSISTENT_STATE
        response = self._response(request, code, entry.index, 1)
        # The leader counts an entry that compares equal, so it must be durable.
        self.state.outbox.acknowledge(token, response)

    def _truncate(self, token: Hashable, request: PushEntryRequest) -> None:
        state, storage, entry = self.state, self.state.storage, request.entries[0]
        same = self._stored(entry)
        if state.damaged:
            self._reject(token, request, ResponseCode.DISK_ERROR)
            return
        if not same and not self._compared_by(request) and self.config.check_pushes:
            # The leader decided by the log that this member had before its last start.
            self._reject(token, request, ResponseCode.INCONSISTENT_STATE)
            return
        if same and self.config.check_pushes and state.verified_index > entry.index:
            # An old request: keep what has come from this leader since, because it may be acknowledged.
            entry = storage.entry(state.verified_index)
        if same and entry.index == storage.end_index:
            pass
        elif self._truncates_committed(entry, same=same):
            state.outbox.alarm(
                f"{request.leader_id} requests a truncation at entry {entry.index}; "
                f"{storage.committed_index} is committed"
            )
            self._reject(token, request, ResponseCode.INCONSISTENT_STATE)
            return
        else:
            try:
                storage.truncate(entry)
            except StoreFullError:
                self._reject(token, request, ResponseCode.DISK_FULL)
                return
            state.outbox.truncated_log(entry.index)
        self._verified(entry.index)
        self._commit(request)
        response = self._response(request, ResponseCode.SUCCESS, entry.index, 1)
        state.outbox.acknowledge(token, response)

    def _truncates_committed(self, entry: Entry, *, same: bool) -> bool:
        state = self.state
        kept = max(state.storage.committed_index, state.verified_index)
        return self.config.check_pushes and entry.index + same <= kept

    def _verified(self, index: int) -> None:
        """Note that the log equals the leader's up to `index`."""
        self.state.verified_index = max(self.state.verified_index, index)

    def _commit(self, request: PushEntryRequest) -> None:
        """Take over the committed index, as far as the log is known to equal the leader's."""
        state = self.state
        known = state.verified_index if self.config.check_pushes else state.storage.end_index
        if request.term >= state.term:
            state.commit(min(request.commit_index, known))
        if state.lost_tail and self._compared_by(request):
            self._regain(request.commit_index)

    def _regain(self, committed_index: int) -> None:
        """Vote again once the log has everything that this member may have acknowledged.

        That is everything up to a committed entry of the leader's own term. The leader must have sent this
        committed index after its comparison, when it dropped all earlier acknowledgements.
        """
        state = self.state
        if NO_INDEX < committed_index <= state.verified_index:
            state.lost_tail = state.storage.term_at(committed_index) != state.term
            if not state.lost_tail:
                state.storage.regained_tail()
                state.outbox.wrote_log(state.storage.end_index)

    def _response(
        self, request: PushEntryRequest, code: ResponseCode, index: int | None, count: int
    ) -> PushEntryResponse:
        storage = self.state.storage
        return PushEntryResponse(
            group=request.group,
            code=code,
            term=request.term,
            index=index,
            count=count,
            begin_index=storage.begin_index,
            end_index=storage.end_index,
            incarnation=self.state.incarnation,
        )

    def _reject(self, token: Hashable, request: PushEntryRequest, code: ResponseCode) -> None:
        entries = request.entries
        index = entries[0].index if entries else None
        self.state.outbox.reply(token, self._response(request, code, index, len(entries)))

    def deadline_ms(self) -> int | None:
        """When `run` has something to do, in ms."""
        oldest = [one.since_ms for one in self.write_requests.values()]
        if self.held is not None:
            oldest.append(self.held.since_ms)
        return min(oldest) + self.config.max_push_time_out_ms if oldest else None
