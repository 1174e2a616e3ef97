"""Requests and responses between the nodes and clients of a group, with DLedger's names.

Every request and response has the base members `group`, `remote_id` (addressee), `local_id` (sender), `code`,
`leader_id` and `term`; None means that the JSON member is absent. Pushes are those of generation A.
Source: DLedger protocol/*.java, entry/DLedgerEntry.java.
"""

import struct
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias, overload

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.protocol.dledger.response_codes import ResponseCode

NO_INDEX = -1
"""Index of an empty log's end, and an unknown index. The first entry has index 0."""
NO_TERM = -1
"""Term of an empty log's end. Term 0 is a real term."""
ENTRY_HEADER_BYTES = 48
"""What a stored entry has before its body."""
NORMAL_MAGIC = 1
ENTRY_HEADER = struct.Struct(">iiqqqiiii")


class Entry(NamedTuple):
    """One entry of the log. `size` is 48 + length of the body; `pos` its offset, by the leader."""

    index: int  # type: ignore[assignment]  # a tuple has a method of this name
    term: int
    pos: int
    size: int
    body: bytes
    magic: int = NORMAL_MAGIC
    channel: int = 0
    chain_crc: int = 0
    body_crc: int = 0

    def same_as(self, other: "Entry") -> bool:
        """DLedger's equality: all but the two CRCs."""
        return self[:7] == other[:7]


class EntryBatch(Sequence[Entry]):
    """Adjacent entries as they are stored; they are decoded when the first one is read.

    Attributes:
        data: Their bytes in one piece, without fillers.
        first_index: Index of the first.
    """

    __slots__ = ("_count", "_entries", "data", "first_index")

    def __init__(self, data: bytes | memoryview, first_index: int, count: int) -> None:
        self.data, self.first_index = data, first_index
        self._count = count
        self._entries: tuple[Entry, ...] = ()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Entry: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Entry]: ...

    def __getitem__(self, at: int | slice) -> Entry | Sequence[Entry]:
        if at == 0 and not self._entries:
            return self._decoded(0)
        if not self._entries:
            found, position = [], 0
            for _ in range(self._count):
                found.append(self._decoded(position))
                position += found[-1].size
            self._entries = tuple(found)
        return self._entries[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"EntryBatch({len(self.data)} bytes, first_index={self.first_index}, count={self._count})"

    def _decoded(self, position: int) -> Entry:
        head = ENTRY_HEADER.unpack_from(self.data, position)
        magic, size, index, term, pos, channel, chain_crc, body_crc, _ = head
        body = bytes(self.data[position + ENTRY_HEADER_BYTES : position + size])
        return Entry(index, term, pos, size, body, magic, channel, chain_crc, body_crc)


class BodyBatch(Sequence[bytes]):
    """Bodies as a client sent them, each after its length (i32); they are copied when the first one is read.

    Attributes:
        data: Their bytes in one piece.
    """

    __slots__ = ("_bodies", "_count", "data")

    def __init__(self, data: bytes | memoryview, count: int) -> None:
        self.data, self._count = data, count
        self._bodies: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        if not self._bodies:
            found, position = [], 0
            for _ in range(self._count):
                end = position + 4 + int.from_bytes(self.data[position : position + 4])
                found.append(bytes(self.data[position + 4 : end]))
                position = end
            self._bodies = tuple(found)
        return self._bodies[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"BodyBatch({len(self.data)} bytes, count={self._count})"


def size_of(entries: Sequence[Entry]) -> int:
    """Bytes of stored entries."""
    return len(entries.data) if isinstance(entries, EntryBatch) else sum(entry.size for entry in entries)


class TermState(NamedTuple):
    """The file `currterm`: term and vote, which must survive a restart."""

    curr_term: int = 0
    vote_leader: str | None = None


class PushType(Enum):
    """The kinds of push; the names are those of the wire."""

    APPEND = "APPEND"
    COMMIT = "COMMIT"
    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"


class VoteResult(Enum):
    """A voter's answer; the names are those of the wire."""

    UNKNOWN = "UNKNOWN"
    ACCEPT = "ACCEPT"
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    REJECT_UNEXPECTED_LEADER = "REJECT_UNEXPECTED_LEADER"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_TERM_NOT_READY = "REJECT_TERM_NOT_READY"
    REJECT_TERM_SMALL_THAN_LEDGER = "REJECT_TERM_SMALL_THAN_LEDGER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    REJECT_TAKING_LEADERSHIP = "REJECT_TAKING_LEADERSHIP"


@lazy_dataclass(kw_only=True)
class RequestOrResponse:
    """The members that everything has."""

    group: str | None = None
    remote_id: str | None = None
    local_id: str | None = None
    code: int = ResponseCode.SUCCESS
    leader_id: str | None = None
    term: int = NO_TERM


@lazy_dataclass(kw_only=True)
class VoteRequest(RequestOrResponse):
    """`leader_id` campaigns for `term`; the request has the end of its log."""

    ledger_end_index: int = NO_INDEX
    ledger_end_term: int = NO_TERM


@lazy_dataclass(kw_only=True)
class VoteResponse(RequestOrResponse):
    """The ids are those of the request, not exchanged."""

    vote_result: VoteResult = VoteResult.UNKNOWN


@lazy_dataclass(kw_only=True)
class HeartBeatRequest(RequestOrResponse):
    """`leader_id` leads `term`."""


@lazy_dataclass(kw_only=True)
class HeartBeatResponse(RequestOrResponse):
    """On success only the code is set; EXPIRED_TERM comes with the receiver's term."""


@lazy_dataclass(kw_only=True)
class PushEntryRequest(RequestOrResponse):
    """A leader sends entries to append or to compare, a truncation, or the committed index.

    At most one of `entry` and `batch_entry` is set; COMMIT has neither. `incarnation` is that of the
    follower that answered the leader's last comparison, 0 before any; Java's leaders send None.
    """

    type: PushType = PushType.APPEND
    entry: Entry | None = None
    batch_entry: Sequence[Entry] = ()
    commit_index: int = NO_INDEX
    incarnation: int | None = None

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries, from whichever member has them."""
        if self.batch_entry:
            return self.batch_entry
        return () if self.entry is None else (self.entry,)


@lazy_dataclass(kw_only=True)
class PushEntryResponse(RequestOrResponse):
    """`index` is the first of the request; `begin_index` and `end_index` are those of the follower's log."""

    index: int | None = NO_INDEX
    """None: not sent, as for COMMIT."""
    count: int = 0
    """Entries that were taken; followers before 0.2.6 do not send it, which reads as 0."""
    begin_index: int = NO_INDEX
    end_index: int = NO_INDEX
    incarnation: int | None = None
    """Of the follower; None: one of Java's."""


@lazy_dataclass(kw_only=True)
class LeadershipTransferRequest(RequestOrResponse):
    """From a client to the leader `transfer_id`, and from there to `transferee_id`."""

    transfer_id: str | None = None
    transferee_id: str | None = None
    take_leadership_ledger_index: int = NO_INDEX


@lazy_dataclass(kw_only=True)
class LeadershipTransferResponse(RequestOrResponse):
    """`term` is the transferee's after it won."""


@lazy_dataclass(kw_only=True)
class AppendEntryRequest(RequestOrResponse):
    """One body to append, or several (`batch_msgs`)."""

    body: bytes = b""
    batch_msgs: Sequence[bytes] | None = None


@lazy_dataclass(kw_only=True)
class AppendEntryResponse(RequestOrResponse):
    """Index and offset of the entry (the last one of a batch). The body begins at `pos` + 48."""

    index: int = NO_INDEX
    pos: int = -1


@lazy_dataclass(kw_only=True)
class GetEntriesRequest(RequestOrResponse):
    """One entry, by its index."""

    begin_index: int = 0
    max_size: int = 0


@lazy_dataclass(kw_only=True)
class GetEntriesResponse(RequestOrResponse):
    """No entry, or one."""

    entries: tuple[Entry, ...] = ()


@lazy_dataclass(kw_only=True)
class MetadataRequest(RequestOrResponse):
    """Request for the leader and the members."""


class MemberStatus(NamedTuple):
    """The state of a member, for an operator; only members of ours send it."""

    role: str
    term: int
    vote: str | None
    """For whom it voted in its term."""
    begin_index: int
    end_index: int
    end_term: int
    committed_index: int
    cannot_vote: str | None
    """Why it neither votes nor campaigns; None: it does."""
    disk_full: bool


@lazy_dataclass(kw_only=True)
class MetadataResponse(RequestOrResponse):
    """The leader as far as it is known; members with their addresses. The term stays -1."""

    peers: tuple[tuple[str, str], ...] = ()
    status: MemberStatus | None = None


@lazy_dataclass(kw_only=True)
class ReadIndexRequest(RequestOrResponse):
    """Request for the index up to which everything acknowledged so far is applied. Ours; Java has none."""


@lazy_dataclass(kw_only=True)
class ReadIndexResponse(RequestOrResponse):
    """`index` was committed when the request arrived, and the leader still led after that."""

    index: int = NO_INDEX


PeerRequest: TypeAlias = VoteRequest | HeartBeatRequest | PushEntryRequest | LeadershipTransferRequest
PeerResponse: TypeAlias = VoteResponse | HeartBeatResponse | PushEntryResponse | LeadershipTransferResponse
ClientRequest: TypeAlias = (
    AppendEntryRequest | GetEntriesRequest | MetadataRequest | ReadIndexRequest | LeadershipTransferRequest
)
ClientResponse: TypeAlias = (
    AppendEntryResponse
    | GetEntriesResponse
    | MetadataResponse
    | ReadIndexResponse
    | LeadershipTransferResponse
)
Request: TypeAlias = PeerRequest | ClientRequest
Response: TypeAlias = PeerResponse | ClientResponse
