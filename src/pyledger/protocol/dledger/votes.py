"""The rules of votes: a voter's answer, and the result of a round of votes. Their order matters.

Source: DLedger DLedgerLeaderElector.java (handleVote, maintainAsCandidate).
"""

from dataclasses import dataclass, field
from enum import Enum

from pyledger.protocol.dledger.member_state import MemberState
from pyledger.protocol.dledger.messages import NO_TERM, VoteRequest, VoteResponse, VoteResult

TERM_REJECTIONS = (VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, VoteResult.REJECT_EXPIRED_VOTE_TERM)
LEDGER_REJECTIONS = (VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)


def judge_vote(state: MemberState, request: VoteRequest, *, own: bool) -> tuple[VoteResult, int]:
    """Decide about a vote, and change nothing.

    The log is compared before the term, so a candidate without all entries raises no voter's term.

    Args:
        state: The voter.
        request: The candidate's request.
        own: The voter is the candidate.

    Returns:
        The result, and the term for the response.
    """
    candidate, mine = request.leader_id, state.term
    if candidate not in state.peers:
        return VoteResult.REJECT_UNKNOWN_LEADER, mine
    if not own and candidate == state.self_id:
        return VoteResult.REJECT_UNEXPECTED_LEADER, mine
    if (rejection := _judge_ledger(state, request)) is not None:
        return rejection, mine
    if request.term < mine:
        return VoteResult.REJECT_EXPIRED_VOTE_TERM, mine
    if request.term > mine:
        return VoteResult.REJECT_TERM_NOT_READY, mine
    if state.vote is not None and state.vote != candidate:
        led = state.leader_id is not None
        return VoteResult.REJECT_ALREADY_HAS_LEADER if led else VoteResult.REJECT_ALREADY_VOTED, mine
    return _judge_same_term(state, request, own=own)


def _judge_ledger(state: MemberState, request: VoteRequest) -> VoteResult | None:
    if not state.may_vote:
        # Differs: a member that may have lost entries may have had the longest log. The candidate retries
        # later, in the same term; if it raised its term, the right candidate might never catch up.
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    end_term = state.ledger_end_term
    if request.ledger_end_term < end_term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if request.ledger_end_term == end_term and request.ledger_end_index < state.storage.end_index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return None


def _judge_same_term(state: MemberState, request: VoteRequest, *, own: bool) -> tuple[VoteResult, int]:
    end_term, end_index = state.ledger_end_term, state.storage.end_index
    if request.term < end_term:
        return VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, end_term
    level = request.ledger_end_term == end_term and end_index >= request.ledger_end_index
    if not own and state.is_taking_leadership and level:
        return VoteResult.REJECT_TAKING_LEADERSHIP, state.term
    return VoteResult.ACCEPT, state.term


class ParseResult(Enum):
    """The result of a round."""

    WAIT_TO_REVOTE = "wait to revote"
    REVOTE_IMMEDIATELY = "revote immediately"
    PASSED = "passed"
    WAIT_TO_VOTE_NEXT = "wait to vote next"


@dataclass(slots=True)
class VoteRound:
    """The answers to one request for votes."""

    term: int
    deadline_ms: int
    answers: dict[str, VoteResult] = field(default_factory=dict)
    max_term: int = NO_TERM
    done: bool = False

    def add(self, peer: str, response: VoteResponse | None) -> None:
        """Count an answer; None if the member cannot be reached."""
        result = VoteResult.UNKNOWN if response is None else response.vote_result
        self.answers[peer] = result
        if response is not None and result in TERM_REJECTIONS:
            self.max_term = max(self.max_term, response.term)

    def count(self, *results: VoteResult) -> int:
        """Number of members that answered one of these."""
        return sum(result in results for result in self.answers.values())

    @property
    def valid(self) -> int:
        """Number of members that answered at all."""
        return len(self.answers) - self.count(VoteResult.UNKNOWN)

    @property
    def has_leader(self) -> bool:
        """Whether any member follows a leader."""
        return self.count(VoteResult.REJECT_ALREADY_HAS_LEADER) > 0

    def is_over(self, state: MemberState) -> bool:
        """Return whether more answers would change nothing."""
        willing = self.count(VoteResult.ACCEPT, VoteResult.REJECT_TERM_NOT_READY)
        return self.has_leader or state.is_quorum(willing) or len(self.answers) == len(state.peers)

    def parse(self, state: MemberState) -> ParseResult:
        """The result of the round."""
        accepted = self.count(VoteResult.ACCEPT)
        if self.max_term > state.term:
            return ParseResult.WAIT_TO_VOTE_NEXT
        if self.has_leader or not state.is_quorum(self.valid):
            return ParseResult.WAIT_TO_REVOTE
        if not state.is_quorum(self.valid - self.count(*LEDGER_REJECTIONS)):
            return ParseResult.WAIT_TO_REVOTE
        if state.is_quorum(accepted):
            return ParseResult.PASSED
        if state.is_quorum(accepted + self.count(VoteResult.REJECT_TERM_NOT_READY)):
            return ParseResult.REVOTE_IMMEDIATELY
        return ParseResult.WAIT_TO_VOTE_NEXT
