"""repair mends what verify finds, keeps what it cuts, and says beforehand what it would do."""

import os
import shutil
from pathlib import Path

import pytest

from pyledger.errors import StoreFormatError, StoreLockedError
from pyledger.model.message import Message
from pyledger.store.files.lock import StoreLock
from pyledger.store.maintenance.repair import RepairReport, repair
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import GoldenCase, fingerprint, golden_case


def problems(store: Path) -> list[str]:
    return [p.kind for p in verify(store) if p.severity == "error"]


def steps(report: RepairReport) -> list[tuple[str, int | None, int]]:
    return [(step.action, step.offset, step.size_bytes) for step in report.steps]


def test_repair_repairs_every_golden_folder_and_changes_no_valid_one(
    golden: GoldenCase, golden_store: Path
) -> None:
    before = fingerprint(golden_store)
    planned = repair(golden_store, dry_run=True)
    assert fingerprint(golden_store) == before, "a dry run changes nothing"
    done = repair(golden_store)
    assert done.steps == planned.steps
    assert done.complete
    if golden.facts["storeReadExit"] == 0:
        assert not done.steps
        after = fingerprint(golden_store)
        after.pop("lock", None)
        before.pop("lock", None)
        assert after == before
    assert not problems(golden_store)
    if golden.loads:
        with StoreReader.open(golden_store) as reader:
            found = [m.physical_offset for m in reader.messages(order="queue")]
        assert found == [line["physicalOffset"] for line in golden.of_kind("message")]


@pytest.mark.parametrize(("name", "at", "size"), [("torn-clean-5", 46204, 72), ("torn-zero-5", 226105, 370)])
def test_truncated_bytes_are_kept_aside_and_zeroed(tmp_path: Path, name: str, at: int, size: int) -> None:
    store = golden_case(name).unpack(tmp_path)
    log = store / "commitlog" / f"{0:020d}"
    before = log.read_bytes()
    report = repair(store)
    assert steps(report)[0] == ("truncate", at, size)
    assert report.side_folder is not None
    assert (Path(report.side_folder) / f"{at:020d}").read_bytes() == before[at : at + size]
    assert log.read_bytes() == before[:at] + bytes(len(before) - at)
    assert not repair(store).steps


def test_truncated_file_gets_its_size_back(tmp_path: Path) -> None:
    store = golden_case("short-file-5").unpack(tmp_path)
    log = store / "commitlog" / f"{0:020d}"
    report = repair(store, file_size_bytes=1 << 20)
    assert [step[0] for step in steps(report)] == ["truncate", "extend", "rebuild"]
    assert log.stat().st_size == 1 << 20
    assert not problems(store)
    with StoreReader.open(store) as reader:
        assert len(list(reader.messages(order="queue"))) == 99


def test_last_file_of_several_gets_the_size_of_the_others(tmp_path: Path) -> None:
    store = golden_case("rolled-5").unpack(tmp_path)
    log = max((store / "commitlog").iterdir())
    log.write_bytes(log.read_bytes()[:5000])
    assert "short-file" in problems(store)
    assert not repair(store).complete, "queues tell of records that went with the bytes"
    assert [step.action for step in repair(store).steps] == ["leave"]
    assert repair(store, truncate_at_damage=True).complete
    assert log.stat().st_size == 32768
    assert not problems(store)


def test_broken_queues_and_index_are_rebuilt(tmp_path: Path) -> None:
    store = golden_case("rolled-5").unpack(tmp_path)
    with StoreReader.open(store) as reader:
        wanted = [m.physical_offset for m in reader.messages(order="queue")]
    shutil.rmtree(store / "consumequeue" / "alpha" / "1")
    for path in (store / "index").iterdir():
        path.write_bytes(path.read_bytes()[: 40 + 400 + 20 * 30])
    assert steps(repair(store)) == [("rebuild", None, 0)]
    assert not problems(store)
    with StoreReader.open(store) as reader:
        assert [m.physical_offset for m in reader.messages(order="queue")] == wanted


@pytest.mark.parametrize(("queues", "size_bytes"), [(1, 4097), (2, 1000)])
def test_a_truncated_queue_file_is_rebuilt(tmp_path: Path, queues: int, size_bytes: int) -> None:
    """It tells that it was cut: no whole one ends within a unit, or another one is longer."""
    with MessageStore.open(tmp_path) as store:
        for n in range(queues):
            store.put(Message("t", b"body", queue_id=n))
    os.truncate(tmp_path / "consumequeue" / "t" / "0" / ("0" * 20), size_bytes)
    with pytest.raises(StoreFormatError, match="queue file"):
        MessageStore.open(tmp_path)
    assert [step.action for step in repair(tmp_path).steps] == ["rebuild"]
    with MessageStore.open(tmp_path) as store:
        assert all(store.get("t", n, 0).messages[0].body == b"body" for n in range(queues))


def test_damage_in_the_middle_is_left_unless_requested(tmp_path: Path) -> None:
    store = golden_case("rolled-5").unpack(tmp_path)
    with StoreReader.open(store) as reader:
        every = [m.physical_offset for m in reader.messages()]
    log = store / "commitlog" / f"{every[300] // 32768 * 32768:020d}"
    data = bytearray(log.read_bytes())
    data[every[300] % 32768 + 90] ^= 1
    log.write_bytes(data)
    before = fingerprint(store / "commitlog")
    report = repair(store)
    assert not report.complete
    assert ("leave", every[300], 0) in steps(report)
    assert fingerprint(store / "commitlog") == before
    report = repair(store, truncate_at_damage=True)
    assert report.complete
    assert report.side_folder is not None
    assert not problems(store)
    with StoreReader.open(store) as reader:
        assert [m.physical_offset for m in reader.messages()] == every[:300]
        assert sorted(m.physical_offset for m in reader.messages(order="queue")) == every[:300]
    kept = sorted(Path(report.side_folder).iterdir())
    assert int(kept[0].name) == every[300]
    assert kept[0].read_bytes().startswith(bytes(data[every[300] % 32768 :][:100]))


def test_checkpoint_that_cannot_be_true_is_replaced(tmp_path: Path) -> None:
    store = golden_case("clean-5").unpack(tmp_path)
    (store / "checkpoint").write_bytes(b"\xff" * 4096)
    assert steps(repair(store)) == [("reset-checkpoint", None, 0)]
    assert (store / "checkpoint").read_bytes() == bytes(4096)
    assert not problems(store)


def test_repair_of_a_store_in_use_is_an_error(tmp_path: Path) -> None:
    store = golden_case("torn-clean-5").unpack(tmp_path)
    before = fingerprint(store / "commitlog")
    with StoreLock(str(store)), pytest.raises(StoreLockedError):
        repair(store)
    assert fingerprint(store / "commitlog") == before
