"""`spark.read.format("pyledger")` in a Classic session, over folders that Java wrote and folders of ours."""

import hashlib
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyledger.model.message import Message
from pyledger.store.messages.message_store import MessageStore
from tests.golden.archive import GoldenCase, golden_cases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CASES = {case.name: case for case in golden_cases()}
IN_SPARK = [
    "clean-4",
    "inner-batch-5",
    "deleted-head-5",
    "compressed-5",
    "delay-tx-5",
    "ipv6-5",
    "no-queues-5",
    "cq-ext-5",
]
ALL_COLUMNS = (
    "topic,queueId,queueOffset,physicalOffset,storeSize,layout,tagsCode,tags,keys,properties,"
    "bodyLength,bodyCRC,"
    "bornTimestamp,storeTimestamp,bornHost,storeHost,sysFlag,flag,reconsumeTimes,"
    "preparedTransactionOffset,body,msgId"
)


def read(session: "SparkSession", path: Path, **options: Any) -> "DataFrame":
    return session.read.format("pyledger").options(**options).load(str(path))


def as_golden(row: Any) -> dict[str, Any]:
    """A Spark row in the form of a line of expected.jsonl."""
    found = row.asDict()
    for name in ("bornTimestamp", "storeTimestamp"):
        found[name] = found[name]
    found["bodySha256"] = hashlib.sha256(found.pop("body")).hexdigest()
    del found["msgId"]
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two topics, three queues each, 50 messages a queue, rolled over small files."""
    folder = tmp_path / "store"
    with MessageStore.open(folder, mapped_file_size_bytes=16384, index_enabled=False) as opened:
        for number in range(300):
            topic = ("orders", "refunds")[number % 2]
            opened.put(
                Message(
                    topic,
                    json.dumps({"number": number}).encode(),
                    queue_id=number // 2 % 3,
                    tags="ABC"[number % 3],
                    keys=f"k{number}",
                    properties={"shop": "ü" * (number % 4 + 1)},
                )
            )
    return folder


@pytest.mark.parametrize("name", IN_SPARK)
def test_golden_folder_gives_what_java_found(session: "SparkSession", tmp_path: Path, name: str) -> None:
    case: GoldenCase = CASES[name]
    frame = read(session, case.unpack(tmp_path), columns=ALL_COLUMNS)
    millis = frame.selectExpr(
        *(
            f"unix_millis({column}) AS {column}" if column.endswith("Timestamp") else column
            for column in frame.columns
        )
    )
    found = {(row["topic"], row["queueId"], row["queueOffset"]): as_golden(row) for row in millis.collect()}
    wanted = {
        (line["topic"], line["queueId"], line["queueOffset"]): {
            field: value for field, value in line.items() if field not in ("kind", "plainSha256")
        }
        for line in case.of_kind("message")
    }
    assert found == wanted


def test_rows_equal_what_was_put(session: "SparkSession", store: Path) -> None:
    rows = read(session, store).orderBy("storeTimestamp", "topic", "queueId", "queueOffset").collect()
    assert len(rows) == 300
    for row in rows:
        number = json.loads(bytes(row.body))["number"]
        assert (row.topic, row.queueId, row.queueOffset) == (
            ("orders", "refunds")[number % 2],
            number // 2 % 3,
            number // 6,
        )
        assert (row.tags, row["keys"]) == ("ABC"[number % 3], f"k{number}")
        assert row.properties["shop"] == "ü" * (number % 4 + 1)


def test_plan_splits_by_bytes_and_gives_every_row_once(session: "SparkSession", store: Path) -> None:
    frame = read(session, store, maxBytesPerPartition="8192")
    assert frame.rdd.getNumPartitions() > 4
    assert frame.select("topic", "queueId", "queueOffset").distinct().count() == frame.count() == 300
    wide = read(session, store, minPartitions="3")
    assert wide.rdd.getNumPartitions() >= 3
    few = read(session, store, maxRecordsPerPartition="40")
    assert few.rdd.getNumPartitions() >= 300 / 40
    assert few.select("topic", "queueId", "queueOffset").distinct().count() == 300


def test_a_last_file_that_is_almost_empty_counts_for_what_it_holds(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, mapped_file_size_bytes=1 << 20) as store:
        put = store.appender("orders", 0).put
        while put(bytes(1000)) < 100_000:
            pass
    from pyspark_pyledger.options import parse_read_options
    from pyspark_pyledger.planning import plan_folders

    parts = plan_folders(parse_read_options({"path": str(tmp_path), "minPartitions": "4"}))
    assert len(parts) >= 4
    assert sum(part.size_bytes for part in parts) < 110_000


def test_the_plan_reaches_the_planner_and_no_task(store: Path) -> None:
    from pyspark_pyledger.source import LedgerSource

    made = LedgerSource({"path": str(store), "maxbytesperpartition": "8192"})
    schema = made.schema()
    with MessageStore.open(store) as living:
        living.put(Message("orders", b"later"))
    planner = pickle.loads(pickle.dumps(made))
    reader = planner.reader(schema)
    parts = reader.partitions()
    carried, source = pickle.loads(pickle.dumps((reader, planner)))
    assert (carried.partitions(), source.name()) == ([], "pyledger")
    assert len(pickle.dumps((reader, planner))) < 2000
    tasks = [pickle.loads(pickle.dumps(part)) for part in parts]
    assert len(tasks) > 4
    assert sum(batch.num_rows for task in tasks for batch in carried.read(task)) == 300


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"topic": "orders"}, 150),
        ({"topics": "orders, refunds"}, 300),
        ({"topicsPattern": "ref.*"}, 150),
        ({"queues": "0,2"}, 200),
        ({"tags": "A || B"}, 200),
        ({"startingOffsets": '{"orders": {"0": 40, "1": -2, "2": -1}}', "topic": "orders"}, 60),
        ({"endingOffsets": '{"orders": {"0": 10, "1": -1, "2": 0}}', "topic": "orders"}, 60),
        ({"startingTimestamp": "0"}, 300),
        ({"endingTimestamp": "0"}, 0),
        ({"batchRows": "7"}, 300),
    ],
)
def test_option_selects_rows(
    session: "SparkSession", store: Path, options: dict[str, str], count: int
) -> None:
    frame = read(session, store, **options)
    assert len(frame.collect()) == count
    assert frame.count() == count


def test_starting_timestamp_is_exact_and_half_open(session: "SparkSession", store: Path) -> None:
    times = [row.t for row in read(session, store).selectExpr("unix_millis(storeTimestamp) AS t").collect()]
    cut = sorted(times)[150]
    later = read(session, store, startingTimestamp=str(cut)).count()
    sooner = read(session, store, endingTimestamp=str(cut)).count()
    assert later == sum(time >= cut for time in times)
    assert sooner == sum(time < cut for time in times)


def test_columns_and_schema_project(session: "SparkSession", store: Path) -> None:
    assert read(session, store, columns="queueOffset,topic").columns == ["queueOffset", "topic"]
    typed = session.read.format("pyledger").schema("topic string, queueOffset bigint").load(str(store))
    assert typed.groupBy("topic").count().collect()[0]["count"] == 150
    assert typed.schema.simpleString() == "struct<topic:string,queueOffset:bigint>"


def test_reads_lists_of_folders_and_folders_of_brokers(
    session: "SparkSession", store: Path, tmp_path: Path
) -> None:
    twice = session.read.format("pyledger").load([str(store), str(store)])
    assert twice.count() == 600
    brokers = tmp_path / "brokers"
    brokers.mkdir()
    for name in ("a", "b"):
        (brokers / name).symlink_to(store)
    # A disk's own folder, which nobody but root may look into; here it cannot be looked into at all.
    (brokers / "lost+found").symlink_to("lost+found")
    assert read(session, brokers, topic="orders").count() == 300


def test_end_is_pinned_when_the_frame_is_made(session: "SparkSession", store: Path) -> None:
    before = read(session, store)
    with MessageStore.open(store, mapped_file_size_bytes=16384, index_enabled=False) as opened:
        opened.put(Message("orders", b"late"))
    assert before.count() == 300
    assert read(session, store).count() == 301


def test_sql_view_and_reuse_with_filters(session: "SparkSession", store: Path) -> None:
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW ledger USING pyledger OPTIONS (path '{store}', topic 'orders')"
    )
    assert session.sql("SELECT count(*) AS n FROM ledger").first()["n"] == 150
    assert session.sql("SELECT count(*) AS n FROM ledger WHERE queueId = 1").first()["n"] == 50
    assert session.sql("SELECT count(*) AS n FROM ledger").first()["n"] == 150


def test_packed_bodies_are_unpacked_on_request(session: "SparkSession", tmp_path: Path) -> None:
    case = CASES["compressed-5"]
    folder = case.unpack(tmp_path)
    wanted = {line.get("plainSha256", line["bodySha256"]) for line in case.of_kind("message")}
    rows = read(session, folder, decompress="true", columns="body").collect()
    assert {hashlib.sha256(row.body).hexdigest() for row in rows} == wanted


@pytest.fixture
def damaged(store: Path) -> Path:
    """One bit of one body in the first log file flipped."""
    file = min((store / "commitlog").iterdir())
    data = bytearray(file.read_bytes())
    place = data.index(b'{"number": 20}')
    data[place + 11] ^= 1
    file.write_bytes(data)
    return store


def test_damage_in_the_middle_is_an_error_that_names_the_place(
    session: "SparkSession", damaged: Path
) -> None:
    with pytest.raises(Exception, match=r"physical offset \d+.*CRC"):
        read(session, damaged).collect()


def test_damage_in_the_middle_can_be_passed_over(session: "SparkSession", damaged: Path) -> None:
    rows = read(session, damaged, onCorrupt="skip").collect()
    assert {json.loads(bytes(row.body))["number"] for row in rows} == set(range(300)) - {20}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topcs": "orders"}, "did you mean topics"),
        ({"subscribe": "orders"}, "use topics"),
        ({"kafka.bootstrap.servers": "a:9092"}, "use namesrv"),
        ({"startingOffsetsByTimestamp": "{}"}, "use startingTimestamp"),
        ({"topic": "orders", "topicsPattern": "o.*"}, "topic: excludes topicsPattern"),
        ({"topic": "nothing"}, "no topic 'nothing'; there are orders, refunds"),
        ({"columns": "topic,offset"}, "no column 'offset'"),
        ({"queues": "one"}, "not a list of queue ids"),
        ({"startingOffsets": "latest"}, "leaves a batch read empty"),
        ({"startingOffsets": '{"orders": {"0": 99}}'}, r"holds \[0, 50\), not 99"),
        ({"startingOffsets": "5", "startingTimestamp": "7"}, "startingOffsets"),
        ({"onCorrupt": "maybe"}, "use error or skip"),
        ({"topicsPattern": "("}, "not a regular expression"),
    ],
)
def test_wrong_option_names_the_right_one(
    session: "SparkSession", store: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(session, store, **options).collect()


def test_missing_folder_and_wrong_schema_are_named(
    session: "SparkSession", store: Path, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="commitlog"):
        read(session, tmp_path / "absent")
    with pytest.raises(Exception, match="body is binary, not string"):
        session.read.format("pyledger").schema("body string").load(str(store)).collect()


def test_data_loss_can_be_accepted(session: "SparkSession", store: Path) -> None:
    options = {
        "startingOffsets": '{"orders": {"0": 99, "7": 3}}',
        "topic": "orders",
        "failOnDataLoss": "false",
    }
    assert read(session, store, **options).count() == 100
