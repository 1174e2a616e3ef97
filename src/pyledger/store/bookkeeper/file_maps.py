"""Files of a bookie, mapped for reading: what the disk cannot read is an error, and never bytes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import PAGESIZE

from pyledger._core import MappedFile
from pyledger.errors import StoreIOError
from pyledger.wire.bookkeeper.entry_log import entry_at

HEAD_BYTES = 20
"""Of an entry in an entry log: its length, and the ids that it begins with."""
LENGTH_BYTES = 4


class FileMaps:
    """Files mapped for reading, each once.

    A mapping gives zeroes for what its disk cannot read, and notes that; so each read ends with a check.
    """

    def __init__(self) -> None:
        """No file yet."""
        self._files: dict[str, tuple[MappedFile | None, memoryview]] = {}

    @contextmanager
    def reading(self, path: str) -> Iterator[memoryview]:
        """Give a block the bytes of a file. What the block hands out is valid if it ends without an error.

        Raises:
            StoreIOError: An I/O error occurred, when the file was mapped or in the block.
        """
        file, data = self._map(path)
        try:
            yield data
        finally:
            if file is not None:
                file.view(0, file.size_bytes)  # raises if a byte that was read is not the file's

    def entry(self, path: str, position: int, ledger_id: int, entry_id: int) -> memoryview:
        """Return the entry at a position (bytes) of an entry log; all of it is read from the disk now.

        Raises:
            LedgerFileError: The position holds another entry, or none.
            StoreIOError: An I/O error occurred.
        """
        file, data = self._map(path)
        length = 0
        try:
            entry = entry_at(path, data, position, ledger_id, entry_id)
            length = len(entry)
            bytes(entry[::PAGESIZE]), bytes(entry[-1:])
        finally:
            if file is not None:
                start = min(max(position - LENGTH_BYTES, 0), len(data))
                file.view(start, min(max(LENGTH_BYTES + length, HEAD_BYTES), len(data) - start))
        return entry

    def _map(self, path: str) -> tuple[MappedFile | None, memoryview]:
        """Return a file and its bytes; None for an empty one, which cannot be mapped."""
        if path not in self._files:
            try:
                file = MappedFile.open(path) if os.stat(path).st_size else None
            except OSError as error:
                raise StoreIOError(path, "read", error.strerror or str(error)) from error
            data = memoryview(b"") if file is None else file.view(0, file.size_bytes)
            self._files[path] = file, data
        return self._files[path]
