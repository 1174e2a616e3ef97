"""Transfer of the leadership: on request, to a preferred member, or because the leader's disk is full.

Source: DLedger DLedgerServer.java (handleLeadershipTransfer, checkPreferredLeader), DLedgerLeaderElector.java
(handleTakeLeadership).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from pyledger.protocol.dledger.ack_checker import QuorumAckChecker
from pyledger.protocol.dledger.heartbeats import Heartbeats
from pyledger.protocol.dledger.leader_elector import Elector
from pyledger.protocol.dledger.member_state import FULL_PAUSE_MS, MemberState
from pyledger.protocol.dledger.messages import (
    NO_TERM,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    Response,
)
from pyledger.protocol.dledger.pending_calls import Calls
from pyledger.protocol.dledger.ready import Role
from pyledger.protocol.dledger.response_codes import ResponseCode


@dataclass(frozen=True, slots=True)
class Taking:
    """On the transferee: a request that is answered when the next leader is known."""

    token: Hashable
    request: LeadershipTransferRequest
    deadline_ms: int
    term: int = NO_TERM
    """Term to lead in; -1 while entries are missing."""


class Transfer:
    """Both sides of a transfer."""

    def __init__(
        self, state: MemberState, calls: Calls, elector: Elector, beats: Heartbeats, checker: QuorumAckChecker
    ) -> None:
        self.state, self.calls, self.elector = state, calls, elector
        self.heartbeats, self.checker, self.config = beats, checker, state.config
        self.taking: Taking | None = None
        self.transferee_until_ms: int | None = None
        self.next_check_ms: int | None = None
        self.next_full_transfer_ms: int | None = None
        """When a leader with a full disk may choose another one again."""
        state.role_changed.append(self._role_changed)

    def handle(self, token: Hashable, request: LeadershipTransferRequest, now_ms: int) -> None:
        """Handle a request, as the present leader or as the transferee."""
        me = self.state.self_id
        if request.transfer_id == me:
            code = self._give(request.transferee_id, request.term, now_ms, token)
        elif request.transferee_id == me:
            code = self._take(token, request, now_ms)
        else:
            code = ResponseCode.UNEXPECTED_ARGUMENT
        if code is not None:
            self._answer(token, code, request.term)

    def _give(
        self, transferee: str | None, term: int, now_ms: int, token: Hashable | None
    ) -> ResponseCode | None:
        state = self.state
        if transferee is None or transferee not in state.others:
            return ResponseCode.UNKNOWN_MEMBER
        if term != state.term:
            return ResponseCode.INCONSISTENT_TERM
        if not state.is_leader:
            return ResponseCode.NOT_LEADER
        lag = state.storage.end_index - self.checker.water_mark(transferee)
        if lag > self.config.max_leadership_transfer_wait_index:
            return ResponseCode.FALL_BEHIND_TOO_MUCH
        if state.transferee is not None:
            return ResponseCode.LEADER_TRANSFERRING
        state.transferee = transferee
        self.transferee_until_ms = now_ms + self.config.rpc_timeout_ms
        request = LeadershipTransferRequest(
            group=state.group,
            remote_id=transferee,
            local_id=state.self_id,
            leader_id=state.self_id,
            term=state.term,
            transfer_id=state.self_id,
            transferee_id=transferee,
            take_leadership_ledger_index=state.storage.end_index,
        )
        self.calls.send(transferee, request, partial(self._given, token, state.term, transferee), now_ms)
        return None

    def _given(
        self, token: Hashable | None, term: int, transferee: str, response: Response | None, now_ms: int
    ) -> None:
        state = self.state
        if response is not None and response.code == ResponseCode.DISK_FULL:
            state.full_until_ms[transferee] = now_ms + FULL_PAUSE_MS
        if state.is_leader and state.term == term:
            state.transferee = None
        if token is None:
            return
        if isinstance(response, LeadershipTransferResponse):
            self._answer(token, response.code, response.term)
        else:
            self._answer(token, ResponseCode.NETWORK_ERROR, term)

    def _take(self, token: Hashable, request: LeadershipTransferRequest, now_ms: int) -> ResponseCode | None:
        state = self.state
        if request.transfer_id != state.leader_id:
            return ResponseCode.INCONSISTENT_LEADER
        if self.taking is not None:
            return ResponseCode.LEADER_TRANSFERRING
        if state.storage.disk_full:
            return ResponseCode.DISK_FULL
        wait_ms = self.config.leadership_transfer_wait_timeout_ms
        self.taking = Taking(token, request, now_ms + wait_ms)
        self._campaign_when_complete(now_ms)
        return None

    def _campaign_when_complete(self, now_ms: int) -> None:
        """Campaign as soon as the log is complete."""
        state, taking = self.state, self.taking
        if taking is None or taking.term != NO_TERM:
            return
        request = taking.request
        if state.term != request.term:
            self._finish(ResponseCode.INCONSISTENT_TERM, request.term)
        elif state.storage.end_index >= request.take_leadership_ledger_index and state.may_vote:
            deadline_ms = now_ms + self.config.rpc_timeout_ms
            state.term_to_take_leadership = state.term + 1
            self.taking = Taking(taking.token, request, deadline_ms, state.term + 1)
            self.elector.raise_term(state.term + 1)

    def _role_changed(self) -> None:
        state, taking = self.state, self.taking
        self.transferee_until_ms = self.next_check_ms = None
        if taking is None or taking.term == NO_TERM:
            return
        if state.term > taking.term:
            self._finish(ResponseCode.EXPIRED_TERM, state.term)
        elif state.term == taking.term and state.role is Role.LEADER:
            self._finish(ResponseCode.SUCCESS, state.term)
        elif state.role is Role.FOLLOWER:
            self._finish(ResponseCode.TAKE_LEADERSHIP_FAILED, state.term)

    def _finish(self, code: ResponseCode, term: int) -> None:
        taking, self.taking = self.taking, None
        if taking is not None:
            self._answer(taking.token, code, term)

    def run(self, now_ms: int) -> None:
        """Do what is due."""
        state = self.state
        self._campaign_when_complete(now_ms)
        if self.taking is not None and now_ms >= self.taking.deadline_ms:
            self._finish(ResponseCode.TAKE_LEADERSHIP_FAILED, state.term)
        if self.transferee_until_ms is not None and now_ms >= self.transferee_until_ms:
            self.transferee_until_ms = state.transferee = None  # or all later appends would be rejected
        if state.is_leader and self.config.preferred_leader_ids:
            self._check_preferred(now_ms)
        if state.is_leader and state.storage.disk_full:
            self._transfer_from_full_disk(now_ms)

    def _transfer_from_full_disk(self, now_ms: int) -> None:
        """Hand the leadership of a member with a full disk to another one, if there is one."""
        state = self.state
        if state.transferee is not None or (
            self.next_full_transfer_ms is not None and now_ms < self.next_full_transfer_ms
        ):
            return
        best = self._best(state.others, now_ms)
        if best is not None:
            self.next_full_transfer_ms = now_ms + FULL_PAUSE_MS
            state.outbox.alarm(f"disk full: the leadership is transferred to {best}")
            self._give(best, state.term, now_ms, None)

    def _best(self, peers: Sequence[str], now_ms: int) -> str | None:
        """Return the live member with free space that has the most of the log."""
        full = self.state.full_until_ms
        live = [one for one in peers if self.heartbeats.live.get(one) and full.get(one, now_ms) <= now_ms]
        return max(live, key=self.checker.water_mark, default=None)

    def _check_preferred(self, now_ms: int) -> None:
        state, interval_ms = self.state, self.config.check_preferred_leader_interval_ms
        if self.next_check_ms is None:
            self.next_check_ms = now_ms + interval_ms
        if now_ms < self.next_check_ms:
            return
        self.next_check_ms = now_ms + interval_ms
        preferred = self.config.preferred_leader_ids.split(";")
        if state.self_id in preferred or state.transferee is not None:
            return
        best = self._best(preferred, now_ms)
        if best is not None:
            self._give(best, state.term, now_ms, None)

    def _answer(self, token: Hashable, code: int, term: int) -> None:
        self.state.outbox.reply(token, LeadershipTransferResponse(code=code, term=term))

    def deadline_ms(self) -> int | None:
        """When `run` has something to do, in ms."""
        times = [self.transferee_until_ms, self.taking.deadline_ms if self.taking else None]
        if self.state.is_leader and self.config.preferred_leader_ids:
            times.append(self.next_check_ms or 0)
        return min((time for time in times if time is not None), default=None)
