"""Metadata, cookies, registrations and names of znodes, as BookKeeper's own processes left them."""

import json
from typing import Any

import pytest

from pyledger.wire.bookkeeper.bookies import (
    decode_cookie,
    decode_registration,
    encode_cookie,
    encode_registration,
)
from pyledger.wire.bookkeeper.ledger_metadata import BINARY, decode_metadata, encode_metadata
from pyledger.wire.bookkeeper.paths import ledger_of, ledger_path, mark_path, marked_ledger
from tests.golden.ledger_recordings import lines, recordings

METADATA = sorted(name.removesuffix(".bin") for name in recordings() if name.endswith(".bin"))
STAGES = sorted(name for name in recordings() if name.startswith("zk/") and name[3].isdigit())
DIGESTS = {"CRC32": "CRC32", "CRC32C": "CRC32C", "MAC": "HMAC", "DUMMY": "DUMMY"}


@pytest.mark.parametrize("name", METADATA)
def test_metadata(name: str) -> None:
    data, facts = recordings()[f"{name}.bin"], json.loads(recordings()[f"{name}.json"])
    found = decode_metadata(data)
    assert (found.ensemble_size, found.write_quorum, found.ack_quorum) == (
        facts["e"],
        facts["qw"],
        facts["qa"],
    )
    assert (found.state.name, found.format_version) == (facts["state"], facts["formatVersion"])
    assert {str(one.first_entry_id): list(one.ensemble) for one in found.segments} == facts["ensembles"]
    if found.closed:
        assert (found.last_entry_id, found.length) == (facts["lastEntryId"], facts["length"])
    if found.password is not None:
        assert found.password.decode() == facts["password"]
        assert found.digest is not None
        assert found.digest.name == DIGESTS[facts["digest"]]
    assert (-1 if found.ctime is None else found.ctime) == facts["ctime"]
    assert found.token == facts["cToken"] or found.format_version < BINARY
    assert {key: value.decode() for key, value in found.custom.items()} == facts["custom"]
    assert encode_metadata(found) == data


@pytest.mark.parametrize("stage", STAGES)
def test_znodes(stage: str) -> None:
    """Whatever lies in ZooKeeper is read, and written back to the same bytes."""
    nodes = lines(stage)
    kinds = [kind for kind, function in READERS.items() for node in nodes if function(node)]
    if "LAYOUT" not in stage and "formatted" not in stage:
        assert "cookie" in kinds


def below_root(node: dict[str, Any]) -> str:
    path: str = node["path"]
    return path.removeprefix("/ledgers").removeprefix("/")


def read_cookie(node: dict[str, Any]) -> bool:
    if not below_root(node).startswith("cookies/"):
        return False
    data = bytes.fromhex(node["hex"])
    assert encode_cookie(decode_cookie(data)) == data
    return True


def read_registration(node: dict[str, Any]) -> bool:
    path = below_root(node)
    if not path.startswith("available/") or path == "available/readonly":
        return False
    data, bookie_id = bytes.fromhex(node["hex"]), path.rpartition("/")[2]
    info = decode_registration(bookie_id, data)
    assert encode_registration(info) == data
    assert info.address is not None
    host, port = info.address
    assert f"{host}:{port}" == bookie_id
    return True


def read_ledger(node: dict[str, Any]) -> bool:
    path = below_root(node)
    if (ledger_id := ledger_of(path)) is None:
        assert not path.rpartition("/")[2].startswith("L0")
        return False
    assert ledger_path(ledger_id) == path
    data = bytes.fromhex(node["hex"])
    assert encode_metadata(decode_metadata(data)) == data
    return True


def read_mark(node: dict[str, Any]) -> bool:
    path = below_root(node).removeprefix("underreplication/ledgers/")
    if (ledger_id := marked_ledger(path)) is None:
        return False
    assert mark_path(ledger_id) == path
    return True


READERS = {"cookie": read_cookie, "registration": read_registration, "ledger": read_ledger, "mark": read_mark}


def test_every_kind_of_znode_was_met() -> None:
    nodes = [node for stage in STAGES for node in lines(stage)]
    assert all(any(function(node) for node in nodes) for function in READERS.values())
