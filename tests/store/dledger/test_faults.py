"""Faults of the disk under the log of a DLedger node: what is lost, rejected and reported."""

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.errors import (
    DLedgerTermError,
    StoreFormatError,
    StoreFullError,
    StoreIOError,
    StoreLockedError,
)
from pyledger.protocol.dledger.messages import Entry, TermState
from pyledger.store.dledger.durable_end import UNREADABLE, content_of, read_durable_end
from pyledger.store.dledger.memory_store import DLedgerMemoryStore
from pyledger.store.dledger.reader import DLedgerReader
from pyledger.store.dledger.repair import last_term, repair_node
from pyledger.store.dledger.store import DLedgerStore
from pyledger.store.dledger.verify import verify_dledger
from tests.fault_injection.shim import compiler, run_child
from tests.support.small_disk import small_disk

SMALL = DLedgerStoreConfig(data_file_size_bytes=1024, index_file_size_bytes=128)
BODY = b"twenty bytes of body"
"""Its entry has 68 bytes: 14 fit into a file of 1024, with space for a filler."""


def written(path: Path, count: int, config: DLedgerStoreConfig = SMALL) -> list[Entry]:
    """Return a node's folder after a killed process: all is durable, the checkpoint is old."""
    image = path.with_name("image")
    with DLedgerStore.open(path, config) as store:
        store.save_term_state(TermState(3, "n0"))
        store.append_bodies(3, [BODY] * count)
        store.flush()
        shutil.copytree(path, image)
        entries = list(store.entries(0, count, 1 << 30))
    shutil.rmtree(path)
    image.rename(path)
    return entries


def spoil(path: Path, entry: Entry) -> None:
    """Flip a bit of an entry's body."""
    with (path / "data" / f"{entry.pos // 1024 * 1024:020d}").open("r+b") as file:
        file.seek(entry.pos % 1024 + 50)
        byte = file.read(1)[0]
        file.seek(entry.pos % 1024 + 50)
        file.write(bytes([byte ^ 4]))


def kinds(path: Path) -> set[str]:
    with DLedgerReader.open(path) as reader:
        return {found.kind for found in verify_dledger(reader) if found.severity == "error"}


def test_a_durable_entry_that_is_damaged_is_missed_without_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "dledger-n1"
    entries = written(path, 10)
    assert not (path / "checkpoint").exists()
    spoil(path, entries[9])
    assert kinds(path) == {"damaged-entry", "lost-tail"}
    with DLedgerReader.open(path) as reader:
        assert len(list(reader.entries())) == 9
        assert reader.stop is not None
        assert "entry 9 was durable here" in (reader.shortfall(reader.stop) or "")
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.end_index, store.lost_tail, store.promised_index) == (8, True, 9)
        assert any("the log ends with entry 8" in notice and "checksum" in notice for notice in store.notices)
        assert any("neither votes" in notice for notice in store.notices)
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.lost_tail, store.promised_index) == (True, 9), "until a leader has filled it up"
        store.append_bodies(3, [b"again"])
        store.regained_tail()
        store.flush()
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.lost_tail, store.notices) == (False, [])


def test_what_was_never_durable_is_not_missed(tmp_path: Path) -> None:
    path, image = tmp_path / "dledger-n1", tmp_path / "image"
    with DLedgerStore.open(path, SMALL) as store:
        store.append_bodies(0, [BODY] * 5)
        store.flush()
        store.append_bodies(0, [BODY] * 5)
        shutil.copytree(path, image)
        torn = store.entry(7)
    spoil(image, torn)
    with DLedgerStore.open(image, SMALL) as store:
        assert (store.end_index, store.lost_tail) == (6, False)


def test_entries_that_a_leader_truncated_do_not_count_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "dledger-n1"
    entries = written(path, 40)
    with DLedgerStore.open(path, SMALL) as store:
        store.truncate(entries[20])
        shutil.copytree(path, tmp_path / "image")
    with DLedgerStore.open(tmp_path / "image", SMALL) as store:
        assert (store.end_index, store.lost_tail) == (20, False)


@pytest.mark.parametrize("content", [b"", bytes(44), b"endIndex=12\n", content_of(9)[:-2] + b"x\n"])
def test_a_mark_that_cannot_be_read_counts_as_entries_lost(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dledger-n1"
    written(path, 5)
    (path / "durable-end").write_bytes(content)
    assert read_durable_end(str(path)) == UNREADABLE
    assert kinds(path) == {"lost-tail"}
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.lost_tail, store.promised_index) == (True, -1)
    assert read_durable_end(str(path)) == 4


DAMAGE = {"noise": bytes(range(128, 256)), "words": b"endIndex=four\n", "far too long": b"#" * (1 << 17)}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_rewritten(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dledger-n1"
    written(path, 5)
    (path / "checkpoint").write_bytes(content)
    assert kinds(path) == {"checkpoint"}
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.end_index, store.committed_index, store.lost_tail) == (4, -1, False)
        (notice,) = store.notices
        assert f"{path / 'checkpoint'}: " in notice
        store.set_committed(3)
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.committed_index, store.notices) == (3, [])


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_that_may_have_named_a_loss_counts_as_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dledger-n1"
    written(path, 5)
    (path / "durable-end").unlink()  # as in a folder of Java's
    (path / "checkpoint").write_bytes(content)
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.end_index, store.lost_tail, store.promised_index) == (4, True, -1)
    (path / "lost-tail").write_bytes(content)
    assert kinds(path) == {"lost-tail"}
    with DLedgerStore.open(path, SMALL) as store:
        assert store.lost_tail


@pytest.mark.parametrize("name", ["currterm", "checkpoint"])
@pytest.mark.parametrize("sibling", [".bak", ".tmp"])
def test_an_error_names_what_is_in_the_way_of_a_small_file(tmp_path: Path, name: str, sibling: str) -> None:
    path = tmp_path / "dledger-n1"
    written(path, 5)
    with DLedgerStore.open(path, SMALL) as store:
        store.write_checkpoint()
        in_the_way = path / f"{name}{sibling}"
        in_the_way.unlink(missing_ok=True)
        in_the_way.mkdir()
        store.set_committed(4)
        writes = {
            "currterm": lambda: store.save_term_state(TermState(4)),
            "checkpoint": store.write_checkpoint,
        }
        with pytest.raises(StoreIOError, match=rf"write {in_the_way}: Is a directory"):
            writes[name]()
        in_the_way.rmdir()


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for kind in (DLedgerStore, DLedgerMemoryStore):
        with pytest.raises(StoreIOError, match=r"make .*/file/dledger-n1: Not a directory"):
            kind(str(tmp_path / "file" / "dledger-n1"))


@pytest.mark.parametrize("change", ["removed", "empty", "zeroes", "lower", "noise", "words"])
def test_a_lost_term_file_stops_the_start_until_it_is_set(tmp_path: Path, change: str) -> None:
    path = tmp_path / "dledger-n1"
    written(path, 5)
    term_file = path / "currterm"
    if change == "removed":
        term_file.unlink()
    else:
        contents = {
            "empty": b"",
            "zeroes": bytes(3),
            "lower": b"voteLeader=n0\ncurrTerm=2\n",
            "noise": bytes(range(128, 256)),
            "words": b"currTerm=three\n",
        }
        term_file.write_bytes(contents[change])
    assert kinds(path) == {"term"}
    for _ in range(2):
        with pytest.raises(StoreFormatError, match=r"might vote twice in a term.*pyledger dledger repair"):
            DLedgerStore.open(path, SMALL)
    assert last_term(str(path)) == 3
    with pytest.raises(DLedgerTermError, match="term 3 is not above 3"):
        repair_node(str(path), term=3)
    assert [step.action for step in repair_node(str(path), term=8, dry_run=True)] == ["set-term"]
    with pytest.raises(StoreFormatError):
        DLedgerStore.open(path, SMALL)
    repair_node(str(path), term=8)
    with DLedgerStore.open(path, SMALL) as store:
        assert store.saved == TermState(8, None)
        with pytest.raises(StoreLockedError):
            repair_node(str(path), term=9)


def test_a_member_that_voted_misses_its_term_file_without_a_log_too(tmp_path: Path) -> None:
    with DLedgerStore.open(tmp_path / "dledger-n1", SMALL) as store:
        assert store.saved == TermState(0, None)
        store.save_term_state(TermState(4, "n0"))
    (tmp_path / "dledger-n1" / "currterm").unlink()
    with pytest.raises(StoreFormatError, match="might vote twice"):
        DLedgerStore.open(tmp_path / "dledger-n1", SMALL)
    (tmp_path / "dledger-n1" / "durable-end").unlink()
    (tmp_path / "dledger-n1" / "currterm").write_bytes(b"\xff\xfe")
    with pytest.raises(StoreFormatError, match="might vote twice"):
        DLedgerStore.open(tmp_path / "dledger-n1", SMALL)
    memory = tmp_path / "dledger-n2"
    store_in_memory = DLedgerMemoryStore(str(memory))
    store_in_memory.save_term_state(TermState(4, "n0"))
    store_in_memory.close()
    for content in (b"", b"", b"\xff\xfe"):
        (memory / "currterm").write_bytes(content)
        with pytest.raises(StoreFormatError, match="might vote twice"):
            DLedgerMemoryStore(str(memory))


@pytest.mark.parametrize("length", [0, 1, 31, 64, 100, 127, 129])
@pytest.mark.parametrize("which", [0, -1])
def test_an_index_file_of_any_length_is_rebuilt(tmp_path: Path, length: int, which: int) -> None:
    path = tmp_path / "dledger-n1"
    entries = written(path, 40)
    files = sorted((path / "index").iterdir())
    os.truncate(files[which], length)
    with DLedgerStore.open(path, SMALL) as store:
        assert list(store.entries(0, 40, 1 << 30)) == entries
        assert not store.lost_tail
        store.append_bodies(3, [b"more"])
    assert {file.stat().st_size for file in (path / "index").iterdir()} == {128}
    assert kinds(path) == set()


@pytest.mark.parametrize("config", [SMALL, DLedgerStoreConfig(data_file_size_bytes=1024)])
def test_a_single_truncated_index_file_is_rebuilt(tmp_path: Path, config: DLedgerStoreConfig) -> None:
    path = tmp_path / "dledger-n1"
    entries = written(path, 3, config)
    (file,) = (path / "index").iterdir()
    os.truncate(file, 50)
    with DLedgerStore.open(path, config) as store:
        assert list(store.entries(0, 3, 1 << 30)) == entries
        assert any("index" in notice for notice in store.notices)
    assert {one.stat().st_size for one in (path / "index").iterdir()} == {config.index_file_size_bytes}


def test_index_files_with_one_missing_between_are_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "dledger-n1"
    entries = written(path, 40)
    sorted((path / "index").iterdir())[3].unlink()
    with DLedgerStore.open(path, SMALL) as store:
        assert list(store.entries(0, 40, 1 << 30)) == entries


def filler_at(path: Path, offset: int) -> None:
    """Close a data file, as Java does before it writes the entry that opens the next one."""
    name = offset // 1024 * 1024
    with (path / "data" / f"{name:020d}").open("r+b") as file:
        file.seek(offset - name)
        file.write((-1).to_bytes(4, "big", signed=True) + (name + 1024 - offset).to_bytes(4, "big"))


def test_a_filler_without_an_entry_after_it_is_removed(tmp_path: Path) -> None:
    """A crash after the filler: others may not have it, and an entry has the same offset in all logs."""
    path = tmp_path / "dledger-n1"
    entries = written(path, 10)
    filler_at(path, 680)
    with DLedgerStore.open(path, SMALL) as store:
        assert store.end_position == 680
        assert store.append_bodies(3, [b"small"]) == [680]
    assert len(entries) == 10
    assert kinds(path) == set()


@pytest.mark.parametrize("one_by_one", [True, False])
def test_an_entry_opens_the_next_file_where_its_leader_has_it_there(tmp_path: Path, one_by_one: bool) -> None:
    """A Java leader that crashed after its filler continues in the next file, though the entry would fit."""
    leader, path = tmp_path / "dledger-n0", tmp_path / "dledger-n1"
    written(leader, 10)
    with DLedgerStore.open(path, SMALL) as store:
        store.save_term_state(TermState(3))
        with DLedgerStore.open(leader, SMALL) as source:
            store.append_entries(source.entries(0, 10, 1 << 30))
        new = [Entry(10 + number, 3, 1024 + 53 * number, 53, b"small") for number in range(3)]
        if one_by_one:
            assert store.append_entries(new) == 3
        else:
            raw = DLedgerStore.open(tmp_path / "raw", SMALL)
            raw.truncate(new[0])
            raw.append_entries(new[1:])
            assert store.append_entries(raw.entries(10, 3, 1 << 30)) == 3
            raw.close()
        assert [store.entry(10 + number).pos for number in range(3)] == [1024, 1077, 1130]
        wrong = Entry(13, 3, 3072, 53, b"small")
        assert store.append_entries([wrong]) == 0
    assert kinds(path) == set()
    with DLedgerStore.open(path, SMALL) as store:
        assert store.end_index == 12


def test_an_append_that_fails_on_a_full_disk_leaves_no_trace(tmp_path: Path) -> None:
    """At the border of two files: the filler that closes the first must not exist without the entry."""
    config = DLedgerStoreConfig(data_file_size_bytes=1 << 18, index_file_size_bytes=1 << 12)
    with small_disk(tmp_path / "disk", 1) as disk:
        path = disk / "dledger-n0"
        with DLedgerStore.open(path, config) as store:
            body = bytes(20_000)
            while (1 << 18) - store.end_position > 30_000:
                store.append_bodies(0, [body])
            ballast = disk / "ballast"
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 12)):
                    pass
            assert shutil.disk_usage(disk).free == 0
            store.flush()
            end, entries = store.end_position, store.end_index

            def files() -> dict[str, bytes]:
                return {file.name: file.read_bytes() for file in sorted((path / "data").iterdir())}

            before = files()
            for bodies in ([bytes(40_000)], [b"fits", bytes(40_000)], [bytes(40_000)] * 3):
                with pytest.raises(StoreFullError):
                    store.append_bodies(0, bodies)
                assert (store.end_position, store.end_index, files() == before) == (end, entries, True)
                assert store.disk_full
            big = Entry(entries + 1, 0, 1 << 18, 40_048, bytes(40_000))
            with pytest.raises(StoreFullError):
                store.append_entries([big])
            assert (store.end_position, files() == before) == (end, True)
            assert store.append_bodies(0, [b"small"]) == [end]
            ballast.unlink()
            assert store.append_bodies(0, [bytes(40_000)]) == [1 << 18]
        assert kinds(path) == set()


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.EROFS, errno.EMFILE, errno.EACCES, errno.ENOSPC, errno.EDQUOT]
)
def test_each_error_of_a_small_file_is_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A full disk may get free space; any other error stops the member, as its class shows."""
    wanted: Any = StoreFullError if number in (errno.ENOSPC, errno.EDQUOT) else StoreIOError

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with DLedgerStore.open(tmp_path / "dledger-n0", SMALL) as store:
        store.append_bodies(0, [BODY])
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", fails)
            with pytest.raises(wanted):
                store.flush()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            with pytest.raises(wanted):
                store.save_term_state(TermState(1))
            with pytest.raises(wanted):
                store.write_checkpoint()
        assert store.saved == TermState(0, None)


def test_a_log_is_truncated_before_a_hole_and_the_node_knows_what_it_lost(tmp_path: Path) -> None:
    path = tmp_path / "dledger-n1"
    entries = written(path, 60)
    spoil(path, entries[20])
    with pytest.raises(Exception, match="entry 28 follows"):
        DLedgerStore.open(path, SMALL)
    steps = repair_node(str(path), truncate=True)
    assert [step.action for step in steps] == ["truncate"] * 4
    kept = {file.name for file in path.glob("truncated-*/*")}
    assert kept == {f"{number * 1024:020d}" for number in (1, 2, 3, 4)}
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.end_index, store.lost_tail, store.promised_index) == (19, True, 59)
    assert repair_node(str(path), truncate=True) == []
    (step,) = repair_node(str(path), accept_loss=True)
    assert "entries 20 to 59 are given up" in step.detail
    assert repair_node(str(path), accept_loss=True) == []
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.end_index, store.lost_tail, store.notices) == (19, False, [])


@pytest.mark.parametrize("how", ["deleted", "zeroed"])
def test_entries_that_only_the_index_names_may_have_been_durable(tmp_path: Path, how: str) -> None:
    path = tmp_path / "dledger-n1"
    written(path, 60)
    last = max((path / "data").iterdir())
    if how == "deleted":
        last.unlink()
    else:
        last.write_bytes(bytes(1024))
    for name in ("durable-end", "checkpoint"):
        (path / name).unlink(missing_ok=True)
    assert kinds(path) == {"index-beyond"}
    for _ in range(2):
        with DLedgerStore.open(path, SMALL) as store:
            assert (store.end_index, store.lost_tail, store.promised_index) == (55, True, 59)


def test_index_units_of_entries_that_upstream_truncated_prove_nothing(tmp_path: Path) -> None:
    """Upstream truncates without zeroing, so the units point to other bytes."""
    path = tmp_path / "dledger-n1"
    entries = written(path, 60)
    data = path / "data" / f"{entries[58].pos // 1024 * 1024:020d}"
    with data.open("r+b") as file:
        file.seek(entries[58].pos % 1024)
        file.write(b"\xff")
    for name in ("durable-end", "checkpoint"):
        (path / name).unlink(missing_ok=True)
    assert "index-beyond" not in kinds(path)
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.end_index, store.lost_tail) == (57, False)


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the shim")
def test_appends_are_rejected_after_a_failed_flush_of_the_index(tmp_path: Path) -> None:
    """The index never gets space again: an append that waited for it would never end."""
    story = """
        import errno, sys
        from pyledger.config.dledger_store import DLedgerStoreConfig
        from pyledger.errors import StoreFailedError
        from pyledger.protocol.dledger.messages import TermState
        from pyledger.store.dledger.store import DLedgerStore
        from tests.fault_injection.shim import Call, IoFaults

        def rejected(call):
            try:
                call()
            except StoreFailedError as error:
                return "index" in str(error)

        config = DLedgerStoreConfig(data_file_size_bytes=1024, index_file_size_bytes=128)
        faults = IoFaults()
        with DLedgerStore.open(sys.argv[1], config) as store:
            store.save_term_state(TermState(3, "n0"))
            store.append_bodies(3, [b"first"])
            store.flush()
            faults.fail(Call.MSYNC, errno.EIO)
            assert rejected(store.flush_units)
            faults.heal(Call.MSYNC)
            assert rejected(lambda: store.append_bodies(3, [b"second"]))
        with DLedgerStore.open(sys.argv[1], config) as store:
            store.append_bodies(3, [b"second"])
            print([entry.body.decode() for entry in (store.entry(0), store.entry(1))])
    """
    assert run_child(story, tmp_path, str(tmp_path / "node"), timeout_s=30) == "['first', 'second']\n"
