"""Folders of DLedger nodes: we find what Java's own recovery finds, and change nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyledger.cli.dledger.entries import entry_fields
from pyledger.errors import CorruptRecordError
from pyledger.store.dledger.reader import DLedgerReader
from pyledger.store.dledger.verify import verify_dledger
from tests.golden.archive import fingerprint
from tests.golden.dledger_folders import JAVA_ERRS, GoldenNode, golden_node, golden_nodes

NODES = pytest.mark.parametrize("node", golden_nodes(), ids=lambda node: node.name)

# What `verify` calls a problem, and what it merely notes.
FINDINGS = {
    "garbage-tail": {"stale-tail"},
    "stale-tail": {"stale-tail"},
    "torn-header": {"stale-tail", "index-beyond", "checkpoint"},
    "torn-size": {"stale-tail", "index-beyond", "checkpoint"},
    "wrong-pos": {"stale-tail", "index-beyond", "checkpoint"},
    "magic-2": {"stale-tail", "index-beyond", "checkpoint"},
    "resurrected": {"index-unit"},
    "index-short": {"index-unit"},
    "index-wrong": {"index-unit"},
    "index-missing": {"index-unit"},
    "checkpoint-ahead": {"checkpoint"},
    "term-missing": {"term"},
    "hole-second-last": {"lost-entries", "index-beyond", "checkpoint"},
    "hole-third-last": {"lost-entries", "index-beyond", "checkpoint"},
    "stray-file": {"unusual"},
    "short-file": {"unusual", "short-file"},
    "clean": set(),
    "torn-body": set(),
    "next-file-empty": set(),
}


@NODES
def test_entries_are_those_that_java_found(node: GoldenNode) -> None:
    if node.case in JAVA_ERRS:
        pytest.skip("Java gives up on this folder, or reads what is no entry")
    before = fingerprint(node.path)
    found = []
    with DLedgerReader.open(node.path) as reader:
        try:
            found.extend(entry_fields(entry) for entry in reader.entries())
        except CorruptRecordError:
            assert node.case == "hole-second-last"
        stop = reader.scan()
    assert found == list(node.expected)
    assert (stop.next_offset, stop.last_term) == (node.summary["dataEnd"], node.summary["endTerm"])
    assert reader.folder.vote.term == node.summary["term"]
    assert min(reader.committed_index, stop.last_index) == node.summary["committed"]
    assert fingerprint(node.path) == before, "reading changed the folder"


def test_folders_before_which_java_gives_up_are_read_as_far_as_they_are_sound() -> None:
    nodes = {node.case: node for node in golden_nodes()}
    whole = [entry["sha256"] for entry in nodes["clean"].expected]
    for case, count in (("stray-file", len(whole)), ("short-file", len(whole)), ("head-filler", None)):
        with DLedgerReader.open(nodes[case].path) as reader:
            got = [entry_fields(entry)["sha256"] for entry in reader.entries()]
        assert got == (whole[:count] if count else whole[1:]), case


def test_a_hole_is_told_with_what_is_lost() -> None:
    node = golden_node("hole-third-last")
    command = [sys.executable, "-m", "pyledger", "dledger", "cat", str(node.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    last = json.loads(done.stdout.splitlines()[-1])["index"]
    assert done.returncode == 1
    assert f"entries {last + 1}.." in done.stderr
    assert "are lost" in done.stderr


@NODES
def test_verify_finds_what_is_wrong_and_nothing_else(node: GoldenNode) -> None:
    if node.case not in FINDINGS:
        return
    with DLedgerReader.open(node.path) as reader:
        assert {found.kind for found in verify_dledger(reader)} == FINDINGS[node.case]


def test_generation_b_entries_may_stand_elsewhere_and_be_no_ops(tmp_path: Path) -> None:
    """Without a checkpoint, which generation B does not write, its rules are found by themselves."""
    node = golden_node("magic-2")
    copy = tmp_path / "dledger-n0"
    shutil.copytree(node.path, copy)
    (copy / "checkpoint").unlink()
    with DLedgerReader.open(copy) as reader:
        assert reader.generation == "b"
        entries = list(reader.entries())
    assert len(entries) == len(node.expected) + 1
    assert entries[-1].magic == 2
