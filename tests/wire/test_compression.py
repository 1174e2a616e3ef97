"""Packed bodies: every codec, damage, unknown types, and bodies that would fill memory."""

import contextlib
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger.errors import CorruptBodyError
from pyledger.wire.compression import CompressionType, compress, decompress


def zstd_without_size(data: bytes) -> bytes:
    """A frame as Java's stream writes it: the content size is not in the header."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


def lz4_with_size(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, store_size=True))


def lz4_without_size(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, store_size=False))


Pack = Callable[[bytes], bytes]
CODECS = [
    pytest.param(0x001, zlib.compress, id="legacy"),
    pytest.param(0x101, lz4_with_size, id="lz4-size"),
    pytest.param(0x101, lz4_without_size, id="lz4"),
    pytest.param(0x201, zstandard.ZstdCompressor().compress, id="zstd-size"),
    pytest.param(0x201, zstd_without_size, id="zstd"),
    pytest.param(0x301, zlib.compress, id="zlib"),
]


@pytest.mark.parametrize(("sys_flag", "pack"), CODECS)
def test_compressed_body_round_trips(sys_flag: int, pack: Pack) -> None:
    for plain in (b"", b"x", bytes(range(256)) * 500):
        assert decompress(memoryview(pack(plain)), sys_flag) == plain


@pytest.mark.parametrize(("sys_flag", "pack"), CODECS)
def test_body_at_the_limit_passes_and_one_byte_more_does_not(sys_flag: int, pack: Pack) -> None:
    packed = pack(b"a" * 100_000)
    assert len(decompress(packed, sys_flag, limit_bytes=100_000)) == 100_000
    with pytest.raises(CorruptBodyError, match="exceeds the limit of 99999"):
        decompress(packed, sys_flag, limit_bytes=99_999)


@pytest.mark.parametrize(("sys_flag", "pack"), CODECS)
def test_truncated_body_is_an_error(sys_flag: int, pack: Pack) -> None:
    packed = pack(bytes(range(256)) * 20)
    for length in range(len(packed) - 4):
        with pytest.raises(CorruptBodyError, match="queue 3"):
            decompress(packed[:length], sys_flag, place="queue 3")


def test_plain_body_is_returned_as_it_is() -> None:
    assert decompress(memoryview(b"as is"), 0x700) == b"as is"


@pytest.mark.parametrize("sys_flag", [0x401, 0x501, 0x601, 0x701])
def test_unknown_type_is_an_error(sys_flag: int) -> None:
    with pytest.raises(CorruptBodyError, match="unknown compression type"):
        decompress(b"", sys_flag)


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from([0x1, 0x101, 0x201, 0x301]), st.integers(0, 3))
def test_any_bytes_decompress_or_raise_our_error(noise: bytes, sys_flag: int, codec: int) -> None:
    packs = (zlib.compress, lz4_without_size, zstd_without_size, lambda data: data)
    packed = bytearray(packs[codec](noise * 3))
    for at in noise[:4]:
        if packed:
            packed[at % len(packed)] ^= 1 + at % 255
    with contextlib.suppress(CorruptBodyError):
        assert len(decompress(bytes(packed), sys_flag, limit_bytes=10_000)) <= 10_000


@pytest.mark.parametrize("size", [100, 65_536, 65_537, 1 << 20])
def test_lz4_blocks_that_we_write_do_not_refer_to_one_another(size: int) -> None:
    plain = bytes(range(256)) * (size // 256 + 1)
    packed, flag = compress(plain[:size], CompressionType.LZ4)
    independent = 0x20
    assert packed[4] & independent, "lz4-java reads no frame of linked blocks"
    assert decompress(packed, flag) == plain[:size]
