"""Consume queues and index files built from golden logs against those that upstream's store wrote."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from pyledger._core import (
    BatchConsumeQueue,
    ConsumeQueue,
    Dispatcher,
    IndexFile,
    IndexFileSet,
    LogView,
    MappedFile,
    collect_units,
)
from tests.golden.archive import GoldenCase, golden_cases

LOADED = [case for case in golden_cases() if case.loads]
Queue = ConsumeQueue | BatchConsumeQueue
UNIT_BYTES = {ConsumeQueue: 20, BatchConsumeQueue: 46}
FILL = bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)
# Recovery of these dropped records, so the files hold units that upstream's own answers do not.
CUT = {"bit-flip-5", "torn-zero-4", "torn-zero-5", "torn-clean-5", "no-checkpoint-5", "crash-4", "crash-5"}


def log_view(store: Path, case: GoldenCase) -> LogView:
    files = [MappedFile.open(str(path)) for path in sorted((store / "commitlog").iterdir())]
    return LogView(files, case.summary["maxPhysicalOffset"])


def rebuild(store: Path, case: GoldenCase, view: LogView, into: Path) -> tuple[Dispatcher, IndexFileSet]:
    settings = case.facts["settings"]
    index = IndexFileSet(
        str(into / "index"), settings.get("maxHashSlotNum", 500), settings.get("maxIndexNum", 2000)
    )
    queue_bytes = settings.get("mappedFileSizeConsumeQueue", 20_000)

    def open_queue(topic: str, queue_id: int, inner_batch: bool) -> Queue:
        if inner_batch or (store / "batchconsumequeue" / topic).is_dir():
            return BatchConsumeQueue(str(into / "batchconsumequeue"), topic, queue_id)
        return ConsumeQueue(str(into / "consumequeue"), topic, queue_id, queue_bytes)

    dispatcher = Dispatcher(open_queue, index, start_offset=view.start_offset)
    assert dispatcher.dispatch(view) == view.end_offset
    return dispatcher, index


def stored_queues(store: Path) -> Iterator[Queue]:
    for kind, folder in ((ConsumeQueue, "consumequeue"), (BatchConsumeQueue, "batchconsumequeue")):
        for path in sorted((store / folder).glob("*/*")):
            yield kind(str(store / folder), path.parent.name, int(path.name), readonly=True)


def unit_bytes(queue: Queue) -> bytes:
    """Raw units from the queue's first offset on, over all its files."""
    found = bytearray()
    size = UNIT_BYTES[type(queue)]
    offset = queue.min_offset
    while offset < queue.max_offset:
        part = queue.units(offset, 1 << 20)
        found += part
        offset = (
            offset + len(part) // size
            if isinstance(queue, ConsumeQueue)
            else int.from_bytes(part[-18:-10], "big") + int.from_bytes(part[-10:-8], "big")
        )
    return bytes(found)


@pytest.fixture(params=LOADED, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> GoldenCase:
    found: GoldenCase = request.param
    return found


@pytest.fixture
def store(case: GoldenCase, tmp_path: Path) -> Path:
    return case.unpack(tmp_path)


def test_rebuilt_queues_answer_as_upstream(case: GoldenCase, store: Path, tmp_path: Path) -> None:
    view = log_view(store, case)
    dispatcher, index = rebuild(store, case, view, tmp_path / "rebuilt")
    ranges = {name: tuple(ends) for name, ends in case.summary["queues"].items()}
    found = {f"{t}/{i}": (q.min_offset, q.max_offset) for (t, i), q in dispatcher.queues.items()}
    assert found == {name: ends for name, ends in ranges.items() if ends[0] < ends[1]}
    for line in case.of_kind("time"):
        queue = dispatcher.queues.get((line["topic"], line["queueId"]))
        if case.version.startswith("5") and queue is not None:
            assert queue.offset_by_time(view, line["timestamp"]) == line["lower"], line
            assert queue.offset_by_time(view, line["timestamp"], upper=True) == line["upper"], line
    for line in case.of_kind("key"):
        answer = index.query(line["topic"], line["key"])
        if case.name in CUT:
            # After a crash upstream enters the last record's keys a second time.
            assert set(answer) == set(line["physicalOffsets"]), line
        else:
            assert answer == line["physicalOffsets"], line


def test_rebuilt_units_are_upstreams_bytes(case: GoldenCase, store: Path, tmp_path: Path) -> None:
    view = log_view(store, case)
    dispatcher, _ = rebuild(store, case, view, tmp_path / "rebuilt")
    for stored in stored_queues(store):
        stored.recover(view)
        stored.correct_min_offset(view.start_offset)
        name = f"{stored.topic}/{stored.queue_id}"
        rebuilt = dispatcher.queues.get((stored.topic, stored.queue_id))
        if case.name in CUT:
            # The writer was killed: its queues may be behind its log, and never beyond.
            assert rebuilt is not None
            assert unit_bytes(rebuilt).startswith(unit_bytes(stored))
            continue
        assert [stored.min_offset, stored.max_offset] == case.summary["queues"][name]
        if rebuilt is None:
            assert stored.min_offset == stored.max_offset
        elif case.name != "cq-ext-5":
            assert unit_bytes(rebuilt) == unit_bytes(stored)
        else:
            ext = ConsumeQueue(
                str(store / "consumequeue"),
                stored.topic,
                stored.queue_id,
                readonly=True,
                ext_folder=str(store / "consumequeue_ext"),
            )
            ext.recover(view)
            assert [ext.get(n) for n in range(ext.max_offset)] == [
                rebuilt.get(n) for n in range(rebuilt.max_offset)
            ]


def test_rebuilt_files_are_upstreams_files(case: GoldenCase, store: Path, tmp_path: Path) -> None:
    if case.name in CUT or case.name.startswith(("deleted-head", "cq-ext", "no-queues")):
        pytest.skip("the folder's files hold more or other bytes than its log gives")
    rebuild(store, case, log_view(store, case), tmp_path / "rebuilt")
    for folder in ("consumequeue", "batchconsumequeue"):
        for path in (p for p in (store / folder).rglob("*") if p.is_file()):
            ours = tmp_path / "rebuilt" / path.relative_to(store)
            assert ours.read_bytes() == path.read_bytes(), path
    theirs = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    assert [path.read_bytes() for path in sorted((tmp_path / "rebuilt" / "index").iterdir())] == theirs


def test_collected_units_are_dispatched_units(case: GoldenCase, store: Path, tmp_path: Path) -> None:
    view = log_view(store, case)
    dispatcher, _ = rebuild(store, case, view, tmp_path / "rebuilt")
    batch_topics = [path.name for path in (store / "batchconsumequeue").glob("*")]
    runs = collect_units(view, batch_topics=batch_topics)
    assert runs.keys() == dispatcher.queues.keys()
    for name, run in runs.items():
        queue = dispatcher.queues[name]
        assert (run.first_queue_offset, run.next_queue_offset) == (queue.min_offset, queue.max_offset)
        assert bytes(run) == unit_bytes(queue)
        assert run.repeated == 0


def test_stored_index_answers_as_upstream(case: GoldenCase, store: Path) -> None:
    if case.name in CUT or case.name.startswith("no-queues"):
        pytest.skip("upstream answers from files that it made anew")
    settings = case.facts["settings"]
    index = IndexFileSet(str(store / "index"), readonly=True)
    for file in index.files:
        assert (file.slot_count, file.entry_capacity) == (settings["maxHashSlotNum"], settings["maxIndexNum"])
    for line in case.of_kind("key"):
        start = case.summary["minPhysicalOffset"]
        found = [offset for offset in index.query(line["topic"], line["key"]) if offset >= start]
        assert found == [offset for offset in line["physicalOffsets"] if offset >= start], line


def test_index_files_go_on_from_each_other(case: GoldenCase, store: Path) -> None:
    files = [IndexFile(str(path), readonly=True) for path in sorted((store / "index").glob("*"))]
    for earlier, later in pairwise(files):
        assert earlier.full
        assert earlier.end_physical_offset <= later.begin_physical_offset
