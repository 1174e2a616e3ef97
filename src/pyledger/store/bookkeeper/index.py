"""Index files of a running bookie: one per ledger, with the locations of its entries.

The header of a file is on disk before its name. Slots are overwritten once the entries that they point to are
on disk; until the slots are on disk themselves, a start replays the journal over them. A file in a full
folder moves to another folder before it grows: for a moment there are two files, with the same slots.

Source: BookKeeper bookie/FileInfo.java, IndexPersistenceMgr.java.
"""

import os
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeVar

from pyledger.atomic_file import flush_folder
from pyledger.errors import LedgerFileError
from pyledger.regular_file import open_regular
from pyledger.store.bookkeeper.disks import LedgerDisks, write_at
from pyledger.store.bookkeeper.folder import index_files, index_path
from pyledger.store.files.disk_error import disk_error
from pyledger.system_calls import flush_data, flush_file, next_data, next_hole
from pyledger.wire.bookkeeper.entry_log import (
    INDEX_HEADER_BYTES,
    LedgerIndex,
    decode_index,
    encode_index_header,
)

T = TypeVar("T")
SLOT_BYTES = 8
EMPTY_SLOT = bytes(SLOT_BYTES)
SLOTS_READ = 8192
COPY_BYTES = 1 << 20
ENTRY_ID_MAX = (1 << 31) - 1
"""The limit of Java's writers; it keeps an index below 16 GiB."""
STEP_MAX = 512
"""An entry at most this far beyond the last one leaves no hole in an index: its slot is in the next page."""
PAGE_BYTES = 8192
"""After its header an index has whole pages: Java's `bookie shell` skips one that is not complete."""
BLOCK_BYTES = 512
"""Unit of `st_blocks`."""
MAKING = ".making"
"""Suffix of an index that has no header yet."""


class LedgerHeader(NamedTuple):
    """The header of an index: what the bookie stores of a ledger."""

    master_key: bytes
    fenced: bool
    packet: bytes | None


class Filled(NamedTuple):
    """The entries that an index names.

    Attributes:
        last: The highest one; -1: none.
        entries: Their number.
    """

    last: int
    entries: int

    @property
    def has_no_hole(self) -> bool:
        """Whether it names every entry up to the last one."""
        return self.entries == self.last + 1


EMPTY = Filled(-1, 0)


class IndexFiles:
    """The indexes in the folders of a bookie. A slot contains a location; 0: none.

    Attributes:
        filled: The entries that each index names, by ledger. If a file has fewer, it is damaged.
    """

    def __init__(self, disks: LedgerDisks, open_file_limit: int) -> None:
        """The indexes in the folders of the disks; known once `survey` has read them all."""
        self.filled: dict[int, Filled] = {}
        self._disks = disks
        self._folders: dict[int, str] = {}
        self._moved: list[int] = []
        self._limit = open_file_limit
        self._open: OrderedDict[int, int] = OrderedDict()

    def survey(self) -> Iterator[tuple[int, LedgerIndex | LedgerFileError]]:
        """Yield all ledgers with an index, each with its header or the error in it. Reads all slots.

        Raises:
            StoreIOError: An I/O error occurred.
        """
        for folder in self._disks.folders:
            for ledger_id, path in index_files(folder):
                if self._folders.setdefault(ledger_id, folder) != folder:
                    self._drop(path)  # the bookie ended while it moved the file; both are equal
                    continue
                try:
                    with open(path, "rb", buffering=0, opener=open_regular) as file:
                        head = file.read(INDEX_HEADER_BYTES)
                        self.filled[ledger_id] = _filled(file.fileno())
                except OSError as error:
                    raise disk_error(path, "read", error) from error
                try:
                    yield ledger_id, decode_index(path, memoryview(head))
                except LedgerFileError as error:
                    yield ledger_id, error

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Return the location of an entry; 0: it has none.

        Raises:
            LedgerFileError: The index has lost what it named.
            StoreIOError: An I/O error occurred.
        """
        file = self._file(ledger_id)
        if file < 0 or entry_id > ENTRY_ID_MAX:
            return 0
        filled = self.filled.get(ledger_id, EMPTY)  # before the slot: a checkpoint may write meanwhile
        try:
            slot = os.pread(file, SLOT_BYTES, INDEX_HEADER_BYTES + SLOT_BYTES * entry_id)
        except OSError as error:
            raise disk_error(self.path(ledger_id), "read", error) from error
        found = int.from_bytes(slot, "big", signed=True) if len(slot) == SLOT_BYTES else 0
        if not found and entry_id <= filled.last and (filled.has_no_hole or len(slot) < SLOT_BYTES):
            raise self._damage(ledger_id, f"it named entry {entry_id}")
        return found

    def slots(self, ledger_id: int, entry_id: int, count: int) -> bytes:
        """Return up to `count` locations from an entry on (i64 each).

        Raises:
            StoreIOError: An I/O error occurred.
        """
        file = self._file(ledger_id)
        try:
            at = INDEX_HEADER_BYTES + SLOT_BYTES * entry_id
            return os.pread(file, SLOT_BYTES * min(count, SLOTS_READ), at) if file >= 0 else b""
        except OSError as error:
            raise disk_error(self.path(ledger_id), "read", error) from error

    def holes_bytes(self, ledger_id: int, entry_id: int) -> int:
        """Return how many bytes of holes an index has at most once it has a slot for an entry.

        Raises:
            StoreIOError: An I/O error occurred.
        """
        file = self._file(ledger_id)
        stat = os.fstat(file) if file >= 0 else None
        size_bytes, blocks = (0, 0) if stat is None else (stat.st_size, stat.st_blocks)
        wanted_bytes = INDEX_HEADER_BYTES + SLOT_BYTES * (entry_id + 1)
        return max(size_bytes, wanted_bytes) - blocks * BLOCK_BYTES

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """Yield all entries that have a location, ascending.

        Raises:
            LedgerFileError: The index has lost what it named.
            StoreIOError: An I/O error occurred.
        """
        if (file := self._file(ledger_id)) >= 0:
            wanted, found = self.filled.get(ledger_id, EMPTY).entries, 0
            try:
                for entry_id, _ in _written(file):
                    found += 1
                    yield entry_id
            except OSError as error:
                raise disk_error(self.path(ledger_id), "read", error) from error
            if found < wanted:
                raise self._damage(ledger_id, f"it named {wanted} entries, now {found}")

    def locations(self, ledger_id: int) -> Iterator[tuple[int, int]]:
        """Yield entries with their locations, ascending; none if the index is gone. For a thread that writes.

        Raises:
            LedgerFileError: The index has lost what it named.
            StoreIOError: An I/O error occurred.
        """
        wanted, found = self.filled.get(ledger_id, EMPTY).entries, 0
        with suppress(FileNotFoundError):
            for one in written_slots(self.path(ledger_id)):
                found += 1
                yield one
        if found < wanted and ledger_id in self.filled:
            raise self._damage(ledger_id, f"it named {wanted} entries, now {found}")

    def move(self, ledger_id: int, moved: Mapping[int, tuple[int, int]]) -> None:
        """Replace locations by new ones where slots still contain the old ones; durable.

        Args:
            ledger_id: The ledger; if it is gone, nothing happens.
            moved: Old and new location, by entry.

        Raises:
            StoreIOError: An I/O error occurred.
        """
        try:
            with open(self.path(ledger_id), "r+b", buffering=0, opener=open_regular) as file:
                for first, pairs in _ranges(moved):
                    at = INDEX_HEADER_BYTES + SLOT_BYTES * first
                    slots = array("q", os.pread(file.fileno(), SLOT_BYTES * len(pairs), at))
                    slots.byteswap()
                    for which, (old, new) in enumerate(pairs):
                        if slots[which] == old:
                            slots[which] = new
                    slots.byteswap()
                    write_at(file.fileno(), slots.tobytes(), at)
                flush_data(file.fileno())
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_error(self.path(ledger_id), "write", error) from error

    def write(self, ledger_id: int, header: LedgerHeader, locations: Mapping[int, int]) -> None:
        """Write header and slots of a ledger, durably. Creates the file if there is none.

        Raises:
            StoreFullError: The disk is full.
            StoreIOError: An I/O error occurred.
        """
        head = encode_index_header(header.master_key, fenced=header.fenced, packet=header.packet)
        folder = self._folders.get(ledger_id)
        path = index_path(folder or self._disks.choose(), ledger_id)
        try:
            if folder is None:
                self._make(ledger_id, path, head)
            elif self._disks.avoids(folder):
                path = self._leave(ledger_id, path)
            # Opened again: the open files for reading belong to another thread.
            with open(path, "r+b", buffering=0, opener=open_regular) as file:
                write_at(file.fileno(), head, 0)
                last, count = self.filled.get(ledger_id, EMPTY)
                for first, values in _ranges(locations):
                    slots, at = array("q", values), INDEX_HEADER_BYTES + SLOT_BYTES * first
                    slots.byteswap()
                    count += len(values) - _count(os.pread(file.fileno(), SLOT_BYTES * len(values), at))
                    last = max(last, first + len(values) - 1)
                    write_at(file.fileno(), slots.tobytes(), at)
                size_bytes = os.fstat(file.fileno()).st_size
                if rest_bytes := (INDEX_HEADER_BYTES - size_bytes) % PAGE_BYTES:
                    os.ftruncate(file.fileno(), size_bytes + rest_bytes)  # a hole: it takes no space
                flush_data(file.fileno())
        except OSError as error:
            raise disk_error(path, "write", error) from error
        self.filled[ledger_id] = Filled(last, count)

    def settle(self) -> None:
        """Read moved files from their new paths; in the thread that reads."""
        moved, self._moved = self._moved, []
        for ledger_id in moved:
            self._forget(ledger_id)

    def remove(self, ledger_id: int) -> None:
        """Remove the index of a ledger that was deleted."""
        self._forget(ledger_id)
        self.filled.pop(ledger_id, None)
        with suppress(FileNotFoundError):
            os.unlink(self.path(ledger_id))
        self._folders.pop(ledger_id, None)

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            os.close(file)
        self._open.clear()

    def _make(self, ledger_id: int, path: str, head: bytes, source: int = -1) -> None:
        """Create a file with a header, or as a copy of an open file."""
        low = os.path.dirname(path)
        high = os.path.dirname(low)
        folder = os.path.dirname(high)
        try:
            for one in (high, low):  # not the folder itself: if it is gone, its disk is
                with suppress(FileExistsError):
                    os.mkdir(one)
            with open(path + MAKING, "wb", buffering=0, opener=open_regular) as made:
                write_at(made.fileno(), head, 0)
                if source >= 0:
                    _copy_data(source, made.fileno())
                flush_file(made.fileno())
            os.replace(path + MAKING, path)
            for one in (low, high, folder):
                flush_folder(one)
        except OSError as error:
            with suppress(OSError):
                os.unlink(path + MAKING)
            raise disk_error(path, "make", error) from error
        self._folders[ledger_id] = folder

    def _leave(self, ledger_id: int, old: str) -> str:
        """Move a file to a folder that is not full; return its new path."""
        path = index_path(self._disks.choose(), ledger_id)
        with open(old, "rb", buffering=0, opener=open_regular) as file:
            self._make(ledger_id, path, b"", file.fileno())
        self._moved.append(ledger_id)
        # Before a slot changes: else a crash could leave two files that differ.
        self._drop(old)
        return path

    @staticmethod
    def _drop(path: str) -> None:
        try:
            os.unlink(path)
            flush_folder(os.path.dirname(path))
        except OSError as error:
            raise disk_error(path, "remove", error) from error

    def path(self, ledger_id: int) -> str:
        """Return the path of the index of a ledger; of a missing one, where it could have been."""
        return index_path(self._folders.get(ledger_id) or self._disks.folders[0], ledger_id)

    def _forget(self, ledger_id: int) -> None:
        if (file := self._open.pop(ledger_id, -1)) >= 0:
            os.close(file)

    def _damage(self, ledger_id: int, what: str) -> LedgerFileError:
        problem = f"this index has lost entries ({what}); a restart rebuilds it from the entry logs"
        return LedgerFileError(self.path(ledger_id), 0, problem)

    def _file(self, ledger_id: int) -> int:
        """Return the open file of an index; -1: it never existed.

        Raises:
            LedgerFileError: It is gone.
            StoreIOError: An I/O error occurred.
        """
        if (file := self._open.get(ledger_id)) is not None:
            self._open.move_to_end(ledger_id)
            return file
        path = self.path(ledger_id)
        try:
            file = open_regular(path, os.O_RDWR)
        except FileNotFoundError:
            if ledger_id in self.filled:
                raise self._damage(ledger_id, "the file is gone") from None
            return -1
        except OSError as error:
            raise disk_error(path, "open", error) from error
        self._open[ledger_id] = file
        if len(self._open) > self._limit:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        return file


def _copy_data(source: int, to: int) -> None:
    """Copy the data outside holes, and the size."""
    size_bytes, at = os.fstat(source).st_size, 0
    while at < size_bytes:
        if (at := next_data(source, at)) < 0:
            break
        end = next_hole(source, at)
        while at < end:
            data = os.pread(source, min(end - at, COPY_BYTES), at)
            write_at(to, data, at)
            at += len(data)
    os.ftruncate(to, size_bytes)


def written_slots(path: str) -> Iterator[tuple[int, int]]:
    """Yield the entries of an index with their locations, ascending; holes are not read.

    Raises:
        FileNotFoundError: There is no such file.
        StoreIOError: An I/O error occurred.
    """
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            yield from _written(file.fileno())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise disk_error(path, "read", error) from error


def _filled(file: int) -> Filled:
    """Return the entries that an index names; holes are not read."""
    last, count, at = -1, 0, INDEX_HEADER_BYTES
    while (at := next_data(file, at)) >= 0:
        at -= (at - INDEX_HEADER_BYTES) % SLOT_BYTES
        data = os.pread(file, COPY_BYTES, at)
        if found := _count(data):
            slots = array("q", data[: len(data) // SLOT_BYTES * SLOT_BYTES])
            which = next(which for which in reversed(range(len(slots))) if slots[which])
            last, count = (at - INDEX_HEADER_BYTES) // SLOT_BYTES + which, count + found
        at += COPY_BYTES
    return Filled(last, count)


def _count(slots: bytes) -> int:
    """Return how many slots contain a location; a partial slot at the end does not count."""
    slots = slots[: len(slots) // SLOT_BYTES * SLOT_BYTES]
    if EMPTY_SLOT not in slots:  # ten times faster than checking each slot
        return len(slots) // SLOT_BYTES
    return len(slots) // SLOT_BYTES - array("q", slots).count(0)


def _written(file: int) -> Iterator[tuple[int, int]]:
    """Yield the slots that contain a location, ascending."""
    at = 0
    while (at := _next_written(file, at)) >= 0:
        slots = os.pread(file, SLOTS_READ * SLOT_BYTES, INDEX_HEADER_BYTES + at * SLOT_BYTES)
        whole = array("q", slots[: len(slots) // SLOT_BYTES * SLOT_BYTES])
        whole.byteswap()
        yield from ((at + which, slot) for which, slot in enumerate(whole) if slot)
        at += SLOTS_READ


def _next_written(file: int, entry_id: int) -> int:
    """Return the first entry from `entry_id` on whose slot is not in a hole of the file; -1: none."""
    start = INDEX_HEADER_BYTES + entry_id * SLOT_BYTES
    found = next_data(file, start)
    return entry_id + (found - start) // SLOT_BYTES if found >= 0 else -1


def _ranges(locations: Mapping[int, T]) -> Iterator[tuple[int, list[T]]]:
    """Yield the values of adjacent entries, each range with its first entry."""
    ordered = sorted(locations.items())
    for _, group in groupby(enumerate(ordered), lambda pair: pair[1][0] - pair[0]):
        pairs = list(map(itemgetter(1), group))
        yield pairs[0][0], [value for _, value in pairs]
