"""Requests between members and clients of ours: entries as they are stored, bodies as they are.

    head length i32 | head | of a push: its entries; of an append: body length i32, body, and so on

The head is the JSON of the request without its entries. Who takes this says so in a header field of its
answers (`OFFER`), so Java's nodes never get one. Answers are DLedger's.
"""

import struct
from dataclasses import replace
from functools import lru_cache

from pyledger.errors import MalformedBodyError, MalformedJsonError
from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    BodyBatch,
    EntryBatch,
    PushEntryRequest,
)
from pyledger.protocol.dledger.response_codes import RequestCode
from pyledger.wire.dledger.bodies import decode_request, encode_body, encode_text
from pyledger.wire.fastjson import parse
from pyledger.wire.remoting.command import Buffer
from pyledger.wire.remoting.native_codec import (
    AppendAnswers,
    AppendHead,
    count_bodies,
    measure_entries,
    set_append_response,
)

OFFER = {"rawEntries": "1"}
"""Header fields in the answers of who takes these requests."""
LENGTH = struct.Struct(">i")
HEAD_MAX_BYTES = 64 << 10
"""It names a group and members. The last 64 heads of appends are kept."""

set_append_response(AppendEntryResponse)


def encode_raw_push(push: PushEntryRequest) -> bytes:
    """What stands before the entries in the body of a push of entries as they are stored."""
    head = encode_body(replace(push, entry=None, batch_entry=()))
    return LENGTH.pack(len(head)) + head


def decode_raw_push(body: Buffer) -> PushEntryRequest:
    """The push of a body; its entries keep the body alive.

    Raises:
        MalformedBodyError: it holds none.
    """
    head, rest = _parts(body)
    span = measure_entries(rest)
    if span is None:
        raise MalformedBodyError("PushEntryRequest", "", "its entries do not follow one another")
    push = decode_request(RequestCode.PUSH, head)
    assert isinstance(push, PushEntryRequest)
    return replace(push, entry=None, batch_entry=EntryBatch(rest, *span))


def append_head(group: str, remote_id: str) -> AppendHead:
    """Writes the appends for this group and member."""
    return AppendHead(encode_body(AppendEntryRequest(group=group, remote_id=remote_id)))


def append_answers(group: str, leader_id: str) -> AppendAnswers:
    """Writes the answers of a leader to appends."""
    return AppendAnswers(encode_text(group).encode(), encode_text(leader_id).encode())


def decode_raw_append(body: Buffer) -> AppendEntryRequest:
    """The append of a body, of one entry or several, which keep the body alive.

    Raises:
        MalformedBodyError: it holds none.
    """
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
