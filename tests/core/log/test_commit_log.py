"""The native append against the model encoder: the same bytes, at the same places, whatever is put."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyledger import errors
from pyledger._core import CommitLog, EventNotifier, MappedFileQueue, scan
from tests.models.commit_log import read_log
from tests.models.record_encoder import Draft, LogModel, encode_batch, encode_properties

FILE_SIZE_BYTES = 2048
NOW_MS = 1_700_000_000_123
HOST = ("127.0.0.1", 10911)


@contextmanager
def open_log(
    folder: Path, file_size_bytes: int = FILE_SIZE_BYTES, *, pooled: bool = False, **options: Any
) -> Iterator[CommitLog]:
    queue = MappedFileQueue(str(folder / "commitlog"), file_size_bytes, pooled=pooled)
    queue.load()
    try:
        yield CommitLog(queue, **options)
    finally:
        queue.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with open_log(tmp_path) as log:
        yield log


def stored(log: CommitLog) -> dict[int, bytes]:
    return {file.start_offset: file.read(0, file.committed_position) for file in log.queue.files}


def expected(model: LogModel) -> dict[int, bytes]:
    return {start: bytes(data) for start, data in model.files.items()}


# -- equal to the model

text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20
)
hosts = st.sampled_from([HOST, ("10.1.2.3", 0), ("255.255.255.255", 65535), ("::1", 9), ("fe80::1:2", 10911)])
topics = st.sampled_from(["t", "%RETRY%group", "a-b_c|d", "%RETRY%" + "g" * 120, "%RETRY%" + "g" * 121])


@st.composite
def drafts(draw: st.DrawFn) -> tuple[Draft, dict[str, Any]]:
    """A message as the model takes it, and as `append` takes it."""
    tags, keys = draw(st.none() | text), draw(st.none() | text)
    others = draw(st.none() | st.dictionaries(text, text, max_size=3) | st.just(b"a\x01b"))
    fields = {
        "flag": draw(st.integers(-(2**31), 2**31 - 1)),
        "sys_flag": draw(st.sampled_from([0, 1, 2, 4, 8, 12, 0x301, 0x30])),
        "reconsume_times": draw(st.integers(0, 2**31 - 1)),
        "prepared_transaction_offset": draw(st.integers(0, 2**63 - 1)),
        "born_host": draw(hosts),
    }
    born, stamp = draw(st.integers(1, 2**62)), draw(st.integers(1, 2**62))
    body = draw(st.binary(max_size=300) | st.sampled_from([b"x" * n for n in range(500, 520)]))
    draft = Draft(
        topic=draw(topics), body=body, queue_id=draw(st.integers(0, 3)), born_timestamp=born,
        store_timestamp=stamp, properties=encode_properties(tags, keys, others), **fields,
    )  # fmt: skip
    return draft, {
        "tags": tags, "keys": keys, "properties": others, "born_timestamp_ms": born,
        "store_timestamp_ms": stamp, **fields,
    }  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(messages=st.lists(drafts(), min_size=1, max_size=12), store_host=hosts, crc_property=st.booleans())
@example(messages=[], store_host=HOST, crc_property=False)
def test_append_any_messages_equals_model(
    messages: list[tuple[Draft, dict[str, Any]]], store_host: tuple[str, int], crc_property: bool
) -> None:
    model = LogModel(FILE_SIZE_BYTES)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_log(Path(folder), store_host=store_host, crc_property=crc_property) as log,
    ):
        for draft, arguments in messages:
            placed = replace(draft, store_host=store_host, crc_property=crc_property)
            found = log.append(draft.topic, draft.queue_id, draft.body, **arguments)
            physical_offset = model.place(placed)
            assert found == (
                physical_offset,
                len(placed.encode()),
                model.next_offsets.get((draft.topic, draft.queue_id), 0) - 1
                if draft.sys_flag & 4 == 0
                else 0,
                draft.store_timestamp,
            )
        assert stored(log) == expected(model)
        for (topic, queue_id), queue_offset in model.next_offsets.items():
            assert log.next_queue_offset(topic, queue_id) == queue_offset


@settings(max_examples=40, deadline=None)
@given(
    bodies=st.lists(st.binary(max_size=700), min_size=1, max_size=30),
    tags=st.none() | text,
    keys=st.none() | text,
)
def test_put_many_any_bodies_equals_model(bodies: list[bytes], tags: str | None, keys: str | None) -> None:
    model = LogModel(FILE_SIZE_BYTES)
    properties = encode_properties(tags, keys, {"a": "b"})
    with tempfile.TemporaryDirectory() as folder, open_log(Path(folder)) as log:
        first = log.appender("t", 2).put_many(
            bodies, tags, keys, {"a": "b"}, born_timestamp_ms=5, store_timestamp_ms=NOW_MS
        )
        placed = [
            model.place(Draft("t", body, 2, properties, born_timestamp=5, store_timestamp=NOW_MS))
            for body in bodies
        ]
        assert first == placed[0]
        assert stored(log) == expected(model)


@pytest.mark.parametrize("left_over", [7, 8, 9])
def test_append_at_the_end_of_a_file_leaves_space_for_a_blank(log: CommitLog, left_over: int) -> None:
    fixed = len(Draft("t", b"").encode())
    appender = log.appender("t", 0)
    appender.put(b"a" * (FILE_SIZE_BYTES - fixed - left_over - fixed))
    second = appender.put(b"")
    starts_next_file = left_over < 8
    assert second == (FILE_SIZE_BYTES if starts_next_file else FILE_SIZE_BYTES - left_over - fixed)
    third = appender.put(b"")
    assert third == (FILE_SIZE_BYTES + fixed if starts_next_file else FILE_SIZE_BYTES)
    blank_at = FILE_SIZE_BYTES - left_over - (fixed if starts_next_file else 0)
    tail = log.queue.files[0].read(blank_at, FILE_SIZE_BYTES - blank_at)
    assert tail[:8] == (FILE_SIZE_BYTES - blank_at).to_bytes(4, "big") + bytes.fromhex("CBD43194")
    assert tail[8:] == bytes(len(tail) - 8)


@pytest.mark.parametrize(
    "kind", [bytearray, memoryview, lambda data: memoryview(bytearray(data * 2))[: len(data)]]
)
def test_put_any_buffer_equals_bytes(log: CommitLog, kind: Any) -> None:
    at = log.appender("t", 0).put(kind(b"body"), store_timestamp_ms=NOW_MS)
    assert stored(log)[0][at:] == Draft("t", b"body", born_timestamp=NOW_MS, store_timestamp=NOW_MS).encode()
    log.appender("t", 0).put_many([kind(b"one"), b"two"])
    assert b"one" in stored(log)[0]


# -- batches

BATCH = [(b"first", b"a\x01b\x02", 1), (b"", b"", 0), (b"third" * 20, b"TAGS\x01x", -7)]


def test_append_encoded_batch_equals_model_and_stays_in_one_file(log: CommitLog) -> None:
    model = LogModel(FILE_SIZE_BYTES)
    for round_ in range(12):
        found = log.append_encoded_batch("t", 1, encode_batch(BATCH), store_timestamp_ms=NOW_MS)
        records = [
            Draft("t", body, 1, properties, flag, born_timestamp=NOW_MS, store_timestamp=NOW_MS)
            for body, properties, flag in BATCH
        ]
        total = sum(len(record.encode()) for record in records)
        model.make_room(total)
        offsets = [model.place(record) for record in records]
        assert found == [
            (offset, len(record.encode()), 3 * round_ + n, NOW_MS)
            for n, (offset, record) in enumerate(zip(offsets, records, strict=True))
        ]
        assert offsets[0] // FILE_SIZE_BYTES == offsets[-1] // FILE_SIZE_BYTES
    assert stored(log) == expected(model)
    assert len(model.files) > 2


def test_append_encoded_batch_with_crc_property_keeps_every_property_readable(tmp_path: Path) -> None:
    with open_log(tmp_path, crc_property=True) as log:
        log.append_encoded_batch("t", 0, encode_batch(BATCH))
        records = read_log(tmp_path / "commitlog").records
    assert [r.properties.get("TAGS") for r in records] == [None, None, "x"]
    assert all(len(r.properties["__CRC32#"]) == 10 for r in records)


@pytest.mark.parametrize("cut", [1, 10, 21, 25, 40])
def test_truncated_encoded_batch_is_rejected_whole(log: CommitLog, cut: int) -> None:
    with pytest.raises(errors.IllegalMessageError, match="add up"):
        log.append_encoded_batch("t", 0, encode_batch(BATCH)[:-cut])
    assert log.queue.max_offset == 0
    assert log.next_queue_offset("t", 0) == 0


@settings(max_examples=100, deadline=None)
@given(batch=st.binary(min_size=1, max_size=80), at=st.integers(0, 60), byte=st.integers(0, 255))
def test_append_encoded_batch_of_any_bytes_is_stored_or_rejected(batch: bytes, at: int, byte: int) -> None:
    mutated = bytearray(encode_batch(BATCH))
    mutated[at] = byte
    with tempfile.TemporaryDirectory() as folder, open_log(Path(folder)) as log:
        for data in (batch, bytes(mutated)):
            try:
                count = len(log.append_encoded_batch("t", 0, data))
            except errors.IllegalMessageError:
                count = 0
            assert len(read_log(Path(folder) / "commitlog").records) >= count
        assert len(read_log(Path(folder) / "commitlog").records) == log.next_queue_offset("t", 0)


def test_append_inner_batch_takes_an_offset_for_each_message(log: CommitLog) -> None:
    log.set_next_queue_offset("t", 0, 40)
    found = log.append_inner_batch(
        "t", 0, encode_batch(BATCH), "tag", properties={"a": "b"}, store_timestamp_ms=NOW_MS
    )
    draft = Draft(
        "t",
        encode_batch(BATCH),
        properties=b"TAGS\x01tag\x02a\x01b\x02INNER_NUM\x013\x02INNER_BASE\x0140\x02",
        sys_flag=0xC0,
        queue_offset=40,
        born_timestamp=NOW_MS,
        store_timestamp=NOW_MS,
    )
    assert stored(log)[0] == draft.encode()
    assert found == (0, len(draft.encode()), 40, NOW_MS, 3)
    assert log.next_queue_offset("t", 0) == 43
    with pytest.raises(errors.IllegalMessageError, match="append_inner_batch"):
        log.appender("t", 0).put(b"x", sys_flag=0x80)
    with pytest.raises(errors.IllegalMessageError, match="INNER_NUM"):
        log.append_inner_batch("t", 0, encode_batch(BATCH), properties={"INNER_NUM": "9"})


# -- what is refused, and that nothing of it is written


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"body": None}, errors.IllegalMessageError),
        ({"body": b"x" * 1025}, errors.RecordTooLargeError),
        ({"tags": "a\x02b\x01c"}, errors.IllegalMessageError),
        ({"keys": "\ud800"}, errors.IllegalMessageError),
        ({"properties": {"a": ""}}, errors.IllegalMessageError),
        ({"properties": {"": "a"}}, errors.IllegalMessageError),
        ({"properties": {"a\x01": "a"}}, errors.IllegalMessageError),
        ({"properties": {"a": "b\x02"}}, errors.IllegalMessageError),
        ({"properties": {"a": "\udfff"}}, errors.IllegalMessageError),
        ({"properties": b"x" * 32768}, errors.RecordTooLargeError),
        ({"properties": b"x" * 1500, "body": b"x" * 600}, errors.RecordTooLargeError),
        ({"born_host": ("nohost", 1)}, errors.IllegalMessageError),
        ({"born_host": ("::1", 65536)}, errors.IllegalMessageError),
    ],
)
def test_append_of_an_unreadable_message_is_rejected(
    tmp_path: Path, arguments: dict[str, Any], error: type[errors.PyLedgerError]
) -> None:
    with open_log(tmp_path, max_message_size_bytes=1024) as log:
        with pytest.raises(error):
            log.append("t", 0, **{"body": b"", **arguments})
        assert log.queue.wrote_where == 0
        assert log.next_queue_offset("t", 0) == 0


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a/b", "../x", "a b", "tö", "a\0", "a" * 128, "%RETRY%" + "a" * 249]
)
def test_appender_illegal_topic_is_rejected(log: CommitLog, topic: str) -> None:
    with pytest.raises(errors.IllegalMessageError):
        log.appender(topic, 0)


def test_appender_negative_queue_is_rejected(log: CommitLog) -> None:
    with pytest.raises(errors.IllegalMessageError, match="negative"):
        log.appender("t", -1)


def test_appender_lenient_topics_may_be_long_but_stay_in_their_folder(tmp_path: Path) -> None:
    with open_log(tmp_path, strict_topics=False) as log:
        for topic in ("a" * 128, "a" * 255, "ü" * 64, "ü" * 127):
            log.appender(topic, 0).put(b"")
            assert read_log(tmp_path / "commitlog").records[-1].topic == topic
        for topic in ("a" * 256, "a/b", "..", "a\0"):
            with pytest.raises(errors.IllegalMessageError):
                log.appender(topic, 0)


def test_put_many_with_one_bad_body_writes_nothing(tmp_path: Path) -> None:
    with open_log(tmp_path, max_message_size_bytes=100) as log:
        put_many = log.appender("t", 0).put_many
        with pytest.raises(errors.RecordTooLargeError):
            put_many([b"good", b"x" * 101])
        with pytest.raises(errors.IllegalMessageError):
            put_many([b"good", None])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            put_many([b"good", "text"])  # type: ignore[list-item]
        with pytest.raises(errors.IllegalMessageError):
            put_many([])
        assert log.queue.max_offset == 0


def test_crc_property_of_the_caller_is_replaced(tmp_path: Path) -> None:
    with open_log(tmp_path, crc_property=True) as log:
        appender = log.appender("t", 0)
        appender.put(b"", properties={"__CRC32#": "1", "a": "b"})
        appender.put(b"", properties=b"__CRC32#\x011\x02a\x01b\x02")
        first, second = read_log(tmp_path / "commitlog").records
    for record in (first, second):
        assert record.properties_raw.startswith(b"a\x01b\x02__CRC32#\x01")
        assert record.properties_raw.count(b"__CRC32#") == 1


def test_crc_property_of_another_record_is_not_taken_over(tmp_path: Path) -> None:
    """A message of a log with CRC properties, put into one without: its CRC cannot hold here."""
    foreign = {"a": "b", "__CRC32#": "0123456789"}
    encoded = b"a\x01b\x02__CRC32#\x010123456789\x02"
    with open_log(tmp_path) as log:
        appender = log.appender("t", 0)
        appender.put(b"body", properties=foreign)
        appender.put(b"body", properties=encoded)
        appender.put_many([b"body"], properties=foreign)
        log.append("t", 0, b"body", properties=foreign)
        log.append_encoded_batch("t", 0, encode_batch([(b"body", encoded, 0)]))
        log.append_inner_batch("i", 0, encode_batch([(b"body", encoded, 0)]), properties=foreign)
        stop = scan(log.queue.view(), 0)
        records = read_log(tmp_path / "commitlog").records
    assert (stop.status, stop.record_count) == ("end", 6)
    assert [record.properties_raw for record in records[:5]] == [b"a\x01b\x02"] * 5
    assert records[5].properties_raw == b"a\x01b\x02INNER_NUM\x011\x02INNER_BASE\x010\x02"


def test_a_value_that_looks_like_a_crc_property_is_none(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append("t", 0, b"body", properties={"a": "b__CRC32#\x010123456789"})
        log.append("t", 0, b"body", properties={"a__CRC32#": "0123456789"})
        stop = scan(log.queue.view(), 0)
    assert (stop.status, stop.record_count) == ("end", 2)


# -- time, transactions, threads


def test_store_timestamp_never_falls(tmp_path: Path) -> None:
    future = 4_000_000_000_000
    with open_log(tmp_path, last_store_timestamp_ms=future) as log:
        assert log.append("t", 0, b"")[3] == future
        log.append("t", 0, b"", store_timestamp_ms=future + 5)
        assert log.append("t", 0, b"")[3] == future + 5
        records = read_log(tmp_path / "commitlog").records
    assert [r.born_timestamp for r in records] == [future, future + 5, future + 5]


def test_put_many_gives_up_its_time_when_others_wrote_meanwhile(tmp_path: Path) -> None:
    """It waits for a file, another thread stores a later time there: what follows must not be earlier."""
    future = 4_000_000_000_000
    queue = MappedFileQueue(tmp_path / "commitlog", 4096)
    queue.load()
    log = CommitLog(queue)
    many = threading.Thread(target=log.appender("t", 0).put_many, args=([bytes(400)] * 200,))
    with_files = threading.Thread(target=queue.run_allocator)
    many.start()
    with_files.start()
    while many.is_alive():
        log.append("u", 0, b"", store_timestamp_ms=future)
        future += 1
    many.join()
    queue.stop_allocator()
    with_files.join()
    end = queue.max_offset
    queue.close()
    records = read_log(tmp_path / "commitlog").records
    times = [record.store_timestamp for record in records]
    assert times == sorted(times)
    assert end > 0


def test_prepared_and_rolled_back_records_take_no_queue_offset(log: CommitLog) -> None:
    kinds = [0, 4, 8, 12, 0]
    assert [log.append("t", 0, b"", sys_flag=kind)[2] for kind in kinds] == [0, 0, 1, 0, 2]


def test_appender_of_one_queue_is_one_object(log: CommitLog) -> None:
    appender = log.appender("t", 0)
    assert log.appender("t", 0) is appender
    log.append("t", 0, b"")
    assert (appender.next_queue_offset, log.next_queue_offset("t", 0), log.next_queue_offset("t", 1)) == (
        1,
        1,
        0,
    )


@pytest.mark.parametrize("allocator", [False, True])
def test_puts_of_many_threads_stand_in_one_dense_order(tmp_path: Path, allocator: bool) -> None:
    threads, each = 6, 400
    with open_log(tmp_path, 4096) as log:
        making = threading.Thread(target=log.queue.run_allocator)
        if allocator:
            making.start()

        def put(number: int) -> None:
            for i in range(each):
                log.append("t", i % 2, f"{number}:{i}".encode(), f"tag{number}")

        running = [threading.Thread(target=put, args=(n,)) for n in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        log.queue.stop_allocator()
        if allocator:
            making.join()
        found = read_log(tmp_path / "commitlog")
    assert len(found.records) == threads * each
    for queue_id in (0, 1):
        offsets = [r.queue_offset for r in found.records if r.queue_id == queue_id]
        assert offsets == list(range(threads * each // 2))
    for number in range(threads):
        mine = [r.body for r in found.records if r.properties["TAGS"] == f"tag{number}"]
        assert mine == [f"{number}:{i}".encode() for i in range(each)]


def test_every_kind_of_append_wakes_the_notifier(tmp_path: Path) -> None:
    notifier = EventNotifier()
    with open_log(tmp_path, notifier=notifier) as log:
        appender = log.appender("t", 0)
        for append in (
            lambda: log.append("t", 0, b""),
            lambda: log.append_encoded_batch("t", 0, encode_batch(BATCH)),
            lambda: log.append_inner_batch("t", 0, encode_batch(BATCH)),
            lambda: appender.put(b""),
            lambda: appender.put_many([b""]),
        ):
            assert not notifier.wait(0)
            append()
            assert notifier.wait(0)


# -- states


def test_append_to_a_closed_log_is_rejected(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        appender = log.appender("t", 0)
        appender.put(b"")
    with pytest.raises(errors.StoreClosedError):
        appender.put(b"")


def test_append_in_a_forked_child_is_rejected(log: CommitLog) -> None:
    appender = log.appender("t", 0)
    appender.put(b"")
    child = os.fork()
    if child == 0:
        try:
            appender.put(b"")
        except errors.StoreClosedError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert appender.put(b"") > 0


def test_append_to_a_readonly_queue_is_rejected(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append("t", 0, b"")
    queue = MappedFileQueue(str(tmp_path / "commitlog"), FILE_SIZE_BYTES, readonly=True)
    queue.load()
    with pytest.raises(errors.ReadOnlyStoreError):
        CommitLog(queue).append("t", 0, b"")


def test_append_after_a_failed_flush_is_always_rejected(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append("t", 0, b"")
        (tmp_path / "commitlog").rename(tmp_path / "elsewhere")
        with pytest.raises(errors.StoreFailedError):
            log.queue.flush(0)
        (tmp_path / "elsewhere").rename(tmp_path / "commitlog")
        for use in (
            lambda: log.append("t", 0, b""),
            lambda: log.queue.flush(0),
            lambda: log.queue.truncate(0),
        ):
            with pytest.raises(errors.StoreFailedError) as raised:
                use()
            assert isinstance(raised.value.__cause__, OSError)
        assert log.queue.flushed_where == 0
