"""Requests between members and clients of ours: entries as they are stored, bodies as they are.

    head length i32 | head | of a push: its entries; of an append: body length i32, body, and so on

The head is the JSON of the request without its entries. Who takes this says so in a header field of its
answers (`OFFER`), so Java's nodes never get one. Answers are DLedger's.
"""

import json
import re
import struct
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from pyledger.errors import MalformedBodyError, MalformedJsonError
from pyledger.protocol.raft.codes import RequestCode
from pyledger.protocol.raft.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    EntryRun,
    PushEntryRequest,
    Response,
)
from pyledger.wire.dledger import decode_request, decode_response, encode_body, encode_text, unbase64
from pyledger.wire.fastjson import parse_quickly
from pyledger.wire.native import join_bodies, measure_entries, split_bodies
from pyledger.wire.remoting import Buffer

PUSH_RAW = 50911
APPEND_RAW = 50912
OFFER = {"rawEntries": "1"}
"""Header fields in the answers of who takes these requests."""
LENGTH = struct.Struct(">i")
APPEND = AppendEntryRequest()
APPENDED = re.compile(
    rb'\{"code":200,"group":"([ !#-\[\]-~]*)","index":(\d{1,18}),"leaderId":"([ !#-\[\]-~]*)",'
    rb'"pos":(\d{1,18}),"term":(\d{1,18})\}'
)
"""The answer to an append that went well, names without letters that JSON or UTF-8 write in several."""

_parse = json.JSONDecoder().decode


class PlainAppend(NamedTuple):
    """What a request to append says: for which group and member, and the bodies."""

    group: str | None
    remote_id: str | None
    bodies: list[bytes]


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
    return replace(push, entry=None, batch_entry=EntryRun(rest, *span))


def encode_append_head(group: str, remote_id: str) -> bytes:
    """What stands before the bodies in an append for this group and member."""
    return encode_body(AppendEntryRequest(group=group, remote_id=remote_id))


def encode_raw_append(head: bytes, bodies: list[bytes]) -> bytes:
    """The body of an append of these bodies."""
    return join_bodies(head, bodies)


def decode_raw_append(body: Buffer) -> PlainAppend:
    """The append of a body.

    Raises:
        MalformedBodyError: it holds none.
    """
    head, rest = _parts(body)
    bodies = split_bodies(rest)
    if not bodies:
        raise MalformedBodyError("AppendEntryRequest", "", "it has no bodies, or their lengths do not add up")
    return PlainAppend(*_addressed(bytes(head)), bodies)


def read_append(body: Buffer) -> PlainAppend | None:
    """A JSON append of one entry, quickly; None leaves it to `decode_request`."""
    try:
        found = _parse(str(body, "utf-8"))
        if type(found) is dict and type(found["body"]) is str and "batchMsgs" not in found:
            return PlainAppend(found["group"], found["remoteId"], [unbase64(found["body"])])
    except (ValueError, KeyError, RecursionError):
        pass
    return None


def read_appended(body: Buffer) -> AppendEntryResponse:
    """The answer to an append.

    Raises:
        MalformedBodyError: the body does not hold one.
    """
    if (found := APPENDED.fullmatch(body)) is not None:
        group, index, leader_id, pos, term = found.groups()
        return AppendEntryResponse(
            group=group.decode(), leader_id=leader_id.decode(), term=int(term), index=int(index), pos=int(pos)
        )
    response: Response = decode_response(APPEND, memoryview(body))
    assert isinstance(response, AppendEntryResponse)
    return response


def appended_text(group: str, leader_id: str) -> bytes:
    """Answers of a leader to appends, as `encode_body` writes them, with `%d` for index, place and term."""
    start, leader = (encode_text(text).replace("%", "%%") for text in (group, leader_id))
    return f'{{"code":200,"group":{start},"index":%d,"leaderId":{leader},"pos":%d,"term":%d}}'.encode()


@lru_cache(maxsize=64)
def _addressed(head: bytes) -> tuple[str | None, str | None]:
    try:
        found = parse_quickly(head.decode("utf-8"))
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
    if not 0 <= size <= len(view) - LENGTH.size:
        raise MalformedBodyError("request", "", "the length of its head does not fit")
    end = LENGTH.size + size
    return view[LENGTH.size : end], view[end:]
