"""Compressed message bodies: zlib, LZ4 frame and zstd, selected by three bits of sysFlag.

Pure: bytes in, bytes out. A body is decompressed only up to a limit, so that a few hostile bytes cannot fill
memory. Codecs read from any buffer; a memoryview of a mapped file is not copied first. LZ4 and zstd are
loaded when a body wants them: most programs meet neither.

Source: RocketMQ common/.../compression/CompressionType.java and the four codecs beside it.
"""

import sys
import zlib
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType

from pyledger.errors import CorruptBodyError
from pyledger.model.sys_flag import COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT

PLAIN_BODY_LIMIT_BYTES = 64 * 1024 * 1024
ZSTD_WINDOW_BITS_MAX = 31

Buffer = bytes | bytearray | memoryview


class CompressionType(IntEnum):
    """Bits 8 to 10 of sysFlag."""

    LEGACY = 0
    """Written before the bits had a meaning: zlib."""
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


class _TooLargeError(Exception):
    """The decompressed body would exceed the limit."""


def decompress(
    body: Buffer, sys_flag: int, *, limit_bytes: int = PLAIN_BODY_LIMIT_BYTES, place: str = "message body"
) -> bytes:
    """Decompress a body according to its sysFlag; a body that is not compressed is returned as bytes.

    Args:
        body: The stored bytes.
        sys_flag: The record's sysFlag.
        limit_bytes: Maximum size of the decompressed body.
        place: What the error calls the body.

    Raises:
        CorruptBodyError: the bytes are damaged or truncated, the type is unknown, or the limit is exceeded.
    """
    if not sys_flag & COMPRESSED:
        return bytes(body)
    kind = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    if kind not in _CODECS:
        raise CorruptBodyError(place, f"has the unknown compression type {kind}")
    try:
        return _CODECS[kind](body, limit_bytes)
    except _TooLargeError:
        raise CorruptBodyError(place, f"exceeds the limit of {limit_bytes} bytes when decompressed") from None
    except (zlib.error, RuntimeError, EOFError) as error:
        raise CorruptBodyError(
            place, f"cannot be decompressed as {CompressionType(kind).name.lower()}: {error}"
        ) from error


def compress(body: Buffer, kind: CompressionType, level: int = 5) -> tuple[bytes, int]:
    """Compress a body.

    Args:
        body: The plain bytes.
        kind: How.
        level: 0 is the codec's own; LZ4 knows none below 3.

    Returns:
        The compressed bytes, which may be more than the plain ones, and their bits of sysFlag.
    """
    if kind is CompressionType.LZ4:
        import lz4.frame  # noqa: PLC0415

        # Java's lz4 reads no frame whose blocks refer to one another.
        packed = bytes(lz4.frame.compress(body, block_linked=False))
    elif kind is CompressionType.ZSTD:
        packed = _zstd().compress(body, level or 3)
    else:
        packed = zlib.compress(body, level or -1)
    return packed, COMPRESSED | kind << COMPRESSION_SHIFT


def _decompress_zlib(body: Buffer, limit_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, limit_bytes + 1)
    if len(plain) > limit_bytes:
        raise _TooLargeError
    if not stream.eof:
        raise EOFError("the stream is truncated")
    return plain


def _decompress_lz4(body: Buffer, limit_bytes: int) -> bytes:
    import lz4.frame  # noqa: PLC0415

    size_bytes = lz4.frame.get_frame_info(body)["content_size"]
    if size_bytes > limit_bytes:
        raise _TooLargeError
    stream = lz4.frame.LZ4FrameDecompressor()
    plain = stream.decompress(body, limit_bytes + 1)
    if len(plain) > limit_bytes:
        raise _TooLargeError
    if not stream.eof:
        raise EOFError("the frame is truncated")
    return bytes(plain)


def _decompress_zstd(body: Buffer, limit_bytes: int) -> bytes:
    zstd = _zstd()
    try:
        size_bytes = zstd.get_frame_info(body).decompressed_size
        if size_bytes is not None and size_bytes > limit_bytes:
            raise _TooLargeError
        # A frame may specify a window of any size; its memory is bounded like the body.
        window_bits = min(max(limit_bytes, 1 << 23).bit_length(), ZSTD_WINDOW_BITS_MAX)
        stream = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window_bits})
        plain: bytes = stream.decompress(body, limit_bytes + 1)
    except zstd.ZstdError as error:
        raise RuntimeError(str(error)) from error
    if len(plain) > limit_bytes:
        raise _TooLargeError
    if not stream.eof:
        raise EOFError("the frame is truncated")
    return plain


def _zstd() -> ModuleType:
    """Return the zstd module of the standard library, or of its backport before Python 3.14."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415
    else:
        from backports import zstd  # noqa: PLC0415
    return zstd


_CODECS: dict[int, Callable[[Buffer, int], bytes]] = {
    CompressionType.LEGACY: _decompress_zlib,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
    CompressionType.ZLIB: _decompress_zlib,
}
