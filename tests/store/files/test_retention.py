"""Deleting old files of a live store: never the last, never undispatched ones; queues and index follow."""

import os
from pathlib import Path

import pytest

from pyledger.clock import SystemClock
from pyledger.errors import StoreFullError
from pyledger.model.message import Message
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.queues.get_result import GetStatus

SMALL = {
    "mapped_file_size_bytes": 32 * 1024,
    "consume_queue_file_size_bytes": 800,
    "index_slots": 20,
    "index_entries": 80,
}


class FixedHour(SystemClock):
    """A clock that stands in one hour of the day."""

    def __init__(self, hour: int) -> None:
        self.hour = hour

    def hour_of_day(self) -> int:
        return self.hour


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How full the disk is, in percent, as the retention service sees it."""
    percent = [10]
    monkeypatch.setattr("pyledger.store.messages.services.disk_usage", lambda _: percent[0])
    return percent


def fill(store: StoreEngine, count: int = 400) -> None:
    for number in range(count):
        store.put(Message("t", bytes(300), queue_id=number % 2, keys=f"k{number}"))
    store.dispatch()


def age(store: StoreEngine, hours: int) -> None:
    for path in (Path(store.path) / "commitlog").iterdir():
        when = path.stat().st_mtime - hours * 3600
        os.utime(path, (when, when))


def test_files_past_their_age_go_and_the_last_stays(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL) as store:
        fill(store)
        assert store.delete_expired() == []
        age(store, 73)
        gone = store.delete_expired()
        assert gone
        assert not any(os.path.exists(path) for path in gone)
        assert store.statistics().log_files == 1
        least = store.queue_range("t", 0).min_offset
        assert least > 0
        assert store.get("t", 0, least).messages[0].physical_offset >= store.min_offset
        assert store.get("t", 0, 0).status is GetStatus.OFFSET_TOO_SMALL
        assert store.query("t", "k0") == []
        assert store.query("t", "k399")[0].queue_offset == 199
        assert store.put(Message("t", b"next", queue_id=0)).queue_offset == 200


def test_immediate_cleaning_takes_young_files_too(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL) as store:
        fill(store)
        assert store.delete_expired(immediate=True)
        assert store.statistics().log_files == 1


def test_a_round_deletes_no_more_log_files_than_allowed(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, delete_files_max=2, **SMALL) as store:
        fill(store)
        left = store.statistics().log_files
        assert left > 4
        while left > 1:
            gone = store.delete_expired(immediate=True)
            logs = [path for path in gone if "/commitlog/" in path]
            assert len(logs) == min(2, left - 1)
            left -= len(logs)
            assert store.statistics().log_files == left
        assert store.delete_expired(immediate=True) == []


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/t/0", "consumequeue/t/1"])
def test_a_file_that_somebody_removed_before_does_not_end_cleaning(tmp_path: Path, folder: str) -> None:
    with StoreEngine.open(tmp_path, **SMALL) as store:
        fill(store)
        age(store, 100)
        gone = min((tmp_path / folder).iterdir())
        gone.unlink()
        assert str(gone) in store.delete_expired()
        assert store.put(Message("t", b"more")).queue_offset == 200


def test_messages_read_before_a_deletion_stay_readable(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL) as store:
        fill(store)
        message = store.get("t", 0, 0).messages[0]
        store.delete_expired(immediate=True)
        assert message.body == bytes(300)


@pytest.mark.parametrize(("hour", "cleans"), [(4, True), (5, False)])
@pytest.mark.usefixtures("used")
def test_the_service_cleans_in_its_hour(tmp_path: Path, hour: int, cleans: bool) -> None:
    with StoreEngine.open(tmp_path, clock=FixedHour(hour), **SMALL) as store:
        fill(store)
        age(store, 73)
        assert bool(store.clean()) is cleans


def test_a_disk_over_the_warning_level_rejects_puts_until_there_is_space(
    tmp_path: Path, used: list[int]
) -> None:
    used[0] = 95
    with StoreEngine.open(tmp_path, clock=FixedHour(12), **SMALL) as store:
        fill(store, 10)
        appender = store.appender("t", 0)
        store.clean()
        for put in (lambda: store.put(Message("t", b"x")), lambda: appender.put(b"x")):
            with pytest.raises(StoreFullError):
                put()
        used[0] = 88
        store.clean()
        with pytest.raises(StoreFullError):
            store.put(Message("t", b"x"))
        used[0] = 80
        store.clean()
        assert store.put(Message("t", b"x")).queue_offset == 5
