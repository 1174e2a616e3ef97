"""What the machine says, held back until what it depends on is durable.

Two rules. While the term file is not durable, nothing is said but how this member is. An acknowledgement of
entries waits until they are durable, and is dropped when the term changed meanwhile: then they may be gone
again.
"""

from collections.abc import Hashable

from pyledger.protocol.dledger.messages import NO_INDEX, PeerRequest, PushEntryResponse, Response, TermState
from pyledger.protocol.dledger.ready import Appended, Call, Persist, Ready, Reply, RoleChange

ALARMS_MAX = 100
HELD_MAX = 10_000
"""Calls and replies that wait for the term file; more are left out, as if they were lost on their way."""


class Outbox:
    """Calls, replies and the writes that they wait for.

    Invariant: durable_sequence <= asked.sequence <= write_sequence; every write takes a new sequence.
    """

    def __init__(self, end_index: int, *, flush_before_ack: bool) -> None:
        self.flush_before_ack = flush_before_ack
        self.write_sequence = self.durable_sequence = self.term_sequence = self.log_sequence = 0
        self.term_state: TermState | None = None
        self.asked: Persist | None = None
        self.asked_end_index = NO_INDEX
        self.durable_end_index = end_index
        """Last entry that may be counted: all up to it are durable, or need not be."""
        self.held: list[tuple[int, int | None, Call | Reply]] = []
        self.calls: list[Call] = []
        self.replies: list[Reply] = []
        self.appended: list[Appended] = []
        self.role_changes: list[RoleChange] = []
        self.alarms: list[str] = []
        self.committed_index: int | None = None

    def save_term(self, state: TermState) -> None:
        """The term or the vote changed."""
        self.write_sequence += 1
        self.term_sequence = self.write_sequence
        self.term_state = state

    @property
    def term_is_durable(self) -> bool:
        """Is the term file as it was last to be saved?"""
        return self.term_sequence <= self.durable_sequence

    def wrote_log(self, end_index: int) -> None:
        """Entries were appended; the log ends at `end_index`."""
        if self.flush_before_ack:
            self.write_sequence += 1
            self.log_sequence = self.write_sequence
        else:
            self.durable_end_index = end_index

    def cut_log(self, index: int) -> None:
        """The entry at `index` was written anew or kept, and all behind it is gone."""
        self.durable_end_index = min(self.durable_end_index, index - 1)
        self.asked_end_index = min(self.asked_end_index, index - 1)
        self.wrote_log(index)

    def call(self, call_id: int, peer: str, request: PeerRequest) -> None:
        """Ask another member."""
        self._say(Call(call_id, peer, request))

    def reply(self, token: Hashable, response: Response) -> None:
        """Answer, at once if the term file allows it."""
        self._say(Reply(token, response))

    def reply_at_once(self, token: Hashable, response: Response) -> None:
        """Answer something on which nobody relies when terms and votes are counted."""
        self.replies.append(Reply(token, response))

    def acknowledge(self, token: Hashable, response: PushEntryResponse) -> None:
        """Answer that entries are stored, once they are durable."""
        if self.log_sequence > self.durable_sequence:
            self.held.append((self.log_sequence, response.term, Reply(token, response)))
        else:
            self._say(Reply(token, response))

    def _say(self, item: Call | Reply) -> None:
        if not self.term_is_durable:
            if len(self.held) < HELD_MAX:
                self.held.append((self.term_sequence, None, item))
        elif isinstance(item, Call):
            self.calls.append(item)
        else:
            self.replies.append(item)

    def alarm(self, text: str) -> None:
        """Tell an operator."""
        if len(self.alarms) < ALARMS_MAX:
            self.alarms.append(text)

    def take(self, end_index: int) -> Ready | None:
        """All that may be done now; one request to persist at a time."""
        persist = None
        if self.asked is None and self.write_sequence > self.durable_sequence:
            flush = self.log_sequence > self.durable_sequence
            persist = self.asked = Persist(self.write_sequence, flush, self.term_state)
            self.asked_end_index = end_index
            self.term_state = None
        if not (
            persist
            or self.calls
            or self.replies
            or self.appended
            or self.role_changes
            or self.alarms
            or self.committed_index is not None
        ):
            return None
        ready = Ready(
            persist,
            self.calls,
            self.replies,
            self.appended,
            self.committed_index,
            self.role_changes,
            self.alarms,
        )
        self.calls, self.replies, self.appended = [], [], []
        self.role_changes, self.alarms = [], []
        self.committed_index = None
        return ready

    def persisted(self, persist: Persist, term: int) -> None:
        """The shell made durable what was asked."""
        if persist is not self.asked:
            return
        self.asked = None
        self.durable_sequence = persist.sequence
        if self.flush_before_ack:
            self.durable_end_index = max(self.durable_end_index, self.asked_end_index)
        held, self.held = self.held, []
        for sequence, of_term, item in held:
            if sequence > self.durable_sequence:
                self.held.append((sequence, of_term, item))
            elif of_term is None or of_term == term:
                self._say(item)
