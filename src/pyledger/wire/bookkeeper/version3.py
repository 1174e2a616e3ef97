"""Version 3 of the protocol: protobuf. A frame here is what follows its four bytes of length.

Plain reads, of which there are thousands a second, are encoded and decoded here, all else by the protobuf
library; both make the same bytes. Adds are encoded natively, see `AddEncoder`.

Source: BookKeeper bookkeeper-proto/src/main/proto/BookkeeperProtocol.proto.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

from pyledger.errors import LedgerFrameError
from pyledger.protocol.bookkeeper import messages as m
from pyledger.wire.bookkeeper.availability import decode_availability, encode_availability
from pyledger.wire.bookkeeper.schema import ENUMS, DecodeError, EncodeError, message

VERSION = 3
DEFERRED_SYNC = 1
RUNS_MAX = 1 << 20
"""Runs of ids that one answer is believed: more would not fit into a frame, but for periods."""
_STATUSES = {status.value: status for status in m.Status}
FENCE_LEDGER = ENUMS["ReadFlag"]["FENCE_LEDGER"]
ENTRY_PIGGYBACK = ENUMS["ReadFlag"]["ENTRY_PIGGYBACK"]
RECOVERY_ADD = ENUMS["AddFlag"]["RECOVERY_ADD"]

FIELDS = {
    m.Operation.READ_ENTRY: "read",
    m.Operation.ADD_ENTRY: "add",
    m.Operation.AUTH: "auth",
    m.Operation.WRITE_LAC: "writeLac",
    m.Operation.READ_LAC: "readLac",
    m.Operation.GET_BOOKIE_INFO: "getBookieInfo",
    m.Operation.START_TLS: "startTLS",
    m.Operation.FORCE_LEDGER: "forceLedger",
    m.Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: "getListOfEntriesOfLedger",
}
"""Operation to the first part of its fields' names in `Request` and `Response`."""


def encode_auth(plugin_name: str, payload: bytes) -> bytes:
    """A step of an authentication, as both versions write it."""
    encoded: bytes = message("AuthMessage")(authPluginName=plugin_name, payload=payload).SerializeToString()
    return encoded


def decode_auth(body: memoryview) -> tuple[str, bytes]:
    """Name of the plugin, and payload.

    Raises:
        LedgerFrameError: It is no such message.
    """
    found = _parse("AuthMessage", body)
    return found.authPluginName, found.payload


def encode_request(request: m.Request) -> bytes:
    """A request as a frame.

    Raises:
        LedgerFrameError: Version 3 has no such request, or a field is out of its range.
    """
    fields: dict[str, Any] = {}
    operation = request.number if isinstance(request, m.UnknownRequest) else request.operation
    if not isinstance(request, m.UnknownRequest):
        if (field := FIELDS.get(request.operation)) is None:
            raise LedgerFrameError(f"version 3 of the protocol has no {request.operation.name}")
        fields[f"{field}Request"] = _REQUEST_FIELDS[type(request)](request)
    header = {"version": request.version, "operation": operation, "txnId": request.txn_id}
    if request.priority:
        header["priority"] = request.priority
    return _encode("Request", header, fields)


def decode_request(frame: memoryview) -> m.Request:
    """Read a request.

    Raises:
        LedgerFrameError: It is no request of version 3.
    """
    whole = _parse("Request", frame)
    header = whole.header
    common = {"txn_id": header.txnId, "priority": header.priority, "version": header.version}
    field = FIELDS.get(header.operation, "")
    if not field or not whole.HasField(f"{field}Request"):
        return m.UnknownRequest(number=header.operation, **common)
    return _REQUESTS[header.operation](getattr(whole, f"{field}Request"), common)


def encode_response(response: m.Response) -> bytes:
    """An answer as a frame.

    Raises:
        LedgerFrameError: Version 3 has no such answer, or a field is out of its range.
    """
    fields: dict[str, Any] = {"status": response.status}
    operation = response.number if isinstance(response, m.RejectedResponse) else response.operation
    if not isinstance(response, m.RejectedResponse):
        if (field := FIELDS.get(response.operation)) is None:
            raise LedgerFrameError(f"version 3 of the protocol has no answer to {response.operation.name}")
        fields[f"{field}Response"] = _RESPONSE_FIELDS[type(response)](response)
    return _encode("Response", {"version": VERSION, "operation": operation, "txnId": response.txn_id}, fields)


def decode_response(frame: memoryview) -> m.Response:
    """Read an answer; an unknown status counts as EBADREQ.

    Raises:
        LedgerFrameError: It is not an answer of version 3.
    """
    return _decode_found(frame) or parse_response(frame)


def parse_response(frame: memoryview) -> m.Response:
    """Read an answer with the protobuf library; see `decode_response`."""
    whole = _parse("Response", frame)
    operation = whole.header.operation
    common = {"txn_id": whole.header.txnId, "status": _status(whole.status)}
    field = FIELDS.get(operation, "")
    if not field or not whole.HasField(f"{field}Response"):
        return m.RejectedResponse(number=operation, **common)
    return _RESPONSES[operation](getattr(whole, f"{field}Response"), common)


def _status(number: int) -> m.Status:
    return _STATUSES.get(number, m.Status.EBADREQ)


def _parse(name: str, body: memoryview) -> Any:
    try:
        found = message(name).FromString(bytes(body))
    except DecodeError as error:
        raise LedgerFrameError(f"{len(body)} bytes are no {name}: {error}") from None
    if not found.IsInitialized():
        raise LedgerFrameError(f"{len(body)} bytes are no {name}: a field is missing")
    return found


def _encode(name: str, header: dict[str, int], fields: dict[str, Any]) -> bytes:
    """Encode a message; a field of None is left out."""
    try:
        encoded: bytes = message(name)(header=header, **fields).SerializeToString()
    except (EncodeError, ValueError) as error:
        raise LedgerFrameError(f"a {name} cannot be written: {error}") from None
    return encoded


def _read_fields(request: m.ReadRequest) -> dict[str, Any]:
    flag = FENCE_LEDGER if request.fence else ENTRY_PIGGYBACK if request.piggyback else None
    return {
        "flag": flag,
        "ledgerId": request.ledger_id,
        "entryId": request.entry_id,
        "masterKey": request.master_key,
        "previousLAC": request.previous_lac,
        "timeOut": request.time_out,
    }


def _add_fields(request: m.AddRequest) -> dict[str, Any]:
    return {
        "flag": RECOVERY_ADD if request.recovery else None,
        "ledgerId": request.ledger_id,
        "entryId": request.entry_id,
        "masterKey": request.master_key,
        "body": request.entry,
        "writeFlags": DEFERRED_SYNC if request.deferred_sync else None,
    }


def _write_lac_fields(request: m.WriteLacRequest) -> dict[str, Any]:
    return {
        "ledgerId": request.ledger_id,
        "lac": request.lac,
        "masterKey": request.master_key,
        "body": request.packet,
    }


_REQUEST_FIELDS: dict[type[m.Request], Callable[[Any], dict[str, Any]]] = {
    m.ReadRequest: _read_fields,
    m.AddRequest: _add_fields,
    m.AuthRequest: lambda r: {"authPluginName": r.plugin_name, "payload": r.payload},
    m.WriteLacRequest: _write_lac_fields,
    m.ReadLacRequest: lambda r: {"ledgerId": r.ledger_id},
    m.BookieInfoRequest: lambda r: {"requested": r.requested},
    m.StartTlsRequest: lambda _: {},
    m.ForceLedgerRequest: lambda r: {"ledgerId": r.ledger_id},
    m.ListEntriesRequest: lambda r: {"ledgerId": r.ledger_id},
}
_RESPONSE_FIELDS: dict[type[m.Response], Callable[[Any], dict[str, Any]]] = {
    m.ReadResponse: lambda r: {
        "status": r.status,
        "ledgerId": r.ledger_id,
        "entryId": r.entry_id,
        "body": r.entry,
        "maxLAC": r.max_lac,
        "lacUpdateTimestamp": r.lac_update_timestamp,
    },
    m.AddResponse: lambda r: {"status": r.status, "ledgerId": r.ledger_id, "entryId": r.entry_id},
    m.AuthResponse: lambda r: {"authPluginName": r.plugin_name, "payload": r.payload},
    m.WriteLacResponse: lambda r: {"status": r.status, "ledgerId": r.ledger_id},
    m.ReadLacResponse: lambda r: {
        "status": r.status,
        "ledgerId": r.ledger_id,
        "lacBody": r.packet,
        "lastEntryBody": r.last_entry,
    },
    m.BookieInfoResponse: lambda r: {
        "status": r.status,
        "totalDiskCapacity": r.total_disk_capacity,
        "freeDiskSpace": r.free_disk_space,
    },
    m.StartTlsResponse: lambda _: {},
    m.ForceLedgerResponse: lambda r: {"status": r.status, "ledgerId": r.ledger_id},
    m.ListEntriesResponse: lambda r: {
        "status": r.status,
        "ledgerId": r.ledger_id,
        "availabilityOfEntriesOfLedger": None if r.ranges is None else encode_availability(r.ranges),
    },
}


def _optional(body: Any, field: str) -> Any:
    return getattr(body, field) if body.HasField(field) else None


def _read_request(body: Any, common: dict[str, Any]) -> m.ReadRequest:
    flag = _optional(body, "flag")
    return m.ReadRequest(
        ledger_id=body.ledgerId,
        entry_id=body.entryId,
        master_key=_optional(body, "masterKey"),
        fence=flag == FENCE_LEDGER,
        piggyback=flag == ENTRY_PIGGYBACK,
        previous_lac=_optional(body, "previousLAC"),
        time_out=_optional(body, "timeOut"),
        **common,
    )


def _add_request(body: Any, common: dict[str, Any]) -> m.AddRequest:
    return m.AddRequest(
        ledger_id=body.ledgerId,
        entry_id=body.entryId,
        master_key=body.masterKey,
        entry=body.body,
        recovery=_optional(body, "flag") == RECOVERY_ADD,
        deferred_sync=bool(body.writeFlags & DEFERRED_SYNC),
        **common,
    )


_REQUESTS: dict[int, Callable[[Any, dict[str, Any]], m.Request]] = {
    m.Operation.READ_ENTRY: _read_request,
    m.Operation.ADD_ENTRY: _add_request,
    m.Operation.AUTH: lambda b, c: m.AuthRequest(plugin_name=b.authPluginName, payload=b.payload, **c),
    m.Operation.WRITE_LAC: lambda b, c: m.WriteLacRequest(
        ledger_id=b.ledgerId, lac=b.lac, master_key=b.masterKey, packet=b.body, **c
    ),
    m.Operation.READ_LAC: lambda b, c: m.ReadLacRequest(ledger_id=b.ledgerId, **c),
    m.Operation.GET_BOOKIE_INFO: lambda b, c: m.BookieInfoRequest(requested=b.requested, **c),
    m.Operation.START_TLS: lambda _, c: m.StartTlsRequest(**c),
    m.Operation.FORCE_LEDGER: lambda b, c: m.ForceLedgerRequest(ledger_id=b.ledgerId, **c),
    m.Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: lambda b, c: m.ListEntriesRequest(ledger_id=b.ledgerId, **c),
}


def _read_response(body: Any, common: dict[str, Any]) -> m.ReadResponse:
    return m.ReadResponse(
        ledger_id=body.ledgerId,
        entry_id=body.entryId,
        entry=_optional(body, "body"),
        max_lac=_optional(body, "maxLAC"),
        lac_update_timestamp=_optional(body, "lacUpdateTimestamp"),
        **common,
    )


def _list_response(body: Any, common: dict[str, Any]) -> m.ListEntriesResponse:
    encoded = _optional(body, "availabilityOfEntriesOfLedger")
    ranges = None if encoded is None else tuple(islice(decode_availability(encoded), RUNS_MAX))
    return m.ListEntriesResponse(ledger_id=body.ledgerId, ranges=ranges, **common)


_RESPONSES: dict[int, Callable[[Any, dict[str, Any]], m.Response]] = {
    m.Operation.READ_ENTRY: _read_response,
    m.Operation.ADD_ENTRY: lambda b, c: m.AddResponse(ledger_id=b.ledgerId, entry_id=b.entryId, **c),
    m.Operation.AUTH: lambda b, c: m.AuthResponse(plugin_name=b.authPluginName, payload=b.payload, **c),
    m.Operation.WRITE_LAC: lambda b, c: m.WriteLacResponse(ledger_id=b.ledgerId, **c),
    m.Operation.READ_LAC: lambda b, c: m.ReadLacResponse(
        ledger_id=b.ledgerId,
        packet=_optional(b, "lacBody"),
        last_entry=_optional(b, "lastEntryBody"),
        **c,
    ),
    m.Operation.GET_BOOKIE_INFO: lambda b, c: m.BookieInfoResponse(
        total_disk_capacity=_optional(b, "totalDiskCapacity"),
        free_disk_space=_optional(b, "freeDiskSpace"),
        **c,
    ),
    m.Operation.START_TLS: lambda _, c: m.StartTlsResponse(**c),
    m.Operation.FORCE_LEDGER: lambda b, c: m.ForceLedgerResponse(ledger_id=b.ledgerId, **c),
    m.Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: _list_response,
}


# --- plain reads without the library

_READ_HEADER = b"\x08\x03\x10\x01\x18"
"""Version 3, READ_ENTRY, and the tag of the number."""
_NUMBER_BYTES_MAX = 10
_MASK = (1 << 64) - 1
_BYTES = tuple(bytes((value,)) for value in range(0x80))
_HEAD_BYTES_MAX = 64
"""Maximum size of the fields before the entry."""


def _varint(value: int) -> bytes:
    """A number that is not negative, as protobuf writes it."""
    if value < 0x80:
        return _BYTES[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def encode_read(number: int, ledger_id: int, entry_id: int) -> bytes:
    """A whole frame with its length.

    Args:
        number: Of the request.
        ledger_id: Which.
        entry_id: Which; not negative.
    """
    count = _varint(number)
    about = b"\x08%b\x10%b" % (_varint(ledger_id), _varint(entry_id))
    body = b"\x0a%b%b%b\xa2\x06%b%b" % (
        _varint(len(_READ_HEADER) + len(count)),
        _READ_HEADER,
        count,
        _varint(len(about)),
        about,
    )
    return len(body).to_bytes(4, "big") + body


def _decode_found(frame: memoryview) -> m.ReadResponse | None:
    """The answer to a read that found its entry; None: it is another answer."""
    head = bytes(frame[:_HEAD_BYTES_MAX])
    try:
        at = _past(head, 2, _READ_HEADER)
        number, end = _taken(head, at)
        if head[0] != 0x0A or end != 2 + head[1] or end > at + _NUMBER_BYTES_MAX:
            return None
        # Status of the whole is good, and of the read, which is the next field.
        size, at = _taken(head, _past(head, end, b"\x10\x00\xa2\x06"))
        message_end = at + size
        ledger_id, at = _taken(head, _past(head, at, b"\x08\x00\x10"))
        entry_id, at = _taken(head, _past(head, at, b"\x18"))
        length, at = _taken(head, _past(head, at, b"\x22"))
        entry, rest = frame[at : at + length], bytes(frame[at + length :])
        max_lac, at = _optional_number(rest, 0, 0x28)
        updated, at = _optional_number(rest, at, 0x30)
    except IndexError:
        return None
    known = len(entry) == length and at == len(rest) and message_end == len(frame)
    if not known or max(ledger_id, entry_id) >= 1 << 63:
        return None
    return m.ReadResponse(
        status=m.Status.EOK,
        txn_id=number,
        ledger_id=ledger_id,
        entry_id=entry_id,
        entry=bytes(entry),
        max_lac=max_lac,
        lac_update_timestamp=updated,
    )


def encode_found(answer: m.ReadResponse, entry: bytes) -> tuple[bytes, bytes, bytes]:
    """Encode the response to a successful read: the bytes before the entry, the entry, the bytes after it."""
    number = _varint(answer.txn_id)
    before = b"\x08\x00\x10%b\x18%b\x22%b" % (
        _varint(answer.ledger_id),
        _varint(answer.entry_id & _MASK),
        _varint(len(entry)),
    )
    after = b"" if answer.max_lac is None else b"\x28" + _varint(answer.max_lac & _MASK)
    if answer.lac_update_timestamp is not None:
        after += b"\x30" + _varint(answer.lac_update_timestamp & _MASK)
    head = b"\x0a%b%b%b\x10\x00\xa2\x06%b%b" % (
        _varint(len(_READ_HEADER) + len(number)),
        _READ_HEADER,
        number,
        _varint(len(before) + len(entry) + len(after)),
        before,
    )
    return head, entry, after


def _past(data: bytes, at: int, expected: bytes) -> int:
    """Return where the expected bytes at `at` end."""
    if not data.startswith(expected, at):
        raise IndexError
    return at + len(expected)


def _taken(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _optional_number(data: bytes, at: int, tag: int) -> tuple[int | None, int]:
    """Return a signed number if its tag is at `at`."""
    if at == len(data) or data[at] != tag:
        return None, at
    value, at = _taken(data, at + 1)
    return (value - (1 << 64) if value >= 1 << 63 else value), at
