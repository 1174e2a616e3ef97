"""Requests to a bookie and its answers, free of how either version of the protocol writes them.

Names of fields are those of BookKeeper's protobuf messages. `entry` and `packet` are whole, with header and
digest, see `wire.ledger.entry`.

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
    """What a request asks for."""

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
    """How a bookie answers."""

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
    """Anything asked of a bookie.

    Attributes:
        txn_id: Chosen by the client, unique on its connection. Version 2 carries none but in batched reads.
        priority: Above 0 for the requests of a recovery.
        version: Of the protocol that it says it is written in.
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
    """Part of a recovery: passes a fence."""
    deferred_sync: bool = False
    """Answered before it is on disk; version 3 only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest(Request):
    """Read one entry, or wait for the last confirmed one to move on."""

    operation = Operation.READ_ENTRY
    ledger_id: int
    entry_id: int
    master_key: bytes | None = None
    fence: bool = False
    """Also refuse ordinary adds from now on."""
    piggyback: bool = False
    """Wait for the entry behind `previous_lac`, and return it too."""
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
    """0: as many as fit."""
    bytes_max: int = 0
    """The first entry is read whatever its size; with 0 it is the only one."""
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
    """Keep a last confirmed entry that the writer told apart from its entries."""

    operation = Operation.WRITE_LAC
    ledger_id: int
    lac: int
    master_key: bytes
    packet: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLacRequest(Request):
    """What the bookie knows of the last confirmed entry."""

    operation = Operation.READ_LAC
    ledger_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceLedgerRequest(Request):
    """Put on disk what was added with deferred sync."""

    operation = Operation.FORCE_LEDGER
    ledger_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntriesRequest(Request):
    """Which entries of a ledger the bookie has."""

    operation = Operation.GET_LIST_OF_ENTRIES_OF_LEDGER
    ledger_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieInfoRequest(Request):
    """How much room the disks have; bit 0 of `requested` asks for all of it, bit 1 for the free part."""

    operation = Operation.GET_BOOKIE_INFO
    requested: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTlsRequest(Request):
    """Go on with TLS."""

    operation = Operation.START_TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownRequest(Request):
    """A frame of version 3 that names an operation and brings no message for it.

    Attributes:
        number: The operation.
    """

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Anything that a bookie answers."""

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
    """An entry, and how far the bookie knows the ledger to be confirmed."""

    operation = Operation.READ_ENTRY
    ledger_id: int
    entry_id: int
    """As it was asked for; for the last entry -1, and its true id is inside `entry`."""
    entry: bytes | None = None
    max_lac: int | None = None
    lac_update_timestamp: int | None = None
    """Milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReadResponse(Response):
    """Consecutive entries, from the one that was asked for."""

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
    """Whether the last confirmed entry was kept."""

    operation = Operation.WRITE_LAC
    ledger_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLacResponse(Response):
    """What the writer told apart, and the last entry; either may be absent."""

    operation = Operation.READ_LAC
    ledger_id: int
    packet: bytes | None = None
    last_entry: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceLedgerResponse(Response):
    """Whether all of the ledger is on disk."""

    operation = Operation.FORCE_LEDGER
    ledger_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntriesResponse(Response):
    """Which entries a bookie has: runs of ids, ascending."""

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
    """What follows is TLS, when `status` is good."""

    operation = Operation.START_TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedResponse(Response):
    """An answer without a message of its own: nothing is known of the request but its operation.

    Attributes:
        number: The operation.
    """

    number: int
