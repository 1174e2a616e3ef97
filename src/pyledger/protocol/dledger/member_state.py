"""A member's role, term and vote, and the transitions between roles.

Source: DLedger MemberState.java.
"""

from collections.abc import Callable, Mapping

from pyledger.config.dledger import DLedgerConfig
from pyledger.errors import CorruptRecordError, InvariantError
from pyledger.protocol.dledger.messages import NO_INDEX, NO_TERM, TermState
from pyledger.protocol.dledger.outbox import Outbox
from pyledger.protocol.dledger.ports import LogStorage, RandomSource
from pyledger.protocol.dledger.ready import Role, RoleChange

FULL_PAUSE_MS = 10_000
"""A peer whose disk was full is no transferee this long; a leader with a full disk waits it between tries."""


class MemberState:
    """State that all parts of a member share.

    Invariant: `leader_id` is None for a candidate, and the own id for a leader.
    """

    def __init__(
        self,
        group: str,
        self_id: str,
        peers: Mapping[str, str],
        storage: LogStorage,
        outbox: Outbox,
        random: RandomSource,
        config: DLedgerConfig,
        saved: TermState,
        incarnation: int,
    ) -> None:
        self.group, self.self_id, self.addresses = group, self_id, dict(peers)
        self.peers = tuple(peers)
        self.others = tuple(peer for peer in peers if peer != self_id)
        self.storage, self.outbox, self.random, self.config = storage, outbox, random, config
        self.role = Role.CANDIDATE
        self.leader_id: str | None = None
        self.incarnation = incarnation
        self.term, self.vote = saved
        self.known_max_term = NO_TERM
        self.transferee: str | None = None
        self.term_to_take_leadership = NO_TERM
        self.lost_tail = storage.lost_tail and config.refuse_votes_with_lost_tail
        """Entries that this member acknowledged may be missing in the log."""
        self.damaged = False
        """An entry could not be read; recovery deals with it at the next start."""
        self.verified_index = NO_INDEX
        """Follower: up to this index the log equals the leader's, as found in this term."""
        self.full_until_ms: dict[str, int] = {}
        """Peers whose disk was full, and until when they get no leadership."""
        self.role_changed: list[Callable[[], None]] = []

    def is_quorum(self, count: int) -> bool:
        """Return whether this many members are a majority of the group."""
        return count >= len(self.peers) // 2 + 1

    @property
    def is_leader(self) -> bool:
        """Whether this member leads."""
        return self.role is Role.LEADER

    @property
    def may_vote(self) -> bool:
        """Whether the log is known to have everything that this member acknowledged."""
        return not self.lost_tail and not self.damaged

    @property
    def cannot_vote(self) -> str | None:
        """Why this member neither votes nor campaigns, for an operator; None if it does."""
        storage = self.storage
        if self.damaged:
            return "an entry is damaged; a restart drops it"
        if not self.lost_tail:
            return None
        what, last = "it may have lost entries that it acknowledged", storage.promised_index
        known = (
            "" if last == NO_INDEX else f" (entry {last} was durable, the log ends with {storage.end_index})"
        )
        return f"{what}{known}; a leader has to fill it up"

    @property
    def ledger_end_term(self) -> int:
        """Term of the last entry itself, not the term in which it arrived."""
        return self.storage.end_term

    @property
    def is_taking_leadership(self) -> bool:
        """Return whether this member was chosen to lead and is a preferred leader."""
        preferred = self.config.preferred_leader_ids.split(";")
        return self.self_id in preferred and self.term_to_take_leadership == self.term

    def next_term(self) -> None:
        """Go to a higher term; only a candidate does."""
        if self.role is not Role.CANDIDATE:
            raise InvariantError(f"a {self.role.value} raises its term")
        self.term = self.known_max_term if self.known_max_term > self.term else self.term + 1
        self.vote = None
        self.outbox.save_term(TermState(self.term, None))

    def vote_for(self, candidate: str) -> None:
        """Vote in the own term; the vote is durable before it is sent."""
        self.vote = candidate
        self.outbox.save_term(TermState(self.term, candidate))

    def change_to_candidate(self, term: int) -> None:
        """Follow no leader; a higher term is taken later, by `next_term`."""
        if term < self.term:
            return
        self.known_max_term = max(self.known_max_term, term)
        self.leader_id = self.transferee = None
        self._become(Role.CANDIDATE)

    def change_to_leader(self, term: int) -> None:
        """Lead, if the term has not changed."""
        if term == self.term and self.role is Role.CANDIDATE:
            self.leader_id = self.self_id
            self._become(Role.LEADER)

    def change_to_follower(self, term: int, leader_id: str) -> None:
        """Follow, if the term has not changed."""
        if term == self.term:
            self.leader_id, self.transferee = leader_id, None
            self._become(Role.FOLLOWER)

    def found_damage(self, error: CorruptRecordError) -> None:
        """Note that an entry cannot be read: this member does not vote until recovery has dealt with it."""
        if not self.damaged:
            self.damaged = True
            self.outbox.alarm(str(error))

    def _become(self, role: Role) -> None:
        self.role = role
        self.verified_index = NO_INDEX
        self.outbox.role_changes.append(RoleChange(self.term, role, self.leader_id))
        for listener in self.role_changed:
            listener()

    def commit(self, index: int) -> None:
        """Entries up to `index` are committed, if that is more than before."""
        if index > self.storage.committed_index:
            self.storage.set_committed(index)
            self.outbox.committed_index = index
