"""StoreReader finds in every golden folder what upstream's own store finds after its recovery, and changes
nothing."""

import mmap
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pyledger.errors import (
    ConfigError,
    CorruptRecordError,
    MalformedMessageIdError,
    OffsetOutOfRangeError,
    StoreClosedError,
    StoreNotFoundError,
)
from pyledger.model.message import Message
from pyledger.store.files import checkpoint
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import GoldenCase, fingerprint, golden_case
from tests.models.recovery import recover
from tests.support.mappings import mapped_parts, needs_smaps

OFFSET_FIELDS = ("topic", "queueId", "queueOffset", "physicalOffset")


def offsets_of(message: Any) -> tuple[str, int, int, int]:
    return message.topic, message.queue_id, message.queue_offset, message.physical_offset


def offsets_in(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(line[name] for name in OFFSET_FIELDS) for line in lines]


@pytest.fixture
def reader(golden: GoldenCase, pristine_store: Path) -> Iterator[StoreReader]:
    if not golden.loads:
        pytest.skip("upstream does not open the folder")
    with StoreReader.open(pristine_store) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The folder of the golden case that the test names."""
    return golden_case(request.param).unpack(tmp_path)


def with_store(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("store", [name], indirect=True)


def test_log_ends_where_recovery_ends_it(golden: GoldenCase, reader: StoreReader) -> None:
    assert reader.min_offset == golden.summary["minPhysicalOffset"]
    assert reader.max_offset == golden.summary["maxPhysicalOffset"]
    assert reader.clean is not golden.summary["abortFile"]


def test_queues_hold_what_recovery_leaves_them(golden: GoldenCase, reader: StoreReader) -> None:
    found = {
        f"{topic}/{number}": [r.min_offset, r.max_offset] for (topic, number), r in reader.queues().items()
    }  # A 4.9 broker makes its delay queues before anything is in them.
    assert found == {name: ends for name, ends in golden.summary["queues"].items() if ends != [0, 0]}


def test_messages_by_queue_are_those_that_consumers_reach(golden: GoldenCase, reader: StoreReader) -> None:
    assert [offsets_of(m) for m in reader.messages(order="queue")] == offsets_in(golden.of_kind("message"))


def test_messages_by_log_are_all_records(golden: GoldenCase, reader: StoreReader) -> None:
    wanted = [*golden.of_kind("message"), *golden.of_kind("unindexed")]
    assert [offsets_of(m) for m in reader.messages()] == sorted(offsets_in(wanted), key=lambda line: line[3])


def test_units_name_the_records_of_their_queue(golden: GoldenCase, reader: StoreReader) -> None:
    lines = golden.of_kind("message")
    for topic, queue_id in reader.queues():
        units = reader.units(topic, queue_id)
        mine = [line for line in lines if (line["topic"], line["queueId"]) == (topic, queue_id)]
        assert units.physical_offsets == [line["physicalOffset"] for line in mine]
        assert units.sizes == [line["storeSize"] for line in mine]
        if golden.name != "cq-ext-5":
            assert [unit.tags_code for unit in units] == [line["tagsCode"] for line in mine]


def test_answers_of_the_index(golden: GoldenCase, reader: StoreReader) -> None:
    # After an unclean exit upstream indexes the last record of a surviving index file a second time.
    once = set if golden.summary["abortFile"] else list
    for line in golden.of_kind("key"):
        found = reader.query_offsets(line["topic"], line["key"])
        assert once(found) == once(line["physicalOffsets"]), line
        assert [m.physical_offset for m in reader.query(line["topic"], line["key"])] == sorted(set(found))


def test_answers_by_time(golden: GoldenCase, reader: StoreReader) -> None:
    if golden.version < "5":
        pytest.skip("4.9 answers with the nearest unit, and picks the file by its modification time")
    for line in golden.of_kind("time"):
        arguments = line["topic"], line["queueId"], line["timestamp"]
        assert reader.offset_by_time(*arguments) == line["lower"], line
        assert reader.offset_by_time(*arguments, upper=True) == line["upper"], line


def test_messages_by_id(golden: GoldenCase, reader: StoreReader) -> None:
    for message in reader.messages(limit=50):
        found = reader.message_by_id(message.msg_id.lower())
        assert offsets_of(found) == offsets_of(message)
        assert found.body == reader.message_at(message.physical_offset).body


def test_queue_files_are_no_authority(golden: GoldenCase, golden_store: Path) -> None:
    """Missing, lagging, or naming records past the end: the answers stay those of the log alone."""
    if not golden.loads:
        pytest.skip("upstream does not open the folder")
    wanted = recover(golden_store)
    for name in ("consumequeue", "batchconsumequeue", "index"):
        shutil.rmtree(golden_store / name, ignore_errors=True)
    with StoreReader.open(golden_store) as reader:
        found = {name: (r.min_offset, r.max_offset) for name, r in reader.queues().items()}
        assert found == {name: r for name, r in wanted.ranges().items() if r[0] != r[1]}
        assert [offsets_of(m) for m in reader.messages(order="queue")] == offsets_in(
            golden.of_kind("message")
        )
        for line in golden.of_kind("key")[:50]:
            assert reader.query_offsets(line["topic"], line["key"]) == wanted.query(
                line["topic"], line["key"]
            )


@with_store("clean-5")
def test_a_lagging_queue_is_filled_in_from_the_log(store: Path) -> None:
    with StoreReader.open(store) as reader:
        wanted = [offsets_of(m) for m in reader.messages(order="queue")]
    last = store / "consumequeue" / "beta" / "0" / f"{0:020d}"
    (store / "abort").touch()
    (store / "checkpoint").unlink()
    data = bytearray(last.read_bytes())
    data[20 * 7 :] = bytes(len(data) - 20 * 7)
    last.write_bytes(data)
    with StoreReader.open(store) as reader:
        assert [offsets_of(m) for m in reader.messages(order="queue")] == wanted


@pytest.mark.parametrize("lost", ["0" * 20, "*"])
@with_store("rolled-5")
def test_units_lost_before_the_derived_ones_are_derived_too(store: Path, lost: str) -> None:
    """A checkpoint that promises too much must not make messages vanish between files and derived units."""
    with StoreReader.open(store) as reader:
        wanted = [offsets_of(m) for m in reader.messages(order="queue")]
        last_ms = reader.stop.last_store_timestamp
    (store / "abort").touch()
    checkpoint.write(str(store / "checkpoint"), StoreCheckpoint(last_ms + 3001, last_ms + 3001))
    for path in (store / "consumequeue").glob(f"*/*/{lost}"):
        path.unlink()
    with StoreReader.open(store) as reader:
        assert reader.min_offset < reader._recovered_queues().derived_from
        assert [offsets_of(m) for m in reader.messages(order="queue")] == wanted


@with_store("deleted-head-5")
def test_queue_whose_messages_were_all_deleted_keeps_its_offsets(store: Path) -> None:
    folder = store / "consumequeue" / "idle" / "0"
    folder.mkdir(parents=True)
    units = [(at * 100).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8) for at in range(7)]
    (folder / f"{0:020d}").write_bytes(b"".join(units).ljust(800, b"\0"))
    with StoreReader.open(store) as reader:
        ends = reader.queues()["idle", 0]
        assert (ends.min_offset, ends.max_offset) == (7, 7)
        assert list(reader.messages(order="queue", topics=["idle"])) == []


@with_store("rolled-5")
def test_messages_selects(store: Path) -> None:
    with StoreReader.open(store) as reader:
        every = list(reader.messages())
        times = sorted(m.store_timestamp for m in every)
        since, until = times[len(times) // 3], times[2 * len(times) // 3]
        tags = sorted({m.tags for m in every if m.tags})[:2]
        selections: list[tuple[dict[str, Any], Any]] = [
            ({"topics": ["alpha"]}, lambda m: m.topic == "alpha"),
            ({"queues": [1, 3]}, lambda m: m.queue_id in (1, 3)),
            ({"since": since}, lambda m: m.store_timestamp >= since),
            ({"since": datetime.fromtimestamp(since / 1000, UTC)}, lambda m: m.store_timestamp >= since),
            ({"until": until}, lambda m: m.store_timestamp < until),
            ({"since": since, "until": until}, lambda m: since <= m.store_timestamp < until),
            ({"tags": f"{tags[0]} || {tags[1]}"}, lambda m: m.tags in tags),
            ({"tags": "*"}, lambda _: True),
            ({"key": "key-120"}, lambda m: "key-120" in (m.keys or "").split(" ")),
            ({"topics": ["beta"], "tags": tags[0]}, lambda m: m.topic == "beta" and m.tags == tags[0]),
        ]
        by_queue = sorted(every, key=offsets_of)
        for arguments, wanted in selections:
            assert [offsets_of(m) for m in reader.messages(**arguments)] == [
                offsets_of(m) for m in every if wanted(m)
            ]
            found = [offsets_of(m) for m in reader.messages(order="queue", **arguments)]
            assert found == [offsets_of(m) for m in by_queue if wanted(m)], arguments
            for count in (0, 1, 50, 10_000):
                tail = [offsets_of(m) for m in reader.messages(tail=count, **arguments)]
                assert tail == [offsets_of(m) for m in every if wanted(m)][-count or len(every) :]
                tail = [offsets_of(m) for m in reader.messages(order="queue", tail=count, **arguments)]
                assert tail == found[-count or len(found) :], arguments
        assert [offsets_of(m) for m in reader.messages(limit=5)] == [offsets_of(m) for m in every[:5]]
        assert [offsets_of(m) for m in reader.messages(tail=9, limit=5)] == [
            offsets_of(m) for m in every[-9:-4]
        ]


@with_store("rolled-5")
def test_offsets_bound_the_messages(store: Path) -> None:
    with StoreReader.open(store) as reader:
        every = [m.physical_offset for m in reader.messages()]
        for start, end in (
            (0, None),
            (every[100], every[200]),
            (every[100] + 1, every[200] + 1),
            (40_000, 10**9),
        ):
            wanted = [at for at in every if start <= at < (end or 10**9)]
            assert [m.physical_offset for m in reader.messages(start_offset=start, end_offset=end)] == wanted
        bounded = reader.messages(order="queue", topics=["beta"], start_offset=30, end_offset=33)
        assert [(m.queue_id, m.queue_offset) for m in bounded] == [
            (queue_id, offset)
            for queue_id in range(4)
            for offset in range(30, min(33, reader.queues()["beta", queue_id].max_offset))
        ]


@with_store("rolled-5")
def test_damage_in_the_middle_is_an_error_with_its_offset_or_skipped(store: Path) -> None:
    with StoreReader.open(store) as reader:
        every = [m.physical_offset for m in reader.messages()]
        end = reader.max_offset
    broken = every[300]
    path = store / "commitlog" / f"{broken - broken % 32768:020d}"
    data = bytearray(path.read_bytes())
    data[broken % 32768 + 90] ^= 1
    path.write_bytes(data)
    with StoreReader.open(store) as reader:
        assert reader.max_offset == end
        with pytest.raises(CorruptRecordError) as caught:
            list(reader.messages())
        assert (caught.value.physical_offset, caught.value.path) == (broken, str(path))
        with pytest.raises(CorruptRecordError):
            list(reader.messages(order="queue"))
    with StoreReader.open(store, on_corrupt="skip") as reader:
        wanted = [at for at in every if at != broken]
        assert [m.physical_offset for m in reader.messages()] == wanted
        assert sorted(m.physical_offset for m in reader.messages(order="queue")) == wanted
        assert {damage.physical_offset for damage in reader.skipped} == {broken}
        assert reader.skipped[0].size_bytes == every[301] - broken


@with_store("rolled-5")
def test_missing_log_file_is_damage_in_the_middle(store: Path) -> None:
    with StoreReader.open(store) as reader:
        every = [m.physical_offset for m in reader.messages()]
    (store / "commitlog" / f"{5 * 32768:020d}").unlink()
    with StoreReader.open(store) as reader, pytest.raises(CorruptRecordError) as caught:
        list(reader.messages())
    assert caught.value.physical_offset == 5 * 32768
    with StoreReader.open(store, on_corrupt="skip") as reader:
        wanted = [at for at in every if not 5 * 32768 <= at < 6 * 32768]
        assert [m.physical_offset for m in reader.messages()] == wanted


@with_store("short-file-5")
def test_folder_that_upstream_does_not_open_is_read_up_to_the_damage(store: Path) -> None:
    with StoreReader.open(store) as reader:
        assert (len(list(reader.messages())), reader.stop.status) == (99, "short")
        assert len(list(reader.messages(order="queue"))) == 99


@with_store("crash-5")
def test_torn_tail_is_the_end_after_a_crash_and_damage_after_a_good_exit(store: Path) -> None:
    """Pages reach the disk in any order: after a hole that was never flushed, valid records prove nothing."""
    with StoreReader.open(store) as reader:
        every = [m.physical_offset for m in reader.messages()]
    path = store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[every[600] + 100] ^= 1
    path.write_bytes(data)
    with StoreReader.open(store) as reader:
        assert reader.max_offset == every[600]
        assert reader.stop.status == "bad crc"
        assert [m.physical_offset for m in reader.messages()] == every[:600]
        assert len(list(reader.messages(order="queue"))) == 600
    (store / "abort").unlink()
    with StoreReader.open(store, on_corrupt="skip") as reader:
        assert [m.physical_offset for m in reader.messages()] == every[:600] + every[601:]


@with_store("clean-5")
def test_records_left_over_from_a_longer_log_are_not_read(store: Path) -> None:
    """Upstream truncates without zeroing: what is after a new end was stored before it."""
    with StoreReader.open(store) as reader:
        every = list(reader.messages())
        cut, stale = every[200], every[202]
        places_before = [m.physical_offset for m in every[:200]]
    path = store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[cut.physical_offset : stale.physical_offset] = b"\x7f" * (
        stale.physical_offset - cut.physical_offset
    )  # The record before the truncation is newer than those after it, as after a restart.
    newest = every[199].physical_offset
    data[newest + 56 : newest + 64] = (every[-1].store_timestamp + 1000).to_bytes(8, "big")
    path.write_bytes(data)
    with StoreReader.open(store) as reader:
        assert [m.physical_offset for m in reader.messages()] == places_before


@with_store("rolled-5")
def test_refresh_sees_what_was_appended_since(store: Path, tmp_path: Path) -> None:
    whole = shutil.copytree(store, tmp_path / "whole")
    with StoreReader.open(whole) as reader:
        wanted = [offsets_of(m) for m in reader.messages(order="queue")]
        every = [m.physical_offset for m in reader.messages()]
        answers = {m.unique_key: m.physical_offset for m in reader.messages()}
    cut_at = every[400]
    truncate_log(store, cut_at)
    (store / "abort").touch()
    with StoreReader.open(store) as reader:
        assert reader.max_offset == cut_at
        assert len(list(reader.messages(order="queue"))) == 400
        assert not reader.query("alpha", "absent")
        assert not reader.refresh()
        for step in (every[410], every[800]):
            append_log(whole, store, step)
            assert reader.refresh()
            assert reader.max_offset == step
            assert [m.physical_offset for m in reader.messages()] == [at for at in every if at < step]
        append_log(whole, store, 1 << 40)
        assert reader.refresh()
        assert [offsets_of(m) for m in reader.messages(order="queue")] == wanted
        last = next(reader.messages(tail=1))
        (found,) = reader.query(last.topic, last.unique_key)
        assert found.physical_offset == answers[last.unique_key]


@with_store("rolled-5")
def test_refresh_forgets_deleted_head(store: Path) -> None:
    with StoreReader.open(store) as reader:
        every = list(reader.messages())
        assert reader.queues()
        for number in range(3):
            (store / "commitlog" / f"{number * 32768:020d}").unlink()
        assert reader.refresh()
        assert reader.min_offset == 3 * 32768
        wanted = [offsets_of(m) for m in every if m.physical_offset >= 3 * 32768]
        assert sorted(offsets_of(m) for m in reader.messages(order="queue")) == sorted(wanted)
        assert every[0].body, "messages handed out stay valid"


def truncate_log(store: Path, end: int) -> None:
    """Make a log end at a physical offset, as if nothing had been written after it yet."""
    for path in (store / "commitlog").iterdir():
        start = int(path.name)
        if start >= end:
            path.unlink()
        elif end < start + 32768:
            path.write_bytes(path.read_bytes()[: end - start].ljust(32768, b"\0"))


def append_log(whole: Path, store: Path, end: int) -> None:
    """Write on to a log, in place as a writer does, up to a physical offset."""
    for path in sorted((whole / "commitlog").iterdir()):
        start = int(path.name)
        if start < end:
            data = path.read_bytes()[: end - start].ljust(32768, b"\0")
            target = store / "commitlog" / path.name
            with target.open("r+b" if target.exists() else "wb") as file:
                file.write(data)


@with_store("clean-5")
def test_unknown_offsets_and_ids_raise(store: Path) -> None:
    with StoreReader.open(store) as reader:
        with pytest.raises(OffsetOutOfRangeError):
            reader.message_at(reader.max_offset)
        with pytest.raises(CorruptRecordError):
            reader.message_at(1)
        for wrong in ("", "zz" * 16, "00" * 15):
            with pytest.raises(MalformedMessageIdError):
                reader.message_by_id(wrong)
        with pytest.raises(OffsetOutOfRangeError):
            reader.message_by_id("0A000007" + "00002A9F" + "FF" * 8)
        with pytest.raises(CorruptRecordError, match="its id is"):
            reader.message_by_id("01020304" + "00002A9F" + "00" * 8)
        assert reader.query("alpha", "no such key") == []
        assert reader.offset_by_time("no such topic", 0, 0) == 0
        assert len(reader.units("no such topic", 0)) == 0
        message = next(reader.messages())
    assert message.body == message.plain_body or message.sys_flag & 1
    with pytest.raises(StoreClosedError):
        reader.messages()


def test_empty_log_and_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        StoreReader.open(tmp_path)
    (tmp_path / "commitlog").mkdir()
    with StoreReader.open(tmp_path) as reader:
        assert (reader.min_offset, reader.max_offset) == (0, 0)
        assert list(reader.messages()) == []
        assert list(reader.messages(order="queue")) == []
        assert reader.queues() == {}
        assert not reader.refresh()


@with_store("clean-5")
def test_reader_works_in_a_folder_it_may_not_write(store: Path) -> None:
    before = fingerprint(store)
    for path in [store, *store.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with StoreReader.open(store) as reader:
            assert len(list(reader.messages(order="queue"))) == 370
    finally:
        for path in [store, *store.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert fingerprint(store) == before


@needs_smaps
def test_nothing_is_read_ahead_where_a_writer_may_append(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, mapped_file_size_bytes=1 << 20) as store:
        store.appender("T", 0).put(bytes(100_000))
        used = -(-store.max_offset // mmap.PAGESIZE) * mmap.PAGESIZE
    log = tmp_path / "commitlog" / f"{0:020d}"
    with StoreReader.open(tmp_path):
        assert mapped_parts(log) == [(1 << 20, True)]
    (tmp_path / "abort").touch()
    with StoreReader.open(tmp_path) as reader:
        for _ in range(2):
            assert mapped_parts(log) == [(used, True), ((1 << 20) - used, False)]
            reader.refresh()


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": "log2"},
        {"order": None},
        {"limit": -1},
        {"tail": -1},
        {"since": 10**30},
        {"until": True},
        {"limit": 10**30},
        {"limit": 1.5},
        {"tail": "5"},
        {"topics": 5},
        {"queues": "0"},
        {"queues": 0},
        {"start_offset": "0"},
        {"end_offset": 1.5},
        {"key": 5},
    ],
)
def test_bad_argument_of_messages_is_an_error(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with MessageStore.open(tmp_path, mapped_file_size_bytes=1 << 16) as store:
        store.put(Message("orders", b"one"))
    with StoreReader.open(tmp_path) as reader:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            reader.messages(**wrong)
        assert [one.body for one in reader.messages(topics="orders")] == [b"one"]


def test_unknown_word_for_damage_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="on_corrupt"):
        StoreReader.open(tmp_path, on_corrupt="eror")  # type: ignore[arg-type]
