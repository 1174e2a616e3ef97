"""Requests to a bookie and its responses, independent of the version of the protocol.

Fields are named as in BookKeeper's protobuf messages. `entry` and `packet` are complete, with header and
digest; see `wire.bookkeeper.entry`.

Source: BookKeeper bookkeeper-proto/src/main/proto/BookkeeperProtocol.proto, proto/BookieProtocol.java.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

INVALID_ENTRY_ID = -1
"""In a read: the last entry that the bookie has."""
PRIORITY_HIGH = 100
"""What Java's clients send with reads and adds of a recovery."""


class Operation(IntEnum):
    """Operation of a request."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES_OF_LEDGER = 11
    BATCH_READ_ENTRY = 12


class Status(IntEnum):
    """Status of a response."""

    EOK = 0
    ENOLEDGER = 402
    ENOENTRY = 403
    EBADREQ = 404
    EIO = 501
    EUA = 502
    EBADVERSION = 503
    EFENCED = 504
    EREADONLY = 505
    ETOOMANYREQUESTS = 506
    EUNKNOWNLEDGERSTATE = 507


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Any request to a bookie.

    Attributes:
        txn_id: Chosen by the client, unique on its connection. In version 2 only batched reads have one.
        priority: Above 0 for the requests of a recovery.
        version: The protocol version that the request states.
    """

    operation: ClassVar[Operation]
    txn_id: int = 0
    priority: int = 0
    version: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest(Request):
    """Store one entry, under the ids inside `entry`."""

    operation = Operation.ADD_ENTRY
    ledger_id: int
    entry_id: int
    master_key: bytes
    entry: bytes
    recovery: bool = False
    """Part of a recovery: a fence does not reject it."""
    deferred_sync: bool = False
    """The response does not wait for the disk; version 3 only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest(Request):
    """Read one entry, or wait until the last confirmed one advances."""

    operation = Operation.READ_ENTRY
    ledger_id: int
    entry_id: int
    master_key: bytes | None = None
    fence: bool = False
    """Also reject plain adds from now on."""
    piggyback: bool = False
    """Wait for the entry after `previous_lac`, and return it too."""
    previous_lac: int | None = None
    time_out: int | None = None
    """Milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReadRequest(Request):
    """Read consecutive entries; version 2 only. `txn_id` is its request id."""

    operation = Operation.BATCH_READ_ENTRY
    ledger_id: int
    entry_id: int
    count_max: int = 0
    """0: no limit but `bytes_max`."""
    bytes_max: int = 0
    """The first entry is returned whatever its size; 0: only that one."""
    master_key: bytes | None = None
    fence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthRequest(Request):
    """One step of an authentication."""

    operation = Operation.AUTH
    plugin_name: str
    payload: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLacRequest(Request):
    """Store a LAC that the writer sends apart from its entries."""

    operation = Operation.WRITE_LAC
    ledger_id: int
    lac: int
    master_key: bytes
    packet: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLacRequest(Request):
    """Read the LAC that the bookie knows."""

    operation = Operation.READ_LAC
    ledger_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceLedgerRequest(Request):
    """Sync the entries that were added with deferred sync."""

    operation = Operation.FORCE_LEDGER
    ledger_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntriesRequest(Request):
    """List the entries of a ledger that the bookie has."""

    operation = Operation.GET_LIST_OF_ENTRIES_OF_LEDGER
    ledger_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieInfoRequest(Request):
    """Read the disk space; bit 0 of `requested` is for the total, bit 1 for the free space."""

    operation = Operation.GET_BOOKIE_INFO
    requested: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTlsRequest(Request):
    """Switch the connection to TLS."""

    operation = Operation.START_TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownRequest(Request):
    """A frame of version 3 that names an operation but has no message for it.

    Attributes:
        number: The operation.
    """

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Any response of a bookie."""

    operation: ClassVar[Operation]
    status: Status
    txn_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddResponse(Response):
    """Whether an entry was stored."""

    operation = Operation.ADD_ENTRY
    ledger_id: int
    entry_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResponse(Response):
    """An entry, and the LAC that the bookie knows."""

    operation = Operation.READ_ENTRY
    ledger_id: int
    entry_id: int
    """As in the request; -1 for the last entry, whose true id is inside `entry`."""
    entry: bytes | None = None
    max_lac: int | None = None
    lac_update_timestamp: int | None = None
    """Milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReadResponse(Response):
    """Consecutive entries, beginning with the requested one."""

    operation = Operation.BATCH_READ_ENTRY
    ledger_id: int
    entry_id: int
    entries: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthResponse(Response):
    """The bookie's step of an authentication."""

    operation = Operation.AUTH
    plugin_name: str
    payload: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLacResponse(Response):
    """Whether the LAC was stored."""

    operation = Operation.WRITE_LAC
    ledger_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLacResponse(Response):
    """The LAC packet of the writer, and the last entry; either may be absent."""

    operation = Operation.READ_LAC
    ledger_id: int
    packet: bytes | None = None
    last_entry: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceLedgerResponse(Response):
    """Whether all entries of the ledger are on disk."""

    operation = Operation.FORCE_LEDGER
    ledger_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntriesResponse(Response):
    """The entries that a bookie has, as ascending ranges of ids."""

    operation = Operation.GET_LIST_OF_ENTRIES_OF_LEDGER
    ledger_id: int
    ranges: tuple[range, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieInfoResponse(Response):
    """Sizes in bytes, over all folders of entries."""

    operation = Operation.GET_BOOKIE_INFO
    total_disk_capacity: int | None = None
    free_disk_space: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTlsResponse(Response):
    """TLS follows if `status` is good."""

    operation = Operation.START_TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedResponse(Response):
    """A rejection without a message of its own: only the operation of the request is known.

    Attributes:
        number: The operation.
    """

    number: int
