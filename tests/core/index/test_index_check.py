"""Entries of an index file compared with the keys of the log, against the obvious way."""

import random
import struct

import pytest

from pyledger import Message, MessageStore, StoreReader
from pyledger._core import KeyCollector, check_index_entries

SLOTS = 5
ENTRY = struct.Struct(">iqii")
COLLECTED = struct.Struct("=qqii")
Entry = tuple[int, int]
"""Key hash and physical offset."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyCollector:
    """The keys of messages with none to three keys, some with tags."""
    folder = tmp_path_factory.mktemp("store")
    with MessageStore.open(folder) as store:
        for number in range(200):
            words = [f"k{n}" for n in range(number, number + number % 4)]
            store.put(Message("t", b"x", keys=" ".join(words), tags="red" if number % 3 else ""))
    collector = KeyCollector(with_tags=True)
    with StoreReader.open(folder) as reader:
        collector.collect(reader.view, 0)
    return collector


def file_of(entries: list[Entry]) -> bytes:
    """An index file whose entry 0 is not used, and whose chains do not matter here."""
    body = b"".join(ENTRY.pack(key_hash, place, 0, 0) for key_hash, place in [(0, 0), *entries])
    return bytes(40 + 4 * SLOTS) + body


def expected(
    entries: list[Entry], keys: KeyCollector, low: int, high: int
) -> tuple[int, int, list[tuple[int, int, bool]]]:
    known = [(key_hash, place, tags) for place, _, key_hash, tags in COLLECTED.iter_unpack(memoryview(keys))]
    places = {place for _, place, _ in known}
    count, faults, number = 0, [], 1
    for number, (key_hash, place) in enumerate(entries, 1):
        if place >= high:
            return number, count, faults
        kinds = [tags for one, where, tags in known if (one, where) == (key_hash, place)]
        count += kinds != [1]
        if not kinds and place >= low:
            faults.append((number, place, place in places))
    return len(entries) + 1, count, faults


@pytest.mark.parametrize("seed", range(20))
def test_entries_are_compared_with_the_keys_of_their_records(keys: KeyCollector, seed: int) -> None:
    chance = random.Random(seed)
    entries = [(key_hash, place) for place, _, key_hash, _ in COLLECTED.iter_unpack(memoryview(keys))]
    for _ in range(chance.randrange(8)):
        at = chance.randrange(len(entries))
        key_hash, place = entries[at]
        entries[at : at + 1] = chance.choice(
            [[], [(key_hash, place)] * 2, [(key_hash ^ 1, place)], [(key_hash, place + 1)], [entries[0]]]
        )
    low, high = chance.choice([0, 3000]), chance.choice([1 << 40, 9000])
    found = check_index_entries(
        file_of(entries), SLOTS, len(entries) + 1, 1, keys, min_offset=low, end_offset=high, limit=64
    )
    assert found == expected(entries, keys, low, high)


def test_a_later_part_of_a_file_begins_where_the_last_ended(keys: KeyCollector) -> None:
    entries = [(key_hash, place) for place, _, key_hash, _ in COLLECTED.iter_unpack(memoryview(keys))]
    raw = file_of(entries)
    first, some, _ = check_index_entries(raw, SLOTS, 1 << 30, 1, keys, min_offset=0, end_offset=9000)
    end, others, faults = check_index_entries(
        raw, SLOTS, 1 << 30, first, keys, min_offset=0, end_offset=1 << 40
    )
    assert 1 < first < end == len(entries) + 1
    assert (some + others, faults) == (len(keys) - keys.of_tags_count, [])
    with pytest.raises(ValueError, match="no entry has number 0"):
        check_index_entries(raw, SLOTS, 10, 0, keys, min_offset=0, end_offset=1)
