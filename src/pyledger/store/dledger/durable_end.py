"""The file `durable-end` in a node's folder: the last entry that was durable, so may be acknowledged.

If recovery finds fewer entries, the disk lost entries that the group counts on. The file is written before
any acknowledgement, without a sync: after a killed process it is exact. A power failure may leave an older
content, never one beyond what was durable. Java ignores the file.
"""

import os
import zlib
from pathlib import Path

from pyledger.errors import StoreIOError
from pyledger.regular_file import open_regular
from pyledger.store.files.disk_error import disk_error
from pyledger.store.files.meta_file import write_file
from pyledger.system_calls import flush_data

DURABLE_END_FILE = "durable-end"
UNREADABLE = -2
"""The file is damaged: it is not known which entries were durable."""
_CONTENT_BYTES_MAX = 256


def content_of(index: int) -> bytes:
    """Return the content for an entry; -1: an empty log. Its fixed length lets one write replace another."""
    line = b"endIndex=%-20d\n" % index
    return line + b"crc32=%08x\n" % zlib.crc32(line)


def read_durable_end(folder: str) -> int | None:
    """Return the entry that the file of a folder names; None without a file, `UNREADABLE` if damaged."""
    path = os.path.join(folder, DURABLE_END_FILE)
    try:
        with open(path, "rb", opener=open_regular) as file:
            content = file.read(_CONTENT_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreIOError(path, "read", error.strerror or str(error)) from error
    line = content.partition(b"\n")[0]
    number = line.removeprefix(b"endIndex=").strip()
    if number.removeprefix(b"-").isdigit() and content == content_of(int(number)):
        return int(number)
    return UNREADABLE


class DurableEnd:
    """The file of an open log.

    Args:
        folder: The folder of the node.
        index: The entry to name.
    """

    def __init__(self, folder: str, index: int) -> None:
        self.path = os.path.join(folder, DURABLE_END_FILE)
        known = read_durable_end(folder)
        if known is None or known == UNREADABLE:
            write_file(Path(self.path), content_of(index), backup=False)
            known = index
        self.index = self._synced = known
        try:
            self._handle = open_regular(self.path, os.O_WRONLY)
        except OSError as error:
            raise disk_error(self.path, "open", error) from error
        self.set(index)
        self.sync()

    @property
    def is_synced(self) -> bool:
        """Whether its content would survive a power failure."""
        return self._synced == self.index

    def set(self, index: int) -> None:
        """Name another entry. Durability: with `sync`; it survives a killed process at once."""
        if index != self.index:
            try:
                os.pwrite(self._handle, content_of(index), 0)
            except OSError as error:
                raise disk_error(self.path, "write", error) from error
            self.index = index

    def sync(self) -> None:
        """Make it durable."""
        index = self.index
        if index != self._synced:
            try:
                flush_data(self._handle)
            except OSError as error:
                raise StoreIOError(self.path, "flush", error.strerror or str(error)) from error
            self._synced = index

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1
