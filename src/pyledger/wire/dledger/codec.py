"""Requests of DLedger as frames: JSON as Java's nodes write it, or entries and bodies in binary.

Two requests of ours carry entries and bodies as they are stored, without base64:

    50911 push     head length i32 | head | entries
    50912 append   head length i32 | head | body length i32 | body | body length i32 | body | ...

The head is the JSON of the request without its entries. A node that takes them offers it in a header field
of its responses (`OFFER`), so Java's nodes never get one. All responses are DLedger's JSON.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Self

from pyledger.errors import MalformedBodyError, MalformedJsonError
from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    BodyBatch,
    EntryBatch,
    PushEntryRequest,
    Request,
)
from pyledger.protocol.dledger.response_codes import APPEND_RAW, PUSH_RAW, RequestCode, ResponseCode
from pyledger.wire.dledger.bodies import CODES, REQUEST_TYPES, decode_json_request, encode_body, encode_text
from pyledger.wire.fastjson import parse
from pyledger.wire.remoting.command import Buffer, RemotingCommand, encode_frame
from pyledger.wire.remoting.native_codec import (
    AppendAnswers,
    AppendHead,
    count_bodies,
    measure_entries,
    set_append_response,
)

OFFER = {"rawEntries": "1"}
"""Header fields in the responses of a node that takes binary requests."""
REQUEST_CODES = frozenset({*REQUEST_TYPES, PUSH_RAW, APPEND_RAW})
"""Codes of all requests that `decode_request` reads."""
LENGTH = struct.Struct(">i")
HEAD_MAX_BYTES = 64 << 10
"""It names a group and members. The last 64 heads of appends are kept."""

set_append_response(AppendEntryResponse)


class DLedgerCodec:
    """Encodes the requests of one connection: in binary once the peer has offered it, otherwise in JSON."""

    __slots__ = ("binary",)

    def __init__(self) -> None:
        """Write JSON until a response offers more."""
        self.binary = False

    @classmethod
    def of(cls, data: dict[Any, Any]) -> Self:
        """The codec of a connection, kept in its `data`, so a peer that restarts offers again."""
        codec = data.get(cls)
        if codec is None:
            codec = data[cls] = cls()
        return codec

    def learn(self, response: RemotingCommand) -> bool:
        """Note what a response offers; False: it is an error of remoting and has no body of DLedger's."""
        if response.code not in (0, ResponseCode.SUCCESS):
            self.binary = False  # another program answers at this address now
            return False
        self.binary = self.binary or response.ext_fields.items() >= OFFER.items()
        return True

    def encode(self, request: Request) -> RemotingCommand:
        """The command of a request. A binary push holds a copy of its entries."""
        if (
            self.binary
            and isinstance(request, PushEntryRequest)
            and isinstance(request.batch_entry, EntryBatch)
        ):
            body = b"".join((_push_head(request), request.batch_entry.data))
            return RemotingCommand.request(PUSH_RAW, body=body)
        return encode_request(request)

    def encode_append(self, group: str, remote_id: str, opaque: int, bodies: Sequence[bytes]) -> bytes:
        """The frame of a request to append these bodies."""
        if self.binary and bodies:
            return append_head(group, remote_id).encode(opaque, bodies)
        request = AppendEntryRequest(group=group, remote_id=remote_id)
        if len(bodies) == 1:
            request = replace(request, body=bodies[0])
        else:
            request = replace(request, batch_msgs=tuple(bodies))
        command = encode_request(request)
        command.opaque = opaque
        return encode_frame(command)


def encode_request(request: Request) -> RemotingCommand:
    """The command of a request in JSON, which every node reads."""
    return RemotingCommand.request(CODES[type(request)], body=encode_body(request))


def decode_request(code: int, body: memoryview) -> Request:
    """The request of a frame, in JSON or binary; binary entries and bodies keep the body alive.

    Raises:
        MalformedBodyError: no such code, or its body does not hold what that promises.
    """
    if code == APPEND_RAW:
        return _decode_append(body)
    if code == PUSH_RAW:
        return _decode_push(body)
    return decode_json_request(code, body)


@lru_cache(maxsize=64)
def append_head(group: str, remote_id: str) -> AppendHead:
    """Encodes the binary appends for this group and member."""
    return AppendHead(encode_body(AppendEntryRequest(group=group, remote_id=remote_id)))


def append_responses(group: str, leader_id: str) -> AppendAnswers:
    """Encodes the responses of a leader to appends of one entry."""
    return AppendAnswers(encode_text(group).encode(), encode_text(leader_id).encode())


def _push_head(push: PushEntryRequest) -> bytes:
    """What precedes the entries in the body of a binary push."""
    head = encode_body(replace(push, entry=None, batch_entry=()))
    return LENGTH.pack(len(head)) + head


def _decode_push(body: Buffer) -> PushEntryRequest:
    head, rest = _parts(body)
    span = measure_entries(rest)
    if span is None:
        raise MalformedBodyError("PushEntryRequest", "", "its entries do not follow one another")
    push = decode_json_request(RequestCode.PUSH, head)
    assert isinstance(push, PushEntryRequest)
    return replace(push, entry=None, batch_entry=EntryBatch(rest, *span))


def _decode_append(body: Buffer) -> AppendEntryRequest:
    head, rest = _parts(body)
    count = count_bodies(rest)
    if count <= 0:
        raise MalformedBodyError("AppendEntryRequest", "", "it has no bodies, or their lengths do not add up")
    group, remote_id = _addressed(bytes(head))
    if count == 1:
        return AppendEntryRequest(group=group, remote_id=remote_id, body=bytes(rest[LENGTH.size :]))
    return AppendEntryRequest(group=group, remote_id=remote_id, batch_msgs=BodyBatch(rest, count))


@lru_cache(maxsize=64)
def _addressed(head: bytes) -> tuple[str | None, str | None]:
    try:
        found = parse(head.decode("utf-8"))
    except (UnicodeDecodeError, MalformedJsonError) as error:
        raise MalformedBodyError("AppendEntryRequest", "", f"its head cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise MalformedBodyError("AppendEntryRequest", "", "its head is no object")
    group, remote_id = found.get("group"), found.get("remoteId")
    return (group if isinstance(group, str) else None), (remote_id if isinstance(remote_id, str) else None)


def _parts(body: Buffer) -> tuple[memoryview, memoryview]:
    """The head and what follows it."""
    view = memoryview(body)
    size = LENGTH.unpack_from(view)[0] if len(view) >= LENGTH.size else -1
    if not 0 <= size <= min(HEAD_MAX_BYTES, len(view) - LENGTH.size):
        raise MalformedBodyError("request", "", "the length of its head does not fit")
    end = LENGTH.size + size
    return view[LENGTH.size : end], view[end:]
