"""Version 2 of the protocol: fixed-size integers. A frame here is what follows its four bytes of length.

Only responses to batch reads have a request id; others are matched by operation, ledger and entry.

Source: BookKeeper proto/BookieProtocol.java, BookieProtoEncoding.java.
"""

import struct

from pyledger.errors import LedgerFrameError
from pyledger.protocol.bookkeeper.messages import (
    PRIORITY_HIGH,
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
)
from pyledger.wire.bookkeeper.version3 import decode_auth, encode_auth
from pyledger.wire.remoting.native_codec import split_entries

VERSION = 2
ADD, READ, AUTH, BATCH_READ = 1, 2, 3, 7
DO_FENCING, RECOVERY_ADD, HIGH_PRIORITY = 1, 2, 4
MASTER_KEY_BYTES = 20

_HEAD = struct.Struct(">i")
_IDS = struct.Struct(">qq")
_BATCH = struct.Struct(">qqqiq")
_ANSWER = struct.Struct(">iiqq")
_REQUEST_ID = struct.Struct(">q")

CODES = {
    Status.EOK: 0,
    Status.ENOLEDGER: 1,
    Status.ENOENTRY: 2,
    Status.EBADREQ: 100,
    Status.EIO: 101,
    Status.EUA: 102,
    Status.EBADVERSION: 103,
    Status.EFENCED: 104,
    Status.EREADONLY: 105,
    Status.ETOOMANYREQUESTS: 106,
    Status.EUNKNOWNLEDGERSTATE: 107,
}
STATUSES = {code: status for status, code in CODES.items()}


def head_of(operation: int, flags: int = 0, version: int = VERSION) -> bytes:
    """First four bytes of a frame; version 0 has neither version nor flags in it."""
    return _HEAD.pack(operation if version == 0 else version << 24 | operation << 16 | flags)


def encode_request(request: Request) -> bytes:
    """A request as a frame.

    Raises:
        LedgerFrameError: Version 2 has no such request.
    """
    flags = HIGH_PRIORITY if request.priority > 0 else 0
    match request:
        case AddRequest(deferred_sync=False):
            flags |= RECOVERY_ADD if request.recovery else 0
            return head_of(ADD, flags) + request.master_key + request.entry
        case ReadRequest(previous_lac=None, piggyback=False):
            head = head_of(READ, flags | (DO_FENCING if request.fence else 0))
            key = (request.master_key or b"") if request.fence else b""
            return head + _IDS.pack(request.ledger_id, request.entry_id) + key
        case BatchReadRequest():
            head = head_of(BATCH_READ, flags | (DO_FENCING if request.fence else 0))
            ids = (request.ledger_id, request.entry_id, request.txn_id)
            key = (request.master_key or b"") if request.fence else b""
            return head + _BATCH.pack(*ids, request.count_max, request.bytes_max) + key
        case AuthRequest():
            return head_of(AUTH) + encode_auth(request.plugin_name, request.payload)
        case _:
            raise LedgerFrameError(f"version 2 of the protocol has no {request.operation.name}")


def decode_request(frame: memoryview) -> Request:
    """Read a request.

    Raises:
        LedgerFrameError: It is too short, or version 2 has no such request.
    """
    version, operation, flags = _head(frame)
    body = frame[_HEAD.size :]
    priority = PRIORITY_HIGH if flags & HIGH_PRIORITY else 0
    fence = bool(flags & DO_FENCING) and version >= 2
    try:
        if operation == ADD:
            return _add(body, priority, flags)
        if operation == READ:
            ledger_id, entry_id = _IDS.unpack_from(body)
            key = _key(body, _IDS.size) if fence else None
            return ReadRequest(
                ledger_id=ledger_id, entry_id=entry_id, master_key=key, fence=fence, priority=priority
            )
        if operation == BATCH_READ:
            ledger_id, entry_id, txn_id, count_max, bytes_max = _BATCH.unpack_from(body)
            return BatchReadRequest(
                txn_id=txn_id,
                priority=priority,
                ledger_id=ledger_id,
                entry_id=entry_id,
                count_max=count_max,
                bytes_max=bytes_max,
                master_key=_key(body, _BATCH.size) if fence else None,
                fence=fence,
            )
    except struct.error:
        raise LedgerFrameError(f"a request {operation} of {len(frame)} bytes is too short") from None
    if operation == AUTH:
        plugin_name, payload = decode_auth(body)
        return AuthRequest(plugin_name=plugin_name, payload=payload)
    raise LedgerFrameError(f"version {version} of the protocol has no operation {operation}")


def version_of(frame: memoryview) -> int:
    """Return the version in a request's header; the response must have the same."""
    return _head(frame)[0]


def encode_response(response: Response, version: int = VERSION) -> bytes:
    """An answer as a frame, in the version of its request.

    Raises:
        LedgerFrameError: Version 2 has no such answer.
    """
    code = CODES[response.status]
    match response:
        case AddResponse():
            return head_of(ADD, 0, version) + _HEAD.pack(code) + _ids(response)
        case ReadResponse():
            entry = (response.entry or b"") if code == 0 else b""
            return head_of(READ, 0, version) + _HEAD.pack(code) + _ids(response) + entry
        case BatchReadResponse():
            parts = [head_of(BATCH_READ, 0, version), _HEAD.pack(code), _ids(response)]
            parts.append(_REQUEST_ID.pack(response.txn_id))
            for entry in response.entries:
                parts += (_HEAD.pack(len(entry)), entry)
            return b"".join(parts)
        case AuthResponse():
            return head_of(AUTH, 0, version) + encode_auth(response.plugin_name, response.payload)
        case _:
            raise LedgerFrameError(f"version 2 of the protocol has no answer to {response.operation.name}")


def decode_response(frame: memoryview) -> Response:
    """Read an answer.

    Raises:
        LedgerFrameError: It is too short, or no answer of version 2.
    """
    _, operation, _ = _head(frame)
    if operation == AUTH:
        plugin_name, payload = decode_auth(frame[_HEAD.size :])
        return AuthResponse(status=Status.EOK, plugin_name=plugin_name, payload=payload)
    try:
        _, code, ledger_id, entry_id = _ANSWER.unpack_from(frame)
        body = frame[_ANSWER.size :]
        if (status := STATUSES.get(code)) is None:
            raise LedgerFrameError(f"a bookie answered with the unknown code {code}")
        if operation == ADD:
            return AddResponse(status=status, ledger_id=ledger_id, entry_id=entry_id)
        if operation == READ:
            entry = bytes(body) if status is Status.EOK else None
            return ReadResponse(status=status, ledger_id=ledger_id, entry_id=entry_id, entry=entry)
        if operation == BATCH_READ:
            (txn_id,) = _REQUEST_ID.unpack_from(body)
            return BatchReadResponse(
                status=status,
                txn_id=txn_id,
                ledger_id=ledger_id,
                entry_id=entry_id,
                entries=_entries(body[_REQUEST_ID.size :]),
            )
    except struct.error:
        raise LedgerFrameError(f"an answer {operation} of {len(frame)} bytes is too short") from None
    raise LedgerFrameError(f"there is no answer {operation} in version 2 of the protocol")


def _head(frame: memoryview) -> tuple[int, int, int]:
    """Version, operation, flags."""
    if len(frame) < _HEAD.size:
        raise LedgerFrameError(f"a frame of {len(frame)} bytes is too short")
    (word,) = _HEAD.unpack_from(frame)
    version = word >> 24 & 0xFF
    return (0, word, 0) if version == 0 else (version, word >> 16 & 0xFF, word & 0xFFFF)


def _add(body: memoryview, priority: int, flags: int) -> AddRequest:
    entry = body[MASTER_KEY_BYTES:]
    ledger_id, entry_id = _IDS.unpack_from(entry)
    return AddRequest(
        ledger_id=ledger_id,
        entry_id=entry_id,
        master_key=_key(body, 0),
        entry=bytes(entry),
        recovery=bool(flags & RECOVERY_ADD),
        priority=priority,
    )


def _key(body: memoryview, at: int) -> bytes:
    key = bytes(body[at : at + MASTER_KEY_BYTES])
    if len(key) < MASTER_KEY_BYTES:
        raise LedgerFrameError(f"the master key has {len(key)} bytes instead of {MASTER_KEY_BYTES}")
    return key


def _ids(response: AddResponse | ReadResponse | BatchReadResponse) -> bytes:
    return _IDS.pack(response.ledger_id, response.entry_id)


def _entries(body: memoryview) -> tuple[bytes, ...]:
    found = split_entries(body)
    if found is None:
        raise LedgerFrameError("a batch ends inside an entry")
    return found
