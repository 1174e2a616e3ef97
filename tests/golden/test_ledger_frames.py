"""Frames that real bookies and clients exchanged: read as their decoders read them, and written back."""

import json
from typing import Any

import pytest

from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.wire.bookkeeper import version2, version3
from pyledger.wire.bookkeeper.entry import (
    EntryDigest,
    mac_key,
    master_key,
    pack_entry,
    pack_lac,
    unpack_entry,
    unpack_lac,
)
from pyledger.wire.bookkeeper.schema import message
from tests.golden.ledger_recordings import frames, lines, recordings

NAMES = {
    "CRC32": DigestType.CRC32,
    "CRC32C": DigestType.CRC32C,
    "MAC": DigestType.HMAC,
    "DUMMY": DigestType.DUMMY,
}
FRAMES = [one for one in frames() if one[2]]


def of_direction(direction: str, protocol: int) -> list[Any]:
    return [
        pytest.param(data, meaning, id=where)
        for where, way, data, meaning in FRAMES
        if way == direction and meaning["protocol"] == protocol
    ]


def described(meaning: dict[str, Any]) -> dict[str, Any]:
    """The inner message of a decoded frame of version 3."""
    (inner,) = (value for key, value in meaning.items() if key.endswith(("Request", "Response")))
    return inner


@pytest.mark.parametrize(("data", "meaning"), of_direction("c2b", 3))
def test_requests_of_version_3(data: bytes, meaning: dict[str, Any]) -> None:
    request = version3.decode_request(memoryview(data))
    inner = described(meaning)
    assert request.operation.name == meaning["header"]["operation"]
    assert request.txn_id == meaning["header"]["txnId"]
    assert request.priority == meaning["header"].get("priority", 0)
    assert getattr(request, "ledger_id", None) == inner.get("ledgerId")
    assert getattr(request, "entry_id", None) == inner.get("entryId")
    if isinstance(request, m.ReadRequest):
        flag = "FENCE_LEDGER" if request.fence else "ENTRY_PIGGYBACK" if request.piggyback else None
        assert flag == inner.get("flag")
        assert request.previous_lac == inner.get("previousLAC")
    assert same(message("Request"), version3.encode_request(request), data)


@pytest.mark.parametrize(("data", "meaning"), of_direction("b2c", 3))
def test_answers_of_version_3(data: bytes, meaning: dict[str, Any]) -> None:
    response = version3.decode_response(memoryview(data))
    assert response.status.name == meaning["status"]
    assert response.txn_id == meaning["header"]["txnId"]
    assert same(message("Response"), version3.encode_response(response), data)


@pytest.mark.parametrize(("data", "meaning"), of_direction("c2b", 2))
def test_requests_of_version_2(data: bytes, meaning: dict[str, Any]) -> None:
    request = version2.decode_request(memoryview(data))
    assert version2.encode_request(request) == data


@pytest.mark.parametrize(("data", "meaning"), of_direction("b2c", 2))
def test_answers_of_version_2(data: bytes, meaning: dict[str, Any]) -> None:
    response = version2.decode_response(memoryview(data))
    assert version2.encode_response(response) == data


def same(kind: Any, ours: bytes, theirs: bytes) -> bool:
    """Protobuf of releases differs in the order of fields; the meaning must not."""
    return bool(kind.FromString(ours) == kind.FromString(theirs)) and len(ours) == len(theirs)


ANSWERED = [
    one for one in lines("frames/raw-client.jsonl") if one.get("response") and "…" not in one["response"]
]


@pytest.mark.parametrize("one", ANSWERED, ids=lambda one: f"{one['connection']} {one['what']}")
def test_answers_to_odd_requests(one: dict[str, Any]) -> None:
    data = bytes.fromhex(one["response"])[4:]
    version = one["responseDecoded"]["protocol"]
    codec = version3 if version == version3.VERSION else version2
    response = codec.decode_response(memoryview(data))
    if version == version3.VERSION:
        assert same(message("Response"), version3.encode_response(response), data)
        assert response.status.name == one["responseDecoded"]["status"]
    else:
        assert version2.encode_response(response, data[0]) == data


@pytest.mark.parametrize(
    "one", lines("entries.jsonl"), ids=lambda one: f"{one['ledgerId']}-{one['entryId']}-{one['digest']}"
)
def test_entries(one: dict[str, Any]) -> None:
    password, data = one["password"].encode(), bytes.fromhex(one["bytes"])
    assert master_key(password).hex() == one["ledgerKey"]
    assert mac_key(password).hex() == one["macKey"]
    digest = EntryDigest(NAMES[one["digest"]], password)
    entry = unpack_entry(digest, one["ledgerId"], one["entryId"], data)
    assert (entry.last_add_confirmed, entry.length) == (one["lac"], one["length"])
    assert len(entry.payload) == one["payloadSize"]
    ids = (entry.ledger_id, entry.entry_id)
    assert pack_entry(digest, *ids, entry.last_add_confirmed, entry.length, entry.payload) == data


def test_lac_packets() -> None:
    by_size = {24: DigestType.CRC32, 20: DigestType.CRC32C, 36: DigestType.HMAC, 16: DigestType.DUMMY}
    for one in lines("lac-packets.jsonl"):
        data = bytes.fromhex(one["bytes"])
        digest = EntryDigest(by_size[len(data)], one["password"].encode())
        assert unpack_lac(digest, one["ledgerId"], data) == one["lac"]
        assert pack_lac(digest, one["ledgerId"], one["lac"]) == data


def test_lists_of_entries_are_read() -> None:
    answers = (
        response
        for _, direction, data, meaning in FRAMES
        if direction == "b2c" and meaning["protocol"] == version3.VERSION
        if isinstance(response := version3.decode_response(memoryview(data)), m.ListEntriesResponse)
    )
    runs = [answer.ranges for answer in answers if answer.ranges]
    assert runs
    assert all(run and run[0].start == 0 for run in runs)


def test_all_scenarios_are_there() -> None:
    names = {json.loads(line)["scenario"] for line in recordings()["frames/index.jsonl"].splitlines()}
    assert names == {where.split()[0].removeprefix("frames/").removesuffix(".jsonl") for where, *_ in FRAMES}
