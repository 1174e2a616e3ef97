"""Indexes that are gone, cut or blank: what they named is found again, or is an error, and never denied."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyledger.clock import SystemClock
from pyledger.config.bookie import BookieConfig
from pyledger.errors import LedgerFileError
from pyledger.protocol.bookkeeper.bookie import EntryRecord, KeyRecord, LedgerAtBookie
from pyledger.store.bookkeeper import ledger_list
from pyledger.store.bookkeeper.compaction import compaction
from pyledger.store.bookkeeper.disks import LedgerDisks
from pyledger.store.bookkeeper.folder import LIST_FILE, BookiePaths, entry_log_files, index_path
from pyledger.store.bookkeeper.ledger_list import LedgerList
from pyledger.store.bookkeeper.store import BookieStore
from pyledger.store.bookkeeper.verify import BookieCheck
from pyledger.wire.bookkeeper.entry_log import INDEX_HEADER_BYTES
from pyledger.wire.bookkeeper.journal import encode_record
from pyledger.wire.bookkeeper.ledger_list import RECORD_BYTES, ListedLedger
from tests.servers.bookkeeper.bookie_peer import KEY, entry_of

WHOLE, STRIPED, FENCED = 1, 2, 3
COUNT = 30
ENTRIES = {WHOLE: range(COUNT), STRIPED: range(0, COUNT, 3), FENCED: range(4)}
SLOT = 8
JAVA_PAGE_BYTES = 8192


def opened(folder: Path) -> BookieStore:
    config = BookieConfig(log_size_limit_bytes=1 << 12)
    return BookieStore.open(BookiePaths.below(folder), config, SystemClock())


def checkpoint(store: BookieStore) -> None:
    begun = store.begin_checkpoint()
    assert begun is not None
    store.write_checkpoint(begun)
    store.end_checkpoint(begun)


def put(store: BookieStore, ledger_id: int, entry_id: int) -> None:
    ledger = store.ledgers.setdefault(ledger_id, LedgerAtBookie(KEY))
    ledger.fenced = ledger_id == FENCED
    store.put(ledger_id, entry_id, entry_of(ledger_id, entry_id, bytes(200)))
    store.changed.add(ledger_id)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BookieStore]:
    """Three ledgers over several logs, nothing of it in the journal; the last log is not closed."""
    store = opened(tmp_path / "live")
    for entry_id in range(COUNT):
        for ledger_id, ids in ENTRIES.items():
            if entry_id in ids:
                put(store, ledger_id, entry_id)
        if entry_id % 7 == 6:
            checkpoint(store)
    checkpoint(store)
    yield store
    store.close()


def look(store: BookieStore) -> None:
    for ledger_id, ids in ENTRIES.items():
        assert [one for run in store.entry_ranges(ledger_id) for one in run] == [*ids]
        for entry_id in range(COUNT):
            expected = entry_of(ledger_id, entry_id, bytes(200)) if entry_id in ids else None
            assert store.get(ledger_id, entry_id) == expected, (ledger_id, entry_id)
        assert store.ledgers[ledger_id].master_key == KEY
        assert store.ledgers[ledger_id].fenced is (ledger_id == FENCED)


def index_of(folder: Path, ledger_id: int) -> Path:
    return Path(index_path(str(folder / "ledgers/current"), ledger_id))


def blank(path: Path, first: int, count: int) -> None:
    with path.open("r+b") as file:
        file.seek(INDEX_HEADER_BYTES + SLOT * first)
        file.write(bytes(SLOT * count))


def break_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(INDEX_HEADER_BYTES))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "gone": Path.unlink,
    "cut": lambda path: os.truncate(path, INDEX_HEADER_BYTES + SLOT),
    "without slots": lambda path: os.truncate(path, INDEX_HEADER_BYTES),
    "in a slot": lambda path: os.truncate(path, INDEX_HEADER_BYTES + SLOT + 3),
    "blank at the end": lambda path: blank(path, 3, COUNT),
    "blank in the middle": lambda path: blank(path, 0, 1),
    "empty": lambda path: os.truncate(path, 0),
    "no header": break_header,
}
damage = pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
every_ledger = pytest.mark.parametrize("ledger_id", ENTRIES)


def problems(folder: Path) -> set[str]:
    return {one.kind for one in BookieCheck(str(folder)).findings() if one.severity == "error"}


def test_an_index_ends_with_a_whole_page(running: BookieStore, tmp_path: Path) -> None:
    """Java's `bookie shell ledger` and its consistency check skip a page that is not complete."""

    def pages() -> tuple[int, int]:
        return divmod(index_of(tmp_path / "live", WHOLE).stat().st_size - INDEX_HEADER_BYTES, JAVA_PAGE_BYTES)

    assert pages() == (1, 0)
    put(running, WHOLE, JAVA_PAGE_BYTES // SLOT)
    checkpoint(running)
    assert pages() == (2, 0)
    assert list(running.entry_ranges(WHOLE)) == [range(COUNT), range(1024, 1025)]


@damage
@every_ledger
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_an_index_is_made_anew(
    running: BookieStore, tmp_path: Path, damage: Callable[[Path], None], ledger_id: int, end: str
) -> None:
    if end == "closed":
        running.close()
    image = tmp_path / "image"
    shutil.copytree(tmp_path / "live", image)
    assert not problems(image)
    damage(index_of(image, ledger_id))
    assert "bookie-lost" in problems(image)
    again = opened(image)
    look(again)
    again.close()
    assert not problems(image)
    opened(image).close()


@every_ledger
def test_a_start_is_refused_when_the_logs_lack_entries_too(
    running: BookieStore, tmp_path: Path, ledger_id: int
) -> None:
    running.close()
    live = tmp_path / "live"
    index_of(live, ledger_id).unlink()
    Path(entry_log_files(str(live / "ledgers/current"))[0]).unlink()
    for _ in range(2):
        with pytest.raises(LedgerFileError, match=f"ledger {ledger_id} has"):
            opened(live)
    assert "bookie-lost" in problems(live)


def test_the_journal_may_hold_what_the_logs_lack(tmp_path: Path) -> None:
    """A crash before the mark moves on: the list tells of entries, and the journal still has them."""
    live, image = tmp_path / "live", tmp_path / "image"
    store = opened(live)
    marked = (live / "ledgers/current/lastMark").read_bytes()
    put(store, WHOLE, 0)
    (writer,) = store.journals.writers
    for record in (KeyRecord(WHOLE, KEY), EntryRecord(WHOLE, 0, entry_of(WHOLE, 0, bytes(200)))):
        writer.append(encode_record(record))
    checkpoint(store)
    store.close()
    shutil.copytree(live, image)
    (image / "ledgers/current/lastMark").write_bytes(marked)
    index_of(image, WHOLE).unlink()
    (log,) = entry_log_files(str(image / "ledgers/current")).values()
    Path(log).unlink()
    assert not problems(image)
    again = opened(image)
    assert again.get(WHOLE, 0) == entry_of(WHOLE, 0, bytes(200))
    again.close()


@pytest.mark.parametrize("name", ["gone", "cut", "blank at the end"])
def test_a_running_bookie_denies_nothing_that_its_index_has_lost(
    running: BookieStore, tmp_path: Path, name: str
) -> None:
    running._indexes.close()
    DAMAGE[name](index_of(tmp_path / "live", WHOLE))
    with pytest.raises(LedgerFileError, match="has lost"):
        running.get(WHOLE, COUNT - 1)
    with pytest.raises(LedgerFileError, match="has lost"):
        list(running.entry_ranges(WHOLE))
    with pytest.raises(LedgerFileError, match="has lost"):
        list(compaction(running.logs, running._indexes, min(running.logs.closed(()))))


def test_what_was_deleted_is_not_missed(running: BookieStore, tmp_path: Path) -> None:
    images = []
    for step in (lambda: None, running.dead_logs, running.close):
        running.remove_ledger(WHOLE)
        step()
        images.append(tmp_path / f"image-{len(images)}")
        shutil.copytree(tmp_path / "live", images[-1])
    for image in images[1:]:
        assert not problems(image)
        again = opened(image)
        assert WHOLE not in again.ledgers
        assert again.unknown_ledgers() == {WHOLE}
        again.close()
    # A crash before the deletion is durable: it is there again, until it is collected again.
    again = opened(images[0])
    look(again)
    again.close()


def test_a_ledger_that_comes_back_is_listed_again(running: BookieStore, tmp_path: Path) -> None:
    running.remove_ledger(WHOLE)
    put(running, WHOLE, 0)
    checkpoint(running)
    running.close()
    index_of(tmp_path / "live", WHOLE).unlink()
    again = opened(tmp_path / "live")
    assert again.get(WHOLE, 0) is not None
    again.close()


def test_a_log_stays_until_its_ledgers_are_known_to_be_deleted(running: BookieStore, tmp_path: Path) -> None:
    """Folders of an older release, which have no list."""
    running.close()
    live = tmp_path / "live"
    (live / "ledgers/current" / LIST_FILE).unlink()
    for ledger_id in ENTRIES:
        index_of(live, ledger_id).unlink()
    notes = [one for one in BookieCheck(str(live)).findings() if one.kind == "bookie-lost"]
    assert [one.severity for one in notes] == ["note"] * len(ENTRIES)
    store = opened(live)
    assert not store.is_listed
    assert store.unknown_ledgers() == {*ENTRIES}
    assert store.dead_logs() == []
    assert store.logs_worth_compacting(100) == []
    store.deleted.update((WHOLE, STRIPED))
    with_fenced = {number for number, sizes in store.logs.sizes.items() if FENCED in sizes}
    assert with_fenced
    assert set(store.dead_logs()) == store.logs.sizes.keys() - with_fenced
    store.close()


def test_without_a_list_an_index_that_lacks_what_logs_hold_is_told(
    running: BookieStore, tmp_path: Path
) -> None:
    running.close()
    live = tmp_path / "live"
    (live / "ledgers/current" / LIST_FILE).unlink()
    assert not problems(live)
    DAMAGE["cut"](index_of(live, WHOLE))
    assert problems(live) == {"bookie-lost"}


# --- the list itself

ONE = ListedLedger(KEY, False, 4, 5)


def listing(tmp_path: Path, *names: str) -> LedgerList:
    folders = [tmp_path / name for name in names or ("a",)]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return LedgerList(LedgerDisks([str(folder) for folder in folders], 90, 80))


def test_a_list_that_another_program_has_left_behind_counts_no_more(tmp_path: Path) -> None:
    """Java's bookie moves the mark on, and leaves the list as it is."""
    listing(tmp_path).write(((7, 100), (8, 50)), {1: ONE})
    assert listing(tmp_path).read([(7, 100), (8, 0)]) == {1: ONE}
    assert listing(tmp_path).read([(7, 100), (9, 0)]) is None


def test_a_torn_end_was_never_needed(tmp_path: Path) -> None:
    written = listing(tmp_path)
    written.write(((7, 0),), {1: ONE})
    path = tmp_path / "a" / LIST_FILE
    whole = path.read_bytes()
    written.write(((7, 0),), {2: ONE})
    longer = path.read_bytes()
    for size in range(len(whole), len(whole) + RECORD_BYTES - 12):  # a record ends with zeros
        for torn in (longer[:size], longer[:size].ljust(len(longer), b"\0")):
            path.write_bytes(torn)
            assert listing(tmp_path).read([(7, 0)]) == {1: ONE}


def test_a_damaged_list_is_left_out(tmp_path: Path) -> None:
    written = listing(tmp_path)
    written.write(((7, 0),), {1: ONE})
    path = tmp_path / "a" / LIST_FILE
    data = bytearray(path.read_bytes())
    data[RECORD_BYTES + 20] ^= 1
    path.write_bytes(data)
    assert listing(tmp_path).read([(7, 0)]) is None


def test_a_list_moves_to_a_disk_that_has_room(tmp_path: Path) -> None:
    written = listing(tmp_path, "a", "b")
    written.write(((7, 0),), {1: ONE})
    (first,) = tmp_path.glob(f"*/{LIST_FILE}")
    written._disks.full = frozenset({str(first.parent)})
    written.write(((7, 1),), {2: ONE})
    (second,) = tmp_path.glob(f"*/{LIST_FILE}")
    assert first != second
    assert listing(tmp_path, "a", "b").read([(7, 1)]) == {1: ONE, 2: ONE}


def test_of_two_lists_the_newer_one_counts(tmp_path: Path) -> None:
    """A crash between the making of one and the removal of the other."""
    written = listing(tmp_path, "a", "b")
    written.write(((7, 0),), {1: ONE})
    (first,) = tmp_path.glob(f"*/{LIST_FILE}")
    old = first.read_bytes()
    written._disks.full = frozenset({str(first.parent)})
    written.write(((7, 0),), {2: ONE})
    first.write_bytes(old)
    assert listing(tmp_path, "a", "b").read([(7, 0)]) == {1: ONE, 2: ONE}


def test_a_list_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_list, "SPARE_RECORDS", 16)
    written = listing(tmp_path)
    for at in range(200):
        written.write(((7, at),), {at % 4: ListedLedger(KEY, False, at, at + 1)})
        written.remove((at + 1) % 4)
    assert (tmp_path / "a" / LIST_FILE).stat().st_size < 32 * RECORD_BYTES
    assert listing(tmp_path).read([(7, 199)]) == written.ledgers | {0: ListedLedger(KEY, False, 196, 197)}
