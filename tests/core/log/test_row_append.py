"""Rows of columns against the same messages put one by one: the logs are equal, byte for byte."""

from array import array
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger._core import CommitLog, MappedFileQueue, choose_queues, scan
from pyledger.errors import IllegalMessageError, RecordTooLargeError
from pyledger.model.tags import java_hash
from tests.support.column_rows import columns

FILE_BYTES = 4096
STORED_MS = 1_700_000_000_000


def open_log(folder: Path, file_bytes: int = FILE_BYTES, **options: bool) -> CommitLog:
    queue = MappedFileQueue(str(folder), file_bytes, allocate_chunk_bytes=FILE_BYTES)
    queue.load()
    return CommitLog(queue, **options)


rows = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.binary(max_size=300),
        st.dictionaries(st.text("abcü", min_size=1, max_size=5), st.text("xyz", min_size=1), max_size=3),
        st.integers(0, STORED_MS),
    ),
    max_size=60,
)


@given(rows)
def test_rows_are_as_if_they_were_put_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, bytes, dict[str, str], int]]
) -> None:
    home = tmp_path_factory.mktemp("logs")
    one, many = open_log(home / "one"), open_log(home / "many")
    for queue_id, body, properties, born_ms in rows:
        one.appender("orders", queue_id).put(
            body, properties=properties, born_timestamp_ms=born_ms, store_timestamp_ms=STORED_MS
        )
    stored = ["".join(f"{k}\x01{v}\x02" for k, v in row[2].items()).encode() for row in rows]
    many.append_rows(
        "orders", array("i", [row[0] for row in rows]), *columns([row[1] for row in rows]),
        *columns(stored), array("q", [row[3] for row in rows]), store_timestamp_ms=STORED_MS,
    )  # fmt: skip
    assert many.queue.max_offset == one.queue.max_offset
    wanted = {file.name: file.read_bytes() for file in (home / "one").iterdir()}
    assert {file.name: file.read_bytes() for file in (home / "many").iterdir()} == wanted
    for queue_id in range(4):
        assert many.next_queue_offset("orders", queue_id) == one.next_queue_offset("orders", queue_id)
    one.queue.close()
    many.queue.close()


@pytest.mark.parametrize("crc_property", [False, True])
def test_many_rows_go_past_the_mapping_and_are_as_if_put(tmp_path: Path, crc_property: bool) -> None:
    """Files that are full between two rows, a row longer than what is written in one go, puts in between."""
    one, many = (open_log(tmp_path / name, 1 << 20, crc_property=crc_property) for name in ("one", "many"))
    bodies = [bytes([number % 251]) * (number * 37 % 900) for number in range(6000)]
    bodies[4100] = bytes(700 << 10)
    ids = [number % 3 if number % 7 else 300 for number in range(6000)]
    texts = [b"n\x01%d\x02" % number if number % 2 else b"" for number in range(6000)]
    for begin, end in pairwise([0, 2, 2500, 2600, 6000]):
        for row in zip(ids[begin:end], bodies[begin:end], texts[begin:end], strict=True):
            one.appender("orders", row[0]).put(row[1], properties=row[2], store_timestamp_ms=STORED_MS)
        many.append_rows(
            "orders", array("i", ids[begin:end]), *columns(bodies[begin:end]),
            *columns(texts[begin:end]), array("q", [0] * (end - begin)), store_timestamp_ms=STORED_MS,
        )  # fmt: skip
        for log in (one, many):
            log.appender("other", 1).put(b"in between", store_timestamp_ms=STORED_MS)
    assert len(many.queue.files) > 3
    wanted = {file.name: file.read_bytes() for file in (tmp_path / "one").iterdir()}
    assert {file.name: file.read_bytes() for file in (tmp_path / "many").iterdir()} == wanted
    for queue_id in (0, 1, 2, 300):
        assert many.next_queue_offset("orders", queue_id) == one.next_queue_offset("orders", queue_id)
    assert many.queue.flush()
    one.queue.close()
    many.queue.close()


def test_rows_before_a_rejected_one_are_appended(tmp_path: Path) -> None:
    log = open_log(tmp_path, 1 << 20)
    bodies = [bytes(1000)] * 300 + [bytes(2 << 20)] + [b"after"]
    with pytest.raises(RecordTooLargeError):
        log.append_rows(
            "t", array("i", [0] * 302), *columns(bodies), *columns([b""] * 302), array("q", [0] * 302)
        )
    assert log.next_queue_offset("t", 0) == 300
    stop = scan(log.queue.view(), 0, check=True)
    assert (stop.record_count, stop.next_offset) == (300, log.queue.max_offset)
    log.queue.close()


@given(st.lists(st.tuples(st.integers(-1, 5), st.text(max_size=9)), max_size=40), st.integers(1, 9))
def test_queues_are_chosen_as_producers_do(rows: list[tuple[int, str]], count: int) -> None:
    chosen, spread = choose_queues(
        array("i", [wanted for wanted, _ in rows]), *columns([k.encode() for _, k in rows]), count, 7
    )
    expected, expected_spread = [], 7
    for wanted, keys in rows:
        if wanted >= 0:
            expected.append(wanted)
        elif keys:
            expected.append(abs(java_hash(keys)) % count)
        else:
            expected.append(expected_spread % count)
            expected_spread += 1
    assert memoryview(chosen).cast("i").tolist() == expected
    assert spread == expected_spread


def test_columns_that_do_not_fit_are_rejected(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    ids, born = array("i", [0, 1]), array("q", [0, 0])
    good = columns([b"ab", b"c"])
    for offsets in ([0, 2], [0, 2, 4], [0, 3, 2], [-1, 2, 3]):
        with pytest.raises(IllegalMessageError):
            log.append_rows("t", ids, array("i", offsets), b"abc", *good, born)
        with pytest.raises(IllegalMessageError):
            log.append_rows("t", ids, *good, array("i", offsets), b"abc", born)
    with pytest.raises(IllegalMessageError, match="born timestamps"):
        log.append_rows("t", ids, *good, *good, array("q", [0]))
    with pytest.raises(IllegalMessageError, match="number of queues"):
        choose_queues(ids, *columns([b"", b""]), 0, 0)
    assert log.queue.max_offset == 0
    with pytest.raises(RecordTooLargeError):
        log.append_rows("t", ids, *columns([b"x", b"y" * FILE_BYTES]), *columns([b"", b""]), born)
    assert log.next_queue_offset("t", 0) == 1
    log.queue.close()
