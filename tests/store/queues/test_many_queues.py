"""More queues than files may be mapped at once, and more than are made durable one by one."""

import gc
from pathlib import Path

import pytest

from pyledger._core import ConsumeQueue, mapped_file_count
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.queues import queue_set
from pyledger.store.queues.get_result import GetStatus
from pyledger.store.reading.reader import StoreReader

SMALL = {"mapped_file_size_bytes": 1 << 20, "consume_queue_file_size_bytes": 400, "index_enabled": False}
TOPICS, QUEUES, ROUNDS = 30, 4, 25


def body(topic: int, queue_id: int, number: int) -> bytes:
    return b"%d/%d/%d" % (topic, queue_id, number)


def put_round(store: MessageStore, number: int) -> None:
    for topic in range(TOPICS):
        for queue_id in range(QUEUES):
            store.appender(f"T{topic}", queue_id).put(body(topic, queue_id, number))


def check_all(store: MessageStore, numbers: int) -> None:
    for topic in range(TOPICS):
        for queue_id in range(QUEUES):
            # One call reads no further than to the end of a file of the queue.
            offset, found = 0, []
            while (
                part := store.get(f"T{topic}", queue_id, offset, max_count=numbers)
            ).status is GetStatus.FOUND:
                found += [message.body for message in part.messages]
                offset = part.next_offset
            assert found == [body(topic, queue_id, number) for number in range(numbers)]


@pytest.fixture
def few_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the kernel allowed few, and queues came by the dozen."""
    gc.collect()
    monkeypatch.setattr(queue_set, "MAPPED_AT_OPENING", mapped_file_count() + 10)
    monkeypatch.setattr(queue_set, "MAPPED_MAX", mapped_file_count() + 40)
    monkeypatch.setattr(queue_set, "MAPPED_CHECK_QUEUES", 8)


@pytest.mark.usefixtures("few_mappings")
def test_queues_let_their_files_go_and_find_them_again(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, **SMALL) as store:
        for number in range(ROUNDS):
            put_round(store, number)
            store.dispatch()
            store.flush()
            if number % 5 == 0:
                check_all(store, number + 1)
        store.flush()
        assert mapped_file_count() <= queue_set.MAPPED_MAX + queue_set.MAPPED_CHECK_QUEUES
        check_all(store, ROUNDS)
    with StoreReader.open(tmp_path) as reader:
        assert len(reader.queues()) == TOPICS * QUEUES
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert mapped_file_count() <= queue_set.MAPPED_AT_OPENING + 4
        put_round(store, ROUNDS)
        store.dispatch()
        check_all(store, ROUNDS + 1)


@pytest.mark.usefixtures("few_mappings")
def test_a_killed_store_of_many_queues_is_recovered(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, **SMALL)
    for number in range(3):
        put_round(store, number)
    store.dispatch()
    store.close()
    (tmp_path / "abort").write_text("1")
    with MessageStore.open(tmp_path, **SMALL) as again:
        check_all(again, 3)


def test_a_parked_queue_is_read_written_flushed_and_truncated(tmp_path: Path) -> None:
    queue = ConsumeQueue(str(tmp_path), "T", 0, 100)
    queue.recover()
    for number in range(12):
        queue.put(number * 200, 200, number, number)
    before = mapped_file_count()
    queue.park()
    assert not queue.parked, "it was used since the last time"
    queue.park()
    assert queue.parked
    assert mapped_file_count() == before - 3
    assert queue.flush_is_due(0)
    assert queue.flush(0)
    assert not queue.flush_is_due(0)
    assert queue.parked
    assert (queue.min_offset, queue.max_offset, queue.flushed_where) == (0, 12, 240)
    assert [queue.get(number) for number in range(12)] == [
        (number * 200, 200, number) for number in range(12)
    ]
    assert mapped_file_count() == before
    queue.park(at_once=True)
    for number in range(12, 16):
        queue.put(number * 200, 200, number, number)
    assert queue.get(15) == (3000, 200, 15)
    queue.park(at_once=True)
    queue.truncate_to_physical(2000)
    assert queue.max_offset == 10
    assert queue.get(9) == (1800, 200, 9)
    queue.close()
    again = ConsumeQueue(str(tmp_path), "T", 0, 100)
    again.recover()
    assert again.max_offset == 10
    again.close()


def test_viewed_units_stay_mapped(tmp_path: Path) -> None:
    queue = ConsumeQueue(str(tmp_path), "T", 0, 100)
    queue.recover()
    for number in range(4):
        queue.put(number * 200, 200, 7, number)
    units = queue.units(0, 4)
    kept = bytes(units)
    queue.park(at_once=True)
    assert bytes(units) == kept
    assert len(kept) == 80
    del units
    queue.park(at_once=True)
    assert queue.parked
    assert bytes(queue.units(0, 4)) == kept
    queue.close()


def test_folders_on_other_file_systems_are_synced_too(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to("/proc")
    homes = [tmp_path / "missing", here, elsewhere, tmp_path]
    found = queue_set.one_of_each_file_system(str(home) for home in homes)
    assert found == [str(here), str(elsewhere)]
