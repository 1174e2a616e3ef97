"""`pyledger.arrow`: what its arguments select, damage, partitions, and who can read the result."""

import pickle
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from pyledger import arrow
from pyledger.arrow.scan_plan import LogRange, UnitList, partition_from_json
from pyledger.errors import (
    ConfigError,
    CorruptRecordError,
    DataLostError,
    StoreNotFoundError,
    SubscriptionSyntaxError,
)
from pyledger.model.message import Message
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from tests.core.log.log_files import LogFiles, RecordFields, write_log

COUNT = 300


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    """300 messages, 3 topics of 2 queues, without queue files; over several log files."""
    seen: dict[tuple[int, int], int] = {}
    records = []
    for i in range(COUNT):
        queue = i % 3, i // 3 % 2
        seen[queue] = seen.get(queue, -1) + 1
        records.append(
            RecordFields(topic=b"topic%d" % queue[0], queue_id=queue[1], queue_offset=seen[queue],
                         body=b"body %d" % i, store_timestamp=10_000 + i,
                         properties={"TAGS": f"tag{i % 4}", "KEYS": f"key{i}"})
        )  # fmt: skip
    return write_log(tmp_path / "store" / "commitlog", records, file_size_bytes=8192)


@pytest.fixture
def store(log: LogFiles) -> Path:
    return log.folder.parent


def numbers(batches: Any) -> list[int]:
    """Which of the fixture's messages the rows are."""
    return [int(body.split()[1]) for batch in batches for body in batch.column("body").to_pylist()]


class Place(NamedTuple):
    """Where a message of the fixture stands."""

    number: int
    topic: str
    queue_id: int
    queue_offset: int


def some(wanted: Callable[[Place], bool]) -> list[int]:
    """Messages of the fixture that are wanted."""
    return [i for i in range(COUNT) if wanted(Place(i, f"topic{i % 3}", i // 3 % 2, i // 6))]


SELECTIONS: dict[str, tuple[dict[str, Any], Callable[[Place], bool]]] = {
    "all": ({}, lambda _: True),
    "topic": ({"topics": "topic1"}, lambda p: p.topic == "topic1"),
    "topics": ({"topics": ["topic1", "topic2", "none"]}, lambda p: p.topic != "topic0"),
    "pattern": ({"topics_pattern": "topic[02]"}, lambda p: p.topic != "topic1"),
    "pattern must match whole": ({"topics_pattern": "topic"}, lambda _: False),
    "queue": ({"queues": [1]}, lambda p: p.queue_id == 1),
    "queue pair": (
        {"queues": [("topic2", 0), ("topic0", 1)]},
        lambda p: (p.topic, p.queue_id) in (("topic2", 0), ("topic0", 1)),
    ),
    "offsets": (
        {"starting_offsets": 10, "ending_offsets": 20, "topics": ["topic0"]},
        lambda p: p.topic == "topic0" and 10 <= p.queue_offset < 20,
    ),
    "offsets by queue": (
        {
            "starting_offsets": {"topic0": {"0": 45, 1: -2}},
            "ending_offsets": {("topic1", 0): 3, ("topic2", 1): -1},
        },
        lambda p: (
            not (p.topic == "topic0" and p.queue_id == 0 and p.queue_offset < 45)
            and not (p.topic == "topic1" and p.queue_id == 0 and p.queue_offset >= 3)
        ),
    ),
    "words": ({"starting_offsets": "earliest", "ending_offsets": "latest"}, lambda _: True),
    "from the end": ({"starting_offsets": "latest"}, lambda _: False),
    "time": ({"since": 10_020, "until": 10_050}, lambda p: 20 <= p.number < 50),
    "datetime": (
        {"since": datetime.fromtimestamp(10.02, UTC), "until": datetime.fromtimestamp(10.05, UTC)},
        lambda p: 20 <= p.number < 50,
    ),
    "tags": ({"tags": "tag1 || tag3"}, lambda p: p.number % 2 == 1),
    "any tags": ({"tags": "*", "topics": "topic0"}, lambda p: p.topic == "topic0"),
    "key": ({"key": "key77"}, lambda p: p.number == 77),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_both_plans_and_partitions_give_the_selected_rows(store: Path, name: str) -> None:
    options, wanted = SELECTIONS[name]
    by_log = numbers(arrow.scan(store, plan="log", batch_rows=11, **options))
    assert by_log == some(wanted)
    by_queue = numbers(arrow.scan(store, plan="queue", batch_rows=11, **options))
    assert by_queue == sorted(by_log, key=lambda i: (i % 3, i // 3 % 2, i))
    for plan in ("log", "queue"):
        parts = arrow.plan(store, plan=plan, max_partition_bytes=1000, **options)
        read = [numbers(arrow.read_partition(partition_from_json(part.to_json()))) for part in parts]
        assert [i for part in read for i in part] == (by_log if plan == "log" else by_queue)
        assert pickle.loads(pickle.dumps(parts)) == parts
        assert all(part.size_bytes < 2000 for part in parts)


def test_plan_is_chosen_by_bytes(store: Path) -> None:
    def kinds(**options: Any) -> set[type]:
        return {type(part) for part in arrow.plan(store, **options)}

    assert kinds() == {LogRange}
    assert kinds(topics="topic1") == {LogRange}
    far_apart = {
        "queues": [("topic1", 0), ("topic2", 0)],
        "starting_offsets": {("topic1", 0): 48},
        "ending_offsets": {("topic2", 0): 2},
    }
    assert kinds(**far_apart) == {UnitList}
    assert kinds(**far_apart, include_unindexed=True) == {LogRange}


def test_rows_that_stand_together_are_reached_by_a_short_walk(store: Path, log: LogFiles) -> None:
    [part] = arrow.plan(store, topics="topic1", starting_offsets=48)
    assert isinstance(part, LogRange)
    assert part.size_bytes < log.end // 10
    assert len(numbers(arrow.read_partition(part))) == 4


def test_partitions_keep_to_file_borders_and_limits(store: Path, log: LogFiles) -> None:
    assert len(arrow.plan(store, plan="log")) == 1
    by_file = arrow.plan(store, plan="log", max_partition_bytes=8192)
    starts = [part.start_offset for part in by_file if isinstance(part, LogRange)]
    assert starts == list(range(0, log.end, 8192))
    records = arrow.plan(store, plan="log", max_partition_records=7)
    counts = [len(numbers(arrow.read_partition(part))) for part in records]
    assert max(counts) <= 7
    assert sum(counts) == COUNT


@pytest.mark.parametrize("plan", ["log", "queue"])
@pytest.mark.parametrize("limit", [None, 1 << 30])
def test_as_many_partitions_are_made_as_are_asked_for(store: Path, plan: Any, limit: int | None) -> None:
    for wanted in (1, 2, 7, 40):
        parts = arrow.plan(store, plan=plan, min_partitions=wanted, max_partition_bytes=limit)
        assert wanted - wanted // 8 <= len(parts) <= 2 * wanted
        assert sorted(i for p in parts for i in numbers(arrow.read_partition(p))) == list(range(COUNT))


@pytest.mark.parametrize(("count", "sizes"), [(65, 2), (72, 3)])
def test_a_little_that_is_left_is_no_partition_of_its_own(tmp_path: Path, count: int, sizes: int) -> None:
    log = write_log(tmp_path / "commitlog", [RecordFields(body=bytes(900))] * count, file_size_bytes=8192)
    parts = arrow.plan(tmp_path, plan="log", max_partition_bytes=4 * 8192)
    starts = [part.start_offset for part in parts if isinstance(part, LogRange)]
    assert starts == [4 * 8192 * n for n in range(sizes)]
    assert sum(part.size_bytes for part in parts) == log.end


def test_records_far_apart_are_work_enough_for_several_partitions(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, mapped_file_size_bytes=1 << 20) as living:
        puts = [living.appender("orders", queue_id).put for queue_id in range(4)]
        for number in range(17_000):
            puts[number % 4](b"body %d" % number)
    assert len(arrow.plan(tmp_path, plan="queue")) == 1
    assert len(arrow.plan(tmp_path, plan="queue", spread=2, ending_offsets=1000)) == 1
    parts = arrow.plan(tmp_path, plan="queue", spread=2)
    assert len(parts) == 2
    assert {len(numbers(arrow.read_partition(part))) for part in parts} == {8500}


def test_partition_maps_only_the_files_it_touches(store: Path, log: LogFiles) -> None:
    parts = arrow.plan(store, plan="log", max_partition_bytes=8192)
    (log.folder / f"{0:020d}").unlink()
    assert numbers(arrow.read_partition(parts[1])) == [i for i in range(COUNT) if log.offsets[i] // 8192 == 1]


def test_end_is_pinned_by_the_plan(store: Path, log: LogFiles) -> None:
    parts = arrow.plan(store)
    reader = arrow.scan(store)
    extra = RecordFields(topic=b"topic0", queue_offset=999, body=b"body 999")
    log.edit(log.end, extra.encode(log.end))
    assert 999 not in numbers(reader)
    assert 999 not in [i for part in parts for i in numbers(arrow.read_partition(part))]
    assert 999 in numbers(arrow.scan(store))


def test_damage_raises_or_is_skipped_and_told(store: Path, log: LogFiles) -> None:
    log.edit(log.offsets[50] + 88, b"BODY")
    log.edit(log.offsets[120] + 4, b"\0")
    log.edit(log.offsets[121] + 4, b"\0")
    with pytest.raises(CorruptRecordError) as caught:
        arrow.scan(store, plan="log").read_all()
    assert caught.value.physical_offset == log.offsets[50]
    assert caught.value.path.endswith(f"{0:020d}")
    skipped: list[arrow.Skipped] = []
    rows = numbers(arrow.scan(store, plan="log", on_corrupt="skip", on_skip=skipped.append, batch_rows=7))
    assert rows == [i for i in range(COUNT) if i not in (50, 120, 121)]
    assert [(s.physical_offset, s.size_bytes) for s in skipped] == [
        (log.offsets[50], log.offsets[51] - log.offsets[50]),
        (log.offsets[120], log.offsets[122] - log.offsets[120]),
    ]
    assert "CRC" in skipped[0].problem


def test_unit_of_damaged_record_raises_or_is_skipped(store: Path, log: LogFiles) -> None:
    parts = arrow.plan(store, plan="queue")
    log.edit(log.offsets[50] + 88, b"BODY")
    with pytest.raises(CorruptRecordError):
        list(arrow.read_partition(parts[0]))
    skipped: list[arrow.Skipped] = []
    rows = numbers(arrow.read_partition(parts[0], on_corrupt="skip", on_skip=skipped.append))
    assert sorted(rows) == [i for i in range(COUNT) if i != 50]
    assert [s.physical_offset for s in skipped] == [log.offsets[50]]


COLUMN_SETS = [[name] for name in arrow.COLUMNS] + [["queueId", "keys"], list(arrow.DEFAULT_COLUMNS)]


@pytest.mark.parametrize("plan", ["log", "queue"])
@pytest.mark.parametrize("columns", COLUMN_SETS, ids=",".join)
def test_damage_costs_the_same_rows_whatever_columns_are_asked_for(
    store: Path, log: LogFiles, columns: list[str], plan: Any
) -> None:
    log.edit(log.offsets[50] + 88, b"BODY")
    with pytest.raises(CorruptRecordError, match=r"onCorrupt=skip .* repair --truncate-at-damage"):
        arrow.scan(store, columns=columns, plan=plan).read_all()
    passed_over = arrow.scan(store, columns=columns, plan=plan, on_corrupt="skip")
    assert passed_over.read_all().num_rows == COUNT - 1
    unchecked = arrow.scan(store, columns=columns, plan=plan, check_crcs=False)
    assert unchecked.read_all().num_rows == COUNT


@pytest.mark.parametrize("columns", [["queueId"], ["bodyLength", "tags"], ["body"]], ids=",".join)
def test_a_body_that_cannot_be_decompressed_costs_its_row_whatever_columns_are_asked_for(
    tmp_path: Path, columns: list[str]
) -> None:
    records = [RecordFields(queue_offset=i, body=b"plain", sys_flag=i == 3) for i in range(9)]
    store = write_log(tmp_path / "store" / "commitlog", records).folder.parent
    assert arrow.scan(store, columns=columns).read_all().num_rows == 9
    with pytest.raises(CorruptRecordError, match="decompress"):
        arrow.scan(store, columns=columns, decompress=True).read_all()
    found = arrow.scan(store, columns=columns, decompress=True, on_corrupt="skip").read_all()
    assert found.num_rows == 8


@pytest.mark.parametrize("order", ["log", "queue"])
def test_messages_are_checked_as_rows_are(store: Path, log: LogFiles, order: Any) -> None:
    log.edit(log.offsets[50] + 88, b"BODY")
    with StoreReader.open(store) as reader, pytest.raises(CorruptRecordError):
        list(reader.messages(order=order))
    with StoreReader.open(store, on_corrupt="skip") as reader:
        assert sum(1 for _ in reader.messages(order=order)) == COUNT - 1


def test_a_scan_gives_its_rows_as_often_as_it_is_asked(store: Path, log: LogFiles) -> None:
    messages = arrow.scan(store, columns=["body"])
    first = messages.read_all()
    assert first.num_rows == COUNT
    log.edit(log.end, RecordFields(topic=b"topic0", queue_offset=999).encode(log.end))
    assert messages.read_all() == first, "the end is pinned"
    assert pa.Table.from_batches(messages) == first
    assert pa.table(messages) == first
    assert len(messages.read_pandas()) == COUNT
    with messages.to_reader() as once:
        assert once.read_next_batch().num_rows == COUNT


def test_a_scan_holds_no_file_between_two_reads(store: Path) -> None:
    def mapped() -> bool:
        return str(store) in Path("/proc/self/maps").read_text()

    messages = arrow.scan(store, batch_rows=7)
    assert not mapped()
    rows = iter(messages)
    next(rows)
    assert mapped()
    del rows
    assert not mapped()
    shutil.rmtree(store / "commitlog")
    with pytest.raises((DataLostError, StoreNotFoundError)):
        messages.read_all()


def test_schema_is_what_spark_demands(store: Path) -> None:
    assert arrow.scan(store).schema == arrow.SCHEMA
    assert arrow.SCHEMA.field("storeTimestamp").type == pa.timestamp("us", tz="UTC")
    assert arrow.SCHEMA.field("properties").type == pa.map_(pa.string(), pa.string())
    assert [field.name for field in arrow.SCHEMA if field.nullable] == ["tags", "keys"]
    assert all(field.nullable for field in arrow.schema_for(arrow.COLUMNS, nullable=True))
    wanted = arrow.schema_for(["body", "queueId"], nullable=True)
    for batch in arrow.read_partition(arrow.plan(store)[0], schema=wanted):
        assert batch.schema == wanted


def test_open_reader_stays_open(store: Path) -> None:
    with StoreReader.open(store) as reader:
        assert arrow.scan(reader, columns=["queueId"]).read_all().num_rows == COUNT
        assert arrow.scan(reader, columns=["queueId"]).read_all().num_rows == COUNT
        assert len(arrow.plan(reader)) == 1


BAD_ARGUMENTS: dict[str, dict[str, Any]] = {
    "queueId": {"columns": ["queue_id"]},
    "twice": {"columns": ["body", "body"]},
    "give one of them": {"topics": "a", "topics_pattern": "b"},
    "is not a regular expression": {"topics_pattern": "("},
    "time zone": {"since": datetime(2024, 1, 1)},  # noqa: DTZ001
    "not a time": {"until": "yesterday"},
    "not an offset": {"starting_offsets": "first"},
    "of t is not an offset": {"ending_offsets": {"t": {"0": -3}}},
    "below 1": {"batch_rows": 0},
    "names no queue": {"starting_offsets": {"t1": 50}},
    "out of range": {"since": 10**30},
    "topics: 5 is of type int": {"topics": 5},
    "queues: '1' is of type str": {"queues": "12"},
    "columns: 5 is of type int": {"columns": ["topic", 5]},
    "key: 5 is of type int": {"key": 5},
    "topics_pattern: 5 is of type int": {"topics_pattern": 5},
    "batch_rows: 1000.* is too large": {"batch_rows": 10**30},
    "batch_bytes: '1MiB' is of type str": {"batch_bytes": "1MiB"},
    "on_skip: 5 is of type int": {"on_skip": 5},
    "True is not a time": {"until": True},
    "log, queue": {"plan": "fast"},
    "error, skip": {"on_corrupt": "ignore"},
}


@pytest.mark.parametrize(
    "wrong", [{"max_partition_bytes": 0}, {"max_partition_records": -1}, {"on_corrupt": "ignore"}]
)
def test_bad_argument_of_a_plan_is_an_error(store: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        arrow.plan(store, **wrong)


@pytest.mark.parametrize("problem", BAD_ARGUMENTS)
def test_bad_argument_is_named_with_its_remedy(store: Path, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        arrow.scan(store, **BAD_ARGUMENTS[problem])


def test_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="nowhere"):
        arrow.scan(tmp_path / "nowhere")


def test_pandas_reads_it(store: Path) -> None:
    frame = arrow.scan(store).read_pandas()
    assert frame.groupby("topic").size().to_dict() == {"topic0": 100, "topic1": 100, "topic2": 100}
    assert str(frame["storeTimestamp"].dt.tz) == "UTC"


def test_polars_reads_it(store: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(arrow.scan(store, columns=["topic", "tags", "body", "properties"]))
    assert frame.filter(polars.col("tags") == "tag1").height == 75


def test_duckdb_reads_it(store: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    messages = arrow.scan(store)
    found = duckdb.sql(
        "SELECT tags, count(*), min(properties['KEYS']) FROM messages GROUP BY tags ORDER BY tags"
    )
    assert found.fetchall() == [(f"tag{i}", 75, found_key(i)) for i in range(4)]
    twice = "SELECT count(*) FROM messages AS a JOIN messages AS b USING (topic, queueId, queueOffset)"
    for question, count in (("SELECT count(*) FROM messages", COUNT), (twice, COUNT)):
        assert duckdb.sql(question).fetchall() == [(count,)]
    assert messages is not None


def found_key(remainder: int) -> str:
    return min(f"key{i}" for i in range(remainder, COUNT, 4))


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("a", "a"),
        ("a||b", "ab"),
        (" b || a || a ", "ab"),
        ("a||||b", "ab"),
        ("a || *", "a"),
        ("*", "abn"),
        ("", "abn"),
        (None, "abn"),
        ("||", "SubscriptionSyntaxError"),
        (" || ", ""),
        (" ", ""),
    ],
)
def test_tags_are_read_alike_by_every_reader_and_as_java_reads_them(
    tmp_path: Path, expression: str | None, wanted: str
) -> None:
    """Seen with FilterAPI and DefaultMessageFilter 5.3.3: only `*` alone is all."""

    def outcome(read: Callable[[], list[bytes]]) -> str:
        try:
            return b"".join(read()).decode()
        except SubscriptionSyntaxError as error:
            return type(error).__name__

    def stored() -> list[bytes]:
        return [bytes(message.body) for message in one.get("T", 0, 0, tags=expression).messages]

    def read() -> list[bytes]:
        with StoreReader.open(tmp_path / "s") as reader:
            return [bytes(message.body) for message in reader.messages(tags=expression)]

    def scanned() -> list[bytes]:
        return list(arrow.scan(tmp_path / "s", tags=expression).read_all()["body"].to_pylist())

    with StoreEngine.open(tmp_path / "s", mapped_file_size_bytes=1 << 20) as one:
        for tag in ("a", "b", None):
            one.put(Message("T", (tag or "n").encode(), tags=tag))
        assert [outcome(way) for way in (stored, read, scanned)] == [wanted] * 3
        if "Error" not in wanted:
            assert one.get_ranges("T", 0, 0, tags=expression).message_count == len(wanted)
