"""The last bytes of a cold segment: what a look at a folder needs to know of it."""

import os
import struct

from pyledger._core import frame_digest
from pyledger.errors import StoreFormatError
from pyledger.regular_file import open_regular

TRAILER_MAGIC = b"PYLCOLD1"
TRAILER = struct.Struct("<8sQQQQIIIII")
"""All but its digest, which follows it in 4 bytes."""
_DIGEST_BYTES = 4
_RESTORE = "put a sound copy in its place; what is left of it `lz4 -d` unpacks"


def original_size(path: str) -> int:
    """Bytes of the file that a cold segment was made of, from its trailer alone.

    Raises:
        StoreFormatError: the file does not end in the trailer of a cold segment.
        OSError: it cannot be read.
    """
    with open(path, "rb", opener=open_regular) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TRAILER.size - _DIGEST_BYTES))
        raw = file.read(TRAILER.size + _DIGEST_BYTES)
    if len(raw) < TRAILER.size + _DIGEST_BYTES or not raw.startswith(TRAILER_MAGIC):
        raise StoreFormatError(path, "does not end in the index of a cold segment", _RESTORE)
    if frame_digest(raw[:-_DIGEST_BYTES]) != int.from_bytes(raw[-_DIGEST_BYTES:], "little"):
        raise StoreFormatError(path, "has a damaged trailer", _RESTORE)
    return int(TRAILER.unpack_from(raw)[1])
