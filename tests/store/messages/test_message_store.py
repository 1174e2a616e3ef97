"""StoreEngine from outside: what is put can be read, by offset, key, id, time, with RocketMQ's statuses."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyledger.config.store import StoreConfig
from pyledger.errors import (
    ConfigError,
    CorruptRecordError,
    IllegalMessageError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    StoreClosedError,
    StoreFormatError,
    StoreLockedError,
)  # fmt: skip
from pyledger.model.message import Message, QueueRange
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.queues.get_result import GetStatus
from pyledger.store.reading.reader import StoreReader

SMALL = {
    "mapped_file_size_bytes": 64 * 1024, "consume_queue_file_size_bytes": 2000, "index_slots": 100,
    "index_entries": 1000,
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreEngine]:
    with StoreEngine.open(tmp_path / "store", **SMALL) as opened:
        yield opened


def put_numbered(
    store: StoreEngine, count: int, topic: str = "t", queue_id: int = 0, tags: str | None = None
) -> list[int]:
    messages = [Message(topic, b"body %d" % n, queue_id=queue_id, tags=tags) for n in range(count)]
    return [store.put(message).physical_offset for message in messages]


def test_a_message_comes_back_as_it_was_put(store: StoreEngine) -> None:
    result = store.put(
        Message(
            "orders", b"\x00payload", queue_id=3, tags="red", keys="k1 k2", properties={"a": "ä", "b": "2"},
            flag=7, born_timestamp_ms=1234, born_host=("10.1.2.3", 99), reconsume_times=2,
        )
    )  # fmt: skip
    assert (result.queue_offset, result.physical_offset) == (0, 0)
    message = store.get("orders", 3, 0).messages[0]
    assert message.topic == "orders"
    assert message.queue_id == 3
    assert message.queue_offset == 0
    assert message.body == b"\x00payload"
    assert message.tags == "red"
    assert message.keys == "k1 k2"
    assert message.properties["a"] == "ä"
    assert message.properties["b"] == "2"
    assert message.flag == 7
    assert message.born_timestamp == 1234
    assert message.born_host == "10.1.2.3:99"
    assert message.reconsume_times == 2
    assert message.store_size == result.size_bytes
    assert message.store_timestamp == result.store_timestamp_ms
    assert message.msg_id == result.msg_id
    assert message.store_host == "127.0.0.1:10911"


def test_a_put_message_is_readable_at_once(store: StoreEngine) -> None:
    for number in range(200):
        store.put(Message("t", b"%d" % number))
        assert store.get("t", 0, number).messages[0].body == b"%d" % number


def test_messages_survive_a_clean_close_and_go_on(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL) as store:
        put_numbered(store, 300)
        end = store.max_offset
    assert not (tmp_path / "abort").exists()
    with StoreEngine.open(tmp_path) as store:
        assert store.recovery.clean
        assert store.max_offset == end
        assert store.queue_range("t", 0) == QueueRange(0, 300)
        assert store.put(Message("t", b"next")).queue_offset == 300
        assert [m.body for m in store.messages()][-2:] == [b"body 299", b"next"]


def test_statuses_and_next_offsets_are_those_of_upstream(store: StoreEngine) -> None:
    assert store.get("t", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.get("t", 0, 5).next_offset == 0
    put_numbered(store, 10)
    found = store.get("t", 0, 4)
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (
        GetStatus.FOUND,
        10,
        0,
        10,
    )
    assert [m.queue_offset for m in found.messages] == list(range(4, 10))
    one = store.get("t", 0, 10)
    assert (one.status, one.next_offset, one.messages) == (GetStatus.OFFSET_OVERFLOW_ONE, 10, [])
    badly = store.get("t", 0, 11)
    assert (badly.status, badly.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 10)
    small = store.get("t", 0, -1)
    assert (small.status, small.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)
    assert store.get("t", 1, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_a_pull_is_bounded_by_count_bytes_and_the_limits_of_upstream(store: StoreEngine) -> None:
    for _ in range(60):
        store.put(Message("t", bytes(1000)))
    size = store.get("t", 0, 0).messages[0].store_size
    assert len(store.get("t", 0, 0, max_count=5).messages) == 5
    assert len(store.get("t", 0, 0, max_count=500).messages) == 32
    assert len(store.get("t", 0, 0, max_bytes=3 * size).messages) == 3
    assert len(store.get("t", 0, 0, max_bytes=3 * size - 1).messages) == 2
    assert len(store.get("t", 0, 0, max_bytes=1).messages) == 1, "the first message goes whatever its size"


def test_a_pull_stops_at_256_kib(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, mapped_file_size_bytes=1 << 20) as store:
        for _ in range(12):
            store.put(Message("t", bytes(50_000)))
        assert len(store.get("t", 0, 0).messages) == 262_144 // store.get("t", 0, 0).messages[0].store_size


def test_tags_filter_and_the_walk_continues_after_the_last_match(store: StoreEngine) -> None:
    for number in range(20):
        store.put(Message("t", b"%d" % number, tags=("red", "green", "blue")[number % 3]))
    found = store.get("t", 0, 0, tags="red || blue")
    assert [int(m.body) % 3 for m in found.messages] == [n % 3 for n in range(20) if n % 3 != 1]
    assert found.next_offset == 20
    nothing = store.get("t", 0, 0, tags="black")
    assert (nothing.status, nothing.next_offset, nothing.messages) == (GetStatus.NO_MATCHED_MESSAGE, 20, [])
    assert len(store.get("t", 0, 0, tags="*").messages) == 20


def test_tags_with_the_same_hash_are_distinguished(store: StoreEngine) -> None:
    store.put(Message("t", b"1", tags="Aa"))
    store.put(Message("t", b"2", tags="BB"))
    assert [m.body for m in store.get("t", 0, 0, tags="BB").messages] == [b"2"]


def test_ranges_hold_the_same_records_as_the_messages(store: StoreEngine) -> None:
    for number in range(40):
        store.put(Message("ab"[number % 2], b"x" * number, tags=f"t{number % 4}"))
    for topic, tags in (("a", None), ("b", None), ("a", "t2")):
        messages = store.get(topic, 0, 0, tags=tags)
        ranges = store.get_ranges(topic, 0, 0, tags=tags)
        assert (ranges.status, ranges.next_offset, ranges.message_count) == (
            messages.status, messages.next_offset, len(messages.messages),
        )  # fmt: skip
        assert b"".join(ranges.ranges) == b"".join(m.record_view for m in messages.messages)
        assert ranges.ranges.size_bytes == sum(m.store_size for m in messages.messages)


def test_neighbours_in_the_log_are_one_range(store: StoreEngine) -> None:
    put_numbered(store, 10)
    assert len(store.get_ranges("t", 0, 0).ranges) == 1


def test_reading_over_file_borders_misses_nothing(store: StoreEngine) -> None:
    expected = [b"%d" % n + bytes(700) for n in range(400)]
    for body in expected:
        store.put(Message("t", body))
    assert store.statistics().log_files > 3
    bodies, offset = [], 0
    while offset < 400:
        found = store.get("t", 0, offset)
        bodies += [m.body for m in found.messages]
        offset = found.next_offset
    assert bodies == expected


def test_lookups_by_offset_and_id(store: StoreEngine) -> None:
    results = [store.put(Message("t", b"%d" % n)) for n in range(10)]
    for number, result in enumerate(results):
        assert store.message_at(result.physical_offset).body == b"%d" % number
        assert store.message_by_id(result.msg_id).body == b"%d" % number
    with pytest.raises(OffsetOutOfRangeError):
        store.message_at(store.max_offset)
    with pytest.raises(OffsetOutOfRangeError):
        store.message_at(-1)


def test_lookup_by_key_and_time(store: StoreEngine) -> None:
    for number in range(50):
        store.put(
            Message("t", b"%d" % number, keys=f"k{number % 5} all", properties={"UNIQ_KEY": f"u{number}"})
        )
        store.put(Message("other", b"x", keys="all"))
    assert [int(m.body) for m in store.query("t", "k3")] == list(range(3, 50, 5))
    assert [int(m.body) for m in store.query("t", "u17")] == [17]
    assert len(store.query("t", "all", limit=64)) == 50
    assert len(store.query("t", "all", limit=7)) == 7
    assert store.query("t", "nobody") == []
    assert store.query("t", "k3", since=0, until=2) == []


def test_keys_with_the_same_hash_are_distinguished(store: StoreEngine) -> None:
    store.put(Message("t", b"1", keys="Aa"))
    store.put(Message("t", b"2", keys="BB"))
    assert [m.body for m in store.query("t", "Aa")] == [b"1"]


def test_offset_by_time(store: StoreEngine) -> None:
    stamps = [store.put(Message("t", b"%d" % n)).store_timestamp_ms for n in range(5)]
    assert store.offset_by_time("t", 0, stamps[0]) == 0
    assert store.offset_by_time("t", 0, stamps[-1] + 10_000) == 5
    assert store.offset_by_time("t", 0, 1) == 0
    assert store.offset_by_time("nobody", 0, 1) == 0


def test_queues_and_counts(store: StoreEngine) -> None:
    put_numbered(store, 7, "a", 0)
    put_numbered(store, 3, "a", 2)
    put_numbered(store, 5, "b", 1, tags="x")
    assert store.queues() == {
        ("a", 0): QueueRange(0, 7),
        ("a", 2): QueueRange(0, 3),
        ("b", 1): QueueRange(0, 5),
    }
    assert store.queue_range("a", 0) == QueueRange(0, 7)
    assert store.queue_range("nobody", 0) == QueueRange(0, 0)
    assert store.count_messages("a", 0, 2, 6) == 4
    assert store.count_messages("b", 1, 0, 5, tags="x") == 5
    assert store.count_messages("b", 1, 0, 5, tags="y") == 0


def test_batch_of_messages_is_stored_in_order_and_dense(store: StoreEngine) -> None:
    results = store.put_batch([Message("t", b"%d" % n, queue_id=n % 2) for n in range(10)])
    assert [r.queue_offset for r in results] == [n // 2 for n in range(10)]
    assert [m.body for m in store.messages()] == [b"%d" % n for n in range(10)]
    assert store.put_batch([]) == []


def test_a_bad_message_in_a_batch_leaves_nothing(store: StoreEngine) -> None:
    with pytest.raises(IllegalMessageError):
        store.put_batch([Message("t", b"good"), Message("../bad", b"bad")])
    assert store.max_offset == 0
    assert store.queues() == {}


def test_appender_is_the_fast_way_to_one_queue(store: StoreEngine) -> None:
    appender = store.appender("t", 1)
    first = appender.put(b"one", tags="x")
    appender.put_many([b"two", b"three"])
    assert first == 0
    assert [m.body for m in store.get("t", 1, 0).messages] == [b"one", b"two", b"three"]
    assert store.get("t", 1, 0, tags="x").messages[0].body == b"one"


def test_threads_get_dense_offsets_in_log_order(store: StoreEngine) -> None:
    def write(name: int) -> None:
        for number in range(300):
            store.put(Message("t", b"%d:%d" % (name, number), queue_id=number % 2))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.queues() == {("t", 0): QueueRange(0, 600), ("t", 1): QueueRange(0, 600)}
    by_queue: dict[int, list[int]] = {0: [], 1: []}
    last_number: dict[tuple[bytes, int], int] = {}
    for message in store.messages():
        by_queue[message.queue_id].append(message.queue_offset)
        name, number = message.body.split(b":")
        assert int(number) > last_number.get((name, message.queue_id), -1)
        last_number[name, message.queue_id] = int(number)
    assert by_queue == {0: list(range(600)), 1: list(range(600))}


def test_delay_level_stores_in_the_schedule_topic_with_the_due_time(store: StoreEngine) -> None:
    result = store.put(
        Message("t", b"later", queue_id=5, delay_level=3, tags="x", properties={"TIMER_DELAY_SEC": "9"})
    )
    message = store.get("SCHEDULE_TOPIC_XXXX", 2, 0).messages[0]
    assert message.body == b"later"
    assert message.queue_id == 2
    assert message.properties["REAL_TOPIC"] == "t"
    assert message.properties["REAL_QID"] == "5"
    assert message.properties["DELAY"] == "3"
    assert "TIMER_DELAY_SEC" not in message.properties
    assert message.tags_code == result.store_timestamp_ms + 10_000
    assert store.queues() == {("SCHEDULE_TOPIC_XXXX", 2): QueueRange(0, 1)}


def test_delay_beyond_the_last_level_is_the_last_level(store: StoreEngine) -> None:
    store.put(Message("t", b"later", delay_level=99))
    assert store.get("SCHEDULE_TOPIC_XXXX", 17, 0).messages[0].properties["DELAY"] == "18"


def test_prepared_and_rolled_back_records_are_in_no_queue(store: StoreEngine) -> None:
    store.put(Message("t", b"prepared", sys_flag=0x4))
    store.put(Message("t", b"committed", sys_flag=0x8))
    store.put(Message("t", b"rolled back", sys_flag=0xC))
    assert store.queue_range("t", 0) == QueueRange(0, 1)
    assert [m.body for m in store.get("t", 0, 0).messages] == [b"committed"]
    assert [m.queue_offset for m in store.messages()] == [0, 0, 0]


def test_no_message_makes_a_folder_that_cannot_be_opened(tmp_path: Path) -> None:
    """A queue of that name is a light queue, and a store with one is not opened for writing."""
    with StoreEngine.open(tmp_path / "s", **SMALL) as store:
        message = Message("%LMQ%x", b"x")
        for put in (lambda: store.put(message), lambda: store.put_batch([message, message])):
            with pytest.raises(IllegalMessageError, match="light queue"):
                put()
        store.put(Message("orders", b"x"))
    with StoreEngine.open(tmp_path / "s", **SMALL) as store:
        assert [message.body for message in store.get("orders", 0, 0).messages] == [b"x"]


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../../x", "a\0b", "a\nb", "x" * 300])
def test_a_topic_that_could_leave_the_folder_is_rejected(store: StoreEngine, topic: str) -> None:
    with pytest.raises(IllegalMessageError):
        store.put(Message(topic, b"x"))
    assert store.max_offset == 0
    assert store.get(topic, 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.query(topic, "k") == []


def test_limits_are_named(store: StoreEngine) -> None:
    with pytest.raises(RecordTooLargeError):
        store.put(Message("t", b"x", properties={"p": "v" * 40_000}))
    with pytest.raises(RecordTooLargeError):
        store.put(Message("t", bytes((4 << 20) + 1)))
    assert store.max_offset == 0


def test_a_second_writer_is_an_error_also_in_the_same_process(store: StoreEngine) -> None:
    with pytest.raises(StoreLockedError):
        StoreEngine.open(store.path)
    store.put(Message("t", b"still works"))


def test_a_closed_store_raises(tmp_path: Path) -> None:
    store = StoreEngine.open(tmp_path, **SMALL)
    appender = store.appender("t", 0)
    store.close()
    store.close()
    for call in (
        lambda: store.put(Message("t", b"x")), lambda: store.get("t", 0, 0), lambda: store.query("t", "k"),
        lambda: appender.put(b"x"), store.flush, store.queues, lambda: store.message_at(0),
    ):  # fmt: skip
        with pytest.raises(StoreClosedError):
            call()


def test_messages_read_before_closing_stay_readable(tmp_path: Path) -> None:
    store = StoreEngine.open(tmp_path, **SMALL)
    store.put(Message("t", b"kept"))
    message = store.get("t", 0, 0).messages[0]
    view = store.get_ranges("t", 0, 0).ranges[0]
    store.close()
    assert message.body == b"kept"
    assert b"kept" in bytes(view)


def test_unknown_settings_are_rejected_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="flush_interval_ms"):
        StoreEngine.open(tmp_path / "new", flush_intervall_ms=5)
    assert not (tmp_path / "new").exists()


def test_a_file_size_other_than_the_folder_has_is_rejected(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL) as store:
        put_numbered(store, 3)
    with pytest.raises(StoreFormatError, match="65536"):
        StoreEngine.open(tmp_path, mapped_file_size_bytes=1 << 20)
    with StoreEngine.open(tmp_path) as store:
        assert store.config.mapped_file_size_bytes == 64 * 1024


@pytest.mark.parametrize("size_bytes", [64 << 10, 100_003])
def test_the_file_size_is_read_off_the_folder(tmp_path: Path, size_bytes: int) -> None:
    """Upstream takes any size, so one that is no multiple of a page has to be found again as well."""
    with StoreEngine.open(tmp_path, mapped_file_size_bytes=size_bytes) as store:
        store.put(Message("t", bytes(200)))
    for count in (2, 700, 1100):  # one file with room left, then several
        with StoreEngine.open(tmp_path) as store:
            put_numbered(store, count - store.queue_range("t", 0).max_offset)
            assert store.config.mapped_file_size_bytes == size_bytes
    assert {path.stat().st_size for path in (tmp_path / "commitlog").iterdir()} == {size_bytes}
    assert sum(1 for _ in (tmp_path / "commitlog").iterdir()) > 1


@pytest.mark.parametrize("end", ["in a record", "behind a record"])
def test_the_size_is_not_taken_from_a_truncated_file(tmp_path: Path, end: str) -> None:
    with StoreEngine.open(tmp_path, mapped_file_size_bytes=64 << 10) as store:
        put_numbered(store, 10)
        length = store.max_offset - (1 if end == "in a record" else 0)
    file = tmp_path / "commitlog" / f"{0:020d}"
    os.truncate(file, length)
    with pytest.raises(StoreFormatError, match="truncated"):
        StoreEngine.open(tmp_path)
    assert file.stat().st_size == length


def test_foreign_files_in_the_log_folder_are_an_error(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL) as store:
        put_numbered(store, 3)
    (tmp_path / "commitlog" / "notes.txt").write_text("mine")
    with pytest.raises(StoreFormatError, match=r"notes\.txt"):
        StoreEngine.open(tmp_path)
    (tmp_path / "commitlog" / "notes.txt").unlink()
    with StoreEngine.open(tmp_path) as store:
        assert store.queue_range("t", 0).max_offset == 3


def test_opening_without_create_needs_a_store(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no such folder"):
        StoreEngine.open(tmp_path / "nowhere", create=False)
    assert not (tmp_path / "nowhere").exists()


def test_abort_file_holds_the_process_id_while_open(store: StoreEngine) -> None:
    assert (Path(store.path) / "abort").read_text() == str(os.getpid())


def test_statistics_count(store: StoreEngine) -> None:
    put_numbered(store, 10)
    store.flush()
    facts = store.statistics()
    assert facts.put_count == 10
    assert facts.put_bytes == store.max_offset
    assert facts.flush_count >= 1
    assert facts.dispatch_lag_bytes == 0
    assert facts.flushed_where == facts.max_offset == store.max_offset
    assert facts.min_offset == 0
    assert facts.queue_count == 1


def test_a_flipped_bit_is_found_by_scans_and_handed_on_by_a_store(tmp_path: Path) -> None:
    """As docs/design/assumptions.md says."""
    with StoreEngine.open(tmp_path / "s", mapped_file_size_bytes=1 << 20) as store:
        where = store.put(Message("T", b"right", keys="k")).physical_offset
        store.put(Message("T", b"behind it"))
        store.flush()
        log = tmp_path / "s" / "commitlog" / f"{0:020d}"
        with log.open("r+b") as file:
            at = file.read(4096).index(b"right")
            file.seek(at)
            file.write(b"R")
        (found,) = store.query("T", "k")
        (pulled,) = store.get("T", 0, 0, max_count=1).messages
        assert found.body == pulled.body == store.message_at(where).body == b"Right"
    # Closed: damage in what a running store has not flushed long ago may be its log's end.
    with StoreReader.open(tmp_path / "s") as reader, pytest.raises(CorruptRecordError):
        list(reader.messages(order="queue"))


def test_settings_beside_a_config_change_it(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_bytes=1 << 16)
    with MessageStore.open(tmp_path, config, flush_disk_type="sync") as store:
        assert (store.config.flush_disk_type, store.config.mapped_file_size_bytes) == ("sync", 1 << 16)
    with pytest.raises(ConfigError, match="mispelt"):
        MessageStore.open(tmp_path, config, mispelt=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": None}, {"body": "text"}, {"queue_id": "0"}, {"tags": 5}, {"keys": b"k"},
        {"properties": ["a"]},
        {"delay_level": None}, {"flag": float("nan")}, {"born_timestamp_ms": 10**30},
        {"born_host": "1.1.1.1:1"},
    ],
)  # fmt: skip
def test_a_message_with_a_field_of_another_type_is_not_stored(wrong: dict[str, Any], tmp_path: Path) -> None:
    fields: dict[str, Any] = {"topic": "orders", "body": b"one"} | wrong
    (name,) = wrong
    with MessageStore.open(tmp_path, mapped_file_size_bytes=1 << 16) as store:
        for put in (store.put, lambda message: store.put_batch([message])):
            with pytest.raises(IllegalMessageError, match=rf"^message\.{name}: .* is (of type|out of range)"):
                put(Message(**fields))
        assert store.max_offset == 0


@pytest.mark.parametrize("given", [5, "text", [], None])
def test_what_is_no_message_is_not_stored(given: Any, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, mapped_file_size_bytes=1 << 16) as store:
        with pytest.raises(IllegalMessageError, match=r"is of type .*; give a Message"):
            store.put(given)
        with pytest.raises(IllegalMessageError, match=r"is of type .*; give a Message"):
            store.put_batch(given or 5)
