"""The walk over the log, against logs built field by field: ends, faults, rolls, and what follows damage."""

import struct
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger._core import LogView, MappedFile, MessageScan, find_next_record, read_message, scan
from pyledger.errors import CorruptRecordError, OffsetOutOfRangeError
from tests.core.log.log_files import LogFiles, RecordFields, write_log

AT_BODY_CRC, AT_PHYSICAL_OFFSET = 8, 28


def some_records(count: int) -> list[RecordFields]:
    """Records of different sizes, the last one with a CRC property."""
    return [
        RecordFields(body=bytes([i % 251]) * (i * 37 % 400), properties={"TAGS": f"tag{i}"}, queue_offset=i,
                     store_timestamp=1000 + i, crc_property=i == count - 1)
        for i in range(count)
    ]  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    return write_log(tmp_path / "commitlog", some_records(60), file_size_bytes=4096)


def test_scan_whole_log_counts_records_and_blanks(log: LogFiles) -> None:
    seen: list[int] = []
    stop = scan(log.view(), 0, progress=seen.append)
    assert (stop.status, stop.ordinary, stop.problem) == ("zeroes", True, "")
    assert (stop.record_count, stop.next_offset) == (60, log.end)
    assert (stop.last_record_offset, stop.last_store_timestamp) == (log.offsets[-1], 1059)
    assert stop.blank_count == log.end // log.file_size_bytes
    assert seen == [log.end]


def test_scan_range_takes_records_that_start_in_it(log: LogFiles) -> None:
    stop = scan(log.view(), log.offsets[10], log.offsets[20])
    assert (stop.status, stop.record_count, stop.next_offset) == ("end", 10, log.offsets[20])
    assert scan(log.view(), log.offsets[10], log.offsets[10] + 1).record_count == 1


def test_scan_pinned_end_inside_record_is_short(log: LogFiles) -> None:
    files = log.view().files
    stop = scan(LogView(files, log.offsets[3] + 20), 0)
    assert (stop.status, stop.record_count, stop.next_offset) == ("short", 3, log.offsets[3])
    assert scan(LogView(files, log.offsets[3]), 0).status == "end"


@pytest.mark.parametrize(
    ("at", "data", "status"),
    [
        (0, struct.pack(">i", 90), "bad size"),
        (0, struct.pack(">i", 1 << 30), "short"),
        (4, b"\x01", "bad magic"),
        (0, b"\0" * 8, "zeroes"),
        (AT_BODY_CRC, b"\x55", "bad crc"),
        (88, b"\xff", "bad crc"),
        (AT_PHYSICAL_OFFSET, b"\x01", "bad position"),
        (84, struct.pack(">i", -1), "bad size"),
        (84, struct.pack(">i", 0x7FFFFFFF), "bad size"),
    ],
)
def test_scan_stops_at_fault_and_next_record_is_found(
    log: LogFiles, at: int, data: bytes, status: str
) -> None:
    log.edit(log.offsets[7] + at, data)
    view = log.view()
    stop = scan(view, 0)
    assert (stop.status, stop.record_count, stop.next_offset) == (status, 7, log.offsets[7])
    assert bool(stop.problem) == (status != "zeroes")
    assert find_next_record(view, log.offsets[7]) == log.offsets[8]
    assert find_next_record(view, log.offsets[7], log.offsets[8]) is None


def test_scan_crc_property_covers_whole_record(log: LogFiles) -> None:
    log.edit(log.offsets[-1] + 12, b"\x01")
    assert scan(log.view(), 0).status == "bad crc"
    assert scan(log.view(), 0, check=False).record_count == 60


def test_scan_missing_file_in_the_middle_is_short_and_bridged(log: LogFiles) -> None:
    (log.folder / f"{4096:020d}").unlink()
    view = log.view()
    stop = scan(view, 0)
    assert (stop.status, stop.next_offset) == ("short", 4096)
    assert find_next_record(view, stop.next_offset) == 8192


def test_scan_without_files_ends_at_once() -> None:
    assert scan(LogView([], 0), 0).status == "end"
    assert find_next_record(LogView([], 0), 0) is None


def test_view_keeps_its_files_mapped_after_close(log: LogFiles) -> None:
    view = log.view()
    message = read_message(view, log.offsets[5])
    for file in view.files:
        file.close()
        assert file.closed
    assert message.body == some_records(60)[5].body
    assert scan(view, 0).record_count == 60


def test_message_scan_yields_what_scan_counts(log: LogFiles) -> None:
    walk = MessageScan(log.view(), 0)
    assert walk.stop is None
    assert [message.physical_offset for message in walk] == log.offsets
    assert walk.stop is not None
    assert (walk.stop.status, walk.stop.record_count) == ("zeroes", 60)


def test_scan_leaves_the_interpreter_to_others(tmp_path: Path) -> None:
    """While a scan runs another thread goes on: the lock is not held for the scan's length."""
    log = write_log(tmp_path / "commitlog", [RecordFields(body=b"x" * 3000)] * 4000, file_size_bytes=1 << 24)
    view, ticks, done = log.view(), [0.0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    while len(ticks) < 100:
        done.wait(0.001)
    within = 0
    try:
        while within <= 20:
            begin = time.perf_counter()
            scan(view, 0)
            end = time.perf_counter()
            within += sum(begin < at < end for at in ticks[-1000:])
    finally:
        done.set()
        thread.join()


@settings(deadline=None)
@given(st.data())
def test_scan_of_mutated_bytes_never_yields_unsound_record(data: st.DataObject) -> None:
    records = some_records(12)
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder), records, file_size_bytes=2048)
        for _ in range(data.draw(st.integers(1, 4))):
            patch = data.draw(st.binary(min_size=1, max_size=12))
            log.edit(data.draw(st.integers(0, log.end - 16)), patch)
        if data.draw(st.booleans()):
            cut = max(log.folder.iterdir())
            with cut.open("r+b") as file:
                file.truncate(data.draw(st.integers(0, 2048)))
        view = log.view()
        at = 0
        while True:
            walk = MessageScan(view, at)
            for message in walk:
                wanted = records[log.offsets.index(message.physical_offset)]
                assert message.body == wanted.body
            assert walk.stop is not None
            found = find_next_record(view, walk.stop.next_offset + 1)
            if found is None:
                break
            at = found


@settings(deadline=None)
@given(st.binary(max_size=600), st.integers(-10, 700))
def test_any_bytes_are_read_without_harm(noise: bytes, offset: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{0:020d}"
        path.write_bytes(RecordFields().encode(0) + noise)
        view = LogView([MappedFile.open(str(path), size_bytes=1024)], 1024)
        assert scan(view, 0).record_count >= 1
        find_next_record(view, offset)
        try:
            message = read_message(view, offset)
        except (CorruptRecordError, OffsetOutOfRangeError):
            return
        assert message.physical_offset == offset


def test_short_record_with_long_hosts_is_not_read_past_the_file(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    record = struct.pack(">iI28xi", 91, 0xDAA320AB, 0x30).ljust(91, b"\0")
    path.write_bytes(bytes(4096 - 91) + record)
    view = LogView([MappedFile.open(str(path))], 4096)
    stop = scan(view, 4096 - 91)
    assert (stop.status, stop.record_count) == ("bad size", 0)


PAGE = 4096


def torn_status(log: LogFiles, number: int) -> str:
    """What a walk that looks for lost pages says of one record."""
    at = log.offsets[number]
    return scan(log.view(), at, at + 1, check_tail=True).status


@given(
    body_bytes=st.integers(0, 9000),
    zero_body=st.booleans(),
    value_bytes=st.integers(0, 20000),
    crc_property=st.booleans(),
    page=st.integers(0, 7),
)
@settings(max_examples=150)
def test_a_lost_page_never_passes_for_a_record(
    body_bytes: int, zero_body: bool, value_bytes: int, crc_property: bool, page: int
) -> None:
    """Whatever page of a record is lost: the walk stops before it, unless it held only zeroes."""
    body = bytes(body_bytes) if zero_body else b"b" * body_bytes
    record = RecordFields(body=body, properties={"p": "v" * (value_bytes + 1)}, crc_property=crc_property)
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder), [RecordFields(), record])
        assert torn_status(log, 1) == "end"
        path = Path(folder) / f"{0:020d}"
        data = path.read_bytes()
        damaged = data[: page * PAGE] + bytes(PAGE) + data[(page + 1) * PAGE :]
        path.write_bytes(damaged)
        stop = scan(log.view(), 0, check_tail=True)
        sound = 2 if damaged == data else 0 if page == 0 else 1
        assert stop.record_count == sound, stop


@given(cut=st.integers(1, 4000), value_bytes=st.integers(4500, 9000))
@settings(max_examples=60)
def test_a_page_written_back_while_it_was_filled_never_passes_for_a_record(
    cut: int, value_bytes: int
) -> None:
    """The last page that properties reach ends in zeroes from somewhere on."""
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder), [RecordFields(properties={"p": "v" * value_bytes})])
        zeroes = min(cut, (log.end - 1) % PAGE + 1)
        log.edit(log.end - zeroes, bytes(zeroes))
        assert torn_status(log, 0) == "torn"


@pytest.mark.parametrize(
    "properties",
    [
        b"p\x01a\0b\x02",
        b"p\x01\0\x02",
        b"p\x01" + bytes(200) + b"\x02",
        b"p\x01" + bytes(9000) + b"\x02q\x01w\x02",
        b"p\x01v",
        b"",
    ],
    ids=["NUL inside", "NUL alone", "many NULs", "a page of NULs", "no end", "none"],
)
def test_properties_that_java_writes_are_not_torn(tmp_path: Path, properties: bytes) -> None:
    records = [RecordFields(properties_raw=properties, body=bytes(n * 331 % 5000)) for n in range(40)]
    if len(properties) > PAGE:
        # Whole pages of a user's NULs look like lost ones; only such do.
        assert scan(write_log(tmp_path, records).view(), 0).record_count == 40
        return
    log = write_log(tmp_path, records)
    assert scan(log.view(), 0, check_tail=True).record_count == 40


def test_a_topic_with_zeroes_is_torn(tmp_path: Path) -> None:
    log = write_log(tmp_path, [RecordFields(topic=b"or\0ers")])
    assert scan(log.view(), 0).record_count == 1
    assert torn_status(log, 0) == "torn"
    assert "zeroes" in scan(log.view(), 0, check_tail=True).problem
