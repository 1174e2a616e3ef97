"""`ColumnBuilder` against rows made one by one in Python: columns, filters, batch limits, faults, bodies."""

import struct
import tempfile
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyledger.store  # noqa: F401  hands the codecs to the native module
from pyledger._core import (
    ColumnBuilder,
    LogView,
    MappedFile,
    RowFilter,
    StoredMessage,
    read_message,
    split_log,
)
from tests.core.log.log_files import LogFiles, RecordFields, write_log

WIDE = {
    "queueOffset", "storeTimestamp", "bornTimestamp", "physicalOffset", "tagsCode",
    "preparedTransactionOffset",
}  # fmt: skip
TEXT = {"topic", "tags", "keys", "bornHost", "storeHost", "msgId"}
ATTRIBUTES: dict[str, str] = {
    "topic": "topic", "queueId": "queue_id", "queueOffset": "queue_offset",
    "storeTimestamp": "store_timestamp", "bornTimestamp": "born_timestamp", "tags": "tags", "keys": "keys",
    "body": "body", "properties": "properties", "physicalOffset": "physical_offset",
    "storeSize": "store_size", "layout": "layout", "flag": "flag", "sysFlag": "sys_flag",
    "reconsumeTimes": "reconsume_times", "bornHost": "born_host", "storeHost": "store_host",
    "msgId": "msg_id", "bodyCRC": "body_crc", "bodyLength": "body_length", "tagsCode": "tags_code",
    "preparedTransactionOffset": "prepared_transaction_offset",
}  # fmt: skip
COLUMNS = tuple(ATTRIBUTES)
Row = dict[str, Any]


def expected_row(message: StoredMessage) -> Row:
    """The row of a message, attribute by attribute."""
    return {column: getattr(message, name) for column, name in ATTRIBUTES.items()}


def decode(columns: tuple[str, ...], count: int, filled: list[tuple[int, list[Any]]]) -> list[Row]:
    """Rows of a batch, its buffers read as Arrow's layout says; times in ms."""
    table: dict[str, list[Any]] = {}
    for name, (null_count, buffers) in zip(columns, filled, strict=True):
        raw = [None if b is None else bytes(b) for b in buffers]
        if name == "properties":
            offsets, name_offsets, names, value_offsets, values = raw
            keys, items = slices(name_offsets, names), slices(value_offsets, values)
            ends = struct.unpack(f"={count + 1}i", offsets or b"")
            table[name] = [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in pairwise(ends)]
            assert [len(row) for row in table[name]] == [b - a for a, b in pairwise(ends)]
        elif name in TEXT or name == "body":
            values = slices(raw[1], raw[2], text=name in TEXT)
            valid = [raw[0] is None or bool(raw[0][i >> 3] >> (i & 7) & 1) for i in range(count)]
            assert null_count == valid.count(False)
            table[name] = [value if ok else None for value, ok in zip(values, valid, strict=True)]
        else:
            numbers = struct.unpack(f"={count}{'q' if name in WIDE else 'i'}", raw[1] or b"")
            table[name] = [n // 1000 if name.endswith("Timestamp") else n for n in numbers]
    return [dict(zip(columns, row, strict=True)) for row in zip(*table.values(), strict=True)]


def slices(offsets: bytes | None, data: bytes | None, *, text: bool = True) -> list[Any]:
    ends = struct.unpack(f"={len(offsets or b'') // 4}i", offsets or b"")
    parts = [(data or b"")[a:b] for a, b in pairwise(ends)]
    return [part.decode() for part in parts] if text else parts


def scan_all(
    view: LogView, builder: ColumnBuilder, start: int = 0, end: int | None = None
) -> list[list[Row]]:
    """All batches of a range; stops at a fault."""
    batches, offset, more = [], start, True
    while more:
        more = builder.scan(view, offset, end)
        offset = builder.next_offset
        count = builder.row_count
        batches.append(decode(builder.columns, count, builder.finish()))
    return batches


def gather_all(view: LogView, builder: ColumnBuilder, units: bytes) -> list[list[Row]]:
    batches, index, more = [], 0, True
    while more:
        more = builder.gather(view, units, index)
        index = builder.next_index
        count = builder.row_count
        batches.append(decode(builder.columns, count, builder.finish()))
    return batches


def flat(batches: list[list[Row]]) -> list[Row]:
    return [row for batch in batches for row in batch]


def pinned(log: LogFiles) -> LogView:
    return LogView(log.view().files, log.end)


def unit(offset: int, size_bytes: int = 1) -> bytes:
    return struct.pack(">qiq", offset, size_bytes, 0)


def unit_of(log: LogFiles, offset: int) -> bytes:
    return unit(offset, int.from_bytes(log.view().read(offset, 4)))


def test_unit_of_another_size_is_a_fault(log: LogFiles) -> None:
    builder = ColumnBuilder(["queueOffset"])
    assert not builder.gather(pinned(log), unit_of(log, log.offsets[1]) + unit(log.offsets[0], 0))
    assert (builder.next_index, builder.fault_offset) == (1, log.offsets[0])


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    """100 messages over 5 topics, 3 queues and 4 tags, over several files."""
    records = [
        RecordFields(
            topic=b"topic%d" % (i % 5), queue_id=i % 3, queue_offset=i // 3, body=b"%d" % i * (i % 30),
            properties={"TAGS": f"tag{i % 4}", "KEYS": f"k{i} all", "UNIQ_KEY": f"U{i}"} if i % 7 else {},
            store_timestamp=1000 + i, born_timestamp=5000 - i, sys_flag=(0, 4, 8, 12)[i % 4],
        )
        for i in range(100)
    ]  # fmt: skip
    return write_log(tmp_path / "commitlog", records, file_size_bytes=8192)


FILTERS: dict[str, tuple[dict[str, Any], Callable[[StoredMessage], bool]]] = {
    "consumers": ({}, lambda m: m.is_indexed),
    "all": ({"include_unindexed": True}, lambda _: True),
    "topics": (
        {"queues": [("topic1", None, 0, 1 << 62), ("topic3", None, 0, 1 << 62), ("no", None, 0, 9)]},
        lambda m: m.is_indexed and m.topic in ("topic1", "topic3"),
    ),
    "queue ranges": (
        {"queues": [("topic1", 0, 2, 9), ("topic2", None, 5, 20)]},
        lambda m: m.is_indexed
        and ((m.topic == "topic1" and m.queue_id == 0 and 2 <= m.queue_offset < 9)
             or (m.topic == "topic2" and 5 <= m.queue_offset < 20)),
    ),
    "nothing": ({"queues": []}, lambda _: False),
    "store time": (
        {"store_range": (1010, 1020)}, lambda m: m.is_indexed and 1010 <= m.store_timestamp < 1020
    ),
    "born time": ({"born_range": (4950, 4960)}, lambda m: m.is_indexed and 4950 <= m.born_timestamp < 4960),
    "tags": ({"tags": ["tag0", "tag2", "x"]}, lambda m: m.is_indexed and m.tags in ("tag0", "tag2")),
    "no tags": ({"tags": []}, lambda _: False),
    "key": ({"key": "k8"}, lambda m: m.is_indexed and "k8" in (m.keys or "").split(" ")),
    "unique key": ({"key": "U16"}, lambda m: m.is_indexed and m.unique_key == "U16"),
    "last key": ({"key": "all", "tags": ["tag2"]}, lambda m: m.is_indexed and m.tags == "tag2"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
def test_filters_take_what_the_model_takes(log: LogFiles, name: str) -> None:
    options, wanted = FILTERS[name]
    view = pinned(log)
    messages = [m for offset in log.offsets if wanted(m := read_message(view, offset))]
    by_scan = scan_all(view, ColumnBuilder(COLUMNS, RowFilter(**options), batch_rows=7))
    assert flat(by_scan) == [expected_row(m) for m in messages]
    assert [len(batch) for batch in by_scan[:-1]] == [7] * (len(by_scan) - 1)
    units = b"".join(unit_of(log, offset) for offset in log.offsets)
    assert flat(gather_all(view, ColumnBuilder(COLUMNS, RowFilter(**options), batch_rows=7), units)) == flat(
        by_scan
    )


def test_inner_batch_is_one_row_at_the_offset_of_its_first_message(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "commitlog",
        [
            RecordFields(queue_offset=base, sys_flag=0xC0, properties={"INNER_NUM": "10"})
            for base in (0, 10, 20)
        ],
    )
    for start, end, wanted in ((5, 15, [10]), (10, 11, [10]), (9, 10, []), (0, 1, [0]), (30, 40, [])):
        builder = ColumnBuilder(["queueOffset"], RowFilter(queues=[("orders", 0, start, end)]))
        assert [row["queueOffset"] for row in flat(scan_all(pinned(log), builder))] == wanted


def test_batches_end_before_their_bytes_pass_the_limit(tmp_path: Path) -> None:
    sizes = [10, 10_000, 10, 10, 3000, 3000, 3000, 20_000, 1]
    log = write_log(tmp_path / "commitlog", [RecordFields(body=b"x" * size) for size in sizes])
    batches = scan_all(pinned(log), ColumnBuilder(["body"], batch_bytes=8000))
    assert [[len(row["body"]) for row in batch] for batch in batches] == [
        [10], [10_000], [10, 10, 3000, 3000], [3000], [20_000], [1],
    ]  # fmt: skip


def test_scan_stops_at_fault_and_keeps_rows_before_it(log: LogFiles) -> None:
    log.edit(log.offsets[31] + 88, b"\xff\xff")
    view = pinned(log)
    everything = RowFilter(include_unindexed=True)
    builder = ColumnBuilder(["physicalOffset", "body"], everything)
    assert not builder.scan(view, 0)
    assert (builder.row_count, builder.fault_offset, builder.next_offset) == (
        31,
        log.offsets[31],
        log.offsets[31],
    )
    assert builder.fault is not None
    assert "CRC" in builder.fault
    assert not builder.scan(view, log.offsets[32])
    assert (builder.row_count, builder.fault) == (99, None)
    for columns in (["queueId"], ["body"], ["keys", "msgId"]):
        for check_crcs, rows in ((False, 100), (True, 31)):
            builder = ColumnBuilder(columns, everything, check_crcs=check_crcs)
            builder.scan(view, 0)
            assert builder.row_count == rows
    builder = ColumnBuilder(["body"], everything)
    assert not builder.gather(view, b"".join(unit_of(log, offset) for offset in log.offsets))
    assert (builder.next_index, builder.fault_offset) == (31, log.offsets[31])


def test_gather_outside_the_log_is_a_fault(log: LogFiles) -> None:
    for offset in (-1, 3, log.end, 1 << 60):
        builder = ColumnBuilder(["body"])
        assert not builder.gather(pinned(log), unit(offset))
        assert (builder.fault_offset, builder.row_count) == (offset, 0)
        assert builder.fault


@pytest.mark.parametrize("files", ["there", "deleted", "mapped late"])
def test_records_far_apart_are_gathered_like_others(tmp_path: Path, files: str) -> None:
    records = [
        RecordFields(
            topic=b"topic%d" % (i % 5), queue_offset=i, body=b"%03d" % i * (15_000 if i == 70 else 500),
            properties={"TAGS": f"tag{i % 4}", "KEYS": f"key{i}"},
        )
        for i in range(200)
    ]  # fmt: skip
    log = write_log(tmp_path / "commitlog", records, file_size_bytes=1 << 17)
    if files == "mapped late":
        paths = sorted(log.folder.iterdir())
        late = [MappedFile.open_unmapped(str(path), 1 << 17, readonly=True) for path in paths]
        view = LogView(late, log.end)
    else:
        view = pinned(log)
    few = log.offsets[110::10] + log.offsets[:110:10]
    assert (max(few) - min(few)) // len(few) > 8192
    if files == "deleted":
        for path in log.folder.iterdir():
            path.unlink()
    units = b"".join(unit(offset, int.from_bytes(view.read(offset, 4))) for offset in few)
    expected = [expected_row(read_message(view, offset)) for offset in few]
    for batch_rows in (1, 7, 100):
        assert flat(gather_all(view, ColumnBuilder(COLUMNS, batch_rows=batch_rows), units)) == expected
    for wrong in (unit(few[0], 1), unit(few[0] + 1, 300), unit(log.end - 8, 300), unit(-1, 300)):
        builder = ColumnBuilder(COLUMNS)
        assert not builder.gather(view, units + wrong)
        assert (builder.row_count, builder.next_index) == (20, 20)
        assert (builder.fault_offset, bool(builder.fault)) == (struct.unpack_from(">q", wrong)[0], True)


def test_compressed_bodies_are_decompressed_on_request(tmp_path: Path) -> None:
    plain = [b"p" * n for n in (0, 5, 40_000)]
    records = [RecordFields(body=zlib.compress(p), sys_flag=0x301) for p in plain] + [
        RecordFields(body=b"raw")
    ]
    log = write_log(tmp_path / "commitlog", records)
    for batch_rows in (1, 2, 100):
        builder = ColumnBuilder(["body", "bodyLength"], decompress=True, batch_rows=batch_rows)
        rows = flat(scan_all(pinned(log), builder))
        assert [row["body"] for row in rows] == [*plain, b"raw"]
        assert [row["bodyLength"] for row in rows] == [len(record.body) for record in records]
        builder = ColumnBuilder(["body"], decompress=True, batch_rows=batch_rows)
        units = b"".join(unit_of(log, offset) for offset in reversed(log.offsets))
        assert [row["body"] for row in flat(gather_all(pinned(log), builder, units))] == [
            b"raw",
            *plain[::-1],
        ]


def test_body_that_cannot_be_decompressed_is_a_fault(tmp_path: Path) -> None:
    log = write_log(tmp_path / "commitlog", [RecordFields(), RecordFields(body=b"no zlib", sys_flag=1)])
    builder = ColumnBuilder(["body"], decompress=True)
    assert not builder.scan(pinned(log), 0)
    assert (builder.row_count, builder.fault_offset) == (1, log.offsets[1])
    assert builder.fault is not None
    assert "cannot be decompressed" in builder.fault
    builder = ColumnBuilder(["body"], decompress=True, decompress_limit_bytes=10)
    log = write_log(tmp_path / "big", [RecordFields(body=zlib.compress(b"x" * 11), sys_flag=1)])
    assert not builder.scan(pinned(log), 0)
    assert "limit" in str(builder.fault)


def test_times_outside_microseconds_are_clamped(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "commitlog", [RecordFields(store_timestamp=t) for t in (-(1 << 63), (1 << 63) - 1)]
    )
    builder = ColumnBuilder(["storeTimestamp"])
    assert not builder.scan(pinned(log), 0)
    low, high = struct.unpack("=2q", bytes(builder.finish()[0][1][1]))
    assert low == -(1 << 63) // 1000 * 1000 + 1000
    assert high == ((1 << 63) - 1) // 1000 * 1000


def test_buffers_outlive_their_builder(log: LogFiles) -> None:
    builder = ColumnBuilder(["body"], RowFilter(include_unindexed=True))
    builder.scan(pinned(log), 0)
    view = memoryview(builder.finish()[0][1][2])
    del builder
    assert bytes(view[:3]) == b"122"
    assert view.readonly


def test_many_properties_keep_the_last_value_of_a_name(tmp_path: Path) -> None:
    names = [f"n{i % 700}" for i in range(2500)] + ["TAGS", "x", "TAGS"]
    raw = b"".join(f"{name}\x01{i}\x02".encode() for i, name in enumerate(names))
    log = write_log(tmp_path / "commitlog", [RecordFields(properties_raw=raw)] * 3)
    rows = flat(scan_all(pinned(log), ColumnBuilder(["properties", "tags"])))
    wanted = {name: str(i) for i, name in enumerate(names)}
    assert rows == [{"properties": wanted, "tags": "2502"}] * 3
    assert list(rows[0]["properties"]) == list(wanted)


def test_properties_of_any_length_are_those_of_the_message(tmp_path: Path) -> None:
    # Cut everywhere; names alike in length and ends, items without a name or a value, text beyond ASCII.
    whole = (
        b"TAGS\x01a\x01b\x02KEYS\x01\x02\x01x\x02abcd\x011\x02axyd\x012\x02abcd\x01\xc3\xa4\x02"
        b"UNIQ_KEY\x01\xff\x02\x02KEYS\x01k"
    )
    records = [
        RecordFields(properties_raw=whole[at:end]) for end in range(len(whole) + 1) for at in (0, 1, 5)
    ]
    log = write_log(tmp_path / "commitlog", records)
    columns = ("tags", "keys", "properties")
    rows = flat(scan_all(pinned(log), ColumnBuilder(columns)))
    for row, offset in zip(rows, log.offsets, strict=True):
        message = read_message(log.view(), offset)
        assert row == {column: getattr(message, column) for column in columns}
        assert list(row["properties"]) == list(message.properties)


def test_split_log_splits_at_records(log: LogFiles) -> None:
    view = pinned(log)
    for step in (1, 500, 5000, 1 << 40):
        cuts = split_log(view, 0, log.end, step_bytes=step)
        assert cuts[0] == 0
        assert set(cuts) <= set(log.offsets)
        builder = ColumnBuilder(["physicalOffset"], RowFilter(include_unindexed=True))
        found = [
            row["physicalOffset"]
            for a, b in zip(cuts, [*cuts[1:], log.end], strict=True)
            for row in flat(scan_all(view, builder, a, b))
        ]
        assert found == log.offsets
    assert split_log(view, 0, log.end, step_bytes=1 << 40, step_records=30) == log.offsets[::30]
    log.edit(log.offsets[50] + 4, b"\0")
    cuts = split_log(view, 0, log.end, step_bytes=1)
    assert cuts == log.offsets[:51] + log.offsets[51:]


PROPERTY_BITS = [
    b"TAGS",
    b"KEYS",
    b"UNIQ_KEY",
    b"\x01",
    b"\x02",
    b"a",
    b"\xff",
    b"\xe0\x80",
    "é€😀".encode(),
    b" ",
]


def some_fields() -> st.SearchStrategy[RecordFields]:
    return st.builds(
        RecordFields,
        topic=st.one_of(st.binary(max_size=20), st.just(b"SCHEDULE_TOPIC_XXXX")),
        body=st.binary(max_size=60),
        properties_raw=st.lists(st.sampled_from(PROPERTY_BITS), max_size=30).map(b"".join),
        queue_id=st.integers(-(2**31), 2**31 - 1),
        queue_offset=st.integers(-(2**63), 2**63 - 1),
        layout=st.sampled_from([1, 2]),
        flag=st.integers(-(2**31), 2**31 - 1),
        sys_flag=st.sampled_from([0, 1, 4, 8, 12, 0x80, 0x300]),
        born_timestamp=st.integers(-(10**14), 10**14),
        born_host=st.sampled_from([("1.2.3.4", 0), ("9.0.0.255", 65535), ("::1", 2), ("::ffff:9.8.7.6", 1)]),
        store_timestamp=st.integers(-(10**14), 10**14),
        store_host=st.sampled_from([("0.0.0.0", -1), ("2001:db8::ff00:42:8329", 10911)]),
        reconsume_times=st.integers(-(2**31), 2**31 - 1),
        prepared_transaction_offset=st.integers(-(2**63), 2**63 - 1),
        crc_property=st.booleans(),
    )  # fmt: skip


def shuffled_columns() -> st.SearchStrategy[list[str]]:
    return st.permutations(COLUMNS).flatmap(lambda names: st.integers(1, len(names)).map(lambda n: names[:n]))


@settings(deadline=None, max_examples=150)
@given(st.lists(some_fields(), min_size=1, max_size=12), shuffled_columns(), st.integers(1, 5), st.booleans())
def test_rows_equal_messages(
    fields: list[RecordFields], columns: list[str], rows: int, everything: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder), fields, file_size_bytes=2048)
        view = pinned(log)
        builder = ColumnBuilder(columns, RowFilter(include_unindexed=everything), batch_rows=rows)
        messages = [read_message(view, offset) for offset in log.offsets]
        wanted = [expected_row(m) for m in messages if everything or m.is_indexed]
        assert flat(scan_all(view, builder)) == [{name: row[name] for name in columns} for row in wanted]


@settings(deadline=None)
@given(st.data())
def test_mutated_log_never_gives_unsound_row(data: st.DataObject) -> None:
    fields = data.draw(st.lists(some_fields(), min_size=1, max_size=8))
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder), fields, file_size_bytes=2048)
        bodies = {offset: f.body for offset, f in zip(log.offsets, fields, strict=True)}
        for _ in range(data.draw(st.integers(1, 4))):
            log.edit(data.draw(st.integers(0, log.end - 1)), data.draw(st.binary(min_size=1, max_size=8)))
        builder = ColumnBuilder(COLUMNS, RowFilter(include_unindexed=True), batch_rows=3)
        for start in [*log.offsets, 1, 7]:
            for row in flat(scan_all(pinned(log), builder, start)):
                if row["bodyLength"]:
                    assert row["body"] == bodies[row["physicalOffset"]]
