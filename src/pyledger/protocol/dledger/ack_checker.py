"""Counting acknowledgements: what a majority has is committed, and appends are answered in order.

Source: DLedger DLedgerEntryPusher.java (QuorumAckChecker).
"""

from collections import deque
from collections.abc import Sequence

from pyledger.model.quorum import quorum_index
from pyledger.protocol.dledger.member_state import MemberState
from pyledger.protocol.dledger.messages import NO_INDEX, NO_TERM, AppendEntryResponse
from pyledger.protocol.dledger.ready import Appended, Tokens
from pyledger.protocol.dledger.response_codes import ResponseCode


class QuorumAckChecker:
    """Water marks of the members in the leader's term, and the appends that wait for them.

    Invariant: the leader's own water mark is its last durable entry; that of another member is the last entry
    that it has acknowledged since its log was last compared.
    """

    def __init__(self, state: MemberState) -> None:
        self.state, self.config = state, state.config
        self.places = {peer: place for place, peer in enumerate(state.peers)}
        self.own_place = self.places[state.self_id]
        self.peer_water_marks_by_term: dict[int, list[int]] = {}
        self.pending_append_responses_by_term: dict[int, deque[Appended]] = {}
        self.waiting_count = 0
        """Requests that wait for their quorum."""
        self.first_index = NO_INDEX
        """First entry of the leader's term."""
        self.led_term = NO_TERM
        state.role_changed.append(self._role_changed)

    def _role_changed(self) -> None:
        state = self.state
        for waiting in self.pending_append_responses_by_term.values():
            for one in waiting:
                self._reject(one, ResponseCode.TERM_CHANGED)
        self.peer_water_marks_by_term.clear()
        self.pending_append_responses_by_term.clear()
        self.waiting_count = 0
        if not state.is_leader:
            return
        if state.term != self.led_term:
            self.led_term, self.first_index = state.term, state.storage.end_index + 1
        self.peer_water_marks_by_term[state.term] = [NO_INDEX] * len(state.peers)
        self.pending_append_responses_by_term[state.term] = deque()
        self.update_own()

    @property
    def water_marks(self) -> list[int]:
        """Of the leader's term, in the order of the members."""
        return self.peer_water_marks_by_term[self.state.term]

    @property
    def waiting(self) -> deque[Appended]:
        """Appends of the leader's term without answer, by index."""
        return self.pending_append_responses_by_term[self.state.term]

    def water_mark(self, peer: str) -> int:
        """Last entry that a member acknowledged."""
        return self.water_marks[self.places[peer]]

    def raise_water_mark(self, peer: str, index: int) -> None:
        """A member acknowledged all entries up to `index`."""
        marks, place = self.water_marks, self.places[peer]
        if index > marks[place]:
            marks[place] = index
            self._commit(marks)

    def forget(self, peer: str) -> None:
        """Drop what a member acknowledged: it is compared again, and may have lost entries."""
        self.water_marks[self.places[peer]] = NO_INDEX

    def update_own(self) -> None:
        """More of the own log is durable."""
        if self.state.is_leader:
            marks, durable = self.water_marks, self.state.outbox.durable_end_index
            if durable > marks[self.own_place]:
                marks[self.own_place] = durable
                self._commit(marks)

    def _commit(self, marks: list[int]) -> None:
        state = self.state
        index = quorum_index(marks, len(marks))
        if index < self.first_index and self.config.commit_current_term_only:
            index = min(marks)  # every later leader has what all members have
        if index <= state.storage.committed_index:
            return
        state.commit(index)
        waiting, outbox = self.waiting, state.outbox
        while waiting and waiting[0].last_index <= index:
            one = waiting.popleft()
            self.waiting_count -= len(one.tokens)
            outbox.appended.append(one)

    @property
    def free_count(self) -> int:
        """How many more requests may wait."""
        return self.config.max_pending_requests_num + 1 - self.waiting_count

    def wait(self, tokens: Tokens, positions: Sequence[int], now_ms: int) -> None:
        """Answer requests once the last entries of the log, at these positions, are committed."""
        deadline_ms = now_ms + self.config.max_wait_ack_time_ms
        last_index = self.state.storage.end_index
        self.waiting.append(Appended(tokens, self.state.term, last_index, positions, deadline_ms))
        self.waiting_count += len(tokens)

    def run(self, now_ms: int) -> None:
        """Answer appends that have waited too long. They may still be committed."""
        if self.state.is_leader:
            waiting = self.waiting
            while waiting and waiting[0].deadline_ms <= now_ms:
                one = waiting.popleft()
                self.waiting_count -= len(one.tokens)
                self._reject(one, ResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    def _reject(self, one: Appended, code: ResponseCode) -> None:
        state = self.state
        for token, index, position in one.each:
            response = AppendEntryResponse(
                group=state.group,
                code=code,
                leader_id=state.leader_id,
                term=one.term,
                index=index,
                pos=position,
            )
            state.outbox.reply(token, response)

    @property
    def commits_reads(self) -> bool:
        """Is an entry of the own term committed, so that the committed index is the group's?"""
        committed = self.state.storage.committed_index
        return committed >= self.first_index or committed == self.state.storage.end_index

    def deadline_ms(self) -> int | None:
        """When the oldest append has waited too long, in ms."""
        if not self.state.is_leader or not self.waiting:
            return None
        return self.waiting[0].deadline_ms
