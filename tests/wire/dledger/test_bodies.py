"""Bodies of DLedger: what Java's nodes sent is read and written again byte by byte; damage is refused."""

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger.errors import MalformedBodyError
from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    Entry,
    MetadataRequest,
    PushEntryRequest,
    PushEntryResponse,
    PushType,
)
from pyledger.protocol.dledger.response_codes import RequestCode
from pyledger.wire.dledger.bodies import (
    CODES,
    READ_INDEX,
    REQUEST_TYPES,
    decode_json_request,
    decode_response,
    encode_body,
)

ARCHIVE = Path(__file__).parents[2] / "golden" / "dledger" / "frames.tar.xz"


@cache
def recorded() -> tuple[tuple[dict[str, Any], bytes, bytes | None], ...]:
    """Requests of live nodes: the line that describes one, its body, the body of its answer."""
    found: list[tuple[dict[str, Any], bytes, bytes | None]] = []
    with tarfile.open(ARCHIVE) as archive:
        for case in ("group-batch", "group-single"):
            raw = archive.extractfile(f"{case}/frames.bin")
            lines = archive.extractfile(f"{case}/frames.jsonl")
            assert raw is not None
            assert lines is not None
            data = raw.read()
            frames = [json.loads(line) for line in lines]
            bodies = {
                one["seq"]: _body(data[one["offset"] : one["offset"] + one["length"]]) for one in frames
            }
            answers = {one["answerTo"]: bodies[one["seq"]] for one in frames if "answerTo" in one}
            found += [
                (one, bodies[one["seq"]], answers.get(one["seq"]))
                for one in frames
                if one["dir"] == ">" and one["header"]["code"] in REQUEST_TYPES
            ]
    return tuple(found)


def _body(frame: bytes) -> bytes:
    return frame[8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF) :]


def test_what_java_sent_is_written_again_byte_by_byte() -> None:
    kinds = set()
    for one, body, answer in recorded():
        if one["name"] == "APPEND" and b'"body"' not in body:
            continue  # refused, by Java too
        request = decode_json_request(one["header"]["code"], body)
        assert CODES[type(request)] == one["header"]["code"]
        if list(json.loads(body)) == sorted(json.loads(body)):
            assert encode_body(request) == body
            kinds.add((one["name"], one.get("type")))
        if answer:
            response = decode_response(request, answer)
            assert encode_body(response) == answer
    assert {("VOTE", None), ("HEART_BEAT", None), ("PUSH", "APPEND"), ("PUSH", "COMPARE")} <= kinds
    assert {
        ("PUSH", "TRUNCATE"),
        ("PUSH", "COMMIT"),
        ("APPEND", None),
        ("LEADERSHIP_TRANSFER", None),
    } <= kinds


def test_keys_are_read_in_any_case_and_unknown_ones_ignored() -> None:
    body = b'{"CODE":406,"Endindex":7,"xTerm":-1,"nobody":{"knows":[1]},"term":3}'
    push = decode_json_request(RequestCode.PUSH, b'{"type":"COMMIT"}')
    response = decode_response(push, body)
    assert isinstance(response, PushEntryResponse)
    assert (response.code, response.end_index, response.term, response.index) == (406, 7, 3, None)


def test_peers_and_bodies_of_clients() -> None:
    answer = (
        b'{"code":200,"group":"g","leaderId":"n0","peers":{"n0":"127.0.0.1:1","n1":"127.0.0.1:2"},"term":-1}'
    )
    response = decode_response(MetadataRequest(), answer)
    assert encode_body(response) == answer
    request = AppendEntryRequest(group="g", remote_id="n0", body=b"Hello")
    assert encode_body(request) == b'{"body":"SGVsbG8=","code":200,"group":"g","remoteId":"n0","term":-1}'


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b"\xff", b'{"term":"x"}', b'{"type":"NO"}', b'{"entry":5}', b'{"batchEntry":7}',
        b'{"entry":{"body":"%"}}', b'{"commitIndex":[]}',
    ],
)  # fmt: skip
def test_what_is_no_push_is_rejected(body: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        decode_json_request(RequestCode.PUSH, body)


@settings(max_examples=200)
@given(st.sampled_from(sorted(set(REQUEST_TYPES) - {READ_INDEX})), st.integers(0, 400), st.binary(max_size=3))
def test_damage_is_rejected_or_read_but_never_crashes(code: int, at: int, noise: bytes) -> None:
    body = next(body for one, body, _ in recorded() if one["header"]["code"] == code)
    cut = min(at, len(body))
    try:
        decode_json_request(code, body[:cut] + noise + body[cut + len(noise) :])
    except MalformedBodyError:
        return


def test_entries_of_fewer_bytes_than_any_member_writes_are_rejected() -> None:
    empty = Entry(index=0, term=0, pos=0, size=48, body=b"")
    said = PushEntryRequest(group="g", remote_id="n0", type=PushType.APPEND, batch_entry=(empty,) * 5_000)
    assert decode_json_request(RequestCode.PUSH, encode_body(said)) == said
    with pytest.raises(MalformedBodyError, match="objects and lists"):
        decode_json_request(RequestCode.PUSH, b'{"batchEntry":[' + b"{}," * 5_000 + b"{}]}")
