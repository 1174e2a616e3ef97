"""Archiving: everything reads the same, the files come back as they were, and no crash loses one."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pytest

from pyledger._core import (
    ColdIndex,
    MappedFile,
    MappedFileQueue,
    decompressed_blocks,
    limit_decompressed_bytes,
)
from pyledger.errors import (
    CorruptRecordError,
    ReadOnlyStoreError,
    StoreFormatError,
    StoreLockedError,
)
from pyledger.model.message import Message
from pyledger.store.cold.archive import archive, unarchive
from pyledger.store.files.folder import read_folder
from pyledger.store.maintenance.rebuild import rebuild
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import GoldenCase
from tests.store.cold.archived import (
    FILE_BYTES,
    SIZES,
    TIME_MAX_MS,
    archive_all,
    found,
    log_files,
    write_store,
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("plain") / "store")


@pytest.fixture(scope="module")
def packed(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same store, archived. Not to be changed."""
    store = tmp_path_factory.mktemp("packed") / "store"
    shutil.copytree(plain, store)
    archive_all(store)
    return store


@pytest.fixture
def copy(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "store"))


def problems(store: Path) -> list[str]:
    return [p.kind for p in verify(store) if p.severity == "error"]


def test_everything_reads_the_same(plain: Path, packed: Path) -> None:
    names = [file.name for file in sorted((packed / "commitlog").iterdir())]
    assert len(names) > 5
    assert [name.endswith(".lz4") for name in names] == [True] * (len(names) - 1) + [False]
    assert found(packed) == found(plain)
    with StoreReader.open(plain) as one, StoreReader.open(packed) as other:
        assert other.queues() == one.queues()
        assert [m.body for m in other.messages(order="queue")] == [
            m.body for m in one.messages(order="queue")
        ]
        assert [m.physical_offset for m in other.messages(tail=700)] == [
            m.physical_offset for m in one.messages(tail=700)
        ]
        for number in (0, 105, 1400, 2999):
            hits = [m.physical_offset for m in one.query("rare" if number == 105 else "orders", f"k{number}")]
            assert [
                m.physical_offset for m in other.query("rare" if number == 105 else "orders", f"k{number}")
            ] == hits
        moment = next(iter(one.messages(tail=1000))).store_timestamp
        assert other.offset_by_time("orders", 1, moment) == one.offset_by_time("orders", 1, moment)
    assert problems(packed) == []


def test_golden_folders_read_the_same_and_come_back(golden: GoldenCase, golden_store: Path) -> None:
    folder = read_folder(golden_store)
    if golden.facts["storeReadExit"] or len(folder.log_files) < 2 or folder.short_files:
        pytest.skip("nothing to archive")
    before, log, sound = found(golden_store), log_files(golden_store), problems(golden_store)
    packed = archive_all(golden_store)
    assert sum(file.is_cold for file in read_folder(golden_store).log_files) == len(packed)
    assert found(golden_store) == before
    assert problems(golden_store) == sound
    assert [file.target for file in unarchive(golden_store)] == [file.path for file in reversed(packed)]
    assert log_files(golden_store) == log


def test_unarchive_gives_the_very_files(plain: Path, copy: Path) -> None:
    times = {f.name: f.stat().st_mtime_ns for f in (copy / "commitlog").iterdir()}
    list(unarchive(copy))
    assert log_files(copy) == log_files(plain)
    now = {f.name: f.stat().st_mtime_ns for f in (copy / "commitlog").iterdir()}
    assert now == {name.removesuffix(".lz4"): time for name, time in times.items()}


def test_any_lz4_tool_decompresses_a_segment(plain: Path, packed: Path) -> None:
    for name, content in log_files(packed).items():
        if name.endswith(".lz4"):
            facts = lz4.frame.get_frame_info(content)
            assert (facts["block_linked"], facts["block_checksum"], facts["content_checksum"]) == (
                False,
                True,
                True,
            )
            with lz4.frame.open(packed / "commitlog" / name) as unpacked:
                assert unpacked.read() == (plain / "commitlog" / name.removesuffix(".lz4")).read_bytes()


def test_old_enough_is_by_the_last_record_of_a_file(plain: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(plain, tmp_path / "store"))
    with StoreReader.open(store) as reader:
        last = {m.physical_offset // FILE_BYTES: m.store_timestamp for m in reader.messages()}
    moment = last[2] + 1
    wanted = [n for n, time in sorted(last.items())[:-1] if time < moment]
    listed = list(archive(store, older_than_ms=moment, dry_run=True))
    assert log_files(store) == log_files(plain)
    done = list(archive(store, older_than_ms=moment))
    assert [f.start_offset // FILE_BYTES for f in done] == wanted
    assert [f.path for f in listed] == [f.path for f in done]
    assert [f.last_store_timestamp for f in done] == [last[n] for n in wanted]
    assert list(archive(store, older_than_ms=0)) == []


def test_point_read_decompresses_one_block(packed: Path) -> None:
    before = limit_decompressed_bytes(0)  # nothing stays from one read to the next
    try:
        with StoreReader.open(packed) as reader:
            places = [(m.physical_offset, m.store_size) for m in reader.messages()]
            for offset, size in places[::37]:
                if size > 64 << 10 or offset >= reader.view.files[-1].start_offset:
                    continue
                count = decompressed_blocks()[0]
                assert reader.message_at(offset).store_size == size
                assert decompressed_blocks()[0] - count <= 1
    finally:
        limit_decompressed_bytes(before)


def test_blocks_without_a_wanted_record_are_passed_over(plain: Path, packed: Path) -> None:
    with StoreReader.open(plain) as one, StoreReader.open(packed) as other:
        wanted = [m.physical_offset for m in one.messages(topics=["rare"])]
        blocks = sum(len(ColdIndex(f)) for f in other.view.files if f.is_cold)
        count = decompressed_blocks()[0]
        assert [m.physical_offset for m in other.messages(topics=["rare"])] == wanted
        # The first record of each file is looked at only for times.
        assert decompressed_blocks()[0] - count <= 3 < blocks
        times = [m.store_timestamp for m in one.messages()]
        for since, until in ((times[500], times[1500]), (times[-1], None), (None, times[0] + 1)):
            assert [m.physical_offset for m in other.messages(since=since, until=until)] == [
                m.physical_offset for m in one.messages(since=since, until=until)
            ]


def test_memory_is_bounded_and_what_is_held_stays(plain: Path, packed: Path) -> None:
    limit = 256 << 10
    before = limit_decompressed_bytes(limit)
    try:
        with StoreReader.open(plain) as one, StoreReader.open(packed) as other:
            held = []
            for ours, theirs in zip(other.messages(), one.messages(), strict=True):
                assert ours.body == theirs.body
                if len(held) < 4 and ours.physical_offset > len(held) * FILE_BYTES:
                    held.append((ours, theirs))
                assert decompressed_blocks()[1] <= limit + 5 * FILE_BYTES
            assert [ours.body for ours, _ in held] == [theirs.body for _, theirs in held]
            assert [bytes(ours.record_view) for ours, _ in held] == [bytes(t.record_view) for _, t in held]
    finally:
        limit_decompressed_bytes(before)


def test_a_living_store_reads_appends_and_deletes(plain: Path, copy: Path) -> None:
    wanted = found(plain)
    with MessageStore.open(copy, **SIZES) as store:
        place = store.put(Message("orders", b"new", queue_id=0))
        for offset, topic, queue_id, queue_offset, body, *_ in wanted[::101]:
            result = store.get(topic, queue_id, queue_offset, max_count=1)
            assert [m.body for m in result.messages] == [body]
            assert store.message_at(offset).body == body
        assert store.message_at(place.physical_offset).body == b"new"
        first = store.min_offset
        for name in list((copy / "commitlog").glob("*.lz4"))[:]:
            os.utime(name, (1, 1))
        gone = store.delete_expired()
        assert [p for p in gone if p.endswith(".lz4")]
        assert store.min_offset > first
    assert problems(copy) == []


def test_a_recovery_after_a_kill_reads_archived_files(plain: Path, copy: Path) -> None:
    (copy / "abort").write_text("1")
    shutil.rmtree(copy / "consumequeue")
    (copy / "checkpoint").unlink()
    with MessageStore.open(copy, **SIZES) as store:
        assert store.get("rare", 1, 0, max_count=32).messages
    assert found(copy) == found(plain)
    rebuild(copy)
    assert found(copy) == found(plain)


def test_a_writer_keeps_archiving_away(copy: Path) -> None:
    with MessageStore.open(copy, **SIZES):
        for act in (lambda: list(unarchive(copy)), lambda: archive_all(copy)):
            with pytest.raises(StoreLockedError):
                act()


def test_a_damaged_file_is_not_archived(plain: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(plain, tmp_path / "store"))
    target = sorted((store / "commitlog").iterdir())[1]
    with target.open("r+b") as file:
        file.seek(5000)
        file.write(b"damaged")
    before = target.read_bytes()
    with pytest.raises(CorruptRecordError):
        archive_all(store)
    assert target.read_bytes() == before
    assert sorted(f.name for f in (store / "commitlog").iterdir())[1] == target.name


def test_a_log_that_ends_in_an_archived_file_goes_on_in_a_new_one(copy: Path) -> None:
    max((copy / "commitlog").iterdir()).unlink()
    (copy / "abort").touch()
    with MessageStore.open(copy, **SIZES) as store:
        assert store.put(Message("orders", b"new")).physical_offset % FILE_BYTES == 0
        store.flush()
    assert problems(copy) == []


def test_a_truncated_end_in_an_archived_file_is_rejected(copy: Path) -> None:
    before = log_files(copy)
    log = MappedFileQueue(copy / "commitlog", FILE_BYTES)
    log.load()
    with pytest.raises(ReadOnlyStoreError):
        log.truncate(1000)
    log.close()
    assert log_files(copy) == before


# -- damage


def damage_block(store: Path, number: int, block: int) -> tuple[Path, int, int]:
    """Change a byte of a block; its segment, first byte and end (physical offsets)."""
    path = sorted((store / "commitlog").glob("*.lz4"))[number]
    mapped = MappedFile.open(str(path))
    index = ColdIndex(mapped)
    offset, size, compressed_bytes, *_ = index.block(block)
    place = int.from_bytes(index_entry(path, block)[:8], "little")
    del index
    mapped.close()
    with path.open("r+b") as file:
        file.seek(place + 4 + compressed_bytes // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x55]))
    return path, offset, offset + size


def index_entry(path: Path, block: int) -> bytes:
    content = path.read_bytes()
    at = int.from_bytes(content[-32:-24], "little") + 40 * block
    return content[at : at + 40]


def test_a_damaged_block_costs_its_own_messages_only(plain: Path, copy: Path) -> None:
    path, start, end = damage_block(copy, 2, 1)
    wanted = [m for m in found(plain) if not start <= int(str(m[0])) < end]
    with StoreReader.open(copy, on_corrupt="skip") as reader:
        assert [m.physical_offset for m in reader.messages()] == [m[0] for m in wanted]
        assert [(d.physical_offset, d.size_bytes) for d in reader.skipped] == [(start, end - start)]
    with StoreReader.open(copy) as reader, pytest.raises(CorruptRecordError):
        list(reader.messages())
    assert {(p.kind, p.file, p.offset) for p in verify(copy) if p.kind == "damaged-record"} == {
        ("damaged-record", str(path), start)
    }
    with pytest.raises(StoreFormatError, match="number 1 first"):
        list(unarchive(copy))
    assert path.exists()


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 200, 20_000])
def test_a_truncated_segment_is_named(copy: Path, cut: int) -> None:
    path = sorted((copy / "commitlog").glob("*.lz4"))[1]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - cut - 1] if cut else b"")
    with pytest.raises(StoreFormatError, match=path.name):
        StoreReader.open(copy)
    with pytest.raises(StoreFormatError):
        MappedFile.open(str(path))


# -- crashes


def die_at(step: int, act: Callable[[], object]) -> bool:
    """Run in a process of its own that ends before its `step`-th change of a file; whether it came so far."""
    child = os.fork()
    if child == 0:
        left = step

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            writing = event == "open" and isinstance(arguments[1], str) and arguments[1] != "rb"
            if writing or event in ("os.rename", "os.remove", "os.chmod", "os.utime"):
                left -= 1
                if left < 0:
                    os._exit(9)

        try:
            sys.addaudithook(count)
            act()
        except BaseException:  # noqa: BLE001  a fork must not go on as a test
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.parametrize("way", ["archive", "unarchive"])
def test_a_kill_at_any_step_loses_nothing(way: str, tmp_path: Path) -> None:
    first = write_store(tmp_path / "first", 700)
    wanted, log = found(first), log_files(first)
    if way == "unarchive":
        archive_all(first)
    act: Callable[[Path], object] = archive_all if way == "archive" else lambda path: list(unarchive(path))
    step, killed = 0, True
    while killed:
        store = Path(shutil.copytree(first, tmp_path / f"{step}"))
        killed = die_at(step, lambda store=store: act(store))
        assert found(store) == wanted, step
        with MessageStore.open(store, **SIZES):
            names = [
                f.name for f in (store / "commitlog").iterdir() if len(f.name) > 24 or f.name.endswith("p")
            ]
            assert names == [], "what was not finished is gone"
        assert found(store) == wanted, step
        # Done again, it ends as it would have.
        act(store)
        list(unarchive(store))
        assert log_files(store) == log, step
        shutil.rmtree(store)
        step += 1
    assert step > 5


def test_where_both_exist_the_plain_file_counts(plain: Path, copy: Path) -> None:
    name = sorted((plain / "commitlog").iterdir())[1].name
    shutil.copy(plain / "commitlog" / name, copy / "commitlog" / name)
    (copy / "commitlog" / f"{name}.lz4").write_bytes(b"not whole")
    assert found(copy) == found(plain)
    with MessageStore.open(copy, **SIZES):
        assert not (copy / "commitlog" / f"{name}.lz4").exists()


def test_nothing_is_archived_of_a_folder_that_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="commitlog"):
        list(archive(tmp_path, older_than_ms=TIME_MAX_MS))
    assert list(tmp_path.iterdir()) == []
