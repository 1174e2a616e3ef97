"""dump shows any single file of a store, whatever is in it."""

from pathlib import Path
from typing import Any

import pytest

from pyledger.errors import StoreFormatError, StoreNotFoundError
from pyledger.store.maintenance.dump import dump_file
from tests.golden.archive import GoldenCase, fingerprint, golden_case


def lines(path: Path) -> list[dict[str, Any]]:
    return list(dump_file(str(path)))


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in found if line["kind"] == kind]


def test_log_files_show_every_record(golden: GoldenCase, pristine_store: Path) -> None:
    found = [line for path in sorted((pristine_store / "commitlog").iterdir()) for line in lines(path)]
    wanted = sorted(
        golden.of_kind("message") + golden.of_kind("unindexed"), key=lambda m: m["physicalOffset"]
    )
    if golden.loads:
        shown = of_kind(found, "record")
        names = [name for name in shown[0] if name not in ("kind", "position")]
        assert [[line[n] for n in names] for line in shown] == [[line[n] for n in names] for line in wanted]
        assert len(of_kind(found, "blank")) == golden.summary["blanks"]
        assert bool(of_kind(found, "damage")) is (golden.summary["logBytesDropped"] > 0)


@pytest.mark.parametrize("name", ["broker-5", "broker-4", "cq-ext-5", "inner-batch-5"])
def test_every_file_of_a_folder_can_be_shown(tmp_path: Path, name: str) -> None:
    store = golden_case(name).unpack(tmp_path)
    before = fingerprint(store)
    for path in sorted(store.rglob("*")):
        if path.is_file():
            found = lines(path)
            assert found[0]["kind"] == "file"
            assert found[0]["sizeBytes"] == path.stat().st_size
            assert not of_kind(found, "damage"), path
    assert fingerprint(store) == before


def test_queue_files_show_their_units(tmp_path: Path) -> None:
    case = golden_case("deleted-head-5")
    store = case.unpack(tmp_path)
    wanted = [m for m in case.of_kind("message") if (m["topic"], m["queueId"]) == ("beta", 3)]
    found = [
        line for path in sorted((store / "consumequeue" / "beta" / "3").iterdir()) for line in lines(path)
    ]
    units = {line["queueOffset"]: line for line in of_kind(found, "unit")}
    for message in wanted:
        unit = units[message["queueOffset"]]
        assert [unit[n] for n in ("physicalOffset", "storeSize", "tagsCode")] == [
            message[n] for n in ("physicalOffset", "storeSize", "tagsCode")
        ]


def test_batch_queue_index_and_timer_files(tmp_path: Path) -> None:
    store = golden_case("inner-batch-5").unpack(tmp_path / "a")
    path = next((store / "batchconsumequeue" / "interop_inner_batch" / "0").iterdir())
    batches = of_kind(lines(path), "batchUnit")
    assert [(b["queueOffset"], b["batchSize"]) for b in batches[:3]] == [(0, 10), (10, 7), (17, 4)]
    store = golden_case("index-5").unpack(tmp_path / "b")
    found = lines(min((store / "index").iterdir()))
    (header,) = of_kind(found, "indexHeader")
    entries = of_kind(found, "indexEntry")
    assert (header["slots"], header["indexCount"], len(entries)) == (20, 80, 79)
    assert entries[0]["physicalOffset"] == header["beginPhysicalOffset"]
    assert entries[-1]["physicalOffset"] == header["endPhysicalOffset"]
    store = golden_case("broker-5").unpack(tmp_path / "c")
    assert of_kind(lines(store / "timerwheel"), "timerSlot")
    units = of_kind(lines(store / "timerlog" / f"{0:020d}"), "timerUnit")
    assert units[1]["previousPosition"] == 0
    assert {unit["sizeBytes"] for unit in units} == {52}
    (check,) = of_kind(lines(store / "config" / "timercheck"), "timerCheckpoint")
    assert check["lastTimerQueueOffset"] == len(units)


def test_damage_is_shown_where_it_is(tmp_path: Path) -> None:
    found = lines(golden_case("torn-zero-5").unpack(tmp_path) / "commitlog" / f"{0:020d}")
    (damage,) = of_kind(found, "damage")
    assert damage["position"] == 226105
    assert damage["problem"]


def test_what_is_no_store_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no such file; name one file"):
        lines(tmp_path / "absent")
    with pytest.raises(StoreNotFoundError, match="a folder; name one file"):
        lines(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(StoreFormatError, match="not a store file"):
        lines(tmp_path / "notes.txt")


@pytest.mark.parametrize("name", ["checkpoint", "index/20240501000000000", "consumequeue/a/0/" + "0" * 20])
def test_short_and_empty_files_are_shown_as_far_as_they_go(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for size in (0, 7, 41):
        path.write_bytes(b"\x01" * size)
        assert lines(path)[0]["sizeBytes"] == size
