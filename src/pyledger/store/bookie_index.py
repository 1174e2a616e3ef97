"""Index files of a running bookie: for each ledger one, which says where its entries stand.

A file appears whole: its header is on disk before its name. Slots are written in place after the entries that
they point to are on disk, and the journal is replayed over them until they are on disk themselves.

Source: BookKeeper bookie/FileInfo.java, IndexPersistenceMgr.java.
"""

import errno
import os
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeVar

from pyledger.atomic_file import flush_folder
from pyledger.errors import StoreFullError, StoreIOError
from pyledger.store.bookie_folder import index_files, index_path
from pyledger.wire.ledger.entry_log import (
    INDEX_HEADER_BYTES,
    LedgerIndex,
    decode_index,
    encode_index_header,
)

T = TypeVar("T")
SLOT_BYTES = 8
SLOTS_READ = 8192
ENTRY_ID_MAX = (1 << 31) - 1
"""Java's writers can do no more either, and no index becomes longer than 16 GiB."""
MAKING = ".making"
"""Ends the name of an index that has no header yet."""


class LedgerHeader(NamedTuple):
    """What an index says of its ledger."""

    master_key: bytes
    fenced: bool
    packet: bytes | None


class IndexFiles:
    """The indexes of one folder. Slots hold locations; 0 is none."""

    def __init__(self, folder: str, open_file_limit: int) -> None:
        """The indexes below a `current`."""
        self.folder = folder
        self._limit = open_file_limit
        self._open: OrderedDict[int, int] = OrderedDict()

    def headers(self) -> Iterator[tuple[int, LedgerIndex]]:
        """All ledgers that have an index; of the slots nothing is read.

        Raises:
            LedgerFileError: An index is damaged.
            StoreIOError: The operating system refused.
        """
        for ledger_id, path in index_files(self.folder):
            try:
                with open(path, "rb") as file:
                    head = file.read(INDEX_HEADER_BYTES)
            except OSError as error:
                raise StoreIOError(path, "read", error.strerror or str(error)) from error
            yield ledger_id, decode_index(path, memoryview(head))

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Where an entry stands; 0: it is not there.

        Raises:
            StoreIOError: The operating system refused.
        """
        file = self._file(ledger_id)
        if file < 0 or entry_id > ENTRY_ID_MAX:
            return 0
        try:
            slot = os.pread(file, SLOT_BYTES, INDEX_HEADER_BYTES + SLOT_BYTES * entry_id)
        except OSError as error:
            raise self._failure(ledger_id, "read", error) from error
        return int.from_bytes(slot, "big", signed=True) if len(slot) == SLOT_BYTES else 0

    def last_entry_id(self, ledger_id: int) -> int:
        """The highest entry that has a slot; -1: none has.

        Raises:
            StoreIOError: The operating system refused.
        """
        file = self._file(ledger_id)
        if file < 0:
            return -1
        entry_id = (os.fstat(file).st_size - INDEX_HEADER_BYTES) // SLOT_BYTES - 1
        while entry_id >= 0 and not self.location(ledger_id, entry_id):
            entry_id -= 1
        return entry_id

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """All entries that have a slot, ascending."""
        file = self._file(ledger_id)
        return (entry_id for entry_id, _ in _written(file)) if file >= 0 else iter(())

    def locations(self, ledger_id: int) -> Iterator[tuple[int, int]]:
        """Entries with their locations, ascending, for a thread that writes; none, if the ledger is gone.

        Raises:
            StoreIOError: The operating system refused.
        """
        try:
            with open(index_path(self.folder, ledger_id), "rb", buffering=0) as file:
                yield from _written(file.fileno())
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failure(ledger_id, "read", error) from error

    def move(self, ledger_id: int, moved: Mapping[int, tuple[int, int]]) -> None:
        """Let slots name other locations, where they still name the old ones; durable.

        Args:
            ledger_id: Which; nothing is done if it is gone.
            moved: Old and new location, by entry.

        Raises:
            StoreIOError: The operating system refused.
        """
        try:
            with open(index_path(self.folder, ledger_id), "r+b", buffering=0) as file:
                for first, run in _runs(moved):
                    at = INDEX_HEADER_BYTES + SLOT_BYTES * first
                    slots = array("q", os.pread(file.fileno(), SLOT_BYTES * len(run), at))
                    slots.byteswap()
                    for place, (old, new) in enumerate(run):
                        if slots[place] == old:
                            slots[place] = new
                    slots.byteswap()
                    os.pwrite(file.fileno(), slots.tobytes(), at)
                os.fdatasync(file.fileno())
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failure(ledger_id, "write", error) from error

    def write(self, ledger_id: int, header: LedgerHeader, locations: Mapping[int, int]) -> None:
        """Write header and slots of a ledger, and make them durable. Makes the file where there is none.

        Raises:
            StoreFullError: No room.
            StoreIOError: The operating system refused.
        """
        head = encode_index_header(header.master_key, fenced=header.fenced, packet=header.packet)
        path = index_path(self.folder, ledger_id)
        try:
            if not os.path.exists(path):
                self._make(path, head)
            # A file of its own: those for reading belong to another thread.
            with open(path, "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), head, 0)
                for first, run in _runs(locations):
                    slots = array("q", run)
                    slots.byteswap()
                    os.pwrite(file.fileno(), slots.tobytes(), INDEX_HEADER_BYTES + SLOT_BYTES * first)
                os.fdatasync(file.fileno())
        except OSError as error:
            raise self._failure(ledger_id, "write", error) from error

    def remove(self, ledger_id: int) -> None:
        """Remove the index of a ledger that was deleted."""
        if (file := self._open.pop(ledger_id, -1)) >= 0:
            os.close(file)
        with suppress(FileNotFoundError):
            os.unlink(index_path(self.folder, ledger_id))

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            os.close(file)
        self._open.clear()

    def _make(self, path: str, head: bytes) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + MAKING, "wb") as made:
            made.write(head)
            made.flush()
            os.fsync(made.fileno())
        os.replace(path + MAKING, path)
        for folder in (os.path.dirname(path), os.path.dirname(os.path.dirname(path)), self.folder):
            flush_folder(folder)

    def _file(self, ledger_id: int) -> int:
        """Its open file; -1: it has none."""
        if (file := self._open.get(ledger_id)) is not None:
            self._open.move_to_end(ledger_id)
            return file
        try:
            file = os.open(index_path(self.folder, ledger_id), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise self._failure(ledger_id, "open", error) from error
        self._open[ledger_id] = file
        if len(self._open) > self._limit:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        return file

    def _failure(self, ledger_id: int, doing: str, error: OSError) -> StoreIOError | StoreFullError:
        path = index_path(self.folder, ledger_id)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreFullError(path, doing)
        return StoreIOError(path, doing, error.strerror or str(error))


def _written(file: int) -> Iterator[tuple[int, int]]:
    """Slots that name a location, ascending."""
    at = 0
    while (at := _next_written(file, at)) >= 0:
        slots = os.pread(file, SLOTS_READ * SLOT_BYTES, INDEX_HEADER_BYTES + at * SLOT_BYTES)
        whole = array("q", slots[: len(slots) // SLOT_BYTES * SLOT_BYTES])
        whole.byteswap()
        yield from ((at + place, slot) for place, slot in enumerate(whole) if slot)
        at += SLOTS_READ


def _next_written(file: int, entry_id: int) -> int:
    """The first entry from `entry_id` on that does not lie in a hole of the file; -1: none."""
    start = INDEX_HEADER_BYTES + entry_id * SLOT_BYTES
    try:
        found = os.lseek(file, start, os.SEEK_DATA)
    except OSError:
        return -1  # nothing but a hole, or the end
    return entry_id + max(found - start, 0) // SLOT_BYTES


def _runs(locations: Mapping[int, T]) -> Iterator[tuple[int, list[T]]]:
    """Consecutive slots, each run with its first entry."""
    ordered = sorted(locations.items())
    for _, group in groupby(enumerate(ordered), lambda pair: pair[1][0] - pair[0]):
        run = list(map(itemgetter(1), group))
        yield run[0][0], [location for _, location in run]
