"""Queues that lost units or files: opening brings back what the log has, and never gives a number twice."""

import shutil
from pathlib import Path

import pytest

from pyledger.model.message import Message, QueueRange
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from pyledger.wire.record.batch import BatchItem, encode_batch
from tests.fault_injection.shim import compiler
from tests.store.messages.test_failures import child
from tests.store.messages.test_recovery import SMALL, check_derived, make_store

UNIT_BYTES = 20
FILE_UNITS = SMALL["consume_queue_file_size_bytes"] // UNIT_BYTES
NEXT = {0: 67, 1: 67, 2: 66}
"""Queue offsets that come next in the store of `make_store`."""

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the shim")


def zero_units(folder: Path, first: int, end: int) -> None:
    """Zero units [first, end) of a queue, as a lost page does."""
    for path in sorted(folder.iterdir()):
        start = int(path.name) // UNIT_BYTES
        data = bytearray(path.read_bytes())
        for unit in range(max(first, start), min(end, start + FILE_UNITS)):
            at = (unit - start) * UNIT_BYTES
            data[at : at + UNIT_BYTES] = bytes(UNIT_BYTES)
        path.write_bytes(data)


def lose_last_units(queue: Path) -> None:
    zero_units(queue, 57, 67)


def lose_middle_units(queue: Path) -> None:
    zero_units(queue, 45, 50)


def lose_units_up_to_the_end_of_a_file(queue: Path) -> None:
    zero_units(queue, 20, 40)


def lose_first_file(queue: Path) -> None:
    (queue / f"{0:020d}").unlink()


def lose_last_file(queue: Path) -> None:
    (queue / f"{800:020d}").unlink()


def lose_content_of_first_file(queue: Path) -> None:
    (queue / f"{0:020d}").write_bytes(bytes(800))


def lose_all_content(queue: Path) -> None:
    for path in queue.iterdir():
        path.write_bytes(bytes(800))


def lose_all_files(queue: Path) -> None:
    for path in queue.iterdir():
        path.unlink()


LOSSES = [
    lose_last_units,
    lose_middle_units,
    lose_units_up_to_the_end_of_a_file,
    lose_first_file,
    lose_last_file,
    lose_content_of_first_file,
    lose_all_content,
    lose_all_files,
    shutil.rmtree,
]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("lose", LOSSES, ids=[loss.__name__ for loss in LOSSES])
def test_units_that_one_queue_lost_come_back(tmp_path: Path, lose: object, clean: bool) -> None:
    make_store(tmp_path, clean=clean)
    lose(tmp_path / "consumequeue" / "t" / "1")  # type: ignore[operator]
    with StoreReader.open(tmp_path) as reader:
        assert reader.queues() == {("t", q): QueueRange(0, NEXT[q]) for q in range(3)}
    with StoreEngine.open(tmp_path, **SMALL) as store:
        check_derived(store, 200)
        assert store.put(Message("t", b"next", queue_id=1)).queue_offset == NEXT[1]
    with StoreEngine.open(tmp_path, **SMALL) as store:
        assert store.queue_range("t", 1) == QueueRange(0, NEXT[1] + 1)


def test_a_file_missing_in_the_middle_of_a_queue_is_made_again(tmp_path: Path) -> None:
    make_store(tmp_path, count=400)
    files = sorted((tmp_path / "consumequeue" / "t" / "2").iterdir())
    assert len(files) == 4
    files[1].unlink()
    with StoreEngine.open(tmp_path, **SMALL) as store:
        check_derived(store, 400)


def test_a_queue_truncated_to_nothing_does_not_make_every_opening_slow(tmp_path: Path) -> None:
    places = make_store(tmp_path, clean=False)
    with StoreEngine.open(tmp_path, **SMALL) as store:
        lone = store.put(Message("lone", b"x")).physical_offset
    log = tmp_path / "commitlog" / f"{lone // 32768 * 32768:020d}"
    data = bytearray(log.read_bytes())
    data[lone % 32768 :] = bytes(len(data) - lone % 32768)
    log.write_bytes(data)
    (tmp_path / "abort").touch()
    with StoreEngine.open(tmp_path, **SMALL):
        pass
    with StoreEngine.open(tmp_path, **SMALL) as store:
        last_file = [place for place in places if place >= store._components.log.files[-1].start_offset]
        assert store.recovery.dispatched == len(last_file), "only the last file is looked at again"


def test_an_emptied_queue_keeps_its_numbers_when_others_are_rebuilt(tmp_path: Path) -> None:
    """Retention deleted all of its messages: nothing but its units tells how many there were."""
    with StoreEngine.open(tmp_path, retention_hours=0, delete_files_max=1, **SMALL) as store:
        for _ in range(5):
            store.put(Message("idle", b"x"))
        for n in range(200):
            store.put(Message("t", n.to_bytes(4, "big") + bytes(300), queue_id=n % 3))
        store.dispatch()
        assert store.delete_expired()
        before = store.queues()
        assert before["idle", 0] == QueueRange(5, 5)
        assert len(store._components.log.files) > 1, "opening looks at less than the whole log"
    shutil.rmtree(tmp_path / "consumequeue" / "t" / "1")
    with StoreEngine.open(tmp_path, **SMALL) as store:
        assert store.queues() == before
        assert store.put(Message("idle", b"y")).queue_offset == 5


def test_a_lost_queue_that_goes_on_at_a_files_start_is_noticed(tmp_path: Path) -> None:
    """Queue offset 40 is the first of a file: no unit before it would have to be made up."""
    with StoreEngine.open(tmp_path, **SMALL) as store:
        for n in range(FILE_UNITS):
            store.put(Message("t", n.to_bytes(4, "big") + bytes(300)))
        while store.max_offset < 32768:
            store.put(Message("other", bytes(300)))
        store.put(Message("t", FILE_UNITS.to_bytes(4, "big")))
    shutil.rmtree(tmp_path / "consumequeue" / "t")
    with StoreEngine.open(tmp_path, **SMALL) as store:
        assert store.queue_range("t", 0) == QueueRange(0, FILE_UNITS + 1)
        assert store.put(Message("t", b"next")).queue_offset == FILE_UNITS + 1


@pytest.mark.parametrize("kept", [0, 1, 15])
def test_batches_that_one_queue_lost_come_back(tmp_path: Path, kept: int) -> None:
    options = SMALL | {"batch_consume_queue_file_size_bytes": 46 * 20}
    body = encode_batch([BatchItem(bytes(1000)) for _ in range(4)])
    with StoreEngine.open(tmp_path, **options) as store:
        for _ in range(16):
            store.append_inner_batch(Message("b", body))
        assert len(store._components.log.files) > 1
    (path,) = (tmp_path / "batchconsumequeue" / "b" / "0").iterdir()
    path.write_bytes(path.read_bytes()[: kept * 46].ljust(46 * 20, b"\0"))
    with StoreEngine.open(tmp_path, **options) as store:
        assert store.queue_range("b", 0) == QueueRange(0, 64)
        found = store.get("b", 0, 4 * kept).messages
        assert found[0].queue_offset == 4 * kept


@needs_compiler
def test_what_a_killed_process_left_unsynced_is_synced_before_it_is_vouched_for(tmp_path: Path) -> None:
    """Queue files and their names, as well as the names of log files: kill -9, reopen, then a power cut."""
    with StoreEngine.open(tmp_path / "store", consume_queue_file_size_bytes=800) as store:
        for n in range(600):
            store.put(Message("t", b"x", queue_id=n % 3))
    (tmp_path / "store" / "abort").touch()
    files = sum(path.is_file() for path in (tmp_path / "store" / "consumequeue").rglob("*"))
    assert files == 15
    printed = child(
        """
        synced = faults.seen(Call.FDATASYNC), faults.seen(Call.FSYNC)
        store = StoreEngine.open(sys.argv[1])
        assert store.recovery.dispatched, "recovered"
        # At opening, without any put: each queue file, and the names in `consumequeue` and `commitlog`.
        assert faults.seen(Call.FDATASYNC) - synced[0] >= 15, faults.seen(Call.FDATASYNC) - synced[0]
        assert faults.seen(Call.FSYNC) - synced[1] >= 3 * 3 + 1, faults.seen(Call.FSYNC) - synced[1]
        store.close()
        print("ok")
        """,
        tmp_path,
    )
    assert printed == "ok\n"


@needs_compiler
def test_opening_fails_when_recovered_queues_cannot_be_synced(tmp_path: Path) -> None:
    make_store(tmp_path / "store", clean=False)
    checkpoint = (tmp_path / "store" / "checkpoint").read_bytes()
    printed = child(
        """
        log_files = len(os.listdir(sys.argv[1] + "/commitlog"))
        faults.fail(Call.FDATASYNC, errno.EIO, after=log_files + 2)
        options = SMALL | {"consume_queue_file_size_bytes": 800, "mapped_file_size_bytes": 32768,
                           "index_slots": 20, "index_entries": 80}
        refused(StoreError, lambda: StoreEngine.open(sys.argv[1], **options))
        assert faults.failed(Call.FDATASYNC) == 1, "a failed sync is not tried again"
        print("ok")
        """,
        tmp_path,
    )
    assert printed == "ok\n"
    assert (tmp_path / "store" / "checkpoint").read_bytes() == checkpoint, "vouched for nothing new"
    with StoreEngine.open(tmp_path / "store", **SMALL) as store:
        check_derived(store, 200)
