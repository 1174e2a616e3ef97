"""Write cold segments: a sealed file of the commit log as an LZ4 frame followed by an index.

Each block of the frame holds whole records and is decompressed alone. The index, in a skippable frame, states
the position, topics and store times of each block. Reading is native: a `MappedFile` of such a path has the
bytes of the original file. Layout: docs/formats/cold_segment.md.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyledger._core import LogView, MappedFile, frame_digest, survey_blocks
from pyledger.errors import CorruptRecordError, StoreFormatError
from pyledger.regular_file import open_regular

BLOCK_BYTES = 256 << 10
"""Limit of a block before compression."""
SKIPPABLE_MAGIC = 0x184D2A50
TRAILER_MAGIC = b"PYLCOLD1"

_DIGEST_BYTES = 4
_BLOCK_CODES = {64 << 10: 4, 256 << 10: 5, 1 << 20: 6}
_ENTRY = struct.Struct("<QIIqqII")
_TRAILER = struct.Struct("<8sQQQQIIIII")
"""Without the digest that follows it."""

Block = tuple[int, int, int, int, set[bytes]]
"""Physical offset, record count, lowest and highest store time (ms), topics."""


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """Sizes of a segment."""

    original_bytes: int
    compressed_bytes: int
    record_count: int


def write_segment(source: MappedFile, target: str, *, block_bytes: int = BLOCK_BYTES) -> SegmentSize:
    """Compress a sealed file of the log.

    Args:
        source: The sealed file.
        target: Path of the new file. Nothing is flushed.
        block_bytes: Limit of a block: 64 KiB, 256 KiB or 1 MiB.

    Raises:
        CorruptRecordError: a record of the file is damaged, or the file is not full.
        OSError: the target cannot be written.

    Cost: one pass over the bytes, which checks every digest and compresses: about 0.5 GB/s.
    """
    start, end = source.start_offset, source.start_offset + source.size_bytes
    blocks, stop = survey_blocks(LogView([source], end), start, end, block_bytes)
    if stop.status != "end":
        raise CorruptRecordError(source.path, stop.next_offset, stop.problem or "the log ends here")
    with open(target, "wb", opener=open_regular) as out:
        positions: list[int] = []
        out.writelines(_frame(source, blocks, block_bytes, positions))
        entries_position = out.tell() + 8
        index = _index(blocks, positions, start)
        trailer = _trailer(index, entries_position, source, stop.record_count, blocks)
        out.write(struct.pack("<II", SKIPPABLE_MAGIC, sum(map(len, index)) + len(trailer)))
        out.writelines(index)
        out.write(trailer)
        return SegmentSize(source.size_bytes, out.tell(), stop.record_count)


def _frame(
    source: MappedFile, blocks: Sequence[Block], block_bytes: int, positions: list[int]
) -> Iterator[Any]:
    """Yield the LZ4 frame in pieces; append the position of each block in the file to `positions`."""
    import lz4.frame  # noqa: PLC0415 - only archiving needs it

    frame = lz4.frame.LZ4FrameCompressor(
        block_size=_BLOCK_CODES[block_bytes],
        block_linked=False,
        content_checksum=True,
        block_checksum=True,
        auto_flush=True,
    )
    position = 0
    starts = [block[0] - source.start_offset for block in blocks]
    head = frame.begin(source.size_bytes)
    position += len(head)
    yield head
    for begin, end in zip(starts, [*starts[1:], source.size_bytes], strict=True):
        with source.view(begin, end - begin) as plain:
            compressed = frame.compress(plain)
        # One call gives one block: its length, its bytes, its digest.
        (length,) = struct.unpack_from("<I", compressed)
        if (length & 0x7FFFFFFF) + 4 + _DIGEST_BYTES != len(compressed):
            raise StoreFormatError(source.path, "was not compressed into the given blocks", _REPORT)
        positions.append(position)
        position += len(compressed)
        yield compressed
    yield frame.flush()


def _index(blocks: Sequence[Block], positions: Sequence[int], start_offset: int) -> list[bytes]:
    """Entries of the blocks, numbers of their topics, names of the topics."""
    topics = sorted(set().union(*(block[4] for block in blocks)))
    number_of = {topic: number for number, topic in enumerate(topics)}
    entries = []
    numbers: list[int] = []
    for position, (offset, count, least, greatest, held) in zip(positions, blocks, strict=True):
        entries.append(
            _ENTRY.pack(position, offset - start_offset, count, least, greatest, len(numbers), len(held))
        )
        numbers += sorted(number_of[topic] for topic in held)
    names = [struct.pack("<H", len(topic)) + topic for topic in topics]
    return [b"".join(entries), struct.pack(f"<{len(numbers)}I", *numbers), b"".join(names)]


def _trailer(
    index: Sequence[bytes],
    entries_position: int,
    source: MappedFile,
    record_count: int,
    blocks: Sequence[Block],
) -> bytes:
    entries, numbers, names = index
    plain = _TRAILER.pack(
        TRAILER_MAGIC,
        source.size_bytes,
        source.start_offset,
        record_count,
        entries_position,
        len(entries) // _ENTRY.size,
        len(numbers) // 4,
        len(set().union(*(block[4] for block in blocks))),
        len(names),
        frame_digest(b"".join(index)),
    )
    return plain + struct.pack("<I", frame_digest(plain))


_REPORT = "the installed version of the lz4 package is not supported"
