"""What a store keeps open that could not be opened, was emptied or is closed: nothing."""

import asyncio
import errno
import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pyledger.clock import SystemClock
from pyledger.config.bookie import BookieConfig
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.errors import LedgerMetadataError, MetadataUnreachableError, PyLedgerError, StoreIOError
from pyledger.metadata.sqlite import SqliteStore
from pyledger.protocol.bookkeeper.bookie import LedgerAtBookie
from pyledger.store.bookkeeper import journal as bookie_journal
from pyledger.store.bookkeeper.disks import LedgerDisks
from pyledger.store.bookkeeper.folder import BookiePaths
from pyledger.store.bookkeeper.journal import Journal
from pyledger.store.bookkeeper.store import BookieStore
from pyledger.store.dledger.store import DLedgerStore
from tests.servers.bookkeeper.bookie_peer import KEY, entry_of

SETTINGS = BookieConfig()


def open_below(folder: Path) -> list[str]:
    """Files below a folder that this process has open, removed ones included."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it was open for the listing alone
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if path.startswith(f"{folder}/"):
                found.append(path)
    return found


def new_threads(before: list[threading.Thread]) -> list[str]:
    return [one.name for one in threading.enumerate() if one not in before]


def paths_in(folder: Path) -> BookiePaths:
    return BookiePaths((str(folder / "j0"), str(folder / "j1")), (str(folder / "d0"),))


def second_journal_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Journal.start

    def refuse(journal: Journal) -> None:
        if "j1" in journal.folder:
            raise StoreIOError(journal.folder, "make", "the disk fails")
        start(journal)

    monkeypatch.setattr(Journal, "start", refuse)


def name_is_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_folder: str) -> None:
        raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr(bookie_journal, "flush_folder", refuse)


def checkpoint_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_disks: LedgerDisks, _name: str, _mark: bytes) -> None:
        raise StoreIOError("lastMark", "write", "the disk fails")

    monkeypatch.setattr(LedgerDisks, "write_everywhere", refuse)


@pytest.mark.parametrize(
    "fault", [second_journal_fails, name_is_not_durable, checkpoint_fails], ids=lambda one: one.__name__
)
def test_a_bookie_that_cannot_begin(fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.enumerate()
    store = BookieStore.open(paths_in(tmp_path), SETTINGS, SystemClock())
    store.ledgers[1] = LedgerAtBookie(KEY)
    store.put(1, 0, entry_of(1, 0))
    store.close()
    fault(monkeypatch)
    with pytest.raises(StoreIOError):
        BookieStore.open(paths_in(tmp_path), SETTINGS, SystemClock())
    assert new_threads(before) == []
    assert open_below(tmp_path) == []
    monkeypatch.undo()
    BookieStore.open(paths_in(tmp_path), SETTINGS, SystemClock()).close()
    assert open_below(tmp_path) == []


def test_a_bookie_whose_disk_fails_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.enumerate()
    store = BookieStore.open(paths_in(tmp_path), SETTINGS, SystemClock())
    store.ledgers[1] = LedgerAtBookie(KEY)
    store.put(1, 0, entry_of(1, 0))
    checkpoint_fails(monkeypatch)
    with pytest.raises(StoreIOError):
        store.close()
    assert new_threads(before) == []
    assert open_below(tmp_path) == []


def test_a_log_of_a_group_that_was_emptied_or_closed(tmp_path: Path) -> None:
    config = DLedgerStoreConfig(data_file_size_bytes=1024, index_file_size_bytes=128)
    store = DLedgerStore.open(tmp_path, config)
    held = open_below(tmp_path)
    store.append_bodies(1, [b"x" * 100] * 3)
    store.log.clear()
    assert open_below(tmp_path) == held, "a file that is removed would keep its room"
    store.append_bodies(1, [b"x" * 100] * 3)
    store.close()
    assert open_below(tmp_path) == []


def test_metadata_that_cannot_be_opened(tmp_path: Path) -> None:
    later = tmp_path / "later.db"
    with sqlite3.connect(later) as database:
        database.execute("PRAGMA user_version = 1000")
    database.close()
    foreign = tmp_path / "foreign.db"
    foreign.write_bytes(b"no database" * 100)

    async def play(store: SqliteStore, problem: type[PyLedgerError], words: str) -> None:
        before = threading.enumerate()
        with pytest.raises(problem, match=words):
            await store.start()
        assert new_threads(before) == []
        assert open_below(tmp_path) == []
        with pytest.raises(MetadataUnreachableError):
            await store.get("/")
        await store.close()

    asyncio.run(play(SqliteStore(later), MetadataUnreachableError, "its format is 1000"))
    asyncio.run(play(SqliteStore(foreign), MetadataUnreachableError, "not a database"))
    asyncio.run(play(SqliteStore(tmp_path / "none.db", make=False), LedgerMetadataError, "does not exist"))
