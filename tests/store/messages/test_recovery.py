"""Opening after every kind of ending: the log's end is found, cut durably, and all derived files follow."""

import os
import shutil
import struct
from pathlib import Path

import pytest

from pyledger.errors import CorruptRecordError, StoreFormatError
from pyledger.model.message import Message, QueueRange
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader

SMALL = {
    "mapped_file_size_bytes": 32 * 1024,
    "consume_queue_file_size_bytes": 800,
    "index_slots": 20,
    "index_entries": 80,
}
FILE = SMALL["mapped_file_size_bytes"]


def make_store(folder: Path, count: int = 200, body_bytes: int = 300, *, clean: bool = True) -> list[int]:
    """A store of several files; where each record stands."""
    with MessageStore.open(folder, **SMALL) as store:
        places = [
            store.put(
                Message("t", n.to_bytes(4, "big") + bytes(body_bytes), queue_id=n % 3, keys=f"k{n}")
            ).physical_offset
            for n in range(count)
        ]
    if not clean:
        (folder / "abort").touch()
    return places


def log_bytes(folder: Path) -> bytearray:
    return bytearray(b"".join(path.read_bytes() for path in sorted((folder / "commitlog").iterdir())))


def write_log(folder: Path, data: bytes) -> None:
    for number, path in enumerate(sorted((folder / "commitlog").iterdir())):
        path.write_bytes(data[number * FILE : (number + 1) * FILE])


def damage(folder: Path, offset: int, data: bytes) -> None:
    path = folder / "commitlog" / f"{offset // FILE * FILE:020d}"
    with path.open("r+b") as file:
        file.seek(offset % FILE)
        file.write(data)


def numbers(store: MessageStore) -> list[int]:
    return [int.from_bytes(m.body[:4], "big") for m in store.messages()]


def check_derived(store: MessageStore, count: int) -> None:
    """Queues and index name exactly the first `count` messages."""
    for queue_id in range(3):
        expected = list(range(queue_id, count, 3))
        assert store.queue_range("t", queue_id) == QueueRange(0, len(expected))
        found, offset = [], 0
        while offset < len(expected):
            result = store.get("t", queue_id, offset)
            found += [int.from_bytes(m.body[:4], "big") for m in result.messages]
            offset = result.next_offset
        assert found == expected
    for number in range(count):
        assert [int.from_bytes(m.body[:4], "big") for m in store.query("t", f"k{number}")] == [number]


@pytest.mark.parametrize("clean", [True, False])
def test_every_record_is_found_again(tmp_path: Path, clean: bool) -> None:
    make_store(tmp_path, clean=clean)
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert store.recovery.clean is clean
        assert numbers(store) == list(range(200))
        check_derived(store, 200)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("missing", ["consumequeue", "index", "both", "checkpoint", "all"])
def test_missing_derived_files_are_rebuilt_from_the_log(tmp_path: Path, clean: bool, missing: str) -> None:
    make_store(tmp_path, clean=clean)
    gone = {"both": ["consumequeue", "index"], "all": ["consumequeue", "index", "checkpoint"]}.get(
        missing, [missing]
    )
    for name in gone:
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with MessageStore.open(tmp_path, **SMALL) as store:
        check_derived(store, 200)
        assert store.put(Message("t", b"next", queue_id=0)).queue_offset == 67


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", ["second half zeroed", "bit flipped", "magic zeroed", "size grown"])
def test_a_torn_last_record_is_dropped_with_its_queue_unit(tmp_path: Path, clean: bool, kind: str) -> None:
    places = make_store(tmp_path, clean=clean)
    last = places[-1]
    size = struct.unpack_from(">i", log_bytes(tmp_path), last)[0]
    if kind == "second half zeroed":
        damage(tmp_path, last + size // 2, bytes(size - size // 2))
    elif kind == "bit flipped":
        damage(tmp_path, last + 90, bytes([log_bytes(tmp_path)[last + 90] ^ 1]))
    elif kind == "magic zeroed":
        damage(tmp_path, last + 4, bytes(4))
    else:
        damage(tmp_path, last, struct.pack(">i", size + 1))
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert store.max_offset == last
        assert store.recovery.truncated_at == last
        check_derived(store, 199)
        assert store.query("t", "k199") == []
        again = store.put(Message("t", (199).to_bytes(4, "big"), queue_id=1, keys="k199"))
        assert again.physical_offset == last
        assert again.queue_offset == 66
        check_derived(store, 200)
    assert not any(log_bytes(tmp_path)[again.physical_offset + again.size_bytes :]), (
        "the tail is zero on disk"
    )


def test_a_truncated_tail_never_comes_back(tmp_path: Path) -> None:
    """Records of equal size: after a cut in memory alone, an old one would continue the shorter log."""
    places = make_store(tmp_path, clean=False)
    damage(tmp_path, places[190] + 100, b"\xff")
    (tmp_path / "checkpoint").unlink()
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert store.max_offset == places[190]
        store.put(Message("t", (190).to_bytes(4, "big") + bytes(300), queue_id=1, keys="k190"))
        assert store.max_offset == places[191]
        live = log_bytes(tmp_path)
    (tmp_path / "abort").touch()
    write_log(tmp_path, bytes(live[: len(log_bytes(tmp_path))]))
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert numbers(store) == list(range(191))
        check_derived(store, 191)


def test_a_record_at_another_offset_than_its_own_is_no_record(tmp_path: Path) -> None:
    """Bytes of an earlier life of the file, or copied to a wrong place: valid magic, size and CRC."""
    make_store(tmp_path, count=3, clean=False)
    data = log_bytes(tmp_path)
    size = struct.unpack_from(">i", data, 0)[0]
    damage(tmp_path, 3 * size, bytes(data[:size]))
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert numbers(store) == [0, 1, 2]
        assert store.max_offset == 3 * size


@pytest.mark.parametrize("clean", [True, False])
def test_damage_in_the_middle_of_durable_records_is_an_error(tmp_path: Path, clean: bool) -> None:
    places = make_store(tmp_path)
    if not clean:
        (tmp_path / "abort").touch()
    else:
        # Only files from the last on are looked at after a clean exit.
        pass
    victim = next(place for place in places if place >= places[-1] // FILE * FILE)
    if not clean:
        raw = bytearray((tmp_path / "checkpoint").read_bytes())
        newest = struct.unpack_from(">q", raw)[0]
        struct.pack_into(">qq", raw, 0, newest + 60_000, newest + 60_000)
        (tmp_path / "checkpoint").write_bytes(raw)
        victim = places[-3]
    before = log_bytes(tmp_path)
    damage(tmp_path, victim + 100, b"\xff")
    with pytest.raises(CorruptRecordError, match=str(victim)) as caught:
        MessageStore.open(tmp_path, **SMALL)
    assert caught.value.physical_offset == victim
    before[victim + 100 : victim + 101] = b"\xff"
    assert log_bytes(tmp_path) == before, "refusing changed the log"
    assert (tmp_path / "abort").exists() is not clean
    with MessageStore.open(tmp_path, truncate_at_corruption=True, **SMALL) as store:
        assert store.max_offset == victim
        check_derived(store, places.index(victim))


def test_pages_lost_in_a_crash_end_the_log_without_complaint(tmp_path: Path) -> None:
    """The same damage where nothing vouches for the bytes: an ordinary power cut."""
    places = make_store(tmp_path, clean=False)
    (tmp_path / "checkpoint").unlink()
    damage(tmp_path, places[150], bytes(4096))
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert store.max_offset == places[150]
        check_derived(store, 150)


def test_a_missing_file_in_the_middle_is_an_error(tmp_path: Path) -> None:
    make_store(tmp_path)
    files = sorted((tmp_path / "commitlog").iterdir())
    files[1].unlink()
    with pytest.raises(StoreFormatError, match=files[1].name):
        MessageStore.open(tmp_path, **SMALL)
    assert [path.exists() for path in files] == [True, False, True]


def test_queues_longer_than_the_log_are_truncated(tmp_path: Path) -> None:
    places = make_store(tmp_path, clean=False)
    data = log_bytes(tmp_path)
    write_log(tmp_path, bytes(data[: places[120]]).ljust(len(data), b"\0"))
    (tmp_path / "checkpoint").unlink()
    with MessageStore.open(tmp_path, **SMALL) as store:
        check_derived(store, 120)


def test_units_lost_in_the_middle_of_a_queue_are_dispatched_again(tmp_path: Path) -> None:
    make_store(tmp_path, clean=False)
    (tmp_path / "checkpoint").unlink()
    first = min((tmp_path / "consumequeue" / "t" / "1").iterdir())
    data = bytearray(first.read_bytes())
    data[100:160] = bytes(60)
    first.write_bytes(data)
    with MessageStore.open(tmp_path, **SMALL) as store:
        check_derived(store, 200)


def test_a_queue_file_that_lost_its_content_is_rebuilt_after_a_crash(tmp_path: Path) -> None:
    """Also where the checkpoint says that recovery may start late: a hole in a queue moves the start back."""
    make_store(tmp_path, clean=False)
    for path in sorted((tmp_path / "consumequeue" / "t" / "2").iterdir())[:1]:
        path.write_bytes(bytes(path.stat().st_size))
    raw = bytearray((tmp_path / "checkpoint").read_bytes())
    newest = struct.unpack_from(">q", raw)[0]
    struct.pack_into(">qq", raw, 0, newest + 60_000, newest + 60_000)
    (tmp_path / "checkpoint").write_bytes(raw)
    with MessageStore.open(tmp_path, **SMALL) as store:
        check_derived(store, 200)


def test_index_entries_of_a_crash_are_made_again_and_no_key_is_lost(tmp_path: Path) -> None:
    """Upstream deletes the newest index file and indexes from the start of recovery: older keys are lost."""
    make_store(tmp_path, clean=False)
    newest = max((tmp_path / "index").iterdir())
    data = bytearray(newest.read_bytes())
    data[40 : 40 + 80] = bytes(80)
    newest.write_bytes(data)
    with MessageStore.open(tmp_path, **SMALL) as store:
        check_derived(store, 200)


def test_an_empty_file_at_the_end_is_the_rest_of_a_crash(tmp_path: Path) -> None:
    make_store(tmp_path, clean=False)
    last = max((tmp_path / "commitlog").iterdir())
    following = last.with_name(f"{int(last.name) + FILE:020d}")
    following.touch()
    with MessageStore.open(tmp_path, **SMALL) as store:
        check_derived(store, 200)
    assert not following.exists()


def test_a_file_made_ahead_is_the_rest_of_a_crash(tmp_path: Path) -> None:
    make_store(tmp_path, clean=False)
    last = max((tmp_path / "commitlog").iterdir())
    following = last.with_name(f"{int(last.name) + FILE:020d}")
    following.write_bytes(bytes(FILE))
    with MessageStore.open(tmp_path, **SMALL) as store:
        check_derived(store, 200)
        assert store.put(Message("t", b"next")).physical_offset < int(following.name)


def test_crash_in_recovery_is_recovered_like_any_other(tmp_path: Path) -> None:
    places = make_store(tmp_path, clean=False)
    damage(tmp_path, places[-1] + 30, b"\xff" * 8)
    for _ in range(2):
        with MessageStore.open(tmp_path, **SMALL) as store:
            check_derived(store, 199)
        (tmp_path / "abort").touch()


def test_stored_times_do_not_fall_when_the_clock_was_set_back(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, **SMALL) as store:
        ahead = 4_000_000_000_000
        store.appender("t", 0).put(b"x", store_timestamp_ms=ahead)
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert store.put(Message("t", b"y")).store_timestamp_ms == ahead


def test_deleted_head_keeps_queue_offsets_over_a_rebuild(tmp_path: Path) -> None:
    make_store(tmp_path)
    with MessageStore.open(tmp_path, retention_hours=0, **SMALL) as store:
        store.delete_expired()
        least = store.min_offset
        before = store.queues()
        assert least > 0
        assert all(span.min_offset > 0 for span in before.values())
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "index")
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert store.queues() == before
        for (topic, queue_id), span in before.items():
            message = store.get(topic, queue_id, span.min_offset).messages[0]
            assert message.queue_offset == span.min_offset
            assert message.physical_offset >= least


def test_a_recovered_store_is_stable_over_reopening(tmp_path: Path) -> None:
    make_store(tmp_path, clean=False)
    with MessageStore.open(tmp_path, **SMALL) as store:
        first = (store.queues(), store.max_offset, numbers(store))
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert (store.queues(), store.max_offset, numbers(store)) == first
    assert os.path.exists(tmp_path / "checkpoint")


@pytest.mark.parametrize("crc_property", [False, True])
@pytest.mark.parametrize("page", [1, 2])
def test_a_page_lost_after_the_body_ends_the_log(tmp_path: Path, page: int, crc_property: bool) -> None:
    """No CRC of the body covers topic and properties: zeroes there are the record's end torn off."""
    options = SMALL | {"crc_property": crc_property}
    with MessageStore.open(tmp_path, **options) as store:
        store.put(Message("t", b"first"))
        at = store.put(Message("t", b"torn", properties={"p": "v" * 8000})).physical_offset
        end = store.max_offset
    assert 2 * 4096 < end <= 3 * 4096, "it ends in the third page"
    (tmp_path / "abort").touch()
    damage(tmp_path, page * 4096, bytes(4096))
    with StoreReader.open(tmp_path) as reader:
        assert reader.max_offset == at
    with MessageStore.open(tmp_path, **options) as store:
        assert store.recovery.truncated_at == at
        assert [m.body for m in store.messages()] == [b"first"]
        assert store.put(Message("t", b"next")).queue_offset == 1


@pytest.mark.parametrize("topic", [b"../t", b"a/bc", b".", b"..", b"a\0bc"])
def test_a_record_whose_topic_names_no_folder_does_not_lock_the_store(tmp_path: Path, topic: bytes) -> None:
    """No broker stores one; a damaged record may name it. Its message is left to readers of the log."""
    with MessageStore.open(tmp_path, **SMALL) as store:
        store.put(Message("t", b"first"))
        at = store.put(Message("X" * len(topic), b"lost", keys="k")).physical_offset
        store.put(Message("t", b"second"))
    data = log_bytes(tmp_path)
    damage(tmp_path, data.index(b"X" * len(topic), at), topic)
    shutil.rmtree(tmp_path / "consumequeue")
    for _ in range(2):
        with MessageStore.open(tmp_path, **SMALL) as store:
            assert [m.body for m in store.messages()] == [b"first", b"lost", b"second"]
            assert [m.body for m in store.get("t", 0, 0).messages] == [b"first", b"second"]
            assert list(store.queues()) == [("t", 0)]
    assert {p.name for p in tmp_path.parent.iterdir()} >= {tmp_path.name}
    assert sorted(p.name for p in (tmp_path / "consumequeue").iterdir()) == ["t"]
    found = [p.kind for p in verify(tmp_path) if p.severity == "error" and p.kind == "illegal-topic"]
    assert found == ["illegal-topic"]


@pytest.mark.parametrize("checks", [True, False])
def test_crc_of_bodies_is_checked_after_a_clean_exit_when_that_is_set(tmp_path: Path, checks: bool) -> None:
    places = make_store(tmp_path)
    damage(tmp_path, places[-2] + 100, b"\xff")
    options = SMALL | {"check_crc_on_recover": checks}
    if checks:
        with pytest.raises(CorruptRecordError):
            MessageStore.open(tmp_path, **options)
        return
    with MessageStore.open(tmp_path, **options) as store:
        assert store.max_offset > places[-1], "lengths and places are sound"
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    with MessageStore.open(tmp_path, **options) as store:
        assert store.max_offset == places[-2], "after an unclean exit every CRC is checked"


def test_a_store_without_keys_is_not_walked_whole_at_every_opening(tmp_path: Path) -> None:
    """It has no index file, which must not look like an index that was lost."""
    with MessageStore.open(tmp_path, **SMALL) as store:
        for _ in range(200):
            store.put(Message("t", bytes(300)))
        last_file = store._components.log.files[-1].start_offset
    with MessageStore.open(tmp_path, **SMALL) as store:
        assert store.recovery.dispatched == sum(m.physical_offset >= last_file for m in store.messages())
        assert store.queue_range("t", 0) == QueueRange(0, 200)


def test_a_lost_index_folder_is_made_again(tmp_path: Path) -> None:
    make_store(tmp_path, clean=False)
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    with MessageStore.open(tmp_path, **SMALL) as store:
        check_derived(store, 200)
