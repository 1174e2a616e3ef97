"""Cold segments, natively: blocks against the lz4 package, hostile bytes, the index against the records."""

import random
import threading
from pathlib import Path

import lz4.block
import lz4.frame
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyledger._core import (
    ColdIndex,
    LogView,
    MappedFile,
    MessageScan,
    decompress_block,
    frame_digest,
    limit_decompressed_bytes,
    scan,
)
from pyledger.errors import PyLedgerError
from tests.store.cold.archived import BLOCK_BYTES, archive_all, write_store

runs = st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 60)), max_size=40)


@given(runs, st.sampled_from(["default", "high_compression"]))
@example([(b"a", 60)] * 40, "default")
@example([(b"ab", 60), (bytes(range(17)), 60)], "default")
def test_blocks_are_decompressed_as_by_the_lz4_package(parts: list[tuple[bytes, int]], mode: str) -> None:
    plain = b"".join(piece * times for piece, times in parts)
    packed = lz4.block.compress(plain, mode=mode, store_size=False)
    assert decompress_block(packed, len(plain)) == plain
    assert decompress_block(packed, len(plain) + 1) is None
    if plain:
        assert decompress_block(packed, len(plain) - 1) is None
        assert decompress_block(packed[:-1], len(plain)) != plain


@given(st.binary(max_size=300), st.integers(0, 2_000))
def test_any_bytes_are_rejected_or_decompressed_to_the_size(packed: bytes, size: int) -> None:
    plain = decompress_block(packed, size)
    assert plain is None or len(plain) == size


@given(runs, st.data())
def test_changed_blocks_never_give_other_bytes_than_lz4(
    parts: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    plain = b"".join(piece * times for piece, times in parts)
    packed = bytearray(lz4.block.compress(plain, store_size=False))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] = data.draw(st.integers(0, 255))
    ours = decompress_block(bytes(packed), len(plain))
    try:
        theirs = lz4.block.decompress(bytes(packed), uncompressed_size=len(plain))
    except lz4.block.LZ4BlockError:
        return
    assert ours is None or ours == theirs


@pytest.mark.parametrize("size", [*range(40), 255, 256, 4095, 70_000])
def test_digest_is_that_of_lz4_frames(size: int) -> None:
    plain = random.Random(size).randbytes(size)
    frame = lz4.frame.compress(plain, content_checksum=True)
    assert frame_digest(plain) == int.from_bytes(frame[-4:], "little")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = write_store(tmp_path_factory.mktemp("cold") / "store")
    archive_all(store)
    return store


def segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").glob("*.lz4"))


def test_index_says_what_the_blocks_hold(packed: Path) -> None:
    for path in segments(packed):
        file = MappedFile.open(str(path))
        assert file.is_cold
        index, view = ColdIndex(file), LogView([file], file.start_offset + file.size_bytes)
        records = list(MessageScan(view, file.start_offset))
        end = file.start_offset
        for number in range(len(index)):
            start, size, packed_bytes, count, least, greatest, topics = index.block(number)
            assert start == end
            assert 0 < packed_bytes <= size <= BLOCK_BYTES
            end = start + size
            inside = [m for m in records if start <= m.physical_offset < end]
            assert count == len(inside)
            assert set(topics) == {m.topic for m in inside}
            if inside:
                assert inside[0].physical_offset == start, "a block starts at a record"
                times = [m.store_timestamp for m in inside]
                assert (least, greatest) == (min(times), max(times))
                assert all(m.physical_offset + m.store_size <= end for m in inside[:-1])
        assert end == file.start_offset + file.size_bytes
        assert index.record_count == len(records)
        assert index.topic_names == sorted({m.topic for m in records})


def test_ranges_hold_every_wanted_record(packed: Path) -> None:
    for path in segments(packed):
        file = MappedFile.open(str(path))
        index, view = ColdIndex(file), LogView([file], file.start_offset + file.size_bytes)
        records = list(MessageScan(view, file.start_offset))
        middle = records[len(records) // 2].store_timestamp
        for topics, since, until in ((["rare"], None, None), (None, middle, None), (None, None, middle),
                                     (["orders"], middle, middle + 1), (["none"], None, None)):  # fmt: skip
            ranges = index.ranges(topics, since, until)
            assert all(a < b for a, b in ranges)
            assert ranges == sorted(ranges)
            for m in records:
                wanted = (topics is None or m.topic in topics) and (since or 0) <= m.store_timestamp
                if wanted and (until is None or m.store_timestamp < until):
                    assert any(a <= m.physical_offset < b for a, b in ranges)
        assert index.ranges(["none"]) == []


def test_many_threads_read_while_blocks_are_given_back(packed: Path) -> None:
    files = [MappedFile.open(str(path)) for path in segments(packed)]
    view = LogView(files, files[-1].start_offset + files[-1].size_bytes)
    wanted = scan(view, 0).record_count
    places = [m.physical_offset for m in MessageScan(view, 0)]
    before = limit_decompressed_bytes(100_000)
    found: list[object] = []

    def walk(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(4):
            found.append(scan(view, 0).record_count)
            found.append(sum(1 for _ in MessageScan(view, 0)))
            some = chance.sample(places, 50)
            found.extend(scan(view, place, place + 1).record_count - 1 + wanted for place in some)

    threads = [threading.Thread(target=walk, args=(seed,)) for seed in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        limit_decompressed_bytes(before)
    assert found == [wanted] * (4 * 4 * 52)


def test_a_first_block_that_cannot_be_decompressed_is_damage(packed: Path) -> None:
    """Nothing before the first byte of a segment is looked at."""
    path = segments(packed)[0]
    changed = path.parent.parent / "first" / path.name
    changed.parent.mkdir()
    content = bytearray(path.read_bytes())
    content[100] ^= 0xFF
    changed.write_bytes(content)
    file = MappedFile.open(str(changed))
    view = LogView([file], file.start_offset + file.size_bytes)
    walk = MessageScan(view, file.start_offset)
    assert not list(walk)
    assert walk.stop is not None
    assert (walk.stop.next_offset, walk.stop.ordinary) == (file.start_offset, False)


@given(st.data())
def test_changed_segments_are_rejected_or_read_without_other_records(
    packed: Path, data: st.DataObject
) -> None:
    path = segments(packed)[1]
    content = bytearray(path.read_bytes())
    file = MappedFile.open(str(path))
    sound = {m.physical_offset: m.body for m in MessageScan(LogView([file], 1 << 40), file.start_offset)}
    head, tail = st.integers(0, 2_000), st.integers(len(content) - 2_000, len(content) - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(head | tail | st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    changed = path.parent.parent / path.name
    changed.write_bytes(content)
    try:
        file = MappedFile.open(str(changed))
    except PyLedgerError:
        return
    view = LogView([file], file.start_offset + file.size_bytes)
    for message in MessageScan(view, file.start_offset):
        assert sound.get(message.physical_offset) == message.body
    try:
        index = ColdIndex(file)
        index.damaged_blocks()
        index.ranges(["rare"], 5, 1 << 60)
        bytes(memoryview(file))
    except PyLedgerError:
        pass
