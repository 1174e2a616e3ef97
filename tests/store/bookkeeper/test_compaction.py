"""Compaction of entry logs: whatever moment a crash takes, every entry that is needed is there."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyledger.clock import SystemClock
from pyledger.config.bookie import BookieConfig
from pyledger.errors import LedgerFileError
from pyledger.protocol.bookkeeper.bookie import LedgerAtBookie
from pyledger.store.bookkeeper.compaction import compaction
from pyledger.store.bookkeeper.entry_log import EntryLogs
from pyledger.store.bookkeeper.folder import BookiePaths, entry_log_files
from pyledger.store.bookkeeper.index import IndexFiles
from pyledger.store.bookkeeper.store import BookieStore
from pyledger.store.bookkeeper.verify import BookieCheck
from pyledger.wire.bookkeeper.entry_log import INDEX_HEADER_BYTES, log_header, map_position
from tests.servers.bookkeeper.bookie_peer import KEY, entry_of

ENTRIES = 24
KEPT, GONE = (1, 2), (3, 4)
SLICE_BYTES = 600
LOG_BYTES = 1 << 12


def opened(folder: Path) -> BookieStore:
    config = BookieConfig(log_size_limit_bytes=LOG_BYTES)
    return BookieStore.open(BookiePaths.below(folder), config, SystemClock())


def current_of(folder: Path) -> str:
    return str(folder / "ledgers/current")


def payload_of(entry_id: int) -> bytes:
    return b"%d" % entry_id * (60 + entry_id)


def checkpoint(store: BookieStore) -> None:
    begun = store.begin_checkpoint()
    assert begun is not None
    store.write_checkpoint(begun)
    store.end_checkpoint(begun)


def put(store: BookieStore, ledger_id: int, entry_id: int, entry: bytes) -> None:
    if ledger_id not in store.ledgers:
        store.ledgers[ledger_id] = LedgerAtBookie(KEY)
    store.put(ledger_id, entry_id, entry)
    store.changed.add(ledger_id)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BookieStore]:
    """Logs in which ledgers stand between each other; two of the ledgers were deleted."""
    store = opened(tmp_path / "live")
    for entry_id in range(ENTRIES):
        for ledger_id in (*KEPT, *GONE):
            put(store, ledger_id, entry_id, entry_of(ledger_id, entry_id, payload_of(entry_id)))
        if entry_id % 3 == 2:
            checkpoint(store)
    for ledger_id in GONE:
        store.remove_ledger(ledger_id)
    yield store
    store.close()


def look(store: BookieStore) -> None:
    for ledger_id in KEPT:
        for entry_id in range(ENTRIES):
            entry = entry_of(ledger_id, entry_id, payload_of(entry_id))
            assert store.get(ledger_id, entry_id) == entry, (ledger_id, entry_id)


def compact_all(store: BookieStore, step: Callable[[], None] = lambda: None) -> list[int]:
    gone = store.logs_worth_compacting(80)
    for number in gone:
        for _ in compaction(store.logs, store._indexes, number, SLICE_BYTES):
            step()
        store.logs.release(number)
        store.logs.unlink(number)
        step()
    return gone


def test_what_is_needed_moves_and_the_rest_goes(store: BookieStore, tmp_path: Path) -> None:
    current = current_of(tmp_path / "live")
    before = sum(Path(path).stat().st_size for path in entry_log_files(current).values())
    gone = compact_all(store, lambda: look(store))
    assert len(gone) > 2
    assert not set(gone) & set(entry_log_files(current))
    after = sum(Path(path).stat().st_size for path in entry_log_files(current).values())
    assert after < 0.7 * before
    look(store)
    assert not set(compact_all(store)) & set(gone)
    look(store)


def test_every_image_of_a_crash_has_what_is_needed(
    store: BookieStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, images = tmp_path / "live", []
    synced: dict[str, int] = {}

    def image(*, power_cut: bool = False) -> None:
        target = tmp_path / f"image-{len(images)}"
        shutil.copytree(live, target)
        images.append(target)
        if power_cut:
            for number, path in entry_log_files(current_of(target)).items():
                if number == store.logs.current:
                    with open(path, "r+b") as file:
                        file.truncate(synced.get(Path(path).name, Path(path).stat().st_size))

    def watched(kind: type, name: str) -> None:
        call = getattr(kind, name)

        def watching(self: object, *arguments: object) -> object:
            image()
            image(power_cut=True)
            done = call(self, *arguments)
            if name == "sync":
                path = Path(entry_log_files(current_of(live))[store.logs.current])
                synced[path.name] = path.stat().st_size
            return done

        monkeypatch.setattr(kind, name, watching)

    watched(EntryLogs, "sync")
    watched(IndexFiles, "move")
    compact_all(store, image)
    monkeypatch.undo()
    assert len(images) > 30
    for one in images:
        problems = [found for found in BookieCheck(str(one)).findings() if found.severity != "note"]
        assert not problems, one.name
        again = opened(one)
        try:
            look(again)
            compact_all(again)
            look(again)
        finally:
            again.close()
        shutil.rmtree(one)


def test_a_newer_copy_is_not_replaced_by_the_one_that_moves(store: BookieStore) -> None:
    newer = entry_of(1, 0, payload_of(0), lac=17)
    number = store._indexes.location(1, 0) >> 32
    work = compaction(store.logs, store._indexes, number, 1)
    store.logs.closed(store.ledgers)
    next(work)
    for entry_id in range(ENTRIES):
        put(store, 1, entry_id, entry_of(1, entry_id, payload_of(entry_id), lac=17))
    checkpoint(store)
    for _ in work:
        pass
    assert store.get(1, 0) == newer
    assert store.get(1, 1) == entry_of(1, 1, payload_of(1), lac=17)


def test_a_log_with_a_damaged_entry_stays(store: BookieStore, tmp_path: Path) -> None:
    location = store._indexes.location(2, 1)
    number, position = location >> 32, location & 0xFFFFFFFF
    path = Path(entry_log_files(current_of(tmp_path / "live"))[number])
    data = bytearray(path.read_bytes())
    data[position + 7] ^= 1
    path.write_bytes(data)
    store.logs.closed(store.ledgers)
    with pytest.raises(LedgerFileError):
        list(compaction(store.logs, store._indexes, number))
    with pytest.raises(LedgerFileError):
        store.get(2, 1)
    assert store.get(2, 0) == entry_of(2, 0, payload_of(0)), "the others are where they were"


@pytest.mark.parametrize("position", [3, 1027])
def test_a_slot_that_names_no_place_of_an_entry(store: BookieStore, position: int) -> None:
    number = store._indexes.location(1, 0) >> 32
    slot = number << 32 | position
    path = store._indexes.path(1)
    with open(path, "r+b") as index:
        index.seek(INDEX_HEADER_BYTES)
        index.write(slot.to_bytes(8))
    store.waits, cached_only = False, store.logs._cached_only
    with pytest.raises(LedgerFileError):
        store.get(1, 0)
    assert store.following(1, 0, 2, 1 << 20) == []
    assert store.logs._cached_only == cached_only, "the others are read as before"
    store.waits = True


@pytest.mark.parametrize("spoil", ["map", "tail", "header"])
def test_a_log_that_does_not_tell_what_it_holds_is_not_thrown_away(
    store: BookieStore, tmp_path: Path, spoil: str
) -> None:
    number = store._indexes.location(1, 0) >> 32
    path = Path(entry_log_files(current_of(tmp_path / "live"))[number])
    data = bytearray(path.read_bytes())
    position = map_position(memoryview(data))
    assert position > 0
    if spoil == "map":
        data[position + 24 : position + 32] = (9).to_bytes(8, "big")  # another ledger instead of the first
        data[position + 32 : position + 40] = (1).to_bytes(8, "big")
    elif spoil == "tail":
        data[:1024] = log_header()
        data[position:] = (1 << 20).to_bytes(4, "big")
    else:
        data[:1024] = log_header()
    path.write_bytes(data)
    store.logs.sizes.pop(number, None)
    assert number not in store.dead_logs()
    assert number in compact_all(store)
    look(store)
