"""Staged rows become messages once, whenever the one who publishes them is killed: without a JVM."""

import errno
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark_pyledger import commit
from pyspark_pyledger.commit import publish
from pyspark_pyledger.staging import StagedFile, stage_rows, staging_folder
from pyspark_pyledger.write_options import WriteOptions

from pyledger import arrow
from pyledger.errors import IllegalMessageError, PyLedgerError, RecordTooLargeError
from pyledger.store.files import writeback_file
from pyledger.store.files.staged_rows import claim
from pyledger.store.messages.store_engine import StoreEngine
from tests.store.files.test_staged_rows import killed_owner

FILE_BYTES = 65536


def options_for(store: Path, **more: Any) -> WriteOptions:
    return WriteOptions(str(store), log_file_size_bytes=FILE_BYTES, **{"topic": "orders", **more})


def rows(first: int, count: int) -> dict[str, list[Any]]:
    return {
        "body": [f"body {number}".encode() for number in range(first, first + count)],
        "keys": [f"k{number}" if number % 3 else None for number in range(first, first + count)],
        "tags": ["A" if number % 2 else None for number in range(first, first + count)],
    }


def stage(options: WriteOptions, job: str, *tables: dict[str, list[Any]]) -> list[StagedFile]:
    """One task for each table, two batches in each."""
    folder = staging_folder(options.path, job)
    return [
        stage_rows(
            folder, pa.table(table).to_batches(max_chunksize=len(table["body"]) // 2 + 1), options.topic
        )
        for table in tables
    ]


def bodies(store: Path) -> list[str]:
    found = arrow.scan(store, columns=["body"]).read_all().column("body").to_pylist()
    return [body.decode() for body in found]


def wanted(count: int) -> list[str]:
    return [f"body {number}" for number in range(count)]


def test_rows_become_messages_with_all_they_say(tmp_path: Path) -> None:
    table = {
        "topic": ["orders", "refunds", "orders"],
        "queueId": [7, None, None],
        "keys": ["k1 k2", "k3", None],
        "tags": ["A", None, "B"],
        "body": ["ü", "", "x"],
        "properties": pa.array(
            [[("shop", "7"), ("TAGS", "no")], None, []], pa.map_(pa.string(), pa.string())
        ),
        "bornTimestamp": pa.array([1_600_000_000_123_456, None, 2_000], pa.timestamp("us", tz="UTC")),
    }
    options = options_for(tmp_path, topic=None)
    staged = stage(options, "job", table)
    assert staged[0].topics == ("orders", "refunds")
    assert publish(options, "job", None, staged) == 3
    found = arrow.scan(tmp_path).read_all().drop_columns(["queueOffset", "storeTimestamp"]).to_pylist()
    first = {row["body"].decode(): row for row in found}
    assert first["ü"]["bornTimestamp"].timestamp() == 1_600_000_000.123
    assert (first["ü"]["topic"], first["ü"]["queueId"], first["ü"]["tags"]) == ("orders", 7, "A")
    assert dict(first["ü"]["properties"]) == {"shop": "7", "TAGS": "A", "KEYS": "k1 k2"}
    assert (first[""]["topic"], first[""]["keys"], first[""]["tags"]) == ("refunds", "k3", None)
    # Java gives 3368 as the hash of "k3".
    assert first[""]["queueId"] == 3368 % 4
    assert (first["x"]["keys"], first["x"]["queueId"]) == (None, 0)
    assert first["x"]["bornTimestamp"].timestamp() == 0.002
    assert not list((tmp_path / "spark").iterdir())


def test_rows_without_keys_go_to_queues_in_turn(tmp_path: Path) -> None:
    options = options_for(tmp_path, queue_count=3)
    publish(options, "job", None, stage(options, "job", {"body": [b"x"] * 8}))
    with StoreEngine.open(tmp_path) as store:
        sizes = [store.queue_range("orders", queue_id).max_offset for queue_id in range(3)]
    assert sizes == [3, 3, 2]


def test_what_rows_cannot_have_is_not_staged(tmp_path: Path) -> None:
    for job, table in ("plain", {"body": [b"x"]}), ("tagged", {"body": [b"x"], "tags": ["A"]}):
        (file,) = stage(options_for(tmp_path), job, table)
        with pa.ipc.open_file(staging_folder(str(tmp_path), job) / file.name) as staged:
            assert staged.schema.names == ["body"] + ["properties"] * (job == "tagged")


def test_any_batch_of_a_task_may_have_keys_among_its_properties(tmp_path: Path) -> None:
    pairs = [[[("shop", "7")]], [None], [None], [[("KEYS", "k3"), ("TAGS", "A")]]]
    batches = [
        pa.RecordBatch.from_pydict(
            {"body": [b"%d" % number], "properties": pa.array(found, pa.map_(pa.string(), pa.string()))}
        )
        for number, found in enumerate(pairs)
    ]
    options = options_for(tmp_path)
    staged = stage_rows(staging_folder(options.path, "job"), batches, options.topic)
    publish(options, "job", None, [staged])
    found = arrow.scan(tmp_path, columns=["body", "queueId", "keys", "tags"]).read_all().to_pylist()
    assert {row["body"]: (row["queueId"], row["keys"], row["tags"]) for row in found} == {
        b"0": (0, None, None),
        b"1": (1, None, None),
        b"2": (2, None, None),
        b"3": (3368 % 4, "k3", "A"),
    }


def test_a_long_task_is_on_its_way_to_the_disk_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges: list[tuple[int, int]] = []
    monkeypatch.setattr(writeback_file, "BEGIN_BYTES", 1)
    monkeypatch.setattr(
        writeback_file, "start_writing_back", lambda _fd, position, length: ranges.append((position, length))
    )
    options = options_for(tmp_path)
    publish(options, "job", None, stage(options, "job", rows(0, 50)))
    assert ranges[0][0] == 0
    assert ranges[1][0] == ranges[0][1]
    assert bodies(tmp_path) == wanted(50)


def test_a_task_whose_flush_fails_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_fileno: int) -> None:
        raise OSError(errno.EIO, "no such sector")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no such sector"):
        stage(options_for(tmp_path), "job", rows(0, 50))


def test_nothing_is_there_before_it_is_published(tmp_path: Path) -> None:
    options = options_for(tmp_path)
    publish(options, "job", None, stage(options, "job", rows(0, 5)))
    stage(options, "other", rows(5, 5))
    assert sorted(bodies(tmp_path)) == wanted(5)


def test_a_batch_of_a_stream_is_published_once(tmp_path: Path) -> None:
    options = options_for(tmp_path)
    assert publish(options, "sink", 0, stage(options, "sink", rows(0, 5))) == 5
    assert publish(options, "sink", 0, stage(options, "sink", rows(0, 5))) == 0
    assert publish(options, "sink", 1, stage(options, "sink", rows(5, 5), rows(10, 2))) == 7
    assert publish(options, "sink", 1, stage(options, "sink", rows(10, 2), rows(5, 5))) == 0
    assert publish(options, "other", 0, stage(options, "other", rows(12, 1))) == 1
    assert sorted(bodies(tmp_path)) == sorted(wanted(13))


def break_off(
    options: WriteOptions, job: str, batch_id: int | None, staged: Sequence[StagedFile], done: int
) -> None:
    """A publication that is killed after so many appends."""
    home = Path(options.path) / "spark"
    with StoreEngine.open(options.path, mapped_file_size_bytes=FILE_BYTES) as store:
        journal = commit._begin(store, options, job, batch_id, list(staged))
        commit._write(home, journal)
        for topic, batch, queue_ids in commit._with_queues(store, journal):
            some = min(done, batch.num_rows)
            done -= some
            found = zip(queue_ids.to_pylist(), commit._rows(batch, journal), strict=True)
            for queue_id, (body, properties, born_ms) in itertools.islice(found, some):
                store.appender(topic, queue_id).put(body, None, None, properties, born_timestamp_ms=born_ms)


@settings(max_examples=12)
@given(
    st.integers(0, 12),
    st.integers(0, 3),
    st.sampled_from(["same", "reordered", "next batch", "other job", "foreign"]),
)
def test_what_was_broken_off_is_finished_once(
    tmp_path_factory: pytest.TempPathFactory, done: int, strangers: int, who: str
) -> None:
    store = tmp_path_factory.mktemp("store")
    options = options_for(store)
    publish(options, "sink", 0, stage(options, "sink", rows(0, 3)))
    break_off(options, "sink", 1, stage(options, "sink", rows(3, 8), rows(11, 4)), done)
    if strangers:
        with StoreEngine.open(store) as other:
            other.appender("orders", 1).put_many([b"stranger"] * strangers)
    expected = wanted(15) + ["stranger"] * strangers
    if who in ("same", "reordered"):
        again = [rows(3, 8), rows(11, 4)] if who == "same" else [rows(11, 4), rows(3, 8)]
        assert publish(options, "sink", 1, stage(options, "sink", *again)) == 0
    elif who == "foreign":
        with StoreEngine.open(store) as other:
            assert len(commit.finish_others(other)) == 1
            assert commit.finish_others(other) == []
    else:
        job, batch_id = ("sink", 2) if who == "next batch" else ("job", None)
        if who == "other job":
            publish(options, job, batch_id, stage(options, job, rows(15, 2)))
            expected += ["body 15", "body 16"]
        else:
            publish(options, "sink", 1, [])
            publish(options, job, batch_id, stage(options, job, rows(15, 2)))
            expected += ["body 15", "body 16"]
    assert sorted(bodies(store)) == sorted(expected)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"body": [b"x", None]}, IllegalMessageError, "body: is null"),
        ({"body": [b"x" * ((4 << 20) + 1)]}, RecordTooLargeError, "body"),
        ({"body": [b""], "keys": ["a\x01b"]}, IllegalMessageError, "keys: holds a separator"),
        ({"body": [b""], "tags": ["t" * 40_000]}, RecordTooLargeError, "properties"),
        ({"body": [b""], "queueId": [1 << 31]}, IllegalMessageError, "queueId: Integer value 2147483648 not"),
        ({"body": [b""], "queueId": [-1]}, IllegalMessageError, "queueId: is below 0"),
        ({"body": [b""], "topic": ["a b"]}, IllegalMessageError, "topic 'a b': .* illegal characters"),
        ({"body": [b""], "topic": ["%LMQ%x"]}, IllegalMessageError, "topic '%LMQ%x': .* light queue"),
        (
            {"body": [b""], "topic": ["%DLQ%" + "g" * 123]},
            IllegalMessageError,
            "longer than topic max length 127",
        ),
        ({"body": [b""], "topic": pa.array([None], pa.string())}, IllegalMessageError, "topic: is null"),
        (
            {"body": [b""], "properties": pa.array([[("a", "")]], pa.map_(pa.string(), pa.string()))},
            IllegalMessageError,
            "properties: a name or a value is empty",
        ),
    ],
)
def test_a_row_that_is_no_message_is_refused_by_the_task(
    tmp_path: Path, table: dict[str, Any], error: type[PyLedgerError], message: str
) -> None:
    options = options_for(tmp_path, topic=None if "topic" in table else "orders")
    with pytest.raises(error, match=message):
        stage(options, "job", table)


def test_a_later_write_removes_what_a_killed_job_has_staged(tmp_path: Path) -> None:
    options = options_for(tmp_path / "store")
    stage(options, "job-killed", rows(0, 50))
    killed_owner(tmp_path / "store" / "spark" / "job-killed")
    stage(options, "job-beside", rows(0, 50))
    claim(tmp_path / "store" / "spark" / "job-beside", os.getpid())
    publish(options, "job-now", None, stage(options, "job-now", rows(0, 10)))
    assert bodies(tmp_path / "store") == wanted(10)
    assert [path.name for path in (tmp_path / "store" / "spark").iterdir()] == ["job-beside"]
