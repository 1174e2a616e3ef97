"""docs/formats/cold_segment.md is enough to read a segment: here by a reader made from the page alone."""

import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lz4.block
import pytest

from pyledger.model.message import Message
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from tests.store.cold.archived import FILE_BYTES, SIZES, archive_all, write_store

FRAME, INDEX = 0x184D2204, 0x184D2A50
FLAGS = 0x7C
BLOCK_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20}
ENTRY = struct.Struct("<QIIqqII")
TRAILER = struct.Struct("<8sQQQQ6I")
STORED = 1 << 31
P1, P2, P3, P4, P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
U32 = 0xFFFFFFFF


def turned(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & U32


def xxhash32(data: bytes) -> int:
    """xxHash-32 with seed 0, as its specification says."""
    at, total = 0, P5
    if len(data) >= 16:
        lanes = [P1 + P2 & U32, P2, 0, -P1 & U32]
        at = len(data) // 16 * 16
        for words in struct.iter_unpack("<4I", data[:at]):
            lanes = [
                turned(lane + word * P2 & U32, 13) * P1 & U32 for lane, word in zip(lanes, words, strict=True)
            ]
        total = sum(turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    total = total + len(data) & U32
    while at + 4 <= len(data):
        total = turned(total + int.from_bytes(data[at : at + 4], "little") * P3 & U32, 17) * P4 & U32
        at += 4
    for byte in data[at:]:
        total = turned(total + byte * P5 & U32, 11) * P1 & U32
    total = (total ^ total >> 15) * P2 & U32
    total = (total ^ total >> 13) * P3 & U32
    return total ^ total >> 16


@dataclass
class Block:
    start: int
    """In the original file."""
    content: bytes
    records: int
    times: tuple[int, int]
    topics: list[str]


class Segment:
    """A segment, read as the page says, with everything checked."""

    def __init__(self, data: bytes) -> None:
        magic, flags, descriptor, self.size, check = struct.unpack_from("<IBBQB", data)
        assert (magic, flags) == (FRAME, FLAGS)
        assert check == xxhash32(data[4:14]) >> 8 & 0xFF
        self.block_bytes = BLOCK_SIZES[descriptor >> 4]
        self._trailer = TRAILER.unpack(data[-TRAILER.size :])
        name, size, self.start_offset, self.records, entries_at, *counts = self._trailer
        blocks, number_count, topic_count, topic_bytes, index_digest, trailer_digest = counts
        assert (name, size) == (b"PYLCOLD1", self.size)
        assert trailer_digest == xxhash32(data[-TRAILER.size : -4])
        assert index_digest == xxhash32(data[entries_at : -TRAILER.size])
        index_magic, index_bytes = struct.unpack_from("<II", data, entries_at - 8)
        assert (index_magic, entries_at + index_bytes) == (INDEX, len(data))
        numbers_at = entries_at + blocks * ENTRY.size
        numbers = struct.unpack_from(f"<{number_count}I", data, numbers_at)
        topics_at = numbers_at + 4 * number_count
        assert topics_at + topic_bytes == len(data) - TRAILER.size
        self.topics = list(self._topics(data[topics_at : topics_at + topic_bytes]))
        assert len(self.topics) == topic_count
        entries = [ENTRY.unpack_from(data, entries_at + number * ENTRY.size) for number in range(blocks)]
        starts = [entry[1] for entry in entries] + [self.size]
        self.blocks = []
        place = 15
        for number, (at, start, records, least, greatest, first, count) in enumerate(entries):
            assert at == place
            content, place = self._block(data, at, starts[number + 1] - start)
            names = [self.topics[one] for one in numbers[first : first + count]]
            self.blocks.append(Block(start, content, records, (least, greatest), names))
        end, frame_digest = struct.unpack_from("<II", data, place)
        self.content = b"".join(block.content for block in self.blocks)
        assert (end, frame_digest) == (0, xxhash32(self.content))
        assert place + 8 == entries_at - 8

    @staticmethod
    def _topics(data: bytes) -> Iterator[str]:
        at = 0
        while at < len(data):
            (length,) = struct.unpack_from("<H", data, at)
            yield data[at + 2 : at + 2 + length].decode()
            at += 2 + length

    @staticmethod
    def _block(data: bytes, at: int, size: int) -> tuple[bytes, int]:
        """What a block holds, and where the next one stands."""
        (length,) = struct.unpack_from("<I", data, at)
        end = at + 4 + (length & ~STORED)
        packed = data[at + 4 : end]
        assert int.from_bytes(data[end : end + 4], "little") == xxhash32(packed)
        plain = packed if length & STORED else lz4.block.decompress(packed, uncompressed_size=size)
        assert len(plain) == size
        return plain, end + 4


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store, one topic of which is not in ASCII order of its first use; and the same archived."""
    plain = write_store(tmp_path_factory.mktemp("plain") / "store", 800)
    with MessageStore.open(plain, **SIZES) as store:
        for number in range(1500):
            store.put(Message("aside" if number % 700 == 0 else "prices", b"x" * 400, queue_id=0))
    packed = Path(shutil.copytree(plain, tmp_path_factory.mktemp("packed") / "store"))
    archive_all(packed)
    return plain, packed


def test_the_page_is_enough_to_read_a_segment(stores: tuple[Path, Path]) -> None:
    plain, packed = stores
    with StoreReader.open(plain) as reader:
        messages = [(m.physical_offset, m.store_size, m.topic, m.store_timestamp) for m in reader.messages()]
    seen = set()
    for path in sorted((packed / "commitlog").glob("*.lz4")):
        segment = Segment(path.read_bytes())
        begin = segment.start_offset
        assert path.name == f"{begin:020d}.lz4"
        assert segment.content == (plain / "commitlog" / path.stem).read_bytes()
        inside = [m for m in messages if begin <= m[0] < begin + FILE_BYTES]
        assert segment.records == len(inside)
        assert segment.topics == sorted({m[2] for m in inside}, key=str.encode)
        for block in segment.blocks:
            low = begin + block.start
            held = [m for m in inside if low <= m[0] < low + len(block.content)]
            assert block.records == len(held)
            assert block.topics == sorted({m[2] for m in held}, key=str.encode)
            if held:
                assert block.times == (min(m[3] for m in held), max(m[3] for m in held))
                assert held[0][0] == low, "a block starts where a record does"
            if held and len(block.content) < segment.block_bytes:
                assert sum(held[-1][:2]) <= low + len(block.content), "and holds whole records"
            seen.add((bool(held), len(block.topics)))
    assert {(False, 0), (True, 1), (True, 2)} <= seen


@pytest.mark.skipif(shutil.which("lz4") is None, reason="there is no lz4 command")
def test_the_lz4_command_decompresses_a_segment(stores: tuple[Path, Path]) -> None:
    plain, packed = stores
    for path in sorted((packed / "commitlog").glob("*.lz4")):
        done = subprocess.run(["lz4", "-d", "-c", str(path)], capture_output=True, check=True)
        assert done.stdout == (plain / "commitlog" / path.stem).read_bytes()


def test_digests_are_those_of_the_specification() -> None:
    assert [xxhash32(data) for data in (b"", b"a", b"Nobody inspects the spammish repetition")] == [
        0x02CC5D05, 0x550D7456, 0xE2293B2F,
    ]  # fmt: skip
