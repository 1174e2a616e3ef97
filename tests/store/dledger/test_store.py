"""The log of a DLedger node: its bytes equal Java's, it equals a list, and crashes lose nothing durable."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger._core import seal_entry
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.errors import (
    ConfigError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    StoreFormatError,
    StoreLockedError,
)
from pyledger.protocol.dledger.messages import BodyBatch, Entry, EntryBatch, TermState
from pyledger.store.dledger.reader import DLedgerReader
from pyledger.store.dledger.store import DLedgerStore
from pyledger.store.dledger.verify import verify_dledger
from tests.golden.dledger_folders import golden_node, golden_nodes

SMALL = DLedgerStoreConfig(data_file_size_bytes=1024, index_file_size_bytes=128)


def bodies_of(path: Path) -> list[tuple[int, int, bytes]]:
    with DLedgerReader.open(path) as reader:
        return [(entry.index, entry.term, entry.body) for entry in reader.entries()]


def problems(path: Path) -> list[Any]:
    with DLedgerReader.open(path) as reader:
        return [found for found in verify_dledger(reader) if found.severity == "error"]


def append(store: DLedgerStore, term: int, bodies: list[bytes]) -> list[Entry]:
    first = store.end_index + 1
    places = store.append_bodies(term, bodies)
    entries = list(store.entries(first, len(bodies), 1 << 30))
    assert [entry.pos for entry in entries] == places
    return entries


def as_sent(bodies: list[bytes]) -> BodyBatch:
    return BodyBatch(b"".join(len(body).to_bytes(4) + body for body in bodies), len(bodies))


def filled(path: Path, count: int, config: DLedgerStoreConfig = SMALL, term: int = 1) -> list[Entry]:
    with DLedgerStore.open(path, config) as store:
        store.save_term_state(TermState(term, "n0"))
        entries = append(store, term, [f"body {n} ".encode() * (n % 7) for n in range(count)])
        store.set_committed(store.end_index)
        return entries


def test_the_bytes_are_those_that_java_wrote(tmp_path: Path) -> None:
    """Every way in which a data file can end, and an empty body."""
    node = golden_node("filler")
    config = DLedgerStoreConfig(data_file_size_bytes=1536, index_file_size_bytes=128, seal_entries=False)
    with DLedgerReader.open(node.path) as reader:
        entries = list(reader.entries())
    for number, follower in enumerate((False, True)):
        path = tmp_path / f"dledger-n{number}"
        with DLedgerStore.open(path, config) as store:
            store.save_term_state(TermState(0, "n0"))
            if follower:
                assert store.append_entries(entries) == len(entries)
            else:
                assert append(store, 0, [entry.body for entry in entries]) == entries
            store.set_committed(9)
        for wanted in sorted(node.path.rglob("*")):
            if wanted.is_file() and wanted.suffix != ".bak":
                name = wanted.relative_to(node.path)
                got = (path / name).read_bytes()
                if "=" in got.decode("latin-1")[:12]:
                    assert sorted(got.splitlines()) == sorted(wanted.read_bytes().splitlines()), name
                else:
                    assert got == wanted.read_bytes(), name


@pytest.mark.parametrize("node", golden_nodes(), ids=lambda node: node.name)
def test_recovery_of_what_java_left_gives_what_java_finds(node: Any, tmp_path: Path) -> None:
    path = tmp_path / node.path.name
    shutil.copytree(node.path, path)
    if node.case in ("hole-second-last", "hole-third-last", "stray-file", "short-file", "term-missing"):
        with pytest.raises((CorruptRecordError, StoreFormatError)):
            DLedgerStore.open(path)
        return
    with DLedgerStore.open(path) as store:
        skip = 1 if node.case == "head-filler" else 0
        assert (store.begin_index, store.end_index) == (skip, len(node.expected) - 1)
        assert store.committed_index == min(node.summary["committed"], store.end_index)
        assert store.lost_tail == (
            node.summary["committed"] > 0 and bool(path.joinpath("lost-tail").exists())
        )
        for entry in node.expected[skip:]:
            assert store.entry(entry["index"]).pos == entry["pos"]
        store.append_bodies(9, [b"more"])
        end = store.end_index
    assert bodies_of(path)[-1] == (end, 9, b"more")
    with DLedgerReader.open(path) as reader:
        stop = reader.scan()
        assert (stop.unit_fault, stop.last_index, stop.sealed_count) == (-1, end, 1)


def test_a_tail_that_the_checkpoint_promised_is_missed_until_it_is_regained(tmp_path: Path) -> None:
    path = tmp_path / "dledger-n0"
    filled(path, 12)
    (path / "checkpoint").write_text("committedIndex=15\nendIndex=20\n")
    with DLedgerStore.open(path, SMALL) as store:
        assert store.lost_tail
        assert store.committed_index == 11
    with DLedgerStore.open(path, SMALL) as store:
        assert store.lost_tail, "until a leader has filled it up"
        store.save_term_state(TermState(2))
        store.append_bodies(2, [b"x"] * 10)
        store.regained_tail()
        store.flush()
    with DLedgerStore.open(path, SMALL) as store:
        assert not store.lost_tail


def test_entries_are_sealed_and_a_torn_body_ends_the_log(tmp_path: Path) -> None:
    path = tmp_path / "dledger-n0"
    entries = filled(path, 9)
    for entry in entries:
        head = b"".join(
            n.to_bytes(size, "big", signed=True)
            for n, size in ((1, 4), (entry.size, 4), (entry.index, 8), (entry.term, 8), (entry.pos, 8),
                            (0, 4), (0, 4), (0, 4), (len(entry.body), 4))
        )  # fmt: skip
        assert seal_entry(head, entry.body) == (entry.chain_crc, entry.body_crc)
    last = entries[-1]
    (path / "checkpoint").unlink()
    with (path / "data" / f"{last.pos // 1024 * 1024:020d}").open("r+b") as file:
        file.seek(last.pos % 1024 + 48)
        file.write(b"\xff")
    assert [found.kind for found in problems(path)] == ["damaged-entry", "lost-tail"]
    with DLedgerStore.open(path, SMALL) as store:
        assert store.end_index == 7
    assert [found.kind for found in problems(path)] == ["lost-tail"]


def test_a_read_checks_the_seal(tmp_path: Path) -> None:
    path = tmp_path / "dledger-n0"
    with DLedgerStore.open(path, SMALL) as store:
        entry = append(store, 1, [b"hello"])[0]
        with (path / "data" / f"{0:020d}").open("r+b") as file:
            file.seek(entry.pos + 48)
            file.write(b"j")
        with pytest.raises(CorruptRecordError):
            store.entry(0)


def test_a_follower_takes_only_what_fits(tmp_path: Path) -> None:
    entries = filled(tmp_path / "leader", 30)
    with DLedgerStore.open(tmp_path / "follower", SMALL) as store:
        assert store.append_entries(entries[3:]) == 0
        assert store.append_entries(entries[:20]) == 20
        wrong = entries[20]._replace(pos=entries[20].pos + 1)
        assert store.append_entries([wrong]) == 0
        assert store.end_position == entries[20].pos or entries[20].pos % 1024 == 0
        assert store.append_entries([*entries[20:22], entries[23]]) == 2
        assert store.entries(0, 100, 1 << 20) == entries[:22]
        assert store.entries(5, 100, 1) == entries[5:6]
        with pytest.raises(OffsetOutOfRangeError):
            store.entry(22)
        with pytest.raises(RecordTooLargeError):
            store.append_bodies(3, [b"fits", b"x" * 1000])
        with pytest.raises(RecordTooLargeError):
            store.append_bodies(3, as_sent([b"fits", b"x" * 1000]))
        assert store.end_index == 21


def test_truncation_installs_the_entry_also_where_another_layout_was(tmp_path: Path) -> None:
    """The leader's entry did not fit into the file in which the follower has its own: nothing stale stays."""
    with DLedgerStore.open(tmp_path / "leader", SMALL) as leader:
        common = append(leader, 1, [b"a" * 700])
        long = append(leader, 3, [b"b" * 300])[0]
    path = tmp_path / "dledger-n1"
    with DLedgerStore.open(path, SMALL) as store:
        store.append_entries(common)
        store.append_bodies(2, [b"short", b"tail"])
        store.truncate(long)
        assert store.entries(0, 9, 9999) == [*common, long]
    assert bodies_of(path) == [(0, 1, b"a" * 700), (1, 3, b"b" * 300)]
    assert problems(path)[:1] == [] or problems(path)[0].kind == "term"


def test_a_follower_that_lags_far_restarts_within_a_file(tmp_path: Path) -> None:
    entries = filled(tmp_path / "leader", 40)
    path = tmp_path / "dledger-n1"
    filled(path, 3, term=0)
    with DLedgerStore.open(path, SMALL) as store:
        store.save_term_state(TermState(1))
        store.truncate(entries[25])
        assert store.append_entries(entries[26:]) == len(entries) - 26
        assert (store.begin_index, store.end_index) == (25, 39)
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.begin_index, store.end_index) == (25, 39)
        assert store.entries(25, 99, 1 << 20) == entries[25:]


def test_files_go_from_the_head_but_never_uncommitted_ones(tmp_path: Path) -> None:
    path = tmp_path / "dledger-n0"
    entries = filled(path, 60)
    with DLedgerStore.open(path, SMALL) as store:
        store.set_committed(20)
        gone = store.delete_head(99)
        assert gone
        begin = store.begin_index
        assert 0 < begin <= 20
        assert store.entries(begin, 99, 1 << 20) == entries[begin:]
    with DLedgerStore.open(path, SMALL) as store:
        assert (store.begin_index, store.end_index) == (begin, 59)


def test_a_run_is_taken_as_its_entries_are_up_to_what_is_wrong(tmp_path: Path) -> None:
    """Over the ends of files; damaged, not the next, or elsewhere."""
    entries = filled(tmp_path / "a", 40)
    with (
        DLedgerStore.open(tmp_path / "a", SMALL) as leader,
        DLedgerStore.open(tmp_path / "b", SMALL) as store,
    ):
        run = leader.entries(0, 100, 1 << 20)
        assert run == entries
        assert leader.entries(0, 100, 1 << 20) is run, "asked again, for another follower"
        assert store.append_entries(leader.entries(3, 9, 1 << 20)) == 0
        assert store.append_entries(leader.entries(0, 9, 1 << 20)) == 9
        second = leader.entries(9, 3, 1 << 20)
        damaged = bytearray(second.data)
        damaged[second[0].size + second[1].size - 1] ^= 1
        assert store.append_entries(EntryBatch(bytes(damaged), 9, 3)) == 1
        assert store.append_entries(leader.entries(10, 99, 1 << 20)) == 30
        assert store.entries(0, 99, 1 << 20) == entries
        leader.truncate(leader.entry(38))
        assert len(leader.entries(0, 100, 1 << 20)) == 39
        other = EntryBatch(store.entries(39, 1, 1).data, 39, 1)
    with DLedgerStore.open(tmp_path / "c", DLedgerStoreConfig(data_file_size_bytes=4096)) as store:
        assert store.append_entries(other) == 0
        elsewhere = store.append_entries(run)
        assert 0 < elsewhere < 40, "its files have another size"


def test_one_writer_at_a_time_and_settings_are_checked(tmp_path: Path) -> None:
    with DLedgerStore.open(tmp_path / "n", SMALL), pytest.raises(StoreLockedError):
        DLedgerStore.open(tmp_path / "n", SMALL)
    with pytest.raises(ConfigError):
        DLedgerStoreConfig(index_file_size_bytes=100)
    with pytest.raises(ConfigError):
        DLedgerStoreConfig(delete_when="4;25")


class Model:
    """A reference model of the log: entries, and how many of them are durable."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.durable = 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_any_history_gives_what_a_list_gives(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Append, truncate, flush, reopen and crash, which tears unflushed pages."""
    rng = random.Random(seed)
    path = tmp_path_factory.mktemp("dledger") / "dledger-n0"
    model, term = Model(), 0
    store = DLedgerStore.open(path, SMALL)
    for _ in range(rng.randrange(1, 25)):
        match rng.choice(["append", "append", "append", "truncate", "flush", "reopen", "crash"]):
            case "append":
                bodies = [rng.randbytes(rng.randrange(0, 300)) for _ in range(rng.randrange(1, 6))]
                store.append_bodies(term, bodies if rng.random() < 0.5 else as_sent(bodies))
                model.entries += [(term, body) for body in bodies]
            case "truncate" if model.entries:
                at = rng.randrange(len(model.entries))
                entry = store.entry(at)
                term += 1
                store.save_term_state(TermState(term))
                if rng.random() < 0.5:
                    body = rng.randbytes(rng.randrange(0, 200))
                    place = sum(store.entry(at - 1)[2:4]) if at else 0
                    if len(body) + 48 + 8 > 1024 - place % 1024:
                        place = (place // 1024 + 1) * 1024
                    entry = Entry(at, term, place, len(body) + 48, body)
                store.truncate(entry)
                model.entries[at:] = [(entry.term, entry.body)]
                model.durable = min(model.durable, at)
            case "flush":
                store.flush()
                model.durable = len(model.entries)
            case "reopen":
                store.close()
                model.durable = len(model.entries)
                store = DLedgerStore.open(path, SMALL)
            case "crash":
                store = crash(store, path, rng)
                assert not store.lost_tail, "what was never durable is not missed"
                assert store.end_index + 1 >= model.durable
                del model.entries[store.end_index + 1 :]
                model.durable = len(model.entries)
        found = [] if store.end_index < 0 else store.entries(0, 1 << 30, 1 << 30)
        assert [(entry.term, entry.body) for entry in found] == model.entries
    store.close()
    assert bodies_of(path) == [(n, *entry) for n, entry in enumerate(model.entries)]


def crash(store: DLedgerStore, path: Path, rng: random.Random) -> DLedgerStore:
    """Simulate a power failure: unflushed sectors are lost in part, and the index anywhere."""
    image = path.with_name("image")
    flushed = store.log.data.flushed_where
    shutil.copytree(path, image)
    for file in sorted((image / "data").iterdir()):
        data = bytearray(file.read_bytes())
        for sector in range(0, len(data), 64):
            if int(file.name) + sector >= flushed and rng.random() < 0.4:
                data[sector : sector + 64] = bytes(64)
        file.write_bytes(data)
    for file in sorted((image / "index").iterdir()):
        if rng.random() < 0.5:
            data = bytearray(file.read_bytes())
            data[rng.randrange(len(data)) :] = b""
            file.write_bytes(data + bytes(128 - len(data)))
    store.close()
    shutil.rmtree(path)
    image.rename(path)
    (path / "lock").unlink(missing_ok=True)
    return DLedgerStore.open(path, SMALL)
