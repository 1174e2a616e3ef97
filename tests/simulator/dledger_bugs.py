"""Known bugs of replicated logs, each built into every member of a simulated group.

Each is a small change of the machine of one process; the simulator must find its consequence.
"""

from collections.abc import Callable
from dataclasses import replace

from pyledger.protocol.dledger.member_state import MemberState
from pyledger.protocol.dledger.messages import PeerRequest, PushEntryRequest, PushType, Response, TermState
from pyledger.protocol.dledger.node import DLedgerNode
from pyledger.protocol.dledger.outbox import Outbox
from pyledger.protocol.dledger.pending_calls import Answer
from pyledger.protocol.dledger.ready import Role
from pyledger.protocol.dledger.response_codes import ResponseCode
from pyledger.protocol.dledger.votes import ParseResult
from pyledger.simulator.dledger.member import DLedgerMember


def machine(member: DLedgerMember) -> DLedgerNode:
    assert member.node is not None
    return member.node


def without(member: DLedgerMember, *switches: str) -> None:
    node = machine(member)
    config = replace(node.config, **dict.fromkeys(switches, False))
    for part in (node, node.state, node.elector, node.checker, node.handler, *node.dispatchers.values()):
        part.config = config


def vote_before_persist(member: DLedgerMember) -> None:
    """Votes and new terms are sent before they are on disk (dledger: the term file is never synced)."""

    class Hasty(Outbox):
        term_is_durable = property(lambda _: True)

    machine(member).outbox.__class__ = Hasty


def commit_old_terms_by_counting(member: DLedgerMember) -> None:
    """A majority commits an entry of an older term (dledger #4, figure 8 of the Raft paper)."""
    without(member, "commit_current_term_only")


def truncate_for_any_leader(member: DLedgerMember) -> None:
    """A follower truncates its log for any member, committed entries included (dledger 0.4.0)."""
    without(member, "check_pushes")
    handler = machine(member).handler
    check = handler._check

    def careless(request: PushEntryRequest) -> ResponseCode | None:
        if request.type is PushType.TRUNCATE and handler.state.role is Role.FOLLOWER:
            return None
        return check(request)

    handler._check = careless


def current_term_as_end_term(member: DLedgerMember) -> None:
    """A member uses its own term as the term of its last entry (dledger #52, rocketmq #2178)."""

    class Confused(MemberState):
        @property
        def ledger_end_term(self) -> int:
            return self.term if self.storage.end_index >= 0 else -1

    machine(member).state.__class__ = Confused


def acknowledgement_of_old_push(member: DLedgerMember) -> None:
    """Late responses count: after the timeout, from before a comparison, or of an older leadership."""
    node = machine(member)
    calls, late = node.calls, dict[int, Answer]()
    send, answered = calls.send, calls.answered

    def send_and_remember(peer: str, request: PeerRequest, answer: Answer, now_ms: int) -> int:
        call_id = send(peer, request, answer, now_ms)
        if isinstance(request, PushEntryRequest) and request.type is PushType.APPEND:
            late[call_id] = answer
        return call_id

    def take(call_id: int, response: Response | None, now_ms: int) -> None:
        if call_id not in calls.waiting and response is not None and call_id in late:
            late[call_id](response, now_ms)
        answered(call_id, response, now_ms)

    calls.send, calls.answered = send_and_remember, take
    for one in node.dispatchers.values():
        one._is_current = lambda _, one=one: one.state.is_leader
        one.checker.forget = lambda _: None


def term_forgotten_at_start(member: DLedgerMember) -> None:
    """A member starts with term 0 and no vote (PySyncObj #202; dledger without its term file)."""
    state = machine(member).state
    state.term, state.vote = TermState()


def acknowledge_before_flush(member: DLedgerMember) -> None:
    """Entries are acknowledged before a flush, and a member that lost them continues (dledger's default)."""
    without(member, "flush_before_ack")
    machine(member).outbox.flush_before_ack = False


def vote_with_lost_tail(member: DLedgerMember) -> None:
    """A member votes although its recovery dropped damaged entries."""
    machine(member).state.lost_tail = member.log.lost_tail = member.log.durable_lost_tail = False


def vote_in_the_old_term(member: DLedgerMember) -> None:
    """A member campaigns after a start in the term that it may have led."""
    elector = machine(member).elector
    elector.last_result, elector.next_vote_ms = ParseResult.WAIT_TO_REVOTE, 0


def leader_counts_before_flush(member: DLedgerMember) -> None:
    """A leader counts its own entries before they are durable."""
    node = machine(member)

    def update_own() -> None:
        if node.state.is_leader:
            node.checker.raise_water_mark(node.state.self_id, node.storage.end_index)

    node.checker.update_own = update_own


def read_without_proof(member: DLedgerMember) -> None:
    """A leader answers reads without confirming that it still leads."""
    reads = machine(member).read_index
    reads.add = lambda token, _: (
        reads._answer(token, ResponseCode.SUCCESS, reads.state.storage.committed_index)
        if reads.state.is_leader
        else reads._answer(token, ResponseCode.NOT_LEADER)
    )


def commit_beyond_what_was_compared(member: DLedgerMember) -> None:
    """A follower copies the leader's committed index up to its own end, stale entries included."""
    without(member, "check_pushes")


def vote_forgotten(member: DLedgerMember) -> None:
    """A member votes for every candidate, several times in a term."""
    state = machine(member).state
    state.vote_for = lambda candidate: state.outbox.save_term(TermState(state.term, candidate))


BUGS: tuple[Callable[[DLedgerMember], None], ...] = (
    vote_before_persist,
    vote_forgotten,
    vote_in_the_old_term,
    vote_with_lost_tail,
    term_forgotten_at_start,
    current_term_as_end_term,
    commit_old_terms_by_counting,
    commit_beyond_what_was_compared,
    truncate_for_any_leader,
    acknowledge_before_flush,
    leader_counts_before_flush,
    acknowledgement_of_old_push,
    read_without_proof,
)
