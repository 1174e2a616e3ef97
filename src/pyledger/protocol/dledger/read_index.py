"""Reads that see everything acknowledged before, and write nothing.

The response is the committed index, once a majority has answered a heartbeat sent after the request.
Source: the Raft thesis, section 6.4.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from pyledger.protocol.dledger.ack_checker import QuorumAckChecker
from pyledger.protocol.dledger.heartbeats import Heartbeats
from pyledger.protocol.dledger.member_state import MemberState
from pyledger.protocol.dledger.messages import NO_INDEX, ReadIndexResponse
from pyledger.protocol.dledger.response_codes import ResponseCode


@dataclass(slots=True)
class WaitingRead:
    """A request; `index` and `round_number` are set when the heartbeat that must confirm it is sent."""

    token: Hashable
    deadline_ms: int
    index: int = NO_INDEX
    round_number: int = 0


class ReadIndex:
    """Requests that wait for proof that this member still leads."""

    def __init__(self, state: MemberState, checker: QuorumAckChecker, heartbeats: Heartbeats) -> None:
        self.state, self.checker, self.heartbeats = state, checker, heartbeats
        self.waiting: list[WaitingRead] = []
        heartbeats.confirmed.append(self._confirmed)
        state.role_changed.append(self._role_changed)

    def _role_changed(self) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            self._answer(one.token, ResponseCode.NOT_LEADER)

    def add(self, token: Hashable, now_ms: int) -> None:
        """Add a request."""
        if not self.state.is_leader:
            self._answer(token, ResponseCode.NOT_LEADER)
        elif len(self.waiting) >= self.state.config.max_pending_requests_num:
            self._answer(token, ResponseCode.LEADER_PENDING_FULL)
        else:
            self.waiting.append(WaitingRead(token, now_ms + self.state.config.rpc_timeout_ms))

    def run(self, now_ms: int) -> None:
        """Send one heartbeat for all new requests, and give up old ones."""
        if not self.waiting:
            return
        late = [one for one in self.waiting if one.deadline_ms <= now_ms]
        if late:
            self.waiting = [one for one in self.waiting if one.deadline_ms > now_ms]
            for one in late:
                self._answer(one.token, ResponseCode.TIMEOUT)
        fresh = [one for one in self.waiting if not one.round_number]
        # One round at a time: requests that arrive meanwhile share the next one.
        if not fresh or not self.checker.commits_reads or self._confirming:
            return
        number = self.heartbeats.rounds + 1
        for one in fresh:
            one.index, one.round_number = self.state.storage.committed_index, number
        self.heartbeats.send(now_ms)

    @property
    def _confirming(self) -> bool:
        this = self.heartbeats.round
        return this is not None and any(one.round_number == this.number for one in self.waiting)

    def _confirmed(self, number: int, _now_ms: int) -> None:
        done = [one for one in self.waiting if 0 < one.round_number <= number]
        if done:
            self.waiting = [one for one in self.waiting if not 0 < one.round_number <= number]
            for one in done:
                self._answer(one.token, ResponseCode.SUCCESS, one.index)

    def _answer(self, token: Hashable, code: ResponseCode, index: int = NO_INDEX) -> None:
        state = self.state
        response = ReadIndexResponse(
            group=state.group, code=code, leader_id=state.leader_id, term=state.term, index=index
        )
        state.outbox.reply(token, response)

    def deadline_ms(self) -> int | None:
        """When the oldest request is given up, in ms."""
        return self.waiting[0].deadline_ms if self.waiting else None
