"""Requests and responses of the state machine, held until everything they depend on is durable.

Two rules. While the term file is not durable, only the state of the member is sent. An acknowledgement of
entries is held until they are durable, and is dropped if the term has changed: the entries may be truncated.
"""

from collections.abc import Hashable

from pyledger.protocol.dledger.messages import NO_INDEX, PeerRequest, PushEntryResponse, Response, TermState
from pyledger.protocol.dledger.ready import Appended, Call, Persist, Ready, Reply, RoleChange

ALARMS_MAX = 100
HELD_MAX = 10_000
"""Calls and replies held for the term file; more are dropped, as if the network had lost them."""


class Outbox:
    """Calls, replies and the writes that they depend on.

    Invariant: durable_sequence <= pending.sequence <= write_sequence; every write takes a new sequence.
    """

    def __init__(self, end_index: int, *, flush_before_ack: bool) -> None:
        self.flush_before_ack = flush_before_ack
        self.write_sequence = self.durable_sequence = self.term_sequence = self.log_sequence = 0
        self.term_state: TermState | None = None
        self.pending: Persist | None = None
        """The write that the shell works on."""
        self.pending_end_index = NO_INDEX
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
        """Whether the last term and vote are in the term file."""
        return self.term_sequence <= self.durable_sequence

    def wrote_log(self, end_index: int) -> None:
        """Entries were appended; the log ends at `end_index`."""
        if self.flush_before_ack:
            self.write_sequence += 1
            self.log_sequence = self.write_sequence
        else:
            self.durable_end_index = end_index

    def truncated_log(self, index: int) -> None:
        """The entry at `index` was rewritten or kept, and all entries after it are deleted."""
        self.durable_end_index = min(self.durable_end_index, index - 1)
        self.pending_end_index = min(self.pending_end_index, index - 1)
        self.wrote_log(index)

    def call(self, call_id: int, peer: str, request: PeerRequest) -> None:
        """Send a request to another member."""
        self._send(Call(call_id, peer, request))

    def reply(self, token: Hashable, response: Response) -> None:
        """Send a response, once the term file is durable."""
        self._send(Reply(token, response))

    def reply_at_once(self, token: Hashable, response: Response) -> None:
        """Send a response on which no term or vote depends."""
        self.replies.append(Reply(token, response))

    def acknowledge(self, token: Hashable, response: PushEntryResponse) -> None:
        """Acknowledge entries once they are durable."""
        if self.log_sequence > self.durable_sequence:
            self.held.append((self.log_sequence, response.term, Reply(token, response)))
        else:
            self._send(Reply(token, response))

    def _send(self, item: Call | Reply) -> None:
        if not self.term_is_durable:
            if len(self.held) < HELD_MAX:
                self.held.append((self.term_sequence, None, item))
        elif isinstance(item, Call):
            self.calls.append(item)
        else:
            self.replies.append(item)

    def alarm(self, text: str) -> None:
        """Add a text for the operator."""
        if len(self.alarms) < ALARMS_MAX:
            self.alarms.append(text)

    def take(self, end_index: int) -> Ready | None:
        """Return all work that may be done now, with at most one write in progress; None if there is none."""
        persist = None
        if self.pending is None and self.write_sequence > self.durable_sequence:
            flush = self.log_sequence > self.durable_sequence
            persist = self.pending = Persist(self.write_sequence, flush, self.term_state)
            self.pending_end_index = end_index
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
        """The shell has made a write durable."""
        if persist is not self.pending:
            return
        self.pending = None
        self.durable_sequence = persist.sequence
        if self.flush_before_ack:
            self.durable_end_index = max(self.durable_end_index, self.pending_end_index)
        held, self.held = self.held, []
        for sequence, of_term, item in held:
            if sequence > self.durable_sequence:
                self.held.append((sequence, of_term, item))
            elif of_term is None or of_term == term:
                self._send(item)
