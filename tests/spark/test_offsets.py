"""Where a stream stands and how far a trigger goes, asked as Spark asks: without a JVM."""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark_pyledger import folder_tail
from pyspark_pyledger.offsets import Positions, format_positions, parse_positions
from pyspark_pyledger.options import check_stream, parse_read_options
from pyspark_pyledger.schema import schema_of
from pyspark_pyledger.stream_reader import StreamReader
from pyspark_pyledger.trigger_budget import shares

from pyledger.errors import ConfigError, DataLostError
from pyledger.model.message import Message
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader

FILE_BYTES = 16384
COLUMNS = ("topic", "queueId", "queueOffset", "body", "storeSize")


def write(folder: Path, count: int, *, topics: tuple[str, ...] = ("orders",), queues: int = 2) -> None:
    """`count` messages, to topics and queues in turn."""
    with MessageStore.open(folder, mapped_file_size_bytes=FILE_BYTES, index_enabled=False) as store:
        for number in range(count):
            topic = topics[number % len(topics)]
            queue_id = number // len(topics) % queues
            offset = store.queue_range(topic, queue_id).max_offset
            body = f"{topic}/{queue_id}/{offset}".encode().ljust(100, b".")
            store.put(Message(topic, body, queue_id=queue_id, tags="AB"[number % 2]))


def open_stream(*paths: Path, **options: str) -> StreamReader:
    named = (
        {"paths": json.dumps([str(path) for path in paths])} if len(paths) > 1 else {"path": str(paths[0])}
    )
    parsed = parse_read_options(named | options)
    check_stream(parsed)
    return StreamReader(schema_of(COLUMNS), parsed)


def rows(stream: StreamReader, start: Positions, end: Positions) -> list[tuple[Any, ...]]:
    found = []
    for part in stream.partitions(start, end):
        for batch in stream.read(part):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def follow(stream: StreamReader, start: Positions, limit: ReadLimit) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of one trigger after the other, until there are none."""
    while (end := stream.latestOffset(start, limit)) != start:
        yield rows(stream, start, end)
        start = end


def test_earliest_reads_all_and_latest_what_comes(tmp_path: Path) -> None:
    write(tmp_path, 10)
    earliest = open_stream(tmp_path, startingOffsets="earliest")
    latest = open_stream(tmp_path)
    begin, end = earliest.initialOffset(), latest.initialOffset()
    assert (begin, end) == ({"orders": {"0": 0, "1": 0}}, {"orders": {"0": 5, "1": 5}})
    write(tmp_path, 4)
    assert len(rows(earliest, begin, earliest.latestOffset(begin, ReadAllAvailable()))) == 14
    after = latest.latestOffset(end, ReadAllAvailable())
    assert latest.reportLatestOffset() == after == {"orders": {"0": 7, "1": 7}}
    assert {(row[1], row[2]) for row in rows(latest, end, after)} == {(0, 5), (0, 6), (1, 5), (1, 6)}


@settings(max_examples=15)
@given(st.integers(1, 150), st.integers(1, 40), st.integers(1, 4), st.sampled_from(["rows", "bytes", "both"]))
def test_triggers_take_no_more_than_allowed_and_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, count: int, most: int, queues: int, limit: str
) -> None:
    folder = tmp_path_factory.mktemp("store")
    write(folder, count, topics=("orders", "refunds"), queues=queues)
    options = {"maxOffsetsPerTrigger": str(most)} if limit != "bytes" else {}
    if limit != "rows":
        options["maxBytesPerTrigger"] = str(250 * most)
    stream = open_stream(folder, startingOffsets="earliest", **options)
    seen: list[tuple[Any, ...]] = []
    for found in follow(stream, stream.initialOffset(), stream.getDefaultReadLimit()):
        assert limit == "bytes" or len(found) <= most
        assert limit == "rows" or len(found) == 1 or sum(row[4] for row in found) <= 250 * most
        seen += found
    assert len(seen) == count
    assert sorted(row[3].rstrip(b".").decode() for row in seen) == sorted(
        f"{t}/{q}/{o}" for t, q, o, *_ in seen
    )
    assert len({row[:3] for row in seen}) == count
    stream.stop()


def test_triggers_follow_the_order_of_the_log(tmp_path: Path) -> None:
    write(tmp_path, 60, queues=3)
    stream = open_stream(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="7")
    limit = stream.getDefaultReadLimit()
    triggers = list(follow(stream, stream.initialOffset(), limit))
    assert [len(found) for found in triggers] == [7] * 8 + [4]
    numbers = [sorted(3 * row[2] + row[1] for row in found) for found in triggers]
    assert list(chain.from_iterable(numbers)) == list(range(60))


def first_in_log(
    records: list[tuple[int, int]], rows: int | None, size_bytes: int | None
) -> dict[tuple[str, int], int]:
    """How many of each queue are among the first records, (queue, size) each, that limits allow."""
    taken = 0
    for count, (_queue, size) in enumerate(records):
        taken += size
        over = size_bytes is not None and taken > size_bytes
        if count and (over or count == rows):
            records = records[:count]
            break
    counts = Counter(queue for queue, _size in records)
    return {("orders", queue): counts[queue] for queue in range(3)}


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2]), st.integers(1, 900)), min_size=20, max_size=80
    ),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 30_000),
    st.integers(1, 20),
)
def test_a_cut_takes_the_first_of_the_log_whatever_queues_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[tuple[int, int]], rows: int | None,
    size_bytes: int | None, window: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(folder_tail, "FIRST_WINDOW_UNITS", window)
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    messages = [(queue, 1) for queue in range(3)] + messages
    with MessageStore.open(folder, mapped_file_size_bytes=FILE_BYTES, index_enabled=False) as store:
        for queue, body_bytes in messages:
            store.put(Message("orders", bytes(body_bytes), queue_id=queue))
    with StoreReader.open(folder) as reader:
        spans = {name: (0, held.max_offset) for name, held in reader.queues().items()}
        records = [(one.queue_id, one.store_size) for one in reader.messages()]
        found = folder_tail.limit_spans(reader, spans, rows, size_bytes)
    assert found == first_in_log(records, rows, size_bytes)


def test_available_now_stops_where_it_began_to_look(tmp_path: Path) -> None:
    write(tmp_path, 10)
    stream = open_stream(tmp_path, startingOffsets="earliest")
    begin = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    write(tmp_path, 10, topics=("orders", "later"))
    end = stream.latestOffset(begin, ReadAllAvailable())
    assert end == {"orders": {"0": 5, "1": 5}}
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    again = open_stream(tmp_path)
    assert len(rows(again, end, again.latestOffset(end, ReadAllAvailable()))) == 10


def test_new_topics_queues_and_folders_are_read_from_their_start(tmp_path: Path) -> None:
    write(tmp_path / "a", 4)
    stream = open_stream(tmp_path, startingOffsets="latest")
    start = stream.initialOffset()
    assert start == {"orders": {"a:0": 2, "a:1": 2}}
    write(tmp_path / "a", 6, queues=3)
    write(tmp_path / "b", 3, topics=("refunds",))
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == {"orders": {"a:0": 4, "a:1": 4, "a:2": 2}, "refunds": {"b:0": 2, "b:1": 1}}
    assert len(rows(stream, start, end)) == 9


def test_several_folders_share_a_limit(tmp_path: Path) -> None:
    write(tmp_path / "a", 90)
    write(tmp_path / "b", 10)
    stream = open_stream(
        tmp_path / "a", tmp_path / "b", startingOffsets="earliest", maxOffsetsPerTrigger="20"
    )
    sizes = [len(found) for found in follow(stream, stream.initialOffset(), stream.getDefaultReadLimit())]
    assert sizes == [20] * 5


def test_more_folders_than_rows_of_a_trigger(tmp_path: Path) -> None:
    for name in "abcde":
        write(tmp_path / name, 6)
    stream = open_stream(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    triggers = list(follow(stream, stream.initialOffset(), stream.getDefaultReadLimit()))
    assert [len(found) for found in triggers] == [3] * 10


@given(st.dictionaries(st.integers(), st.integers(0, 1 << 40), max_size=9), st.integers(1, 1 << 30))
def test_shares_are_all_that_is_to_be_had(waiting: dict[int, int], limit: int) -> None:
    taken = shares(waiting, limit)
    assert taken.keys() == waiting.keys()
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= taken[key] <= count for key, count in waiting.items())
    if limit >= sum(map(bool, waiting.values())):
        assert all(bool(taken[key]) == bool(count) for key, count in waiting.items())


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": '{"orders": {"0": 3, "1": -1}}'}, {"orders": {"0": 3, "1": 5}}),
        ({"startingOffsets": '{"orders": {"0": -2}}'}, {"orders": {"0": 0, "1": 0}}),
        ({"startingTimestamp": "0"}, {"orders": {"0": 0, "1": 0}}),
        ({"startingTimestamp": str(1 << 50)}, {"orders": {"0": 5, "1": 5}}),
        ({"topic": "absent"}, {}),
        ({"topicsPattern": "or.*", "queues": "1"}, {"orders": {"1": 5}}),
    ],
)
def test_start_is_where_options_say(
    tmp_path: Path, options: dict[str, str], wanted: dict[str, dict[str, int]]
) -> None:
    write(tmp_path, 10)
    assert open_stream(tmp_path, **options).initialOffset() == wanted


def test_tags_pick_rows_and_not_places(tmp_path: Path) -> None:
    write(tmp_path, 12, queues=1)
    stream = open_stream(tmp_path, startingOffsets="earliest", tags="A", maxOffsetsPerTrigger="4")
    found = list(follow(stream, stream.initialOffset(), stream.getDefaultReadLimit()))
    assert [[row[2] for row in trigger] for trigger in found] == [[0, 2], [4, 6], [8, 10]]


def test_a_start_outside_a_queue_is_an_error_or_its_nearest_end(tmp_path: Path) -> None:
    write(tmp_path, 10)
    wish = {"startingOffsets": '{"orders": {"0": 99}}'}
    with pytest.raises(ConfigError, match=r"holds \[0, 5\), not 99"):
        open_stream(tmp_path, **wish).initialOffset()
    kept = open_stream(tmp_path, failOnDataLoss="false", **wish)
    assert kept.initialOffset() == {"orders": {"0": 5, "1": 0}}


def test_retention_that_ran_past_is_an_error_or_passed_over(tmp_path: Path) -> None:
    write(tmp_path, 400, queues=1)
    stream = open_stream(tmp_path)
    careless = open_stream(tmp_path, failOnDataLoss="false")
    start: Positions = {"orders": {"0": 10}}
    before = rows(stream, start, stream.latestOffset(start, ReadAllAvailable()))
    assert len(before) == 390
    careless.reportLatestOffset()
    min((tmp_path / "commitlog").iterdir()).unlink()
    with pytest.raises(DataLostError, match=r"orders/0: begins at \d+; \[10, \d+\) was not read"):
        stream.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLostError, match=r"was not read"):
        open_stream(tmp_path).partitions(start, {"orders": {"0": 400}})
    left = rows(careless, start, careless.latestOffset(start, ReadAllAvailable()))
    assert 0 < len(left) < 390
    assert left == before[-len(left) :]


def cut_log(folder: Path, keep: int) -> None:
    """Leave the first `keep` messages of one file, as recovery may after a crash: the rest is zeroed."""
    with StoreReader.open(folder) as reader:
        place = reader.units("orders", 0, keep, keep + 1)[0].physical_offset
    [log] = (folder / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(place)
        file.write(bytes(FILE_BYTES - place))
    shutil.rmtree(folder / "consumequeue")
    (folder / "checkpoint").unlink()


def test_log_cut_below_a_place_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    write(folder, 50, queues=1)
    stream = open_stream(folder)
    careless = open_stream(folder, failOnDataLoss="false")
    end = stream.initialOffset()
    careless.initialOffset()
    cut_log(folder, 30)
    for reader in (stream, open_stream(folder)):
        with pytest.raises(DataLostError, match=r"orders/0: ends at 30, below 50, up to which it was read"):
            reader.latestOffset(end, ReadAllAvailable())
        with pytest.raises(DataLostError, match="ends at 30, below 50"):
            reader.partitions({"orders": {"0": 20}}, end)
    settled = careless.latestOffset(end, ReadAllAvailable())
    assert settled == {"orders": {"0": 30}}
    assert rows(careless, end, settled) == []


def test_log_cut_and_written_past_the_place_is_an_error_while_it_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    write(folder, 50, queues=1)
    stream = open_stream(folder)
    end = stream.initialOffset()
    cut_log(folder, 30)
    write(folder, 40, queues=1)
    with pytest.raises(DataLostError, match="lost messages at its end"):
        stream.latestOffset(end, ReadAllAvailable())


@pytest.mark.parametrize(
    "place",
    [3, {"orders": 3}, {"orders": {"0": "3"}}, {"orders": {"0": None}}, {"path": {"first": 3}}, [], None],
)
def test_the_checkpoint_of_another_source_is_named(tmp_path: Path, place: Any) -> None:
    write(tmp_path, 4)
    stream = open_stream(tmp_path)
    for ask in (
        lambda: stream.latestOffset(place, ReadAllAvailable()),
        lambda: stream.partitions(place, {"orders": {"0": 2, "1": 2}}),
        lambda: stream.partitions({"orders": {"0": 0, "1": 0}}, place),
    ):
        with pytest.raises(ConfigError, match="give each query a checkpoint of its own"):
            ask()


def test_a_checkpoint_with_more_than_is_asked_for_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, 8, topics=("orders", "refunds"))
    start = open_stream(tmp_path).initialOffset()
    for narrow in ({"topic": "refunds"}, {"queues": "0"}, {"topicsPattern": "r.*"}):
        with pytest.raises(DataLostError, match=r"orders/\d: is not selected, and was read up to 2"):
            open_stream(tmp_path, **narrow).latestOffset(start, ReadAllAvailable())
    kept = open_stream(tmp_path, topic="refunds", failOnDataLoss="false")
    assert kept.latestOffset(start, ReadAllAvailable()) == start
    assert rows(kept, start, start) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": '{"orders": {"0": 1}}'}, "a stream has no end"),
        ({"endingTimestamp": "1"}, "a stream has no end"),
        ({"includeUnindexed": "true"}, "no offsets for records"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"maxBytesPerTrigger": "many"}, "at least 1"),
    ],
)
def test_options_that_do_not_fit_a_stream_are_named(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        open_stream(tmp_path, **options)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["", "x", "10.0.0.1:9"]), st.integers(0, 12)),
        st.integers(0, 1 << 62),
    )
)
def test_positions_read_back(offsets: dict[tuple[str, str, int], int]) -> None:
    assert parse_positions(json.loads(json.dumps(format_positions(offsets)))) == offsets
