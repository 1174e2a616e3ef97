"""A file system that really fills up: nothing acknowledged is lost, writing resumes once there is room."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyledger.errors import StoreFullError, StoreIOError
from pyledger.model.message import Message
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.store_engine import StoreEngine
from tests.support.column_rows import plain_rows
from tests.support.small_disk import fill, small_disk, small_ext4

SMALL: dict[str, Any] = {
    "mapped_file_size_bytes": 1 << 20,
    "consume_queue_file_size_bytes": 20_000,
    "index_slots": 1000,
    "index_entries": 4000,
}


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    with small_ext4(tmp_path / "ext4", 24) as folder:
        yield folder


@pytest.fixture
def ample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the retention service see an almost empty disk, so that it deletes nothing."""
    monkeypatch.setattr("pyledger.store.messages.services.disk_usage", lambda _: 10)


@pytest.fixture(name="small_disk")
def mounted(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 2) as folder:
        yield folder


def put_until_full(store: StoreEngine) -> int:
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
    with StoreEngine.open(small_disk / "s", consume_queue_file_size_bytes=2000, **options) as store:
        stored = put_until_full(store)
        assert stored > 50
        with pytest.raises(StoreFullError):
            store.put(Message("t", bytes(3000)))
        assert [int.from_bytes(m.body[:4], "big") for m in store.messages()] == list(range(stored))
        ballast.unlink()
        assert store.put(Message("t", b"again")).queue_offset == stored
        assert store.queue_range("t", 0).max_offset == stored + 1
    with StoreEngine.open(small_disk / "s") as store:
        assert store.recovery.clean
        assert store.queue_range("t", 0).max_offset == stored + 1


def test_a_batch_that_the_disk_cannot_take_leaves_nothing(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(512 * 1024))
    messages = [Message("t", b"%d" % n + bytes(30_000), queue_id=n) for n in range(110)]
    with StoreEngine.open(
        small_disk / "s", mapped_file_size_bytes=4 << 20, consume_queue_file_size_bytes=2000,
        first_chunk_bytes=1 << 20, index_enabled=False,
    ) as store:  # fmt: skip
        store.put(Message("t", b"before"))
        with pytest.raises(StoreFullError):
            store.put_batch(messages)
        assert [message.body for message in store.messages()] == [b"before"]
        ballast.unlink()
        assert [one.queue_offset for one in store.put_batch(messages[:20])] == [1] + [0] * 19


def numbered_rows(first: int, count: int) -> Any:
    return plain_rows([number.to_bytes(4, "big") + bytes(3000) for number in range(first, first + count)])


def test_rows_that_fill_the_disk_leave_whole_runs_alone(small_disk: Path, tmp_path: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(512 * 1024))
    options = {"mapped_file_size_bytes": 4 << 20, "first_chunk_bytes": 1 << 20, "index_enabled": False}
    with StoreEngine.open(small_disk / "s", consume_queue_file_size_bytes=2000, **options) as store:
        store.append_rows("t", *numbered_rows(0, 100))
        with pytest.raises(StoreFullError):
            store.append_rows("t", *numbered_rows(100, 900))
        numbers = [int.from_bytes(m.body[:4], "big") for m in store.messages()]
        assert numbers == list(range(len(numbers)))
        assert 100 < len(numbers) < 1000
        ballast.unlink()
        store.append_rows("t", *numbered_rows(len(numbers), 30))
    # The search for records after a log's end uses space on a tmpfs, so it runs on a copy elsewhere.
    copied = shutil.copytree(small_disk / "s", tmp_path / "copied")
    assert not list(verify(copied))
    with StoreEngine.open(copied) as store:
        assert store.recovery.clean
        assert store.queue_range("t", 0).max_offset == len(numbers) + 30


def put_some(store: StoreEngine, topic: str, count: int = 20) -> None:
    for number in range(count):
        store.put(Message(topic, b"%s %d" % (topic.encode(), number), keys=f"k{number}"))


def bodies(store: StoreEngine, topic: str) -> list[bytes]:
    span = store.queue_range(topic, 0)
    found: list[bytes] = []
    for offset in range(span.min_offset, span.max_offset, 8):
        found += [bytes(message.body) for message in store.get(topic, 0, offset, max_count=8).messages]
    return found


def some(topic: str, count: int = 20) -> list[bytes]:
    return [b"%s %d" % (topic.encode(), number) for number in range(count)]


def until_dispatched(store: StoreEngine) -> None:
    """Until the dispatch thread has caught up by itself."""
    end = time.monotonic() + 20
    while store.statistics().dispatch_lag_bytes:
        assert time.monotonic() < end, store.statistics().dispatch_problem
        time.sleep(0.05)


@pytest.mark.usefixtures("ample")
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_new_topic_on_a_full_disk_waits_alone(ext4: Path, flush: str) -> None:
    with StoreEngine.open(ext4 / "s", flush_disk_type=flush, **SMALL) as store:
        put_some(store, "old")
        until_dispatched(store)
        filler = fill(ext4)
        put_some(store, "new")
        put_some(store, "old")
        assert bodies(store, "old") == some("old") * 2
        assert len(store.query("old", "k3")) == 2
        assert list(store.queues()) == [("old", 0)]
        assert store.get("new", 0, 0).messages == []
        assert isinstance(store.statistics().dispatch_problem, StoreFullError)
        assert "consumequeue/new" in str(store.statistics().dispatch_problem)
        filler.unlink()
        until_dispatched(store)
        assert bodies(store, "new") == some("new")
        assert store.put(Message("new", b"more")).queue_offset == 20
    with StoreEngine.open(ext4 / "s") as store:
        assert store.recovery.clean
        assert bodies(store, "new") == [*some("new"), b"more"]
        assert [len(store.query(topic, "k19")) for topic in ("old", "new")] == [2, 1]
    assert not list(verify(ext4 / "s"))


@pytest.mark.usefixtures("ample")
def test_what_was_acknowledged_on_a_full_disk_is_there_after_a_crash(ext4: Path) -> None:
    store = StoreEngine.open(ext4 / "s", flush_disk_type="sync", **SMALL)
    put_some(store, "old")
    until_dispatched(store)
    filler = fill(ext4)
    put_some(store, "new")
    store._services.abandon()
    store._finalizer.detach()
    with StoreEngine.open(ext4 / "s", **SMALL) as store:
        # Still full, but for the files that the log had ahead.
        assert bodies(store, "old") == some("old")
        assert store.put(Message("new", b"more")).queue_offset == 20
    with StoreEngine.open(ext4 / "s", **SMALL) as store:
        filler.unlink()
        until_dispatched(store)
        assert bodies(store, "new") == [*some("new"), b"more"]
    assert not list(verify(ext4 / "s"))


@pytest.mark.usefixtures("ample")
def test_a_store_on_a_full_disk_opens_and_frees_what_retention_lets_go(ext4: Path) -> None:
    with StoreEngine.open(ext4 / "s", **SMALL) as store:
        while store.max_offset < 3 << 20:
            store.put(Message("t", bytes(10_000)))
        newest = store.queue_range("t", 0).max_offset
    fill(ext4)
    with StoreEngine.open(ext4 / "s", **SMALL) as store:
        assert store.recovery.clean
        assert store.get("t", 0, newest - 1).messages
        for _ in range(200):
            try:
                store.put(Message("t", bytes(10_000)))
            except StoreFullError:
                break
        else:
            pytest.fail("no put is refused on a full disk")
        assert len(store.delete_expired(immediate=True)) >= 2
        assert store.put(Message("t", bytes(10_000))).queue_offset > newest
    assert not list(verify(ext4 / "s"))


@pytest.mark.usefixtures("ample")
def test_a_store_opens_without_space_for_even_its_small_files(ext4: Path) -> None:
    with StoreEngine.open(ext4 / "s", **SMALL) as store:
        put_some(store, "old")
    for name in ("lock", "checkpoint"):
        (ext4 / "s" / name).unlink()
    shutil.rmtree(ext4 / "s" / "index")
    filler = fill(ext4)
    with StoreEngine.open(ext4 / "s", **SMALL) as store:
        assert bodies(store, "old") == some("old")
        filler.unlink()
        until_dispatched(store)
        assert len(store.query("old", "k3")) == 1
    assert not list(verify(ext4 / "s"))


def test_a_new_store_on_a_full_disk_is_an_error_with_the_cause(ext4: Path) -> None:
    fill(ext4)
    with pytest.raises(StoreFullError, match="cannot create"):
        StoreEngine.open(ext4 / "s", **SMALL)


@pytest.mark.parametrize("kind", ["queue", "index"])
def test_what_cannot_be_made_for_another_reason_waits_alone_too(tmp_path: Path, kind: str) -> None:
    """A file stands where a folder should be: what a lost mount, or rights, do in other words."""
    folder = tmp_path / "s"
    with StoreEngine.open(folder, **SMALL) as store:
        put_some(store, "old")
    obstacle = folder / ("consumequeue/new" if kind == "queue" else "index")
    if kind == "index":
        shutil.rmtree(obstacle)
    obstacle.touch()
    for _ in range(2):
        store = StoreEngine.open(folder, **SMALL)
        assert bodies(store, "old") == some("old")
        offset = store.put(Message("new", b"0", keys="k0")).queue_offset
        store.dispatch()
        assert isinstance(store.statistics().dispatch_problem, StoreIOError)
        store.close()
        assert (folder / "abort").exists()
    obstacle.unlink()
    with StoreEngine.open(folder, **SMALL) as store:
        assert bodies(store, "new") == [b"0"] * (offset + 1)
        assert offset == 1
        assert len(store.query("old", "k3")) == 1
    with StoreEngine.open(folder) as store:
        assert store.recovery.clean
    assert not list(verify(folder))
