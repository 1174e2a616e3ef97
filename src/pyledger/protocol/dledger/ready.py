"""Input and output of the state machine.

A shell takes `Ready`, sends its calls and replies at once, and makes `persist` durable; then it calls
`advance`. The state machine itself holds back messages that must not be sent before.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    PeerRequest,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
    Request,
    Response,
    TermState,
)


class Role(Enum):
    """The role of a member."""

    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"


class Tokens(Sized, Iterable[Hashable], Protocol):
    """The tokens of several requests."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request; the response carries its token."""

    token: Hashable
    request: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """A call has a response."""

    call_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call will get no response: its connection failed."""

    call_id: int


class Appends(NamedTuple):
    """A batch of requests to append one entry each, for this group and member: token and body of each."""

    tokens: Tokens
    bodies: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Grown:
    """The shell itself appended entries of the own term to the log of this member, which leads."""


Event: TypeAlias = Received | Answered | CallFailed | Appends | Grown


def is_replication(event: Event) -> bool:
    """Return whether an event is part of the stream of entries, so that it alone changes no role or term."""
    match event:
        case (
            Appends()
            | Grown()
            | Received(request=AppendEntryRequest())
            | Answered(response=PushEntryResponse())
        ):
            return True
        case Received(request=PushEntryRequest(type=PushType.APPEND)):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Persist:
    """To be made durable: first the log, if `flush`; then the term file, if there is a new one."""

    sequence: int
    flush: bool
    term_state: TermState | None


class Call(NamedTuple):
    """A request to another member. A response after `rpc_timeout_ms` is ignored."""

    call_id: int
    peer: str
    request: PeerRequest


class Reply(NamedTuple):
    """The response to a request."""

    token: Hashable
    response: Response


class Appended(NamedTuple):
    """Requests to append that were committed together: any number of one entry each, or one of several."""

    tokens: Tokens
    term: int
    last_index: int
    positions: Sequence[int]
    """Offset of each entry in the log (bytes)."""
    deadline_ms: int

    @property
    def each(self) -> Iterator[tuple[Hashable, int, int]]:
        """Token, index and position of each request's last entry."""
        positions = self.positions[-len(self.tokens) :]
        first = self.last_index + 1 - len(positions)
        for index, (token, position) in enumerate(zip(self.tokens, positions, strict=True), first):
            yield token, index, position


class RoleChange(NamedTuple):
    """The member has another role or another leader."""

    term: int
    role: Role
    leader_id: str | None


@dataclass(slots=True)
class Ready:
    """Work for the shell, in the order in which it must be done."""

    persist: Persist | None = None
    calls: Sequence[Call] = ()
    replies: Sequence[Reply] = ()
    appended: Sequence[Appended] = ()
    committed_index: int | None = None
    """None if it has not changed. The storage has it already."""
    role_changes: Sequence[RoleChange] = ()
    alarms: Sequence[str] = field(default=())
    """Texts for the operator."""
