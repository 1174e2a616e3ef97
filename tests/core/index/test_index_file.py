"""IndexFile and IndexFileSet against lists of entries, and on damaged files."""

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyledger._core import IndexFile, IndexFileSet, index_chain_faults, index_file_name, index_key_hash
from pyledger.errors import ConfigError, OffsetOutOfRangeError, ReadOnlyStoreError, StoreFormatError
from tests.models.index_file import IndexModel, java_hash, key_hash

KEYS = st.sampled_from(["a", "b", "Aa", "BB", "key-1", "ключ", "😀", ""])
# (topic, key, bytes after the record before, ms after it)
PUTS = st.lists(
    st.tuples(st.sampled_from(["t", "u"]), KEYS, st.integers(0, 300), st.integers(-3, 2500)), max_size=40
)


def names() -> Iterator[str]:
    return (f"{n:017d}" for n in count(20240101000000000))


def fill(index: IndexFileSet, model: IndexModel, puts: list[tuple[str, str, int, int]]) -> int:
    physical, time = 0, 1_700_000_000_000
    for topic, key, distance, passed in puts:
        physical, time = physical + distance, time + passed
        index.put(topic, key, physical, time)
        model.put(topic, key, physical, time)
    return physical


def same(index: IndexFileSet, model: IndexModel) -> None:
    assert len(index.files) == len(model.files)
    for file, expected in zip(index.files, model.files, strict=True):
        entries = [file.entry(n)[:3] for n in range(1, file.entry_count)]
        assert entries == [(e.hash, e.physical_offset, e.seconds) for e in expected.entries]
        assert file.begin_timestamp == expected.begin
        assert file.slots_used == len({e.hash % model.slots for e in expected.entries})
    for topic in ("t", "u"):
        for key in ("a", "b", "Aa", "BB", "key-1", "ключ", "😀", "", "absent"):
            assert index.query(topic, key) == model.query(topic, key)
            for begin, end in ((1_700_000_003_000, 1_700_000_009_500), (0, 1_700_000_001_000)):
                assert index.query(topic, key, begin, end, 5) == model.query(topic, key, begin, end, 5)


@given(puts=PUTS, slots=st.integers(1, 9), capacity=st.integers(2, 12), cut=st.integers(0, 9000))
@example(puts=[("t", "a", 0, 0)] * 3, slots=1, capacity=2, cut=0)
@settings(deadline=None, max_examples=25)
def test_index_equals_lists(
    puts: list[tuple[str, str, int, int]], slots: int, capacity: int, cut: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = names()
        index = IndexFileSet(folder + "/index", slots, capacity, name_file=lambda: next(made))
        model = IndexModel(slots, capacity)
        fill(index, model, puts)
        same(index, model)
        same(IndexFileSet(folder + "/index", slots, capacity, readonly=True), model)
        index.truncate_to_physical(cut)
        model.truncate(cut)
        assert [f.entry_count - 1 for f in index.files] == [len(f.entries) for f in model.files]
        for key in ("a", "b", "Aa", "😀"):
            assert index.query("t", key) == model.query("t", key)
        reopened = IndexFileSet(folder + "/index", slots, capacity)
        for topic, key in (("t", "a"), ("u", "b")):
            reopened.put(topic, key, 10_000, 1_800_000_000_000)
            assert 10_000 in reopened.query(topic, key)


@given(
    puts=PUTS.filter(bool),
    flips=st.lists(st.tuples(st.integers(0, 299), st.integers(1, 255)), max_size=12),
    cut=st.none() | st.integers(0, 299),
)
@settings(deadline=None, max_examples=25)
def test_damaged_index_never_breaks_a_reader(
    puts: list[tuple[str, str, int, int]], flips: list[tuple[int, int]], cut: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = names()
        index = IndexFileSet(folder + "/index", 5, 12, name_file=lambda: next(made))
        fill(index, IndexModel(5, 12), puts)
        index.close()
        for path in Path(folder, "index").iterdir():
            data = bytearray(path.read_bytes())
            for at, bits in flips:
                data[at % len(data)] ^= bits
            path.write_bytes(data[:cut])
        for slots, entries in ((5, 12), (5_000_000, 20_000_000)):
            reader = IndexFileSet(folder + "/index", slots, entries, readonly=True)
            for key in ("a", "b", "Aa", "absent"):
                assert len(reader.query("t", key)) <= 64


@given(st.text(max_size=40), st.text(max_size=40))
@example("t", "é" * 9)
@example("12345678", "a" * 7 + "é" + "b" * 20)
def test_hash_of_a_key_is_javas(topic: str, key: str) -> None:
    assert index_key_hash(topic, key) == key_hash(topic, key)


def test_hash_without_absolute_value_becomes_zero() -> None:
    # Seven characters from code 64 on are digits to the base 31: they reach every hash.
    rest = (-(2**31) - java_hash("t#" + "@" * 7)) % 2**32
    key = ""
    for power in range(6, -1, -1):
        digit, rest = divmod(rest, 31**power)
        key += chr(64 + digit)
    assert java_hash(f"t#{key}") == -(2**31)
    assert index_key_hash("t", key) == 0


@pytest.mark.parametrize(("slots", "entries"), [(3, 12), (7, 50), (500, 2000), (20, 79), (11, 3)])
def test_counts_are_found_from_the_contents(tmp_path: Path, slots: int, entries: int) -> None:
    path = str(tmp_path / index_file_name())
    file = IndexFile(path, slots, entries)
    for n in range(entries - 1):
        assert file.put("t", f"key-{n}", 1000 * (n + 1), 1_700_000_000_000 + n)
    assert not file.put("t", "one more", 10**9, 1_700_000_000_000)
    found = IndexFile(path, readonly=True)
    assert (found.slot_count, found.entry_capacity) == (slots, entries)


def test_first_entry_of_a_later_file_counts_from_the_file_before(tmp_path: Path) -> None:
    made = names()
    index = IndexFileSet(str(tmp_path / "index"), 4, 3, name_file=lambda: next(made))
    for n, time in enumerate((1_700_000_000_000, 1_700_000_002_000, 1_700_000_009_500)):
        index.put("t", "k", n * 100, time)
    assert index.files[1].entry(1)[2] == 7
    assert index.files[1].begin_timestamp == 1_700_000_009_500


def test_names_never_collide_nor_go_back(tmp_path: Path) -> None:
    index = IndexFileSet(str(tmp_path / "index"), 1, 2, name_file=lambda: "20240101000000000")
    for n in range(4):
        index.put("t", "k", n, n + 1)
    assert [Path(file.path).name for file in index.files] == [f"{20240101000000000 + n}" for n in range(4)]
    assert index.query("t", "k") == [0, 1, 2, 3]


def test_query_gives_the_newest_sixty_four(tmp_path: Path) -> None:
    index = IndexFileSet(str(tmp_path / "index"), 10, 40)
    for n in range(100):
        index.put("t", "k", n, 1_700_000_000_000)
    assert index.query("t", "k") == list(range(36, 100))
    assert index.query("t", "k", limit=1000) == list(range(36, 100))
    assert index.query("t", "k", limit=3) == [97, 98, 99]


def test_unsafe_files_go_after_an_unclean_exit(tmp_path: Path) -> None:
    made = names()
    folder = str(tmp_path / "index")
    index = IndexFileSet(folder, 4, 4, name_file=lambda: next(made))
    for n in range(6):
        index.put("t", "k", n * 100, 1_700_000_000_000 + n * 1000)
    assert index.flush() == 1_700_000_005_000
    left_out = IndexFileSet(folder, 4, 4, readonly=True, safe_timestamp_ms=1_700_000_002_000)
    assert left_out.query("t", "k") == [0, 100, 200]
    assert len(list(Path(folder).iterdir())) == 2
    again = IndexFileSet(folder, 4, 4, safe_timestamp_ms=1_700_000_002_000)
    assert again.end_physical_offset == 200
    assert [Path(path).exists() for path in again.removed] == [False]


def test_head_files_go_but_never_the_last(tmp_path: Path) -> None:
    made = names()
    index = IndexFileSet(str(tmp_path / "index"), 4, 4, name_file=lambda: next(made))
    for n in range(9):
        index.put("t", "k", n * 100, 1_700_000_000_000)
    assert len(index.delete_head(300)) == 1
    assert index.query("t", "k") == [300, 400, 500, 600, 700, 800]
    assert len(index.delete_head(10**9)) == 1
    assert len(index.files) == 1


def test_bad_counts_and_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        IndexFile(str(tmp_path / "1"), 0, 10)
    (tmp_path / "2").write_bytes(b"\0" * 50)
    with pytest.raises(StoreFormatError, match="rebuild"):
        IndexFile(str(tmp_path / "2"), readonly=True)
    file = IndexFile(str(tmp_path / "3"), 4, 4)
    with pytest.raises(OffsetOutOfRangeError):
        file.entry(1)
    with pytest.raises(ReadOnlyStoreError):
        IndexFile(str(tmp_path / "3"), readonly=True).put("t", "k", 0, 0)
    (tmp_path / "index").mkdir()
    with pytest.raises(ReadOnlyStoreError):
        IndexFileSet(str(tmp_path / "index"), readonly=True).put("t", "k", 0, 0)


@pytest.mark.parametrize("kind", ["hash", "previous", "slot"])
def test_broken_chains_are_found_where_they_are(tmp_path: Path, kind: str) -> None:
    slots, keys = 7, 60
    path = str(tmp_path / "1")
    file = IndexFile(path, slots, 100)
    for n in range(keys):
        file.put("t", f"k{n}", n * 100, 1_700_000_000_000 + n)
    file.close()
    data = bytearray(Path(path).read_bytes())
    chains: dict[int, list[int]] = {}
    for n in range(keys):
        chains.setdefault(index_key_hash("t", f"k{n}") % slots, []).append(n + 1)
    assert index_chain_faults(data, slots, keys + 1) == []
    slot, chain = next((slot, chain) for slot, chain in chains.items() if len(chain) > 3)
    entry = 40 + 4 * slots + 20 * chain[1]
    place = {"hash": entry, "previous": entry + 16, "slot": 40 + 4 * slot}[kind]
    data[place : place + 4] = (-5 if kind == "hash" else 9999).to_bytes(4, "big", signed=True)
    wanted = {
        # Without the entry its chain goes on from the one before it.
        "hash": [("hash", chain[1], -5, 0), ("previous", chain[2], chain[1], chain[0])],
        "previous": [("previous", chain[1], 9999, chain[0])],
        "slot": [("slot", slot, 9999, chain[-1])],
    }[kind]
    assert index_chain_faults(data, slots, keys + 1) == wanted
    assert index_chain_faults(data, slots, 1 << 30, 1)[0][0] in ("hash", "previous", "slot")
    with pytest.raises(ValueError, match="not those of"):
        index_chain_faults(data, 1 << 20, keys)
