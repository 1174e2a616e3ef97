"""A log that lacks its end after an exit in good order: who opens the folder is told, and nothing is cut."""

import logging
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger import arrow
from pyledger.errors import CorruptRecordError
from pyledger.model.message import Message, QueueRange
from pyledger.store.maintenance.rebuild import rebuild
from pyledger.store.maintenance.repair import repair
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from pyledger.wire.record.batch import BatchItem, encode_batch
from tests.cli.command_line import pyledger
from tests.golden.archive import golden_case
from tests.store.messages.test_recovery import SMALL, check_derived, log_bytes, make_store

LAST = f"{524288:020d}"
ROWS, ROWS_LEFT = 807, 796


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


LOSSES = [delete, empty, zero]


@pytest.fixture
def rolled(tmp_path: Path) -> Path:
    return golden_case("rolled-5").unpack(tmp_path)


def kinds(store: Path) -> set[str]:
    return {p.kind for p in verify(store) if p.severity == "error"}


@pytest.mark.parametrize("lose", LOSSES)
def test_opening_raises_and_keeps_the_proof(rolled: Path, lose: Callable[[Path], None]) -> None:
    lose(rolled / "commitlog" / LAST)
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"11 messages of 1 queues.*pyledger repair"):
            StoreEngine.open(rolled)
    assert not (rolled / "abort").exists(), "after that it would look like a crash"
    with pytest.raises(CorruptRecordError, match="are lost"):
        rebuild(rolled)
    assert "lost-end" in kinds(rolled)


@pytest.mark.parametrize("lose", LOSSES)
def test_readers_report_the_lost_end(rolled: Path, lose: Callable[[Path], None]) -> None:
    lose(rolled / "commitlog" / LAST)
    with StoreReader.open(rolled) as reader:
        found = []
        with pytest.raises(CorruptRecordError, match="are lost"):
            found.extend(reader.messages())
        assert len(found) == ROWS_LEFT, "what is there comes first"
        with pytest.raises(CorruptRecordError):
            next(reader.messages(order="queue"))
        assert len(list(reader.messages(limit=10))) == 10, "the end was not asked for"
    for plan in ("log", "queue"):
        with pytest.raises(CorruptRecordError):
            arrow.scan(rolled, plan=plan)
    with StoreReader.open(rolled, on_corrupt="skip") as reader:
        assert len(list(reader.messages(order="queue"))) == ROWS_LEFT
        assert [damage.physical_offset for damage in reader.skipped] == [524288]
    skipped: list[arrow.Skipped] = []
    table = arrow.scan(rolled, on_corrupt="skip", on_skip=skipped.append).read_all()
    assert (table.num_rows, len(skipped)) == (ROWS_LEFT, 1)


@pytest.mark.parametrize("how", ["emptied", "folder", "fifo"])
def test_a_log_of_which_nothing_is_left_is_not_an_empty_one(tmp_path: Path, how: str) -> None:
    with StoreEngine.open(tmp_path, mapped_file_size_bytes=32768) as store:
        store.put(Message("t", b"x"))
    (log,) = (tmp_path / "commitlog").iterdir()
    log.unlink()
    {"emptied": log.touch, "folder": log.mkdir, "fifo": lambda: os.mkfifo(log)}[how]()
    out = tmp_path.with_name("out.csv")
    for command in (["cat"], ["verify"], ["export", str(out)]):
        assert pyledger(command[0], str(tmp_path), *command[1:]).code == 1
    assert not out.exists()


def test_repair_gives_up_what_is_lost_only_on_request(rolled: Path) -> None:
    (rolled / "commitlog" / LAST).unlink()
    report = repair(rolled)
    assert [step.action for step in report.steps] == ["leave"]
    assert "11 messages" in report.steps[0].detail
    report = repair(rolled, truncate_at_damage=True)
    assert report.complete
    assert "11 messages" in report.steps[0].detail
    assert not kinds(rolled)
    with StoreEngine.open(rolled) as store:
        assert len(list(store.messages())) == ROWS_LEFT


def test_the_index_shows_the_lost_end_without_queues(rolled: Path) -> None:
    (rolled / "commitlog" / LAST).unlink()
    shutil.rmtree(rolled / "consumequeue")
    with pytest.raises(CorruptRecordError, match="index/"):
        StoreEngine.open(rolled)
    with StoreReader.open(rolled) as reader, pytest.raises(CorruptRecordError):
        list(reader.messages())


def test_the_checkpoint_shows_the_lost_end_when_all_else_is_gone(rolled: Path) -> None:
    """Java's is up to ten seconds behind; this one is as our stores leave it."""
    with StoreEngine.open(rolled):
        pass
    with StoreReader.open(rolled) as reader:
        last_ms = reader.stop.last_store_timestamp
    for number in (458752, 491520, 524288):
        (rolled / "commitlog" / f"{number:020d}").unlink()
    with StoreReader.open(rolled, on_corrupt="skip") as reader:
        assert reader.stop.last_store_timestamp < last_ms, "times tell at all"
    shutil.rmtree(rolled / "consumequeue")
    shutil.rmtree(rolled / "index")
    with pytest.raises(CorruptRecordError, match="checkpoint covers"):
        StoreEngine.open(rolled)


def test_batch_queues_show_the_lost_end(tmp_path: Path) -> None:
    body = encode_batch([BatchItem(bytes(1000)) for _ in range(4)])
    options = SMALL | {"batch_consume_queue_file_size_bytes": 46 * 20}
    with StoreEngine.open(tmp_path, **options) as store:
        for _ in range(16):
            store.append_inner_batch(Message("b", body))
        last = store._components.log.files[-1]
        start, path = last.start_offset, last.path
        kept = sum(m.physical_offset < start for m in store.messages())
    os.unlink(path)
    shutil.rmtree(tmp_path / "index")
    with pytest.raises(CorruptRecordError, match=f"{64 - 4 * kept} messages of 1 queues"):
        StoreEngine.open(tmp_path, **options)


def test_a_damaged_unit_proves_nothing_and_its_queue_keeps_its_numbers(tmp_path: Path) -> None:
    """The last unit of an idle queue names a place far behind the log; its record is where it was."""
    with StoreEngine.open(tmp_path, **SMALL) as store:
        for _ in range(3):
            store.put(Message("idle", b"x"))
        for n in range(200):
            store.put(Message("t", n.to_bytes(4, "big") + bytes(300), queue_id=n % 3))
    queue = tmp_path / "consumequeue" / "idle" / "0" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    data[40:48] = struct.pack(">q", 1 << 40)
    queue.write_bytes(data)
    with StoreReader.open(tmp_path) as reader:
        assert reader.lost_end is None
        assert reader.queues()["idle", 0] == QueueRange(0, 3)
    with StoreEngine.open(tmp_path, **SMALL) as store:
        assert store.put(Message("idle", b"y")).queue_offset == 3


def test_what_upstream_truncated_without_zeroing_is_not_lost(tmp_path: Path) -> None:
    """Units behind the end name bytes of an earlier life of the file, not zeroes."""
    places = make_store(tmp_path)
    log = log_bytes(tmp_path)
    first, size = places[-2], places[-1] - places[-2]
    name = f"{first // 32768 * 32768:020d}"
    torn = bytearray(log[int(name) : int(name) + 32768])
    torn[first % 32768 + 4] ^= 0xFF
    torn[first % 32768 + size + 4] ^= 0xFF
    (tmp_path / "commitlog" / name).write_bytes(torn)
    with StoreEngine.open(tmp_path, **SMALL) as store:
        check_derived(store, 198)


def test_after_a_crash_the_dropped_units_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_store(tmp_path, clean=False)
    max((tmp_path / "commitlog").iterdir()).unlink()
    with caplog.at_level(logging.WARNING, "pyledger.store"), StoreEngine.open(tmp_path, **SMALL) as store:
        dropped = store.recovery.units_dropped
    assert dropped > 0
    counts = [vars(r)["fields"]["count"] for r in caplog.records if "units dropped" in vars(r)["event"]]
    assert counts == [dropped]


def test_a_reader_beside_a_writer_sees_no_loss(rolled: Path) -> None:
    """The folder was looked at before the writer began; its queues are read after."""
    with StoreReader.open(rolled) as reader:
        with StoreEngine.open(rolled) as store:
            store.put(Message("beta", b"new", queue_id=0))
            store.dispatch()
            reader.queues()
            assert reader.lost_end is None
        assert len(list(reader.messages(order="queue"))) == ROWS
