"""Heartbeats: how a leader stays one, and how a member finds its leader.

Source: DLedger DLedgerLeaderElector.java (sendHeartbeats, handleHeartBeat, maintainAsLeader).
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from pyledger.protocol.dledger.leader_elector import PASS_MS, Elector
from pyledger.protocol.dledger.member_state import MemberState
from pyledger.protocol.dledger.messages import NO_TERM, HeartBeatRequest, HeartBeatResponse, Response
from pyledger.protocol.dledger.pending_calls import Calls
from pyledger.protocol.dledger.ready import Role
from pyledger.protocol.dledger.response_codes import ResponseCode


@dataclass(eq=False, slots=True)
class HeartBeatRound:
    """The responses to one heartbeat; the code None means no response."""

    number: int
    term: int
    sent_ms: int
    codes: dict[str, int | None] = field(default_factory=dict)
    confirmed: bool = False

    def count(self, *wanted: ResponseCode) -> int:
        """Members that answered one of these codes."""
        return sum(code in wanted for code in self.codes.values())


class Heartbeats:
    """Sends heartbeats as leader, answers them in the other roles."""

    def __init__(self, state: MemberState, calls: Calls, elector: Elector) -> None:
        self.state, self.calls, self.elector = state, calls, elector
        self.interval_ms = state.config.heart_beat_time_interval_ms
        self.round: HeartBeatRound | None = None
        self.rounds = 0
        self.confirmed: list[Callable[[int, int], None]] = []
        """Called with the number of a round and the time once a majority has answered it."""
        self.next_send_ms: int | None = None
        self.quorum_ms: int | None = None
        self.live: dict[str, bool] = {}
        """Leader: did the peer answer the last heartbeat?"""
        state.role_changed.append(self._role_changed)

    def _role_changed(self) -> None:
        self.round = self.next_send_ms = self.quorum_ms = None
        self.live = {}

    def run(self, now_ms: int) -> None:
        """Do what is due."""
        if not self.state.is_leader:
            return
        if self.quorum_ms is None:
            self.quorum_ms = now_ms
        this = self.round
        if this is not None and now_ms >= this.sent_ms + self.interval_ms - PASS_MS:
            self._evaluate(this, now_ms)
        if self.state.is_leader and (self.next_send_ms is None or now_ms >= self.next_send_ms):
            self.send(now_ms)

    def send(self, now_ms: int) -> int:
        """Begin a round; returns its number."""
        state = self.state
        self.rounds += 1
        self.next_send_ms = now_ms + self.interval_ms
        this = self.round = HeartBeatRound(self.rounds, state.term, now_ms)
        this.codes[state.self_id] = ResponseCode.SUCCESS
        for peer in state.others:
            request = HeartBeatRequest(
                group=state.group,
                remote_id=peer,
                local_id=state.self_id,
                leader_id=state.self_id,
                term=state.term,
            )
            self.calls.send(peer, request, partial(self._answered, this, peer), now_ms)
        if not state.others:
            self.round = None
            self._confirm(this, now_ms)
        return this.number

    def _answered(self, this: HeartBeatRound, peer: str, response: Response | None, now_ms: int) -> None:
        state = self.state
        if not state.is_leader or this.term != state.term:
            return
        code = response.code if response is not None else None
        self.live[peer] = response is not None
        if response is not None and code == ResponseCode.EXPIRED_TERM and response.term > state.term:
            # A leader that stayed in the old term, and was elected there again, would never get that member.
            self.elector.raise_term(response.term)
            return
        this.codes[peer] = code
        if not this.confirmed and state.is_quorum(this.count(ResponseCode.SUCCESS)):
            self._confirm(this, now_ms)  # even if the next round has begun: responses may be slow
        if this is not self.round:
            return
        willing = this.count(ResponseCode.SUCCESS, ResponseCode.TERM_NOT_READY)
        if state.is_quorum(willing) or len(this.codes) == len(state.peers):
            self._evaluate(this, now_ms)

    def _evaluate(self, this: HeartBeatRound, now_ms: int) -> None:
        state = self.state
        self.round = None
        if this.confirmed:
            return
        if state.is_quorum(this.count(ResponseCode.SUCCESS, ResponseCode.TERM_NOT_READY)):
            self.next_send_ms = now_ms + PASS_MS
            return
        election_timeout_ms = state.config.max_heart_beat_leak * self.interval_ms
        silent = self.quorum_ms is None or now_ms - self.quorum_ms > election_timeout_ms
        if silent or this.count(ResponseCode.INCONSISTENT_LEADER):
            state.change_to_candidate(state.term)

    def _confirm(self, this: HeartBeatRound, now_ms: int) -> None:
        this.confirmed = True
        self.quorum_ms = max(self.quorum_ms or 0, this.sent_ms)
        for listener in self.confirmed:
            listener(this.number, now_ms)

    def handle(self, token: Hashable, request: HeartBeatRequest, now_ms: int) -> None:
        """Answer a member that claims to lead."""
        code, term = self._judge(request, now_ms)
        self.state.outbox.reply(token, HeartBeatResponse(code=code, term=term))

    def _judge(self, request: HeartBeatRequest, now_ms: int) -> tuple[ResponseCode, int]:
        state, leader = self.state, request.leader_id
        if leader not in state.peers:
            return ResponseCode.UNKNOWN_MEMBER, state.term
        if leader == state.self_id:
            return ResponseCode.UNEXPECTED_MEMBER, state.term
        if request.term < state.term:
            return ResponseCode.EXPIRED_TERM, state.term
        if request.term > state.term:
            self.elector.raise_term(request.term)
            return ResponseCode.TERM_NOT_READY, NO_TERM
        if state.leader_id is None:
            state.change_to_follower(request.term, str(leader))
        elif state.leader_id != leader:
            return ResponseCode.INCONSISTENT_LEADER, NO_TERM
        self.elector.heard(now_ms)
        return ResponseCode.SUCCESS, NO_TERM

    def deadline_ms(self) -> int | None:
        """When `run` has something to do, in ms."""
        if self.state.role is not Role.LEADER:
            return None
        next_ms = self.next_send_ms or 0
        return (
            next_ms if self.round is None else min(next_ms, self.round.sent_ms + self.interval_ms - PASS_MS)
        )
