"""Campaigning: when a follower gives up its leader, and when a candidate requests votes.

Source: DLedger DLedgerLeaderElector.java (maintainAsFollower, maintainAsCandidate, handleVote).
"""

from collections.abc import Hashable
from functools import partial

from pyledger.protocol.dledger.member_state import MemberState
from pyledger.protocol.dledger.messages import NO_INDEX, Response, VoteRequest, VoteResponse, VoteResult
from pyledger.protocol.dledger.pending_calls import Calls
from pyledger.protocol.dledger.ready import Role
from pyledger.protocol.dledger.votes import ParseResult, VoteRound, judge_vote

PASS_MS = 10
"""Pause before an immediate revote: a voter needs this long to take the new term."""


class Elector:
    """The elections of one member."""

    def __init__(self, state: MemberState, calls: Calls, now_ms: int) -> None:
        self.state, self.calls, self.config = state, calls, state.config
        self.need_increase_term = False
        first = self.config.first_vote_at_next_term
        self.last_result = ParseResult.WAIT_TO_VOTE_NEXT if first else ParseResult.WAIT_TO_REVOTE
        self.round: VoteRound | None = None
        self.heard_ms = now_ms
        self.election_timeout_ms = self._draw_election_timeout_ms()
        # A node that was a member before waits for the heartbeat of a leader that may exist.
        known = state.storage.end_index > NO_INDEX or state.term > 0
        wait_ms = self.config.heart_beat_time_interval_ms + self._draw_pause_ms() if known else 0
        self.next_vote_ms = now_ms + wait_ms

    def _draw_election_timeout_ms(self) -> int:
        config = self.config
        silence_ms = config.max_heart_beat_leak * config.heart_beat_time_interval_ms
        return silence_ms + self.state.random.randrange(config.heart_beat_jitter_ms + 1)

    def _draw_pause_ms(self) -> int:
        config = self.config
        low, high = config.min_vote_interval_ms, config.max_vote_interval_ms
        if self.state.is_taking_leadership:
            low, high = (
                config.min_take_leadership_vote_interval_ms,
                config.max_take_leadership_vote_interval_ms,
            )
        return low + self.state.random.randrange(max(high - low, 1))

    def heard(self, now_ms: int) -> None:
        """A heartbeat of the leader was accepted."""
        self.heard_ms = now_ms
        self.election_timeout_ms = self._draw_election_timeout_ms()

    def raise_term(self, term: int) -> None:
        """Another member has a higher term: become a candidate, and take that term before anything else."""
        self.state.change_to_candidate(term)
        self.need_increase_term = True

    def run(self, now_ms: int) -> None:
        """Do what is due."""
        state = self.state
        if state.role is Role.FOLLOWER and now_ms - self.heard_ms > self.election_timeout_ms:
            state.change_to_candidate(state.term)
        if state.role is not Role.CANDIDATE:
            self.round = None
            return
        if self.need_increase_term:
            self._raise_term_now(now_ms)
        elif self.round is not None:
            if now_ms >= self.round.deadline_ms or self.round.term != state.term:
                self._conclude(self.round, now_ms)
            else:
                self._conclude_if_over(self.round, now_ms)
        elif now_ms >= self.next_vote_ms and state.may_vote:
            if self.last_result is ParseResult.WAIT_TO_VOTE_NEXT:
                state.next_term()
                self.last_result = ParseResult.WAIT_TO_REVOTE
            self._campaign(now_ms)

    def _raise_term_now(self, now_ms: int) -> None:
        self.round = None
        self.state.next_term()
        self.need_increase_term = False
        self.last_result = ParseResult.WAIT_TO_REVOTE
        self.next_vote_ms = now_ms + self._draw_pause_ms()

    def _campaign(self, now_ms: int) -> None:
        state = self.state
        pause_ms = state.random.randrange(self.config.max_vote_interval_ms)
        this = self.round = VoteRound(state.term, now_ms + self.config.vote_wait_ms + pause_ms)
        own = self._request(state.self_id)
        this.add(state.self_id, self._vote(own, own=True))
        for peer in state.others:
            self.calls.send(peer, self._request(peer), partial(self._answered, this, peer), now_ms)
        self._conclude_if_over(this, now_ms)

    def _request(self, peer: str) -> VoteRequest:
        state = self.state
        return VoteRequest(
            group=state.group,
            remote_id=peer,
            local_id=state.self_id,
            leader_id=state.self_id,
            term=state.term,
            ledger_end_index=state.storage.end_index,
            ledger_end_term=state.ledger_end_term,
        )

    def _answered(self, this: VoteRound, peer: str, response: Response | None, now_ms: int) -> None:
        if this is not self.round or this.term != self.state.term:
            return
        this.add(peer, response if isinstance(response, VoteResponse) else None)
        self._conclude_if_over(this, now_ms)

    def _conclude_if_over(self, this: VoteRound, now_ms: int) -> None:
        """Conclude a round that is over. The own vote counts once it is durable."""
        if this.is_over(self.state) and self.state.outbox.term_is_durable:
            self._conclude(this, now_ms)

    def _conclude(self, this: VoteRound, now_ms: int) -> None:
        state, config = self.state, self.config
        self.round = None
        if this.term != state.term or state.role is not Role.CANDIDATE:
            return
        result = this.parse(state)
        self.last_result = result
        self.next_vote_ms = now_ms + self._draw_pause_ms()
        if this.max_term > state.term:
            state.change_to_candidate(this.max_term)
        elif result is ParseResult.PASSED:
            state.change_to_leader(this.term)
        elif result is ParseResult.REVOTE_IMMEDIATELY:
            self.next_vote_ms = now_ms + PASS_MS
        elif this.has_leader:
            self.next_vote_ms += config.max_heart_beat_leak * config.heart_beat_time_interval_ms
        elif result is ParseResult.WAIT_TO_REVOTE and state.is_quorum(this.valid):
            # Members with more of the log campaign first.
            self.next_vote_ms += config.max_vote_interval_ms

    def handle_vote(self, token: Hashable, request: VoteRequest) -> None:
        """Answer a member that campaigns."""
        self.state.outbox.reply(token, self._vote(request, own=False))

    def _vote(self, request: VoteRequest, *, own: bool) -> VoteResponse:
        state = self.state
        result, term = judge_vote(state, request, own=own)
        if result is VoteResult.REJECT_TERM_NOT_READY:
            self.raise_term(request.term)
        elif result is VoteResult.ACCEPT:
            assert request.leader_id is not None
            state.vote_for(request.leader_id)
        return VoteResponse(
            group=request.group,
            remote_id=request.remote_id,
            local_id=request.local_id,
            leader_id=request.leader_id,
            term=term,
            vote_result=result,
        )

    def deadline_ms(self) -> int | None:
        """When `run` has something to do, in ms; None: not before something happens."""
        state = self.state
        if state.role is Role.FOLLOWER:
            return self.heard_ms + self.election_timeout_ms + 1
        if state.role is Role.LEADER:
            return None
        if self.need_increase_term:
            return 0
        if self.round is not None:
            return self.round.deadline_ms
        return self.next_vote_ms if state.may_vote else None
