"""Entry logs of a running bookie, in one or more folders: one is written, all are read.

A read that must not wait for the disk reads the page cache only. So an event loop serves what is in memory
and leaves the rest to a thread.

Source: BookKeeper bookie/DefaultEntryLogger.java.
"""

import errno
import os
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from pyledger._core import read_indexed_entries
from pyledger.atomic_file import flush_folder
from pyledger.errors import LedgerFileError, StoreIOError
from pyledger.regular_file import open_regular
from pyledger.store.bookkeeper.disks import LedgerDisks, write_at
from pyledger.store.bookkeeper.file_maps import FileMaps
from pyledger.store.bookkeeper.folder import entry_log_files
from pyledger.store.files.disk_error import NO_ROOM, disk_error
from pyledger.system_calls import flush_data, flush_file
from pyledger.wire.bookkeeper.entry_log import (
    LOG_HEADER_BYTES,
    encode_ledgers_map,
    ledgers_map,
    log_header,
    logged_entries,
    map_position,
)

SIZE_BYTES = 4
SLOT_BYTES = 8
CHUNK_BYTES = 64 << 10
"""Bytes written by one call, which lets other threads run."""
READ_BYTES = 4096
AHEAD_BYTES = 512 << 10
"""Bytes read ahead from an entry that was not in memory."""
ENTRY_BYTES_MAX = 64 << 20
_SIZE = struct.Struct(">i")
_IDS = struct.Struct(">qq")
_READ_CACHED: int = getattr(os, "RWF_NOWAIT", 0)
"""The flag of reads that never wait for the disk; 0 where there are none, as on macOS."""
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class PageNotCachedError(Exception):
    """The requested bytes are on disk only; `load` waits until they are in memory."""

    def __init__(self, file: int, position: int) -> None:
        """Of an open file, from a position (bytes) on."""
        super().__init__(file, position)
        self.file, self.position = file, position

    def load(self) -> None:
        """Read it; in a thread that may wait."""
        with suppress(OSError):  # the next read raises the error
            os.pread(self.file, AHEAD_BYTES, self.position)


class EntryLocation(NamedTuple):
    """An entry and its location: log number and position, as its index stores them."""

    ledger_id: int
    entry_id: int
    location: int


class EntryLogs:
    """All entry logs of a bookie. A number is used once, whichever folder its log is in.

    Attributes:
        sizes: By log, bytes of each ledger's entries; only of logs that were written or scanned.
    """

    def __init__(self, disks: LedgerDisks, size_limit_bytes: int) -> None:
        """The logs in the folders of the disks; the first write begins a new one."""
        self._disks = disks
        self._paths: dict[int, str] = {}
        for folder in disks.folders:
            self._paths |= entry_log_files(folder)
        self.sizes: dict[int, dict[int, int]] = {}
        self._limit_bytes = size_limit_bytes
        self._open: dict[int, int] = {}
        self._number = -1
        self._position = 0
        self._next = max(self._paths, default=-1) + 1
        self._cached_only = _READ_CACHED != 0

    # --- writing

    @property
    def current(self) -> int:
        """The log that is written; -1: none."""
        return self._number

    def append(self, ledger_id: int, entries: Iterable[bytes]) -> list[int]:
        """Write entries of one ledger; return their locations. Nothing is durable before `sync`.

        Raises:
            StoreFullError: The disk is full.
            StoreIOError: An I/O error occurred.
        """
        locations: list[int] = []
        parts: list[bytes] = []
        pending = 0
        if self._number >= 0 and self._disks.avoids(os.path.dirname(self._path(self._number))):
            self._roll()
        for entry in entries:
            if self._number < 0 or self._position + pending + len(entry) > self._limit_bytes:
                self._write(ledger_id, parts)
                parts, pending = [], 0
                self._roll()
            parts += (_SIZE.pack(len(entry)), entry)
            locations.append(self._number << 32 | self._position + pending + SIZE_BYTES)
            pending += SIZE_BYTES + len(entry)
            if pending >= CHUNK_BYTES:
                self._write(ledger_id, parts)
                parts, pending = [], 0
        self._write(ledger_id, parts)
        return locations

    def sync(self) -> None:
        """Make what was written durable.

        Raises:
            StoreIOError: An I/O error occurred; the log must not be used any more.
        """
        if self._number >= 0:
            try:
                flush_data(self._open[self._number])
            except OSError as error:
                raise disk_error(self._path(self._number), "sync", error) from error

    def close(self) -> None:
        """Close the log that is written, with its map of ledgers, and all files."""
        try:
            self._finish()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Close all files as they are; nothing can be written or read any more."""
        for file in self._open.values():
            os.close(file)
        self._open.clear()

    def closed(self, known: Iterable[int]) -> dict[int, dict[int, int]]:
        """Return the logs that are not written any more, each with the bytes of every ledger's entries.

        A damaged log, or one with a torn end, is taken to contain entries of every known ledger.

        Args:
            known: Ids of all ledgers.

        Raises:
            StoreIOError: An I/O error occurred.
        """
        numbers = [number for number in sorted(self._paths) if number != self._number]
        for number in numbers:
            if number not in self.sizes:
                self.sizes[number] = _sizes_in(self._path(number), known)
        return {number: self.sizes[number] for number in numbers}

    def size_bytes(self, number: int) -> int:
        """Size of a log's file."""
        return os.stat(self._path(number)).st_size

    def release(self, number: int) -> None:
        """Close a log that no index points to any more. In the thread that reads."""
        if (file := self._open.pop(number, -1)) >= 0:
            os.close(file)

    def unlink(self, number: int) -> None:
        """Remove a log that was released. In the thread that writes."""
        self.sizes.pop(number, None)
        with suppress(FileNotFoundError):
            os.unlink(self._paths.pop(number))

    def copies(self, number: int, wanted: Iterable[EntryLocation]) -> Iterator[tuple[EntryLocation, bytes]]:
        """Yield entries of one log, for a thread that writes.

        Args:
            number: Which log.
            wanted: The entries and their locations.

        Raises:
            LedgerFileError: An entry is not at its location, or cannot be read.
        """
        path = self._path(number)
        maps = FileMaps()
        for one in wanted:
            position = one.location & 0xFFFFFFFF
            try:
                entry = bytes(maps.entry(path, position, one.ledger_id, one.entry_id))
            except StoreIOError as error:  # of this log alone: the bookie serves the others
                raise LedgerFileError(path, position, str(error)) from error
            yield one, entry

    def locations(
        self, ledger_ids: Collection[int], known: Collection[int]
    ) -> Iterator[dict[int, dict[int, int]]]:
        """Yield the locations of entries, by ledger and entry, one closed log after another.

        Of several copies in one log the last one counts. A damaged log ends at its damage, so the caller must
        know how many entries to expect.

        Args:
            ledger_ids: Whose entries.
            known: Ids of all ledgers.

        Raises:
            StoreIOError: An I/O error occurred.
        """
        for number, sizes in self.closed(known).items():
            found: dict[int, dict[int, int]] = {}
            if not any(ledger_id in sizes for ledger_id in ledger_ids):
                continue
            path = self._path(number)
            with suppress(LedgerFileError), FileMaps().reading(path) as data:
                for one in logged_entries(path, data):
                    if one.ledger_id in ledger_ids:
                        location = number << 32 | one.position
                        found.setdefault(one.ledger_id, {})[one.entry_id] = location
            yield found

    def _write(self, ledger_id: int, parts: list[bytes]) -> None:
        if not parts:
            return
        data = b"".join(parts)
        try:
            write_at(self._open[self._number], data, self._position)
        except OSError as error:
            raise disk_error(self._path(self._number), "write", error) from error
        self._position += len(data)
        sizes = self.sizes[self._number]
        sizes[ledger_id] = sizes.get(ledger_id, 0) + len(data)

    def _roll(self) -> None:
        self._finish()
        number, folder = self._next, self._disks.choose()
        path = os.path.join(folder, f"{number:x}.log")
        try:
            file = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            raise disk_error(path, "make", error) from error
        try:
            write_at(file, log_header(), 0)
            flush_folder(folder)
        except OSError as error:
            os.close(file)
            with suppress(OSError):
                os.unlink(path)
            raise disk_error(path, "make", error) from error
        self._paths[number] = path
        self._open[number] = file
        self._number, self._next, self._position = number, number + 1, LOG_HEADER_BYTES
        self.sizes[number] = {}

    def _finish(self) -> None:
        """Write the map of ledgers to the current log, if the disk has space for it, and sync the log."""
        if self._number < 0:
            return
        file, sizes = self._open[self._number], self.sizes[self._number]
        try:
            os.ftruncate(file, self._position)  # a write that failed on a full disk may have left a part
            if sizes and self._write_map(encode_ledgers_map(sizes)):
                # The header names the map only once the map is on disk.
                flush_data(file)
                write_at(file, log_header(self._position, len(sizes)), 0)
            flush_file(file)
        except OSError as error:
            raise disk_error(self._path(self._number), "write", error) from error
        self._number = -1

    def _write_map(self, data: bytes) -> bool:
        try:
            write_at(self._open[self._number], data, self._position)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            os.ftruncate(self._open[self._number], self._position)  # without a map a reader scans the log
            return False
        return True

    # --- reading

    def read(self, location: int, ledger_id: int, entry_id: int, *, wait: bool) -> bytes:
        """Return an entry that an index points to.

        Raises:
            PageNotCachedError: It is not in memory, and the caller does not wait.
            LedgerFileError: Another entry is there, or none: the log is damaged.
            StoreIOError: An I/O error occurred.
        """
        number, position = location >> 32, location & 0xFFFFFFFF
        file = self._file(number, ledger_id, entry_id)
        start = position - SIZE_BYTES
        if start < LOG_HEADER_BYTES:
            raise self._damage(number, position, ledger_id, entry_id)
        data = self._read_at(file, number, start, READ_BYTES, wait=wait)
        size = _SIZE.unpack_from(data)[0] if len(data) >= SIZE_BYTES else -1
        if not _IDS.size <= size <= ENTRY_BYTES_MAX:
            raise self._damage(number, position, ledger_id, entry_id)
        if len(data) < SIZE_BYTES + size:
            entry = self._read_at(file, number, position, size, wait=wait)
        else:
            entry = data[SIZE_BYTES : SIZE_BYTES + size]
        if len(entry) < size or _IDS.unpack_from(entry) != (ledger_id, entry_id):
            raise self._damage(number, position, ledger_id, entry_id)
        return entry

    def read_batch(self, slots: bytes, ledger_id: int, entry_id: int, bytes_max: int) -> list[bytes]:
        """Return adjacent entries as far as they are in memory and whole; perhaps none.

        Args:
            slots: Their locations (i64 each).
            ledger_id: Their ledger.
            entry_id: The first one.
            bytes_max: Limit for all entries and their sizes.
        """
        slots = slots[: len(slots) // SLOT_BYTES * SLOT_BYTES]
        first, last = int.from_bytes(slots[:SLOT_BYTES]), int.from_bytes(slots[-SLOT_BYTES:])
        if (first & 0xFFFFFFFF) - SIZE_BYTES < LOG_HEADER_BYTES:
            return []
        span = last - first + READ_BYTES if first >> 32 == last >> 32 and last > first else bytes_max
        try:
            file = self._file(first >> 32, ledger_id, entry_id)
            start = (first & 0xFFFFFFFF) - SIZE_BYTES
            data = self._read_at(file, first >> 32, start, min(span, bytes_max), wait=False)
        except (PageNotCachedError, LedgerFileError, StoreIOError):
            return []  # a read of this entry alone raises the error
        return read_indexed_entries(data, first - SIZE_BYTES, slots, ledger_id, entry_id)

    def _read_at(self, file: int, number: int, position: int, size_bytes: int, *, wait: bool) -> bytes:
        try:
            if wait or not self._cached_only:
                return os.pread(file, size_bytes, position)
            buffer = bytearray(size_bytes)
            count = os.preadv(file, [buffer], position, _READ_CACHED)
        except BlockingIOError:
            raise PageNotCachedError(file, position) from None
        except OSError as error:
            if error.errno in _NOT_SUPPORTED and not wait:
                self._cached_only = False  # the file system does not support RWF_NOWAIT: all reads wait
                return self._read_at(file, number, position, size_bytes, wait=True)
            raise StoreIOError(self._path(number), "read", error.strerror or str(error)) from error
        if 0 < count < size_bytes and position + count < os.fstat(file).st_size:
            raise PageNotCachedError(file, position)
        return bytes(memoryview(buffer)[:count])

    def _file(self, number: int, ledger_id: int, entry_id: int) -> int:
        if (file := self._open.get(number)) is not None:
            return file
        path = self._path(number)
        try:
            file = self._open[number] = open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            raise LedgerFileError(
                path, 0, f"the log of entry {entry_id} of ledger {ledger_id} is gone"
            ) from None
        except OSError as error:
            raise StoreIOError(path, "open", error.strerror or str(error)) from error
        return file

    def _damage(self, number: int, position: int, ledger_id: int, entry_id: int) -> LedgerFileError:
        return LedgerFileError(
            self._path(number), position, f"entry {entry_id} of ledger {ledger_id} is not here"
        )

    def _path(self, number: int) -> str:
        """Return the path of a log; of a missing one, where it could have been."""
        return self._paths.get(number) or os.path.join(self._disks.folders[0], f"{number:x}.log")


def _sizes_in(path: str, known: Iterable[int]) -> dict[int, int]:
    """Bytes of each ledger's entries in a closed log."""
    sizes: Counter[int] = Counter()
    try:
        with FileMaps().reading(path) as data:
            mapped = ledgers_map(path, data)
            # Entries of a ledger that the map omits would be deleted: the map has to account for every byte.
            if mapped is not None and LOG_HEADER_BYTES + sum(mapped.values()) == map_position(data):
                return mapped
            for one in logged_entries(path, data):
                sizes[one.ledger_id] += SIZE_BYTES + len(one.entry)
    except LedgerFileError:
        sizes.update(dict.fromkeys(known, 0))
    return dict(sizes)
