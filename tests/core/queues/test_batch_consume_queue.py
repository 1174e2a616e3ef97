"""BatchConsumeQueue: lookups by any message of a batch, recovery, truncation, deletion."""

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger._core import BatchConsumeQueue, LogView
from pyledger.errors import IllegalMessageError, OffsetOutOfRangeError

UNIT = struct.Struct(">qiqqqhii")
FILE_BYTES = 3 * UNIT.size
Batches = list[tuple[int, int, int]]
# (record size, messages, ms after the record before)
BATCHES = st.lists(st.tuples(st.integers(91, 400), st.integers(1, 9), st.integers(0, 5)), max_size=20)


def fill(queue: BatchConsumeQueue, batches: Batches) -> list[tuple[int, int, int, int, int, int]]:
    """Put the batches; their units as (physical offset, size, tags code, time, base, count)."""
    units, physical, base, time = [], 0, 0, 1_700_000_000_000
    for size, count, passed in batches:
        time += passed
        units.append((physical, size, -count, time, base, count))
        assert queue.put(physical, size, -count, time, base, count)
        assert not queue.put(physical, size, -count, time, base, count)
        physical, base = physical + size, base + count
    return units


@given(batches=BATCHES, cut=st.integers(0, 9000))
@settings(deadline=None, max_examples=25)
def test_every_message_finds_its_batch(batches: Batches, cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        units = fill(BatchConsumeQueue(folder, "t", 0, FILE_BYTES), batches)
        queue = BatchConsumeQueue(folder, "t", 0, FILE_BYTES)
        assert queue.recover(LogView([], 10**9), files=0) == 0
        assert queue.unit_count == len(units)
        assert queue.max_offset == sum(unit[5] for unit in units)
        for unit in units:
            for offset in range(unit[4], unit[4] + unit[5]):
                assert queue.get(offset) == unit
            assert bytes(queue.units(unit[4], 1)) == UNIT.pack(*unit, -1, 0)
            assert queue.offset_by_time(None, unit[3]) in {u[4] for u in units if u[3] == unit[3]}
        with pytest.raises(OffsetOutOfRangeError):
            queue.get(queue.max_offset)

        queue.truncate_to_physical(cut)
        left = [unit for unit in units if unit[0] + unit[1] <= cut]
        assert (queue.unit_count, queue.max_offset) == (len(left), sum(unit[5] for unit in left))
        queue.correct_min_offset(cut // 2)
        alive = [unit for unit in left if unit[0] >= cut // 2]
        assert queue.min_offset == (alive[0][4] if alive else queue.max_offset)


@given(
    batches=BATCHES,
    flips=st.lists(st.tuples(st.integers(0, 137), st.integers(1, 255)), min_size=1, max_size=6),
    length=st.integers(0, FILE_BYTES),
)
@settings(deadline=None, max_examples=25)
def test_damaged_files_are_read_up_to_the_damage(
    batches: Batches, flips: list[tuple[int, int]], length: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        units = fill(BatchConsumeQueue(folder, "t", 0, FILE_BYTES), batches)
        for path in Path(folder).glob("t/0/*"):
            data = bytearray(path.read_bytes())
            for at, bits in flips:
                data[at] ^= bits
            path.write_bytes(data[:length])
        queue = BatchConsumeQueue(folder, "t", 0, FILE_BYTES, readonly=True)
        queue.recover(LogView([], 10**6), files=0)
        assert queue.unit_count <= len(units)
        for offset in range(queue.min_offset, min(queue.max_offset, 300)):
            try:
                physical, size, _, _, base, count = queue.get(offset)
            except OffsetOutOfRangeError:
                continue
            assert base <= offset < base + count
            assert 0 <= physical <= 10**6 - size
        queue.offset_by_time(None, 1_700_000_000_003)


def test_head_files_go_but_never_the_last(tmp_path: Path) -> None:
    queue = BatchConsumeQueue(str(tmp_path), "t", 0, FILE_BYTES)
    fill(queue, [(100, 2, 1)] * 7)
    assert [Path(path).name for path in queue.delete_head(350)] == [f"{0:020d}"]
    assert queue.min_offset == 8
    assert len(queue.delete_head(10**9)) == 1
    assert queue.min_offset == queue.max_offset == 14


def test_batch_size_has_to_fit_its_field(tmp_path: Path) -> None:
    queue = BatchConsumeQueue(str(tmp_path), "t", 0, FILE_BYTES)
    for count in (0, -1, 32768):
        with pytest.raises(IllegalMessageError, match=str(count)):
            queue.put(0, 100, 0, 0, 0, count)
    assert queue.max_offset == 0
