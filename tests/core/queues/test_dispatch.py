"""Dispatcher and UnitCollector against what the records say, one by one."""

import errno
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger._core import (
    BatchConsumeQueue,
    ConsumeQueue,
    Dispatcher,
    IndexFileSet,
    LogView,
    UnitCollector,
    collect_units,
)
from pyledger.errors import CorruptRecordError, StoreClosedError, StoreFullError
from tests.core.log.log_files import LogFiles, RecordFields, write_log
from tests.models.consume_queue import UNIT
from tests.models.index_file import IndexModel, java_hash

LOG_FILE_BYTES = 4096
QUEUE_BYTES = 100
TIME = 1_700_000_000_000


def view_of(log: LogFiles) -> LogView:
    return LogView(log.view().files, log.end)


class Folder:
    """Queues and index in a folder, and a dispatcher over them."""

    def __init__(self, path: Path, *, slots: int = 5, entries: int = 8, start: int = 0) -> None:
        self.path = path
        made = (f"{n:017d}" for n in count(20240101000000000 + 1000 * len(list(path.glob("index/*")))))
        self.index = IndexFileSet(str(path / "index"), slots, entries, name_file=lambda: next(made))
        self.opened: list[tuple[str, int, bool]] = []
        self.dispatcher = Dispatcher(self.open_queue, self.index, start_offset=start)

    def open_queue(self, topic: str, queue_id: int, inner_batch: bool) -> ConsumeQueue | BatchConsumeQueue:
        self.opened.append((topic, queue_id, inner_batch))
        if inner_batch:
            return BatchConsumeQueue(str(self.path / "batch"), topic, queue_id, 460)
        queue = ConsumeQueue(str(self.path / "queues"), topic, queue_id, QUEUE_BYTES)
        queue.recover()
        return queue

    def units(self) -> dict[tuple[str, int], list[tuple[int, ...]]]:
        return {
            name: [queue.get(n) for n in range(queue.min_offset, queue.max_offset)]
            for name, queue in self.dispatcher.queues.items()
        }


MESSAGES = st.lists(
    st.builds(
        lambda topic, queue_id, tags, keys, unique, kind, body: (
            topic,
            queue_id,
            tags,
            keys,
            unique,
            kind,
            body,
        ),
        st.sampled_from(["orders", "t", "topic-of-more-than-sixteen-bytes"]),
        st.integers(0, 2),
        st.sampled_from([None, "TagA", "значение", "a" * 40]),
        st.sampled_from([None, "k1", "k1  k2 ", " k3", "долгий-ключ k1"]),
        st.sampled_from([None, "0A0B" * 8]),
        st.sampled_from([0, 0, 0, 4, 8, 12]),
        st.integers(0, 900),
    ),
    max_size=60,
)
Message = tuple[str, int, str | None, str | None, str | None, int, int]


def records_of(messages: list[Message]) -> list[RecordFields]:
    """Records with the queue offsets that appending would give them."""
    offsets: dict[tuple[str, int], int] = {}
    records = []
    for n, (topic, queue_id, tags, keys, unique, kind, body) in enumerate(messages):
        offset = 0
        if kind in (0, 8):
            offset = offsets.setdefault((topic, queue_id), 0)
            offsets[topic, queue_id] += 1
        named = {"KEYS": keys, "user": "x", "UNIQ_KEY": unique, "TAGS": tags}
        records.append(
            RecordFields(
                topic=topic.encode(),
                body=b"b" * body,
                properties={name: value for name, value in named.items() if value},
                queue_id=queue_id,
                queue_offset=offset,
                sys_flag=kind,
                store_timestamp=TIME + n * 700,
            )
        )
    return records


def expected(
    records: list[RecordFields], log: LogFiles
) -> tuple[dict[tuple[str, int], list[tuple[int, ...]]], IndexModel]:
    units: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    index = IndexModel(5, 8)
    for record, offset in zip(records, log.offsets, strict=True):
        topic = record.topic.decode()
        if record.sys_flag in (0, 8):
            code = java_hash(record.properties.get("TAGS", ""))
            unit = (offset, len(record.encode(offset)), code)
            units.setdefault((topic, record.queue_id), []).append(unit)
        if record.sys_flag != 12:
            keys = [record.properties.get("UNIQ_KEY", ""), *record.properties.get("KEYS", "").split(" ")]
            for key in filter(None, keys):
                index.put(topic, key, offset, record.store_timestamp)
    return units, index


@given(messages=MESSAGES, stops=st.lists(st.integers(0, 40_000), max_size=4))
@settings(deadline=None, max_examples=20)
def test_dispatch_writes_what_the_records_say(messages: list[Message], stops: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        records = records_of(messages)
        log = write_log(Path(name) / "log", records, LOG_FILE_BYTES)
        view = view_of(log)
        folder = Folder(Path(name))
        for stop in sorted(stops):
            where = folder.dispatcher.dispatch(view, stop)
            assert where <= max(stop, 0)
            done = [record for record, at in zip(records, log.offsets, strict=True) if at < where]
            assert folder.dispatcher.message_count == len(done)
        assert folder.dispatcher.dispatch(view) == log.end
        units, index = expected(records, log)
        assert folder.units() == units
        for key in ("k1", "k2", "k3", "долгий-ключ", "0A0B" * 8):
            for topic in ("orders", "t"):
                assert folder.index.query(topic, key) == index.query(topic, key)
        assert folder.dispatcher.entry_count == sum(len(file.entries) for file in index.files)
        assert sum(q.max_offset for q in folder.dispatcher.queues.values()) == folder.dispatcher.unit_count

        # A second walk from the start changes nothing.
        before = {p: p.read_bytes() for p in Path(name).rglob("*") if p.is_file()}
        again = Folder(Path(name))
        assert again.dispatcher.dispatch(view) == log.end
        assert (again.dispatcher.unit_count, again.dispatcher.entry_count) == (0, 0)
        assert {p: p.read_bytes() for p in Path(name).rglob("*") if p.is_file()} == before

        runs = collect_units(view)
        assert {k: list(UNIT.iter_unpack(run)) for k, run in runs.items()} == units


@given(messages=MESSAGES, at=st.integers(0, 60), part=st.integers(0, 6))
@settings(deadline=None, max_examples=12)
def test_index_that_ends_within_a_record_is_completed(messages: list[Message], at: int, part: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        records = records_of(messages)
        log = write_log(Path(name) / "log", records, LOG_FILE_BYTES)
        _, model = expected(records, log)
        entries = [(entry, file) for file in model.files for entry in file.entries][: at + part]
        made = (f"{n:017d}" for n in count(20240101000000000))
        index = IndexFileSet(name + "/index", 5, 8, name_file=lambda: next(made))
        partial = IndexModel(5, 8)
        for record, offset in zip(records, log.offsets, strict=True):
            if record.sys_flag == 12:
                continue
            keys = [record.properties.get("UNIQ_KEY", ""), *record.properties.get("KEYS", "").split(" ")]
            for key in filter(None, keys):
                if sum(len(file.entries) for file in partial.files) < len(entries):
                    partial.put(record.topic.decode(), key, offset, record.store_timestamp)
                    index.put(record.topic.decode(), key, offset, record.store_timestamp)
        folder = Folder(Path(name))
        folder.dispatcher.dispatch(view_of(log))
        for key in ("k1", "k2", "k3", "долгий-ключ", "0A0B" * 8):
            for topic in ("orders", "t", "topic-of-more-than-sixteen-bytes"):
                assert folder.index.query(topic, key) == model.query(topic, key)


def test_delayed_messages_have_their_delivery_time(tmp_path: Path) -> None:
    records = [
        RecordFields(
            topic=b"SCHEDULE_TOPIC_XXXX", queue_offset=n, properties=properties, store_timestamp=TIME
        )
        for n, properties in enumerate(
            [{"DELAY": "1"}, {"DELAY": "18"}, {"DELAY": "99"}, {"TAGS": "a"}, {"DELAY": "x", "TAGS": "a"}]
        )
    ]
    folder = Folder(tmp_path)
    folder.dispatcher.dispatch(view_of(write_log(tmp_path / "log", records)))
    codes = [unit[2] for unit in folder.units()["SCHEDULE_TOPIC_XXXX", 0]]
    assert codes == [TIME + 1000, TIME + 7_200_000, TIME + 7_200_000, 97, 97]


def test_inner_batches_go_to_batch_queues(tmp_path: Path) -> None:
    records = [
        RecordFields(sys_flag=0xC0, queue_offset=0, properties={"INNER_NUM": "3", "INNER_BASE": "0"}),
        RecordFields(sys_flag=0xC0, queue_offset=3, properties={"INNER_NUM": "2", "INNER_BASE": "3"}),
        RecordFields(queue_offset=5),
    ]
    log = write_log(tmp_path / "log", records)
    folder = Folder(tmp_path)
    folder.dispatcher.dispatch(view_of(log))
    queue = folder.dispatcher.queues["orders", 0]
    assert folder.opened == [("orders", 0, True)]
    assert queue.max_offset == 6
    assert [queue.get(n)[0] for n in range(6)] == [log.offsets[n] for n in (0, 0, 0, 1, 1, 2)]
    run = collect_units(view_of(log))["orders", 0]
    assert (run.batch, len(run), bytes(run)) == (True, 3, bytes(queue.units(0, 3)))


class Obstacles(Folder):
    """A folder in which queues cannot be opened, cannot get another file, or the index cannot."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.blocked: set[tuple[str, int]] = set()
        self.index_blocked = False
        made = (f"{n:017d}" for n in count(20240101000000000))

        def name_file() -> str:
            if self.index_blocked:
                raise OSError(errno.ENOSPC, "No space left on device", "index")
            return next(made)

        self.index = IndexFileSet(str(path / "index"), 5, 8, name_file=name_file)
        self.dispatcher = Dispatcher(self.open_queue, self.index)

    def open_queue(self, topic: str, queue_id: int, inner_batch: bool) -> ConsumeQueue | BatchConsumeQueue:
        if (topic, queue_id) in self.blocked:
            raise StoreFullError(topic, "create")
        return super().open_queue(topic, queue_id, inner_batch)

    def block(self, topic: str, queue_id: int) -> None:
        """From now on the queue gets no file: their names are taken by folders."""
        self.blocked.add((topic, queue_id))
        for number in range(20):
            name = self.path / "queues" / topic / str(queue_id) / f"{number * QUEUE_BYTES:020d}"
            if not name.exists():
                name.mkdir(parents=True)

    def unblock(self) -> None:
        self.blocked.clear()
        self.index_blocked = False
        for name in self.path.glob("queues/*/*/*"):
            if name.is_dir():
                name.rmdir()


QUEUES = st.tuples(st.sampled_from(["orders", "t"]), st.integers(0, 2))
STEPS = st.lists(
    st.one_of(QUEUES, st.integers(0, 20_000), st.sampled_from(["index", "retry", "unblock"])), max_size=12
)


@given(messages=MESSAGES, steps=STEPS)
@settings(deadline=None, max_examples=60)
def test_queues_that_cannot_be_made_wait_alone(
    messages: list[Message], steps: list[tuple[str, int] | int | str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        records = records_of(messages)
        log = write_log(Path(name) / "log", records, LOG_FILE_BYTES)
        units, index = expected(records, log)
        view = view_of(log)
        folder = Obstacles(Path(name))
        dispatcher = folder.dispatcher
        walked = 0
        for step in steps:
            match step:
                case int():
                    walked = max(walked, step)
                    dispatcher.dispatch(view, step)
                case "index":
                    folder.index_blocked = True
                case "retry":
                    dispatcher.retry(view)
                case "unblock":
                    folder.unblock()
                case (str() as topic, int() as queue_id):
                    folder.block(topic, queue_id)
            stalled = {(topic, queue_id): rest for topic, queue_id, *rest in dispatcher.stalled}
            seen = [(at, record) for at, record in zip(log.offsets, records, strict=True)
                    if at + len(record.encode(at)) <= min(walked, log.end)]  # fmt: skip
            for key, wanted in units.items():
                there = [unit for unit in wanted if unit[0] + unit[1] <= min(walked, log.end)]
                if key in stalled:
                    place, next_offset, _ = stalled[key]
                    assert next_offset == len(there)
                    assert dispatcher.dispatched_where <= place
                    there = [unit for unit in there if unit[0] < place]
                assert folder.units().get(key, []) == there
            assert dispatcher.message_count == len(seen)
        folder.unblock()
        dispatcher.retry(view)
        assert not dispatcher.stalled
        assert dispatcher.dispatch(view) == log.end
        assert folder.units() == units
        for key in ("k1", "k2", "k3", "долгий-ключ", "0A0B" * 8):
            for topic in ("orders", "t"):
                assert folder.index.query(topic, key) == index.query(topic, key)
        assert dispatcher.entry_count == sum(len(file.entries) for file in index.files)
        assert dispatcher.message_count == len(records)


@pytest.mark.parametrize("damage", ["magic", "position", "size"])
def test_damage_stops_dispatch_at_its_place(tmp_path: Path, damage: str) -> None:
    log = write_log(tmp_path / "log", records_of([("t", 0, None, "k", None, 0, 10)] * 6))
    at, data = {"magic": (4, b"\0\0\0\1"), "position": (28, b"\0" * 7 + b"\5"), "size": (0, b"\x7f")}[damage]
    log.edit(log.offsets[3] + at, data)
    folder = Folder(tmp_path)
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=f"offset {log.offsets[3]}:"):
            folder.dispatcher.dispatch(view_of(log))
        assert folder.dispatcher.dispatched_where == log.offsets[3]
        assert folder.dispatcher.queues["t", 0].max_offset == 3
    with pytest.raises(CorruptRecordError):
        collect_units(view_of(log))
    collector = UnitCollector()
    assert collector.collect(view_of(log)) == log.offsets[3]
    assert collector.collect(view_of(log), log.offsets[4]) == log.end
    run = collector.take()["t", 0]
    assert [unit[0] for unit in UNIT.iter_unpack(run)] == [*log.offsets[:3], 0, *log.offsets[4:]]

    folder.dispatcher.start_at(log.offsets[4])
    assert folder.dispatcher.dispatch(view_of(log)) == log.end
    assert folder.dispatcher.queues["t", 0].max_offset == 6
    assert folder.dispatcher.queues["t", 0].get(3)[1] == 0x7FFFFFFF


def test_absurd_queue_offset_is_named_not_filled(tmp_path: Path) -> None:
    records = [RecordFields(queue_offset=n) for n in (0, 1, 10**9)]
    log = write_log(tmp_path / "log", records)
    folder = Folder(tmp_path)
    with pytest.raises(CorruptRecordError, match="1000000000"):
        folder.dispatcher.dispatch(view_of(log))
    run = collect_units(view_of(log))["orders", 0]
    assert (len(run), run.repeated) == (2, 1)


def test_topic_that_leads_out_of_the_folder_is_passed_over(tmp_path: Path) -> None:
    topics = [b"t", b"../out", b"a/b", b"..", b".", b"a\0b", b"t"]
    records = [RecordFields(topic=topic, queue_offset=n // 6) for n, topic in enumerate(topics)]
    folder = Folder(tmp_path / "inside")
    log = write_log(tmp_path / "log", [*records, RecordFields(topic=b"n", queue_id=-1)], LOG_FILE_BYTES)
    folder.dispatcher.dispatch(view_of(log))
    assert folder.dispatcher.dispatched_where == log.end
    assert [name for name, _, _ in folder.opened] == ["t"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "log"]


def test_threads_that_help_each_other_dispatch_each_record_once(tmp_path: Path) -> None:
    records = records_of([("t", n % 3, "a", "k", None, 0, 50) for n in range(3000)])
    log = write_log(tmp_path / "log", records, 1 << 16)
    view = view_of(log)
    folder = Folder(tmp_path, slots=500, entries=2000)

    def help_on(step: int) -> list[int]:
        return [folder.dispatcher.dispatch(view, end) for end in range(0, log.end + step, step)]

    with ThreadPoolExecutor(4) as pool:
        for seen in pool.map(help_on, (997, 1009, 4096, 50_000)):
            assert seen == sorted(seen)
            assert seen[-1] == log.end
    assert folder.dispatcher.message_count == 3000
    assert [folder.dispatcher.queues["t", n].max_offset for n in range(3)] == [1000] * 3
    assert folder.index.query("t", "k") == log.offsets[-64:]


def test_units_of_a_log_without_its_head_keep_their_offsets(tmp_path: Path) -> None:
    records = [RecordFields(queue_offset=n + 7) for n in range(4)]
    log = write_log(tmp_path / "log", records)
    folder = Folder(tmp_path)
    folder.dispatcher.dispatch(view_of(log))
    queue = folder.dispatcher.queues["orders", 0]
    assert (queue.min_offset, queue.max_offset) == (7, 11)
    assert queue.get(7)[0] == log.offsets[0]
    queue.close()
    again = ConsumeQueue(str(tmp_path / "queues"), "orders", 0, QUEUE_BYTES)
    again.recover(view_of(log))
    again.correct_min_offset(0)
    assert (again.min_offset, again.max_offset) == (7, 11)


@pytest.mark.parametrize("part", ["queue", "index"])
def test_closed_parts_take_no_more(tmp_path: Path, part: str) -> None:
    log = write_log(tmp_path / "log", records_of([("t", 0, None, "k", None, 0, 5)] * 9))
    folder = Folder(tmp_path)
    folder.dispatcher.dispatch(view_of(log), log.offsets[2])
    (folder.index if part == "index" else folder.dispatcher.queues["t", 0]).close()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreClosedError):
        folder.dispatcher.dispatch(view_of(log))
    assert sorted(tmp_path.rglob("*")) == before


def test_forked_child_must_not_dispatch(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", records_of([("t", 0, None, None, None, 0, 5)] * 3))
    folder = Folder(tmp_path)
    folder.dispatcher.dispatch(view_of(log), log.offsets[1])
    child = os.fork()
    if child == 0:
        try:
            folder.dispatcher.dispatch(view_of(log))
        except StoreClosedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert folder.dispatcher.queues["t", 0].max_offset == 1


def test_close_waits_for_the_walk_in_progress_and_rejects_the_next(tmp_path: Path) -> None:
    """What it dispatches into is unmapped right after."""
    log = write_log(tmp_path / "log", [RecordFields(queue_offset=n) for n in range(9)], LOG_FILE_BYTES)
    folder = Folder(tmp_path)
    entered, go_on, order = threading.Event(), threading.Event(), []

    def open_queue(topic: str, queue_id: int, inner_batch: bool) -> ConsumeQueue | BatchConsumeQueue:
        entered.set()
        assert go_on.wait(timeout=100)
        order.append("walked")
        return folder.open_queue(topic, queue_id, inner_batch)

    dispatcher = Dispatcher(open_queue)
    view = view_of(log)

    def close() -> None:
        dispatcher.close()
        order.append("closed")

    walker = threading.Thread(target=dispatcher.dispatch, args=(view, log.offsets[5]))
    closer = threading.Thread(target=close)
    walker.start()
    assert entered.wait(timeout=100)
    closer.start()
    closer.join(timeout=0.1)
    assert closer.is_alive(), "the walk is under way"
    go_on.set()
    walker.join()
    closer.join()
    assert order == ["walked", "closed"]
    assert dispatcher.dispatched_where == log.offsets[5]
    with pytest.raises(StoreClosedError):
        dispatcher.dispatch(view)
    assert dispatcher.dispatched_where == log.offsets[5]
