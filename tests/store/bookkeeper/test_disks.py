"""Several folders of a bookie: each journal is replayed from its own mark, a full folder is left out."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.clock import SystemClock
from pyledger.config.bookie import BookieConfig
from pyledger.errors import ConfigError, StoreFullError, StoreIOError, StoreLockedError
from pyledger.protocol.bookkeeper.bookie import EntryRecord, KeyRecord, LedgerAtBookie
from pyledger.store.bookkeeper import disks as bookie_disks
from pyledger.store.bookkeeper.disks import DiskSpace, LedgerDisks
from pyledger.store.bookkeeper.folder import BookiePaths
from pyledger.store.bookkeeper.reader import BookieReader
from pyledger.store.bookkeeper.store import BookieStore
from pyledger.store.bookkeeper.verify import BookieCheck
from pyledger.wire.bookkeeper.journal import encode_record
from tests.servers.bookkeeper.bookie_peer import KEY, entry_of

LEDGERS = range(1, 8)
JOURNALS, DISKS = ("j0", "j1", "j2"), ("d0", "d1")


def opened(folder: Path, log_bytes: int = 1 << 12) -> BookieStore:
    paths = BookiePaths(
        tuple(str(folder / name) for name in JOURNALS), tuple(str(folder / name) for name in DISKS)
    )
    return BookieStore.open(paths, BookieConfig(log_size_limit_bytes=log_bytes), SystemClock())


def payload_of(entry_id: int) -> bytes:
    return b"%d" % entry_id * 100


def add(store: BookieStore, entry_id: int) -> None:
    """One entry of each ledger, acknowledged."""
    for ledger_id in LEDGERS:
        writer = store.journals.writers[store.journals.of(ledger_id)]
        if ledger_id not in store.ledgers:
            store.ledgers[ledger_id] = LedgerAtBookie(KEY)
            writer.append(encode_record(KeyRecord(ledger_id, KEY)))
        entry = entry_of(ledger_id, entry_id, payload_of(entry_id))
        store.put(ledger_id, entry_id, entry)
        writer.append(encode_record(EntryRecord(ledger_id, entry_id, entry)))
    pause = threading.Event()
    for writer in store.journals.writers:
        writer.kick()
        while writer.synced < writer.appended:
            pause.wait(0.001)


def checkpoint(store: BookieStore) -> None:
    begun = store.begin_checkpoint()
    assert begun is not None
    store.write_checkpoint(begun)
    store.end_checkpoint(begun)


def look(store: BookieStore, count: int) -> None:
    for ledger_id in LEDGERS:
        for entry_id in range(count):
            entry = entry_of(ledger_id, entry_id, payload_of(entry_id))
            assert store.get(ledger_id, entry_id) == entry, (ledger_id, entry_id)
        assert store.last_entry_id(ledger_id) == count - 1


def files(folder: Path, disk: str, pattern: str) -> set[str]:
    return {path.name for path in (folder / disk / "current").rglob(pattern)}


def test_each_journal_is_replayed_from_its_own_mark(tmp_path: Path) -> None:
    live, image = tmp_path / "live", tmp_path / "image"
    store = opened(live)
    for entry_id in range(3):
        add(store, entry_id)
    checkpoint(store)
    for entry_id in range(3, 5):
        add(store, entry_id)
    shutil.copytree(live, image)  # as a crash leaves it
    store.close()
    marks = [(live / disk / "current" / f"lastMark.{at}").read_bytes() for disk in DISKS for at in range(3)]
    assert marks[:3] == marks[3:]
    numbers = [int(path.stem, 16) for name in JOURNALS for path in (live / name / "current").glob("*.txn")]
    assert len(numbers) == len(set(numbers))
    held = [(one.ledger_id, one.entry_id, bytes(one.entry)) for one in BookieReader.open(image).entries()]
    expected = [(at, one, entry_of(at, one, payload_of(one))) for at in LEDGERS for one in range(5)]
    assert held == expected
    apart = [str(image / name) for name in (*JOURNALS, *DISKS)]
    assert [(one.ledger_id, one.entry_id) for one in BookieReader.open(*apart).entries()] == [
        one[:2] for one in expected
    ]
    assert not [one for one in BookieCheck(*apart).findings() if one.severity == "error"]
    again = opened(image)
    look(again, 5)
    again.close()


def test_entry_logs_and_indexes_are_spread(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for entry_id in range(12):
        add(store, entry_id)
        checkpoint(store)
    look(store, 12)
    store.close()
    for pattern in ("*.log", "*.idx"):
        there = [files(tmp_path, disk, pattern) for disk in DISKS]
        assert all(there)
        assert not there[0] & there[1]
    again = opened(tmp_path)
    look(again, 12)
    again.close()


def test_a_full_folder_is_left_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = dict.fromkeys(DISKS, DiskSpace(100, 50, 5))
    monkeypatch.setattr(bookie_disks, "disk_space", lambda folder: spaces[Path(folder).parent.name])
    store = opened(tmp_path, log_bytes=1 << 20)
    full, other = store.disks.folders
    add(store, 0)
    checkpoint(store)
    look(store, 1)  # files are open for reading
    store.disks.leave_out(str(tmp_path / DISKS[0] / "current" / "0.log"))
    assert store.disks.full == {full}
    for entry_id in range(1, 4):
        add(store, entry_id)
        checkpoint(store)
        look(store, entry_id + 1)
    assert files(tmp_path, DISKS[0], "*.idx") == set()
    assert store.disks.choose() == other
    store.disks.check()
    assert store.disks.full == {full}, "a write failed although the disk reports free space"
    spaces[DISKS[0]] = DiskSpace(100, 50, 6)  # as after a file was removed
    store.disks.check()
    assert {store.disks.choose(), store.disks.choose()} == {full, other}
    store.close()
    again = opened(tmp_path)
    look(again, 4)
    again.close()


def test_an_index_that_was_on_the_move_is_there_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, 0)
    store.close()
    (index,) = tmp_path.glob("d?/current/*/*/1.idx")
    at = index.relative_to(tmp_path).parts
    twin = tmp_path.joinpath(DISKS[1 - DISKS.index(at[0])], *at[1:])
    twin.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(index, twin)
    again = opened(tmp_path)
    look(again, 1)
    assert [index.exists(), twin.exists()].count(True) == 1
    again.close()


def test_a_disk_that_cannot_tell_is_no_ledger_without_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    add(store, 0)
    checkpoint(store)

    def lseek(_file: int, _position: int, _how: int) -> int:
        raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr(os, "lseek", lseek)
    with pytest.raises(StoreIOError):
        list(store._indexes.locations(1))
    with pytest.raises(StoreIOError):
        list(store.entry_ranges(1))
    store.disks.full = frozenset({os.path.dirname(os.path.dirname(os.path.dirname(store._indexes.path(1))))})
    add(store, 1)
    with pytest.raises(StoreIOError):
        checkpoint(store)
    monkeypatch.undo()
    store.disks.full = frozenset()
    checkpoint(store)
    look(store, 2)
    store.close()


def test_a_folder_belongs_to_one_bookie(tmp_path: Path) -> None:
    store = opened(tmp_path)
    shared = BookiePaths((str(tmp_path / "j9"),), (str(tmp_path / "d9"), str(tmp_path / DISKS[1])))
    with pytest.raises(StoreLockedError):
        BookieStore.open(shared, BookieConfig(), SystemClock())
    journal = BookiePaths((str(tmp_path / JOURNALS[1]),), (str(tmp_path / "d9"),))
    with pytest.raises(StoreLockedError):
        BookieStore.open(journal, BookieConfig(), SystemClock())
    store.close()
    BookieStore.open(shared, BookieConfig(), SystemClock()).close()


@pytest.mark.parametrize("kind", ["journals", "ledgers"])
def test_a_folder_is_given_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "one")
    paths = {"journals": ("j",), "ledgers": ("l",)} | {kind: (str(tmp_path / "one"), str(tmp_path / "link"))}
    with pytest.raises(ConfigError, match="2 times"):
        BookiePaths(**paths)


def test_marks_go_to_the_folders_with_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    add(store, 0)
    refuse_below(monkeypatch, str(tmp_path / DISKS[0]))
    store.disks.write_everywhere("lastMark.0", bytes(16))
    refuse_below(monkeypatch, str(tmp_path))
    with pytest.raises(StoreFullError):
        store.disks.write_everywhere("lastMark.0", bytes(16))
    monkeypatch.undo()
    store.close()


def refuse_below(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    plain = bookie_disks.write_at

    def write_at(file: int, data: bytes, position: int) -> None:
        if Path(f"/proc/self/fd/{file}").readlink().is_relative_to(folder):
            raise OSError(28, "disk full")
        plain(file, data, position)

    monkeypatch.setattr(bookie_disks, "write_at", write_at)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], LedgerDisks]:
    """Two disks of 100 bytes, of which so many are used."""
    used = {"a": 0, "b": 0}
    monkeypatch.setattr(bookie_disks, "disk_space", lambda folder: DiskSpace(100, 100 - used[folder]))
    made = LedgerDisks(["a", "b"], full_percent=90, writable_percent=80)

    def look(a: int, b: int) -> LedgerDisks:
        used.update(a=a, b=b)
        made.check()
        return made

    return look


def test_high_and_low_water_marks(disks: Callable[[int, int], LedgerDisks]) -> None:
    assert disks(90, 0).full == frozenset()
    assert disks(91, 0).full == {"a"}
    assert disks(81, 85).full == {"a"}, "not writable before the low-water mark"
    assert disks(80, 85).full == frozenset()
    found = disks(95, 92)
    assert found.all_full
    assert not found.avoids("a"), "there is nowhere else"
    assert found.choose() == "b", "it has the most free space"
    assert disks(95, 80).full == {"a"}
    assert {found.choose() for _ in range(4)} == {"b"}
