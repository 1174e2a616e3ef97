"""Java's store opens folders that we repaired or rebuilt: nothing dropped, the same messages."""

import shutil
from pathlib import Path

import pytest

from pyledger.model.message import Message
from pyledger.store.maintenance.rebuild import rebuild
from pyledger.store.maintenance.repair import repair
from pyledger.store.messages.message_store import MessageStore
from tests.golden.archive import golden_case
from tests.interop.java import JavaStore, JavaStores

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
    with MessageStore.open(
        folder,
        mapped_file_size_bytes=64 << 10,
        consume_queue_file_size_bytes=400,
        index_slots=100,
        index_entries=400,
    ) as store:
        for n in range(300):
            store.put(Message("ours", b"body %d" % n * (n % 30), queue_id=n % 3, tags="A", keys=f"key-{n}"))
    before = java.judge(folder, "--queries")
    rebuild(folder)
    after = java.judge(folder, "--queries")
    assert after.messages == before.messages
    assert len(after.messages) == 300
    assert after.of_kind("key") == before.of_kind("key")
