"""A store on disk: everything that touches its files."""

from pyledger._core import set_body_unpacker
from pyledger.wire.record.compression import decompress

set_body_unpacker(decompress)
