"""The journal of a running bookie: batches, their seals, what a crash leaves, what a start takes over."""

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from pyledger._core import JournalWriter
from pyledger.clock import SystemClock
from pyledger.config.bookie import BookieConfig
from pyledger.errors import (
    LedgerFileError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
    StoreFullError,
    StoreIOError,
    StoreLockedError,
)
from pyledger.protocol.bookkeeper.bookie import (
    EntryRecord,
    FenceRecord,
    KeyRecord,
    LacRecord,
    LedgerAtBookie,
    Record,
)
from pyledger.store.bookkeeper.file_maps import FileMaps
from pyledger.store.bookkeeper.folder import BookiePaths
from pyledger.store.bookkeeper.index import written_slots
from pyledger.store.bookkeeper.journal import Journal, replayed_records
from pyledger.store.bookkeeper.store import BookieStore
from pyledger.wire.bookkeeper.journal import (
    HEADER_BYTES,
    encode_record,
    header,
    records,
    start_of,
    whole_end,
)
from tests.servers.bookkeeper.bookie_peer import KEY, entry_of

NUMBER = 5


def written(path: Path, batches: list[list[Record]]) -> list[int]:
    """A journal of these batches; where each ends."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(file, header(sealed=True), 0)
    writer, ends = JournalWriter(file_bytes_max=1 << 30, allocate_bytes=1 << 16), []
    writer.open_file(str(path), file, NUMBER, HEADER_BYTES)
    thread = threading.Thread(target=writer.run)
    thread.start()
    for batch in batches:
        for record in batch:
            wanted = writer.append(encode_record(record))
        writer.kick()
        while writer.synced < wanted:
            thread.join(0.001)
        ends.append(writer.mark[1])
    writer.close()
    thread.join()
    os.close(file)
    assert writer.syncs == len(batches)
    with pytest.raises(StoreClosedError):
        writer.append(b"late")
    return ends


def found(data: bytes) -> list[Record]:
    view = memoryview(data)
    start = start_of("journal", view)
    end = whole_end("journal", NUMBER, view, start)
    return [one.record for one in records("journal", view[:end], start)]


BATCHES: list[list[Record]] = [
    [KeyRecord(1, KEY), EntryRecord(1, 0, entry_of(1, 0)), EntryRecord(1, 1, entry_of(1, 1, bytes(700)))],
    [FenceRecord(1)],
    [LacRecord(1, bytes(20)), EntryRecord(1, 2, entry_of(1, 2, b"\xff\xff\xff\x00" * 100))],
]


def test_every_size_of_a_batch_ends_at_a_block(tmp_path: Path) -> None:
    for size in range(440, 520):
        one: list[Record] = [EntryRecord(1, 0, entry_of(1, 0, bytes(size)))]
        path = tmp_path / str(size)
        first, second = written(path, [one, one])
        assert (first % 512, second % 512) == (0, 0)
        assert found(path.read_bytes()) == one + one


def test_a_torn_batch_was_never_there(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    ends = written(path, BATCHES)
    data = path.read_bytes()
    assert found(data) == [record for batch in BATCHES for record in batch]
    before = [record for batch in BATCHES[:-1] for record in batch]
    for cut in range(ends[-2], ends[-1]):
        torn = data[:cut].ljust(len(data), b"\0")
        # The last bytes of a batch are zeros anyway, which nobody can miss.
        assert found(torn) == before or torn == data
        assert found(data[:cut]) == before
    for lost in range(ends[-2], ends[-1], 512):
        torn = data[:lost] + bytes(512) + data[lost + 512 :]
        assert found(torn) == before


def test_damage_before_a_whole_batch_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    ends = written(path, BATCHES)
    data = bytearray(path.read_bytes())
    data[ends[0] - 400] ^= 1
    with pytest.raises(LedgerFileError, match="whole one follows"):
        found(bytes(data))


def test_a_failed_write_is_final(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(header(sealed=True))
    file = os.open(path, os.O_RDONLY)  # so every write fails
    writer = JournalWriter(file_bytes_max=1 << 30, allocate_bytes=0)
    writer.open_file(str(path), file, NUMBER, HEADER_BYTES)
    writer.append(encode_record(FenceRecord(1)))
    with pytest.raises(StoreError):
        writer.run()
    os.close(file)
    assert writer.failed
    assert writer.synced == 0
    with pytest.raises(StoreFailedError):
        writer.append(encode_record(FenceRecord(1)))


def opened(folder: Path, **settings: int) -> BookieStore:
    config = BookieConfig(**settings)
    return BookieStore.open(BookiePaths.below(folder), config, SystemClock())


def add(store: BookieStore, ledger_id: int, entry_id: int) -> int:
    entry = entry_of(ledger_id, entry_id, b"%d" % entry_id)
    store.put(ledger_id, entry_id, entry)
    return store.journals.writers[0].append(encode_record(EntryRecord(ledger_id, entry_id, entry)))


def wait_for(store: BookieStore, appended: int) -> None:
    store.journals.writers[0].kick()
    pause = threading.Event()
    while store.journals.writers[0].synced < appended:
        pause.wait(0.001)


def test_every_image_of_a_crash_has_what_was_acknowledged(tmp_path: Path) -> None:
    live, images = tmp_path / "live", []
    # Small files: the journal rolls, entry logs roll, checkpoints come in between.
    store = opened(
        live, journal_max_size_bytes=1 << 16, journal_pre_alloc_bytes=1 << 12, log_size_limit_bytes=1 << 12
    )
    store.journals.writers[0].append(encode_record(KeyRecord(1, KEY)))
    store.ledgers[1] = LedgerAtBookie(KEY)
    acknowledged = 0
    for round_number in range(12):
        for _ in range(40):
            appended = add(store, 1, acknowledged)
            acknowledged += 1
        wait_for(store, appended)
        checkpoint = store.begin_checkpoint() if round_number % 3 == 1 else None
        for moment in ("before", "after"):
            image = tmp_path / f"{round_number}-{moment}"
            shutil.copytree(live, image)
            images.append((image, acknowledged))
            if checkpoint is not None and moment == "before":
                store.write_checkpoint(checkpoint)
                store.end_checkpoint(checkpoint)
    store.close()
    images.append((live, acknowledged))
    for image, count in images:
        again = opened(image)
        try:
            for entry_id in range(count):
                assert again.get(1, entry_id) == entry_of(1, entry_id, b"%d" % entry_id), (
                    image.name,
                    entry_id,
                )
            assert list(again.entry_ranges(1)) == [range(count)]
        finally:
            again.close()


def test_whatever_ends_a_journal_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds would wait for its thread for ever."""
    notified = threading.Event()
    config = BookieConfig(journal_max_size_bytes=1 << 16)
    store = BookieStore.open(BookiePaths.below(tmp_path), config, SystemClock(), notified.set)

    def refuse(_journal: Journal) -> None:
        raise RuntimeError("what nobody has thought of")

    monkeypatch.setattr(Journal, "_next_file", refuse)
    (writer,) = store.journals.writers
    writer.append(encode_record(EntryRecord(1, 0, entry_of(1, 0, bytes(1 << 17)))))
    writer.kick()
    notified.wait()
    assert store.journals.failed
    with pytest.raises(StoreFailedError):
        writer.append(b"late")
    store.close()


def test_a_second_bookie_is_kept_out(tmp_path: Path) -> None:
    store = opened(tmp_path)
    try:
        with pytest.raises(StoreLockedError):
            opened(tmp_path)
    finally:
        store.close()


def test_a_journal_that_the_mark_names_must_be_there(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.close()
    for path in (tmp_path / "journal/current").glob("*.txn"):
        path.unlink()
    with pytest.raises(LedgerFileError, match="is missing"):
        opened(tmp_path)


def test_a_journal_that_ends_before_the_mark_is_an_error(tmp_path: Path) -> None:
    store = opened(tmp_path)
    (_, position) = store.journals.marks[0]
    store.close()
    newest = max((tmp_path / "journal/current").glob("*.txn"))
    os.truncate(newest, position - 1)
    with pytest.raises(
        LedgerFileError, match=rf"byte {position - 1}: the file ends here, before byte {position}"
    ):
        opened(tmp_path)


def test_a_journal_on_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StoreFullError, match=r"make .*\.txn: no space left"):
            opened(tmp_path)
    assert list((tmp_path / "journal/current").glob("*.txn")) == []
    opened(tmp_path).close()


@pytest.mark.parametrize("damage", ["cut", "removed", "a folder"])
def test_a_damaged_entry_log_hides_no_other_ledger(tmp_path: Path, damage: str) -> None:
    """The last entry of a ledger is looked at when a bookie starts."""
    kept, lost = 1, 2
    for ledger_id in (kept, lost):
        store = opened(tmp_path)
        store.ledgers[ledger_id] = LedgerAtBookie(KEY)
        store.journals.writers[0].append(encode_record(KeyRecord(ledger_id, KEY)))
        wait_for(store, add(store, ledger_id, 0))
        store.close()
    log = max((tmp_path / "ledgers/current").glob("*.log"))
    if damage == "cut":
        os.truncate(log, 1024)
    else:
        log.unlink()
        if damage == "a folder":
            log.mkdir()
    store = opened(tmp_path)
    try:
        assert store.get(kept, 0) == entry_of(kept, 0, b"0")
        with pytest.raises((LedgerFileError, StoreIOError), match=log.name):
            store.get(lost, 0)
    finally:
        store.close()


def test_a_journal_that_the_disk_cannot_read_is_not_one_that_ends(tmp_path: Path) -> None:
    """Its mapping gives zeroes, as after the last batch of a killed bookie."""
    path, maps = tmp_path / "5.txn", FileMaps()
    written(path, [[EntryRecord(1, entry_id, entry_of(1, entry_id, bytes(5000)))] for entry_id in range(4)])
    with maps.reading(str(path)):
        os.truncate(path, 4096)
    replayed = replayed_records({NUMBER: str(path)}, (0, 0), maps)
    with pytest.raises(StoreIOError, match=f"cannot read {path}"):
        list(replayed)


def test_an_entry_that_the_disk_cannot_read_is_an_error_and_the_others_are_there(tmp_path: Path) -> None:
    """Such a file ended the process with a SIGBUS."""
    store = BookieStore.open(BookiePaths.below(tmp_path), BookieConfig(), SystemClock())
    store.ledgers[1] = LedgerAtBookie(KEY)
    for entry_id in range(4):
        store.put(1, entry_id, entry_of(1, entry_id, b"x" * 5000))
    store.changed.add(1)
    store.close()
    log = tmp_path / "ledgers" / "current" / "0.log"
    maps, slots = FileMaps(), dict(written_slots(str(tmp_path / "ledgers/current/0/1/1.idx")))
    with maps.reading(str(log)):
        os.truncate(log, 8192)
    first, last = (slots[entry_id] & 0xFFFFFFFF for entry_id in (0, 3))
    for _ in range(2):
        assert bytes(maps.entry(str(log), first, 1, 0)) == entry_of(1, 0, b"x" * 5000)
        with pytest.raises(StoreIOError, match=f"cannot read {log}"):
            maps.entry(str(log), last, 1, 3)
