"""Java's store opens folders that we repaired or rebuilt: nothing dropped, the same messages."""

import shutil
from pathlib import Path

import pytest

from pyledger.store.rebuild import rebuild
from pyledger.store.repair import repair
from tests.golden.archive import golden_case
from tests.interop.java import JavaStore, JavaStores
from tests.interop.ours import SMALL, write_folder
from tests.interop.workload import kinds_for

pytestmark = pytest.mark.java


@pytest.mark.parametrize("name", ["torn-zero-5", "torn-zero-4", "torn-clean-5", "bit-flip-5", "short-file-5"])
def test_repaired_folder(java_store: JavaStores, tmp_path: Path, name: str) -> None:
    case = golden_case(name)
    store = case.unpack(tmp_path)
    java = java_store(case.version)
    options = case.facts["storeReadArgs"]
    before = java.read(shutil.copytree(store, tmp_path / "damaged"), *options)
    assert before.exit == case.facts["storeReadExit"] != 0
    assert repair(store, file_size_bytes=case.facts["settings"]["mappedFileSizeCommitLog"]).complete
    after = java.judge(store, *options)
    assert after.messages
    if case.loads:
        assert after.messages == before.messages


@pytest.mark.parametrize("name", ["rolled-5", "rolled-4", "inner-batch-5", "delay-tx-5", "crash-5"])
def test_rebuilt_folder(java_store: JavaStores, tmp_path: Path, name: str) -> None:
    case = golden_case(name)
    store = case.unpack(tmp_path)
    rebuild(store)
    after = java_store(case.version).judge(store, *case.facts["storeReadArgs"])
    assert after.of_kind("message") == case.of_kind("message")
    assert {key(line): set(line["physicalOffsets"]) for line in after.of_kind("key")} == {
        key(line): set(line["physicalOffsets"]) for line in case.of_kind("key")
    }


def key(line: dict[str, str]) -> tuple[str, str]:
    return line["topic"], line["key"]


def test_our_own_folder_rebuilt(java: JavaStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    write_folder(folder, 21, 300, kinds=kinds_for(java.version), **SMALL)
    before = java.judge(folder, "--queries")
    rebuild(folder)
    after = java.judge(folder, "--queries")
    assert after.messages == before.messages
    assert after.of_kind("key") == before.of_kind("key")
