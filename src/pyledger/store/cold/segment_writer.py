"""Writing cold segments: a sealed file of the commit log as an LZ4 frame with an index behind it.

Each block of the frame holds whole records and stands alone; the index, in a skippable frame, says where each
block stands and which topics and store times are in it. Reading is native: a `MappedFile` of such a path
gives the bytes of the original file. Layout: docs/formats/cold_segment.md.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyledger._core import LogView, MappedFile, frame_digest, survey_blocks
from pyledger.errors import CorruptRecordError, StoreFormatError
from pyledger.regular_file import open_regular
from pyledger.store.files.cold_trailer import TRAILER, TRAILER_MAGIC

BLOCK_BYTES = 256 << 10
"""Most bytes of a block, before it is packed."""
SKIPPABLE_MAGIC = 0x184D2A50

_DIGEST_BYTES = 4
_BLOCK_CODES = {64 << 10: 4, 256 << 10: 5, 1 << 20: 6}
_ENTRY = struct.Struct("<QIIqqII")

Block = tuple[int, int, int, int, set[bytes]]
"""Physical offset, records, least and greatest store time (ms), topics."""


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """What packing a file gave."""

    original_bytes: int
    packed_bytes: int
    record_count: int


def write_segment(source: MappedFile, target: str, *, block_bytes: int = BLOCK_BYTES) -> SegmentSize:
    """Pack a sealed file of the log.

    Args:
        source: The whole file.
        target: Path of the new file. Nothing is flushed.
        block_bytes: Most bytes of a block: 64 KiB, 256 KiB or 1 MiB.

    Raises:
        CorruptRecordError: a record of the file is damaged, or the file is not full.
        OSError: the target cannot be written.

    Cost: one pass over the bytes, every digest checked, and their packing: about 0.5 GB/s.
    """
    start, end = source.start_offset, source.start_offset + source.size_bytes
    blocks, stop = survey_blocks(LogView([source], end), start, end, block_bytes)
    if stop.status != "end":
        raise CorruptRecordError(source.path, stop.next_offset, stop.problem or "the log ends here")
    with open(target, "wb", opener=open_regular) as out:
        places: list[int] = []
        out.writelines(_frame(source, blocks, block_bytes, places))
        entries_position = out.tell() + 8
        index = _index(blocks, places, start)
        trailer = _trailer(index, entries_position, source, stop.record_count, blocks)
        out.write(struct.pack("<II", SKIPPABLE_MAGIC, sum(map(len, index)) + len(trailer)))
        out.writelines(index)
        out.write(trailer)
        return SegmentSize(source.size_bytes, out.tell(), stop.record_count)


def _frame(source: MappedFile, blocks: Sequence[Block], block_bytes: int, places: list[int]) -> Iterator[Any]:
    """The LZ4 frame, piece by piece; notes where in the file each block stands."""
    import lz4.frame  # noqa: PLC0415 - for those who archive alone

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
            packed = frame.compress(plain)
        # One call, one block: its length, its bytes, its digest.
        (length,) = struct.unpack_from("<I", packed)
        if (length & 0x7FFFFFFF) + 4 + _DIGEST_BYTES != len(packed):
            raise StoreFormatError(
                source.path, "was packed into blocks that are not those asked for", _REPORT
            )
        places.append(position)
        position += len(packed)
        yield packed
    yield frame.flush()


def _index(blocks: Sequence[Block], places: Sequence[int], start_offset: int) -> list[bytes]:
    """Entries of the blocks, numbers of their topics, names of the topics."""
    topics = sorted(set().union(*(block[4] for block in blocks)))
    number_of = {topic: number for number, topic in enumerate(topics)}
    entries = []
    numbers: list[int] = []
    for place, (offset, count, least, greatest, held) in zip(places, blocks, strict=True):
        entries.append(
            _ENTRY.pack(place, offset - start_offset, count, least, greatest, len(numbers), len(held))
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
    plain = TRAILER.pack(
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


_REPORT = "the installed lz4 package is not one that this was tested with"
