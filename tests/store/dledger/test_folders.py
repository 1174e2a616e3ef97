"""A DLedger log whose data files lie in several folders, and one in memory."""

from itertools import chain
from pathlib import Path

import pytest

from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.errors import ConfigError, OffsetOutOfRangeError, StoreFormatError, StoreFullError
from pyledger.protocol.dledger.messages import Entry, TermState
from pyledger.store.dledger.memory_store import DLedgerMemoryStore
from pyledger.store.dledger.reader import DLedgerReader
from pyledger.store.dledger.store import DLedgerStore

FILE_BYTES = 4096
BODIES = [b"%d" % n + bytes(200) for n in range(100)]


def spread(tmp_path: Path, names: str = "a,b,c", read_only: str = "") -> DLedgerStoreConfig:
    def absolute(words: str) -> str:
        return ",".join(str(tmp_path / word) for word in words.split(",") if word)

    return DLedgerStoreConfig(
        data_file_size_bytes=FILE_BYTES,
        index_file_size_bytes=1024,
        data_store_path=absolute(names),
        read_only_data_store_dirs=absolute(read_only),
        disk_ratio_to_force_clean=99,
    )


def files_in(folder: Path) -> list[int]:
    return sorted(int(path.name) // FILE_BYTES for path in folder.iterdir())


def filled(path: Path, config: DLedgerStoreConfig) -> list[Entry]:
    with DLedgerStore(str(path), config) as store:
        store.save_term_state(TermState(1))
        store.append_bodies(1, BODIES)
        store.set_committed(store.end_index)
        return list(store.entries(0, len(BODIES), 1 << 30))


def test_new_files_go_to_one_folder_after_the_other(tmp_path: Path) -> None:
    config, node = spread(tmp_path), tmp_path / "dledger-n0"
    entries = filled(node, config)
    found = {name: files_in(tmp_path / name) for name in "abc"}
    assert all(number % 3 == "abc".index(name) for name, numbers in found.items() for number in numbers)
    assert sorted(chain(*found.values())) == list(range(sum(map(len, found.values()))))
    assert not (node / "data").exists()
    with DLedgerStore(str(node), config) as store:
        assert list(store.entries(0, len(BODIES), 1 << 30)) == entries
        assert store.recovered.unit_fault == -1
        store.truncate(entries[40])
        assert store.append_entries(entries[41:]) == len(entries) - 41
        store.set_committed(store.end_index)
        gone = store.delete_head(2)
        assert {Path(path).parent.name for path in gone if "index" not in path} == {"a", "b"}
        begin = store.begin_index
    with DLedgerReader.open(node, data_paths=[str(tmp_path / name) for name in "abc"]) as reader:
        assert list(reader.entries()) == entries[begin:]


def test_folders_may_be_added_and_closed_to_new_files(tmp_path: Path) -> None:
    node = tmp_path / "dledger-n0"
    entries = filled(node, spread(tmp_path, "a"))
    before = files_in(tmp_path / "a")
    with DLedgerStore(str(node), spread(tmp_path, "a,b", read_only="a")) as store:
        assert list(store.entries(0, len(BODIES), 1 << 30)) == entries
        store.append_bodies(2, BODIES)
        assert store.end_index == 2 * len(BODIES) - 1
    assert files_in(tmp_path / "a") == before
    assert files_in(tmp_path / "b")[0] == before[-1] + 1


def test_a_file_in_two_folders_is_an_error(tmp_path: Path) -> None:
    node, config = tmp_path / "dledger-n0", spread(tmp_path, "a,b")
    filled(node, config)
    copy = tmp_path / "b" / f"{0:020d}"
    copy.write_bytes((tmp_path / "a" / copy.name).read_bytes())
    with pytest.raises(StoreFormatError, match="also"):
        DLedgerStore(str(node), config)


def test_no_folder_for_new_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="read_only_data_store_dirs"):
        spread(tmp_path, "a", read_only="a")


def test_a_log_in_memory_is_read_and_truncated_as_one_in_files(tmp_path: Path) -> None:
    store = DLedgerMemoryStore(str(tmp_path / "dledger-n0"))
    assert (store.begin_index, store.end_index, store.end_term, store.lost_tail) == (-1, -1, -1, False)
    places = store.append_bodies(1, BODIES)
    other = DLedgerStore(str(tmp_path / "dledger-n1"), DLedgerStoreConfig(seal_entries=False))
    with other:
        assert other.append_bodies(1, BODIES) == places
        run = store.entries(3, 10, 1 << 20)
        assert run == other.entries(3, 10, 1 << 20)
        assert run.data == other.entries(3, 10, 1 << 20).data
        assert len(store.entries(3, 10, 600)) == len(other.entries(3, 10, 600)) == 2
    kept = store.entry(20)
    store.truncate(kept)
    assert (store.end_index, store.end_position) == (20, kept.pos + kept.size)
    assert store.append_entries([kept._replace(index=22)]) == 0
    far = kept._replace(index=70, pos=9000)
    store.truncate(far)
    assert (store.begin_index, store.end_index) == (70, 70)
    assert store.append_entries([far._replace(index=71, term=4)]) == 1
    assert (store.end_index, store.term_at(71)) == (71, 4)
    with pytest.raises(OffsetOutOfRangeError):
        store.entry(69)
    store.save_term_state(TermState(4, "n0"))
    store.close()
    again = DLedgerMemoryStore(str(tmp_path / "dledger-n0"))
    assert (again.saved, again.end_index, again.lost_tail) == (TermState(4, "n0"), -1, True)
    again.close()


def test_memory_has_a_bound(tmp_path: Path) -> None:
    store = DLedgerMemoryStore(str(tmp_path), DLedgerStoreConfig(memory_size_bytes_max=1 << 16))
    while not store.disk_full:
        store.append_bodies(1, BODIES)
    entry = store.entry(store.end_index)
    for append in (lambda: store.append_bodies(1, [b""]), lambda: store.append_entries([entry])):
        with pytest.raises(StoreFullError):
            append()
    store.close()
