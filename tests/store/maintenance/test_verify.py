"""verify agrees with upstream about every golden folder, and names each kind of damage with its place."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.errors import StoreNotFoundError
from pyledger.store.files import checkpoint
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.finding import KINDS, Finding
from pyledger.store.maintenance.verify import verify
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import GoldenCase, golden_case

FIRST = f"{0:020d}"


def problems(store: Path) -> list[Finding]:
    return [found for found in verify(store) if found.severity == "error"]


def kinds(store: Path) -> set[str]:
    return {found.kind for found in problems(store)}


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    change(path, position, bytes([path.read_bytes()[position] ^ 0x40]))


def test_verify_judges_every_golden_folder_as_upstream_does(golden: GoldenCase, pristine_store: Path) -> None:
    found = list(verify(pristine_store))
    assert {p.kind for p in found} <= set(KINDS)
    assert bool([p for p in found if p.severity == "error"]) is (golden.facts["storeReadExit"] != 0), found
    unclean = [p for p in found if p.kind == "unclean"]
    assert bool(unclean) is golden.summary["abortFile"]


@pytest.mark.parametrize(
    ("name", "kind", "offset"),
    [
        ("bit-flip-5", "torn-record", 62779),
        ("torn-zero-5", "torn-record", 226105),
        ("torn-zero-4", "torn-record", 236592),
        ("torn-clean-5", "torn-record", 46204),
        ("short-file-5", "short-file", 49922),
    ],
)
def test_verify_names_what_was_changed_by_hand(tmp_path: Path, name: str, kind: str, offset: int) -> None:
    found = problems(golden_case(name).unpack(tmp_path))
    assert (kind, offset) in {(p.kind, p.offset) for p in found}


def damage_record(store: Path) -> int:
    with StoreReader.open(store) as reader:
        at = [m.physical_offset for m in reader.messages()][300]
    flip(store / "commitlog" / f"{at - at % 32768:020d}", at % 32768 + 90)
    return at


def remove_log_file(store: Path) -> int:
    (store / "commitlog" / f"{5 * 32768:020d}").unlink()
    return 5 * 32768


def cut_log_file(store: Path) -> int:
    path = store / "commitlog" / f"{5 * 32768:020d}"
    path.write_bytes(path.read_bytes()[:1000])
    return 5 * 32768 + 1000


def change_blank(store: Path) -> int:
    data = (store / "commitlog" / FIRST).read_bytes()
    at = data.index(b"\xcb\xd4\x31\x94") - 4
    flip(store / "commitlog" / FIRST, at + 3)
    return at


def change_unit_size(store: Path) -> int:
    flip(store / "consumequeue" / "alpha" / "0" / FIRST, 20 * 7 + 11)
    return 7


def change_unit_tags(store: Path) -> int:
    flip(store / "consumequeue" / "alpha" / "0" / FIRST, 20 * 9 + 19)
    return 9


def zero_units(store: Path) -> int:
    change(store / "consumequeue" / "alpha" / "0" / f"{800:020d}", 20 * 20, bytes(400))
    return 60


def remove_queue(store: Path) -> int:
    shutil.rmtree(store / "consumequeue" / "alpha" / "1")
    return 0


def cut_queue_file(store: Path) -> int:
    """Behind its last unit: all messages can be read, but a writer refuses the folder."""
    path = max((store / "consumequeue" / "alpha" / "1").iterdir())
    used = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.truncate(min(used + 20, path.stat().st_size - 1))
    return int(path.name) // 20


def add_unit(store: Path) -> int:
    with StoreReader.open(store) as reader:
        end = reader.queues()["alpha", 0].max_offset
        last = reader.units("alpha", 0, end - 1).raw
    later = (int.from_bytes(last[:8], "big") + (1 << 20)).to_bytes(8, "big") + last[8:]
    change(store / "consumequeue" / "alpha" / "0" / f"{end * 20 // 800 * 800:020d}", end * 20 % 800, later)
    return end


def change_chain(store: Path) -> int:
    path = min((store / "index").iterdir())
    flip(path, 40 + 4 * 100 + 20 * 350 + 17)
    return 350


def change_slot(store: Path) -> int:
    path = min((store / "index").iterdir())
    number = int.from_bytes(path.read_bytes()[40 + 4 * 3 : 44 + 4 * 3], "big")
    change(path, 40 + 4 * 3, (number - 1).to_bytes(4, "big"))
    return number - 1


def change_index_place(store: Path) -> int:
    path = sorted((store / "index").iterdir())[1]
    flip(path, 40 + 4 * 100 + 20 * 11 + 11)
    return 11


def change_index_header(store: Path) -> int:
    path = min((store / "index").iterdir())
    flip(path, 31)
    return 0


def cut_index_file(store: Path) -> int:
    min((store / "index").iterdir()).write_bytes(bytes(30))
    return 0


def promise_too_much(store: Path) -> int:
    checkpoint.write(str(store / "checkpoint"), StoreCheckpoint(1 << 42, 1 << 42))
    return 0


def cut_checkpoint(store: Path) -> int:
    (store / "checkpoint").write_bytes(bytes(20))
    return 0


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (damage_record, "damaged-record"),
        (remove_log_file, "missing-file"),
        (cut_log_file, "short-file"),
        (change_blank, "blank-record"),
        (change_unit_size, "queue-unit"),
        (change_unit_tags, "queue-unit"),
        (zero_units, "queue-missing"),
        (remove_queue, "queue-missing"),
        (cut_queue_file, "queue-file"),
        (add_unit, "queue-beyond"),
        (change_chain, "index-chain"),
        (change_slot, "index-chain"),
        (change_index_place, "index-entry"),
        (change_index_header, "index-header"),
        (cut_index_file, "index-header"),
        (promise_too_much, "checkpoint"),
        (cut_checkpoint, "checkpoint"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_verify_finds_each_kind_of_damage(tmp_path: Path, damage: Callable[[Path], int], kind: str) -> None:
    store = golden_case("rolled-5").unpack(tmp_path)
    offset = damage(store)
    assert (kind, offset) in {(p.kind, p.offset) for p in problems(store)}, list(verify(store))


def test_verify_distinguishes_leftovers_of_a_longer_log_from_lost_records(tmp_path: Path) -> None:
    store = golden_case("clean-5").unpack(tmp_path)
    with StoreReader.open(store) as reader:
        every = list(reader.messages())
        cut, behind, before = (
            every[200].physical_offset,
            every[202].physical_offset,
            every[199].physical_offset,
        )
        newest = every[-1].store_timestamp
    log = store / "commitlog" / FIRST
    change(log, cut, b"\x7f" * (behind - cut))
    change(log, before + 56, (newest + 1000).to_bytes(8, "big"))
    left = [p for p in verify(store) if p.kind == "lost-records"]
    assert [(p.offset, p.severity) for p in left] == [(behind, "note")]


def test_verify_reports_lost_records_after_a_crash(tmp_path: Path) -> None:
    store = golden_case("crash-5").unpack(tmp_path)
    with StoreReader.open(store) as reader:
        every = [m.physical_offset for m in reader.messages()]
    flip(store / "commitlog" / FIRST, every[600] + 100)
    found = {(p.kind, p.offset) for p in problems(store)}
    assert {("torn-record", every[600]), ("lost-records", every[601])} <= found


def test_verify_reports_its_progress(tmp_path: Path) -> None:
    store = golden_case("rolled-5").unpack(tmp_path)
    done: list[int] = []
    assert not list(verify(store, progress=done.append))
    assert done == sorted(done)
    assert done[-1] == 531057


def test_verify_without_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        list(verify(tmp_path))
    (tmp_path / "commitlog").mkdir()
    assert not list(verify(tmp_path))
