"""Folders of real bookies, stopped and killed, of three storages: the entries that they served before."""

import json
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyledger.errors import LedgerFileError, PyLedgerError
from pyledger.store.bookkeeper.reader import BookieReader, HeldEntry
from pyledger.store.bookkeeper.verify import BookieCheck
from tests.cli.command_line import pyledger
from tests.golden.ledger_recordings import bookie_files, unpack_bookie

CASES = [f"{storage}-{end}" for storage in ("interleaved", "sorted", "db") for end in ("clean", "killed")]


def recorded(case: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(bookie_files()[f"{case}.json"])
    return facts


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", CASES)
def test_entries(case: str, tmp_path: Path) -> None:
    folder = unpack_bookie(case, tmp_path)
    before = contents(folder)
    served = {
        (ledger["ledger"], entry["entryId"]): (entry["size"], entry["lac"], entry["length"], entry["crc32"])
        for ledger in recorded(case)["ledgers"]
        for entry in ledger["entries"]
        if entry["rc"] == 0
    }
    ran = pyledger("bookie", "dump", str(folder), "--json")
    found = ran.json
    assert {
        (one["ledgerId"], one["entryId"]): (one["size"], one["lac"], one["length"], one["crc32"])
        for one in found
    } == served
    assert len(found) == len(served)
    assert contents(folder) == before
    for one in found:
        data = Path(one["file"]).read_bytes()[one["position"] :][: one["size"]]
        assert f"{zlib.crc32(data):08x}" == one["crc32"], "the place that is told"


@pytest.mark.parametrize("case", CASES)
def test_verify_finds_nothing(case: str, tmp_path: Path) -> None:
    check = BookieCheck(str(unpack_bookie(case, tmp_path)))
    assert [one for one in check.findings() if one.severity == "error"] == []
    assert check.entries > check.unguarded > 0


@pytest.mark.parametrize("case", [case for case in CASES if case != "db-clean"])
def test_fences_and_keys(case: str, tmp_path: Path) -> None:
    """All but those that only RocksDB tells."""
    ledgers = BookieReader.open(unpack_bookie(case, tmp_path)).ledgers
    fenced = {one["ledger"] for one in recorded(case)["ledgers"] if "fence" in one["kind"]}
    assert {ledger for ledger, one in ledgers.items() if one.fenced} == fenced
    assert fenced
    assert all(one.master_key is not None and len(one.master_key) == 20 for one in ledgers.values())


def test_a_flipped_bit_of_an_entry_is_found(tmp_path: Path) -> None:
    folder = unpack_bookie("sorted-clean", tmp_path)
    log = folder / "ledgers/current/0.log"
    data = bytearray(log.read_bytes())
    data[1028 + 42] ^= 1  # in the payload of the first entry
    log.write_bytes(data)
    problems = [one for one in BookieCheck(str(folder)).findings() if one.severity == "error"]
    assert [(one.kind, one.file, one.offset) for one in problems] == [("bookie-digest", str(log), 1028)]
    assert pyledger("bookie", "verify", str(folder)).code == 1


def test_an_entry_that_an_index_names_in_vain_is_damage(tmp_path: Path) -> None:
    folder = unpack_bookie("interleaved-clean", tmp_path)
    log = folder / "ledgers/current/0.log"
    log.write_bytes(log.read_bytes()[:2000])
    with pytest.raises(LedgerFileError, match="is not here"):
        list(BookieReader.open(folder).entries())
    assert {one.kind for one in BookieCheck(str(folder)).findings()} == {"bookie-log", "bookie-index"}


def test_a_journal_that_ends_in_a_torn_record_is_sound(tmp_path: Path) -> None:
    folder = unpack_bookie("sorted-killed", tmp_path)
    (journal,) = (folder / "journal/current").glob("*.txn")
    entries = list(BookieReader.open(folder).entries())
    last = max(one.position for one in entries)
    journal.write_bytes(journal.read_bytes()[: last + 10])
    left = list(BookieReader.open(folder).entries())
    assert len(left) == len(entries) - 1
    assert not [one for one in BookieCheck(str(folder)).findings() if one.severity == "error"]


@pytest.mark.parametrize(
    ("folder", "problem"),
    [("nowhere", "no such folder"), (".", "no journal and no entry log")],
)
def test_other_folders(folder: str, problem: str, tmp_path: Path) -> None:
    ran = pyledger("bookie", "dump", str(tmp_path / folder))
    assert ran.code == 3
    assert problem in ran.err


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data(), case=st.sampled_from(CASES))
def test_mutated_folders_give_clear_errors(tmp_path_factory: Any, data: st.DataObject, case: str) -> None:
    folder = unpack_bookie(case, tmp_path_factory.mktemp("bookie"))
    files = sorted(path for path in folder.rglob("*") if path.stat().st_size and path.is_file())
    victim = data.draw(st.sampled_from(files))
    content = bytearray(victim.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(content), 16_000) - 1))
        content[at : at + data.draw(st.integers(1, 8))] = data.draw(st.binary(max_size=8))
        content = content or bytearray(b"\0")
    victim.write_bytes(content)
    for read in (lambda: BookieReader.open(folder).entries(), lambda: BookieCheck(str(folder)).findings()):
        with suppress(PyLedgerError):
            assert all(isinstance(one.entry, memoryview) for one in read() if isinstance(one, HeldEntry))
