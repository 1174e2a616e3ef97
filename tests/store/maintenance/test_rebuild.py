"""rebuild makes queues and index that upstream's own equal in effect, durably and without half states."""

import os
import shutil
from pathlib import Path

import pytest

from pyledger.errors import StoreIOError, StoreLockedError
from pyledger.store.files import rebuild_commit as module
from pyledger.store.files.lock import StoreLock
from pyledger.store.maintenance.rebuild import rebuild
from pyledger.store.maintenance.repair import repair
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import GoldenCase, fingerprint, golden_case


def facts(store: Path) -> list[object]:
    with StoreReader.open(store) as reader:
        messages = [
            (m.topic, m.queue_id, m.queue_offset, m.physical_offset) for m in reader.messages(order="queue")
        ]
        keys = [reader.query_offsets(m.topic, m.unique_key) for m in reader.messages() if m.unique_key]
        return [messages, keys, reader.queues()]


def test_rebuilt_files_contain_what_the_old_ones_did(golden: GoldenCase, golden_store: Path) -> None:
    if golden.name.startswith("many-queues"):
        pytest.skip("a sync for each of a thousand files")
    if golden.facts["storeReadExit"]:
        pytest.skip("the log is to be repaired first")
    before = facts(golden_store)
    log = fingerprint(golden_store / "commitlog")
    report = rebuild(golden_store)
    assert report.records == len(golden.of_kind("message")) + len(golden.of_kind("unindexed"))
    assert facts(golden_store) == before
    assert fingerprint(golden_store / "commitlog") == log
    assert not (golden_store / ".rebuild").exists()
    found = [p for p in verify(golden_store) if p.kind.startswith(("queue", "index"))]
    # After an unclean exit the checkpoint promises nothing, so the new index counts as not known to be on
    # disk.
    assert {p.kind for p in found} <= ({"index-missing"} if golden.summary["abortFile"] else set())


def test_rebuilt_queue_files_are_upstreams_bytes(tmp_path: Path) -> None:
    store = golden_case("rolled-5").unpack(tmp_path)
    old = {name: digest for name, (_, _, digest) in fingerprint(store / "consumequeue").items()}
    rebuild(store)
    assert {name: digest for name, (_, _, digest) in fingerprint(store / "consumequeue").items()} == old


def test_emptied_queue_keeps_its_numbers(tmp_path: Path) -> None:
    store = golden_case("deleted-head-5").unpack(tmp_path)
    folder = store / "consumequeue" / "idle" / "0"
    folder.mkdir(parents=True)
    units = [(at * 100).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8) for at in range(7)]
    (folder / f"{0:020d}").write_bytes(b"".join(units).ljust(800, b"\0"))
    before = facts(store)
    rebuild(store)
    assert facts(store) == before


def test_rebuild_leaves_damage_out(tmp_path: Path) -> None:
    store = golden_case("rolled-5").unpack(tmp_path)
    with StoreReader.open(store) as reader:
        every = [m.physical_offset for m in reader.messages()]
    path = store / "commitlog" / f"{every[300] // 32768 * 32768:020d}"
    with path.open("r+b") as file:
        file.seek(every[300] % 32768 + 4)
        file.write(b"\xff\xff\xff\xff")
    assert rebuild(store).records == len(every) - 1
    with StoreReader.open(store, on_corrupt="skip") as reader:
        assert sorted(m.physical_offset for m in reader.messages(order="queue")) == every[:300] + every[301:]


@pytest.mark.parametrize("failing", range(5))
def test_rebuild_interrupted_at_any_rename_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    store = golden_case("rolled-5").unpack(tmp_path)
    before = facts(store)
    renames = 0
    rename = os.rename

    def fail_at(source: str, target: str) -> None:
        nonlocal renames
        swapped = Path(target).parent == store or Path(target).name.startswith("old-")
        if swapped and renames == failing:
            raise OSError(5, "cut off", source)
        renames += swapped
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "rename", fail_at)
        if failing < 4:
            with pytest.raises(StoreIOError, match="cut off"):
                rebuild(store)
        else:
            rebuild(store)
    halfway = fingerprint(store)
    assert facts(store) == before
    assert fingerprint(store) == halfway, "a reader changes nothing"
    rebuild(store)
    assert facts(store) == before
    assert not (store / ".rebuild").exists()


@pytest.mark.parametrize("opener", ["open", "repair", "rebuild"])
@pytest.mark.parametrize("name", ["consumequeue", "index"])
def test_an_interrupted_swap_is_completed_by_the_next_writer(tmp_path: Path, opener: str, name: str) -> None:
    """Also numbers that only the old queue files tell: those of a queue whose messages were all deleted."""
    store = golden_case("deleted-head-5").unpack(tmp_path)
    folder = store / "consumequeue" / "idle" / "0"
    folder.mkdir(parents=True)
    size = next((store / "consumequeue").rglob("0" * 5 + "*")).stat().st_size
    units = [(at * 100).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8) for at in range(7)]
    (folder / f"{0:020d}").write_bytes(b"".join(units).ljust(size, b"\0"))
    before = facts(store)
    (store / ".rebuild" / name).mkdir(parents=True)
    (store / name).rename(store / ".rebuild" / f"old-{name}")
    assert facts(store) == before, "a reader finds the old files where they are"
    if opener == "open":
        MessageStore.open(store).close()
    elif opener == "repair":
        repair(store)
    else:
        rebuild(store)
    assert not (store / ".rebuild").exists()
    assert facts(store)[2] == before[2]  # type: ignore[index]
    assert (store / name).is_dir()


def test_rebuild_waits_for_no_other_writer(tmp_path: Path) -> None:
    store = golden_case("clean-5").unpack(tmp_path)
    shutil.rmtree(store / "consumequeue")
    with StoreLock(str(store)), pytest.raises(StoreLockedError):
        rebuild(store)
    assert not (store / "consumequeue").exists()
