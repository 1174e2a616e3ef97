"""A file system that really fills up: nothing acknowledged is lost, writing resumes once there is room."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyledger.errors import StoreFullError
from pyledger.message import Message
from pyledger.store.message_store import MessageStore
from pyledger.store.row_append import append_rows
from pyledger.store.verify import verify
from tests.column_rows import plain_rows
from tests.small_disk import small_disk


@pytest.fixture(name="small_disk")
def mounted(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 2) as folder:
        yield folder


def put_until_full(store: MessageStore) -> int:
    """Put numbered messages until the disk is full; how many were acknowledged."""
    stored = 0
    try:
        while True:
            store.put(Message("t", stored.to_bytes(4, "big") + bytes(3000)))
            stored += 1
    except StoreFullError:
        return stored


def test_a_full_disk_is_an_error_and_writing_resumes(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(512 * 1024))
    options = {"mapped_file_size_bytes": 128 * 1024, "index_slots": 50, "index_entries": 500}
    with MessageStore.open(small_disk / "s", consume_queue_file_size_bytes=2000, **options) as store:
        stored = put_until_full(store)
        assert stored > 50
        with pytest.raises(StoreFullError):
            store.put(Message("t", bytes(3000)))
        assert [int.from_bytes(m.body[:4], "big") for m in store.messages()] == list(range(stored))
        ballast.unlink()
        assert store.put(Message("t", b"again")).queue_offset == stored
        assert store.queue_range("t", 0).max_offset == stored + 1
    with MessageStore.open(small_disk / "s") as store:
        assert store.recovery.clean
        assert store.queue_range("t", 0).max_offset == stored + 1


def numbered_rows(first: int, count: int) -> Any:
    return plain_rows([number.to_bytes(4, "big") + bytes(3000) for number in range(first, first + count)])


def test_rows_that_fill_the_disk_leave_whole_runs_alone(small_disk: Path, tmp_path: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(512 * 1024))
    options = {"mapped_file_size_bytes": 4 << 20, "first_chunk_bytes": 1 << 20, "index_enabled": False}
    with MessageStore.open(
        small_disk / "s", bulk=True, consume_queue_file_size_bytes=2000, **options
    ) as store:
        append_rows(store, "t", *numbered_rows(0, 100))
        with pytest.raises(StoreFullError):
            append_rows(store, "t", *numbered_rows(100, 900))
        numbers = [int.from_bytes(m.body[:4], "big") for m in store.messages()]
        assert numbers == list(range(len(numbers)))
        assert 100 < len(numbers) < 1000
        ballast.unlink()
        append_rows(store, "t", *numbered_rows(len(numbers), 30))
    # Who looks for records behind a log's end takes room of a file system in memory: it is done elsewhere.
    copied = shutil.copytree(small_disk / "s", tmp_path / "copied")
    assert not list(verify(copied))
    with MessageStore.open(copied) as store:
        assert store.recovery.clean
        assert store.queue_range("t", 0).max_offset == len(numbers) + 30
