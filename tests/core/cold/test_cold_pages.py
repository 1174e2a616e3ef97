"""Records at the ends of blocks of cold segments: one block to read one, and none seems torn that is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyledger._core import (
    LogView,
    MappedFile,
    decompressed_blocks,
    limit_decompressed_bytes,
    read_message,
    scan,
)
from pyledger.store.cold.segment_writer import write_segment
from tests.core.log.log_files import RecordFields

BLOCK_BYTES = 64 << 10


@pytest.fixture
def bare(tmp_path: Path) -> LogView:
    """Records that end in zeroes: they have no properties. Blocks end in the middle of pages."""
    path, at = tmp_path / f"{0:020d}", 0
    with path.open("wb") as file:
        for number in range(1_500):
            body = bytes([1 + number % 200]) * (number * 37 % 400)
            at += file.write(RecordFields(body=body, queue_offset=number).encode(at))
    return LogView([MappedFile.open(str(path))], at)


@pytest.fixture
def packed(bare: LogView, tmp_path: Path) -> Iterator[LogView]:
    target = tmp_path / f"{0:020d}.lz4"
    write_segment(bare.files[0], str(target), block_bytes=BLOCK_BYTES)
    before = limit_decompressed_bytes(0)  # nothing stays from one read to the next
    yield LogView([MappedFile.open(str(target))], bare.end_offset)
    limit_decompressed_bytes(before)


def test_one_message_takes_one_block(bare: LogView, packed: LogView) -> None:
    at, last_of_block = 0, 0
    while at < bare.end_offset:
        limit_decompressed_bytes(0)
        before = decompressed_blocks()[0]
        found = read_message(packed, at)
        assert found.body == read_message(bare, at).body
        assert decompressed_blocks()[0] - before <= 1
        last_of_block += (at % 4096) + found.store_size < 4096
        at += found.store_size
    assert last_of_block


@pytest.mark.parametrize("check_tail", [False, True])
def test_a_walk_ends_as_in_the_plain_file(bare: LogView, packed: LogView, check_tail: bool) -> None:
    plain, cold = (scan(view, 0, check_tail=check_tail) for view in (bare, packed))
    assert (cold.status, cold.next_offset, cold.record_count) == (
        plain.status,
        plain.next_offset,
        plain.record_count,
    )
    assert plain.status == "end"
    assert plain.record_count == 1_500


def anonymous_bytes() -> int:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in line]
    return int(line.split()[1]) << 10


def test_pages_made_ahead_of_a_walk_are_given_back(tmp_path: Path) -> None:
    plain, cold = tmp_path / f"{0:020d}", tmp_path / f"{0:020d}.lz4"
    at = 0
    with plain.open("wb") as file:
        while at < 8 << 20:
            at += file.write(RecordFields(body=bytes(60_000), queue_offset=at).encode(at))
    write_segment(MappedFile.open(str(plain)), str(cold), block_bytes=BLOCK_BYTES)
    ends = [(3 << 20) + (n << 17) for n in range(16)]  # at any place of a huge page
    budget = limit_decompressed_bytes(1 << 30)
    try:
        before = anonymous_bytes()
        views = [LogView([MappedFile.open(str(cold))], at) for _ in ends]
        counts = [scan(view, 0, end, check=True).record_count for view, end in zip(views, ends, strict=True)]
        assert anonymous_bytes() - before > sum(ends) * 3 // 4
        limit_decompressed_bytes(0)
        assert decompressed_blocks()[1] == 0
        assert anonymous_bytes() - before < 6 << 20
        assert [
            scan(view, 0, end, check=True).record_count for view, end in zip(views, ends, strict=True)
        ] == counts
    finally:
        limit_decompressed_bytes(budget)
