"""Bodies of DLedger's requests and responses: JSON as fastjson writes it, entry bodies in base64.

Keys are sorted, absent members left out, enums written by name. What a sender derives from others (`count`,
`firstEntryIndex` …) is written and not read. Keys are matched whatever their case, unknown ones ignored.

Source: DLedger protocol/*.java, DLedgerEntry.java; fastjson 1.2.
"""

import binascii
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, cast

from pyledger.errors import ConfigError, MalformedBodyError, MalformedJsonError
from pyledger.model.address import split_address
from pyledger.protocol.dledger.messages import (
    ENTRY_HEADER_BYTES,
    AppendEntryRequest,
    AppendEntryResponse,
    Entry,
    EntryBatch,
    GetEntriesRequest,
    GetEntriesResponse,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MemberStatus,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
    ReadIndexRequest,
    ReadIndexResponse,
    Request,
    RequestOrResponse,
    Response,
    VoteRequest,
    VoteResponse,
    VoteResult,
    size_of,
)
from pyledger.protocol.dledger.response_codes import RequestCode
from pyledger.wire.fastjson import parse

M = TypeVar("M", bound=Request | Response)

READ_INDEX = 50910
"""Code of ours: Java's nodes have no such request."""

REQUEST_TYPES: Mapping[int, type[Request]] = {
    RequestCode.METADATA: MetadataRequest,
    RequestCode.APPEND: AppendEntryRequest,
    RequestCode.GET: GetEntriesRequest,
    RequestCode.VOTE: VoteRequest,
    RequestCode.HEART_BEAT: HeartBeatRequest,
    RequestCode.PUSH: PushEntryRequest,
    RequestCode.LEADERSHIP_TRANSFER: LeadershipTransferRequest,
    READ_INDEX: ReadIndexRequest,
}
RESPONSE_TYPES: Mapping[type[Request], type[Response]] = {
    MetadataRequest: MetadataResponse,
    AppendEntryRequest: AppendEntryResponse,
    GetEntriesRequest: GetEntriesResponse,
    VoteRequest: VoteResponse,
    HeartBeatRequest: HeartBeatResponse,
    PushEntryRequest: PushEntryResponse,
    LeadershipTransferRequest: LeadershipTransferResponse,
    ReadIndexRequest: ReadIndexResponse,
}
CODES: Mapping[type[Request], int] = {kind: code for code, kind in REQUEST_TYPES.items()}
REPEATED = frozenset({HeartBeatRequest, HeartBeatResponse})
"""Equal for as long as a leader leads: what was written or read before is known."""
REPEATED_BYTES_MAX = 1024
_MEMBERS: dict[str, tuple[tuple[str, str, Any], ...]] = {}
CONTAINERS_MIN, ENTRY_TEXT_BYTES_MIN = 100, 64
"""Objects and lists that a body may hold: at least the first number, and one for each second number of bytes.
An entry without a body has 95 bytes, as every member is written; one of two bytes would cost as much time."""

encode_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
"""A value as fastjson writes it."""


def encode_body(message: RequestOrResponse) -> bytes:
    """The JSON body of a message."""
    if isinstance(message, PushEntryRequest):
        return _encode_push(message).encode()
    if type(message) in REPEATED:
        return _encode_again(message)
    return _encode(message)


def _encode(message: RequestOrResponse) -> bytes:
    members: dict[str, Any] = {}
    for name, key, _ in _members_of(type(message)):
        value = getattr(message, name)
        if value is not None:
            members[key] = _written(name, value)
    if isinstance(message, AppendEntryRequest) and message.batch_msgs is not None:
        del members["body"]
    return encode_text(members).encode()


_encode_again = lru_cache(maxsize=64)(_encode)


def decode_json_request(code: int, body: bytes | memoryview) -> Request:
    """The request of a frame.

    Raises:
        MalformedBodyError: no such code, or its body does not hold what that promises.
    """
    kind = REQUEST_TYPES.get(code)
    if kind is None:
        raise MalformedBodyError("request", "", f"code {code} is none of DLedger")
    return _decode(kind, body)


def decode_response(request: Request, body: bytes | memoryview) -> Response:
    """The response to a request.

    Raises:
        MalformedBodyError: the body does not hold one.
    """
    return _decode(RESPONSE_TYPES[type(request)], body)


def parse_peers(text: str) -> dict[str, str]:
    """Addresses by id, from `id-host:port;id-host:port`. An id ends at the first hyphen.

    Raises:
        ConfigError: the text has another form.
    """
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        peer, _, address = part.partition("-")
        try:
            split_address(address, least_port=0)
            if not peer or peer in found:
                raise ValueError("it has no id of its own")
        except ValueError as error:
            problem, remedy = f"{part!r} is no member: {error}", "write n0-host:port;n1-host:port"
            raise ConfigError("peers", problem, remedy) from None
        found[peer] = address
    if not found:
        raise ConfigError("peers", "names no member", "write n0-host:port;n1-host:port")
    return found


# --- writing


def _written(name: str, value: Any) -> Any:
    if isinstance(value, Enum) and not isinstance(value, int):
        return value.value
    if name == "peers":
        return dict(value)
    if name == "status":
        return {_camel(key): one for key, one in value._asdict().items() if one is not None}
    if name == "entries":
        return [_entry_members(entry) for entry in value]
    if isinstance(value, bytes):
        return _base64(value)
    if name == "batch_msgs":
        return [_base64(one) for one in value]
    return int(value) if isinstance(value, int) else value


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _entry_members(entry: Entry) -> dict[str, Any]:
    return {
        "body": _base64(entry.body),
        "bodyCrc": entry.body_crc,
        "chainCrc": entry.chain_crc,
        "channel": entry.channel,
        "index": entry.index,
        "magic": entry.magic,
        "pos": entry.pos,
        "size": entry.size,
        "term": entry.term,
    }


def _entry_text(entry: Entry) -> str:
    """As `_entry_members`, in a fraction of the time: pushes are the bulk of the traffic."""
    index, term, pos, size, body, magic, channel, chain_crc, body_crc = entry
    return (
        f'{{"body":"{_base64(body)}","bodyCrc":{body_crc},"chainCrc":{chain_crc},"channel":{channel},'
        f'"index":{index},"magic":{magic},"pos":{pos},"size":{size},"term":{term}}}'
    )


def _encode_push(push: PushEntryRequest) -> str:
    entries = push.entries
    single = isinstance(push.batch_entry, EntryBatch) and len(entries) == 1
    batch: Sequence[Entry] = () if single else push.batch_entry
    first, last = (entries[0].index, entries[-1].index) if entries else (-1, -1)
    parts = [
        f'{{"batch":{"true" if batch else "false"},"batchEntry":[',
        ",".join(map(_entry_text, batch)),
        f'],"code":{int(push.code)},"commitIndex":{push.commit_index},"count":{len(entries)},',
        f'"entry":{_entry_text(entries[0])},' if entries and not batch else "",
        f'"firstEntryIndex":{first},',
        _member("group", push.group),
        "" if push.incarnation is None else f'"incarnation":{push.incarnation},',
        f'"lastEntryIndex":{last},',
        _member("leaderId", push.leader_id),
        _member("localId", push.local_id),
        _member("remoteId", push.remote_id),
        f'"term":{push.term},"totalSize":{size_of(batch)},"type":"{push.type.value}"}}',
    ]
    return "".join(parts)


def _member(key: str, value: str | None) -> str:
    return "" if value is None else f'"{key}":{encode_text(value)},'


# --- reading


def _members_of(kind: type[Any]) -> tuple[tuple[str, str, Any], ...]:
    """Attribute, key and default of each member that is on the wire."""
    if kind.__name__ not in _MEMBERS:
        fields = dataclasses.fields(kind)
        _MEMBERS[kind.__name__] = tuple((field.name, _camel(field.name), field.default) for field in fields)
    return _MEMBERS[kind.__name__]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _decode(kind: type[M], body: bytes | memoryview) -> M:
    if kind in REPEATED and len(body) <= REPEATED_BYTES_MAX:
        return cast(M, _decode_again(cast(Any, kind), bytes(body)))
    return _decode_once(kind, body)


def _decode_once(kind: type[M], body: bytes | memoryview) -> M:
    try:
        allowed = CONTAINERS_MIN + len(body) // ENTRY_TEXT_BYTES_MIN
        document = parse(bytes(body).decode("utf-8"), containers_max=allowed)
        if not isinstance(document, dict):
            raise MalformedBodyError(kind.__name__, "", "no object")
        found = {str(key).lower(): value for key, value in document.items() if value is not None}
        given = {
            name: _read(name, default, found[key.lower()])
            for name, key, default in _members_of(kind)
            if key.lower() in found
        }
    except (UnicodeDecodeError, MalformedJsonError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise MalformedBodyError(kind.__name__, "", f"cannot be read ({error})") from error
    if kind is AppendEntryRequest and not given.keys() & {"body", "batch_msgs"}:
        raise MalformedBodyError(kind.__name__, "", "nothing to append")
    if kind is PushEntryResponse:
        given.setdefault("index", None)
        given.setdefault("begin_index", 0)
        given.setdefault("end_index", 0)
    return kind(**given)


@lru_cache(maxsize=64)
def _decode_again(kind: type[Request | Response], body: bytes) -> Request | Response:
    return _decode_once(kind, body)


def _read(name: str, default: Any, value: Any) -> Any:
    if name in _READERS:
        return _READERS[name](value)
    if isinstance(default, bytes):
        return unbase64(value)
    return int(value) if isinstance(default, int) else str(value)


def unbase64(text: str) -> bytes:
    """The bytes that a text holds.

    Raises:
        ValueError: it is no base64.
    """
    return binascii.a2b_base64(text, strict_mode=True)


def _entry_of(value: Any) -> Entry:
    """An entry as Java decodes it: members that are missing are 0, and so is the size."""
    get = value.get
    body = unbase64(get("body") or "")
    return Entry(
        index=int(get("index", 0)),
        term=int(get("term", 0)),
        pos=int(get("pos", 0)),
        size=len(body) + ENTRY_HEADER_BYTES,
        body=body,
        magic=int(get("magic", 0)),
        channel=int(get("channel", 0)),
        chain_crc=int(get("chainCrc", 0)),
        body_crc=int(get("bodyCrc", 0)),
    )


def _status_of(value: Mapping[str, Any]) -> MemberStatus:
    """Parse the status of a member; newer versions may have more fields."""
    vote, cannot_vote = value.get("vote"), value.get("cannotVote")
    return MemberStatus(
        role=str(value["role"]),
        term=int(value["term"]),
        vote=None if vote is None else str(vote),
        begin_index=int(value["beginIndex"]),
        end_index=int(value["endIndex"]),
        end_term=int(value["endTerm"]),
        committed_index=int(value["committedIndex"]),
        cannot_vote=None if cannot_vote is None else str(cannot_vote),
        disk_full=bool(value["diskFull"]),
    )


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "type": PushType,
    "vote_result": lambda value: VoteResult(value.replace("__", "_")),
    "entry": _entry_of,
    "batch_entry": lambda value: tuple(map(_entry_of, value)),
    "entries": lambda value: tuple(map(_entry_of, value)),
    "batch_msgs": lambda value: tuple(map(unbase64, value)),
    "peers": lambda value: tuple((str(peer), str(address)) for peer, address in value.items()),
    "index": int,
    "incarnation": int,
    "status": _status_of,
}
