"""The folders in which a bookie keeps ledgers, and which of them are full.

A full folder gets no new file and is left by those that grow; what lies in it is read. When all are full, the
one with the most room takes what still may come: the adds of recoveries.

Source: BookKeeper bookie/LedgerDirsManager.java, LedgerDirsMonitor.java.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from pyledger.errors import StoreFullError, StoreIOError
from pyledger.regular_file import open_regular
from pyledger.store.files.disk_error import disk_error


class Room(NamedTuple):
    """How large the disk of a folder is, and what of it is free (bytes)."""

    total_bytes: int
    free_bytes: int
    free_files: int = 0
    """How many more files it can have; 0 on file systems that do not count them, too."""

    @property
    def used_percent(self) -> float:
        """How full it is."""
        return 100 * (1 - self.free_bytes / max(self.total_bytes, 1))


class LedgerDisks:
    """The folders of one bookie for entry logs and indexes.

    Attributes:
        folders: The `current` of each, in the order of the settings.
        full: Those of them that are left out.
    """

    def __init__(self, folders: Sequence[str], full_percent: int, writable_percent: int) -> None:
        """Folders none of which is known to be full.

        Args:
            folders: The `current` of each.
            full_percent: A disk fuller than this is left out.
            writable_percent: One that was left out comes back when it is not fuller than this.
        """
        self.folders = tuple(folders)
        self.full: frozenset[str] = frozenset()
        self._refused: dict[str, Room] = {}
        self._full_percent, self._writable_percent = full_percent, writable_percent
        self._turn = 0

    @property
    def all_full(self) -> bool:
        """Whether none is left."""
        return len(self.full) == len(self.folders)

    def look(self) -> list[Room]:
        """See how full they are; the room of each.

        Raises:
            StoreIOError: The operating system refused.
        """
        rooms = [room_of(folder) for folder in self.folders]
        self.full = frozenset(
            folder
            for folder, room in zip(self.folders, rooms, strict=True)
            if room.used_percent > (self._writable_percent if folder in self.full else self._full_percent)
            or self._still_refuses(folder, room)
        )
        return rooms

    def _still_refuses(self, folder: str, room: Room) -> bool:
        refused = self._refused.get(folder)
        if refused is None:
            return False
        if room.free_bytes > refused.free_bytes or room.free_files > refused.free_files:
            del self._refused[folder]
            return False
        return True

    def leave_out(self, path: str) -> None:
        """A file of one of the folders could not grow: it is full, whatever its disk says of itself.

        It stays left out until the disk has more room than now, in bytes or in files.
        """
        for folder in self.folders:
            if path.startswith(folder + os.sep):
                self.full |= {folder}
                with suppress(StoreIOError):  # a disk that is gone is found by `look`
                    self._refused[folder] = room_of(folder)

    def avoids(self, folder: str) -> bool:
        """Whether what grows in a folder should go on in another one."""
        return folder in self.full and not self.all_full

    def choose(self) -> str:
        """The folder for a new file: each in turn that is not full; else the one with the most room."""
        if self.all_full:
            return max(self.folders, key=lambda folder: room_of(folder).free_bytes)
        while True:
            folder = self.folders[self._turn % len(self.folders)]
            self._turn += 1
            if not self.avoids(folder):
                return folder

    def write_everywhere(self, name: str, data: bytes) -> None:
        """Write a small file, durably, in every folder that has room for it, in one at least.

        Raises:
            StoreFullError: None has.
            StoreIOError: The operating system refused.
        """
        refused: StoreFullError | None = None
        written = False
        for folder in self.folders:
            path = os.path.join(folder, name)
            try:
                file = open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
                try:
                    write_at(file, data, 0)
                    os.fsync(file)
                finally:
                    os.close(file)
                written = True
            except OSError as error:
                refused_here = disk_error(path, "write", error)
                if not isinstance(refused_here, StoreFullError):
                    raise refused_here from error
                refused = refused_here
        if refused is not None and not written:
            raise refused

    def room(self) -> Room:
        """Of all disks together; one that holds several of the folders counts once.

        Raises:
            StoreIOError: The operating system refused.
        """
        rooms = {os.stat(folder).st_dev: room_of(folder) for folder in self.folders}.values()
        return Room(sum(one.total_bytes for one in rooms), sum(one.free_bytes for one in rooms))


def room_of(folder: str) -> Room:
    """Of the disk that a folder is on.

    Raises:
        StoreIOError: The operating system refused.
    """
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise StoreIOError(folder, "look at", error.strerror or str(error)) from error
    return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_favail)


def write_at(file: int, data: bytes | memoryview, position: int) -> None:
    """Write all of it, from a position on (bytes): a disk that is nearly full takes a part at first."""
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, position)
        view, position = view[done:], position + done
