"""The folders in which a bookie keeps ledgers, and which of them are full.

A full folder gets no new files, and files that grow move to another folder; its files are still read. When
all folders are full, the one with the most free space takes the adds of recoveries.

Source: BookKeeper bookie/LedgerDirsManager.java, LedgerDirsMonitor.java.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from pyledger.errors import StoreFullError, StoreIOError
from pyledger.regular_file import open_regular
from pyledger.store.files.disk_error import disk_error
from pyledger.system_calls import flush_file


class DiskSpace(NamedTuple):
    """Size and free space of the disk of a folder."""

    total_bytes: int
    free_bytes: int
    free_files: int = 0
    """Files that can still be created; also 0 on file systems that do not count them."""

    @property
    def used_percent(self) -> float:
        """How full it is."""
        return 100 * (1 - self.free_bytes / max(self.total_bytes, 1))


class LedgerDisks:
    """The folders of one bookie for entry logs and indexes.

    Attributes:
        folders: The `current` of each, in the order of the settings.
        full: Those that are not written to.
    """

    def __init__(self, folders: Sequence[str], full_percent: int, writable_percent: int) -> None:
        """Folders of which none is known to be full.

        Args:
            folders: The `current` of each.
            full_percent: A folder whose disk is fuller than this is excluded.
            writable_percent: An excluded folder is used again when its disk is at most this full.
        """
        self.folders = tuple(folders)
        self.full: frozenset[str] = frozenset()
        self._failed_at: dict[str, DiskSpace] = {}
        self._full_percent, self._writable_percent = full_percent, writable_percent
        self._next = 0

    @property
    def all_full(self) -> bool:
        """Whether every folder is full."""
        return len(self.full) == len(self.folders)

    def check(self) -> list[DiskSpace]:
        """Update which folders are full; return the disk space of each.

        Raises:
            StoreIOError: An I/O error occurred.
        """
        spaces = [disk_space(folder) for folder in self.folders]
        self.full = frozenset(
            folder
            for folder, space in zip(self.folders, spaces, strict=True)
            if space.used_percent > (self._writable_percent if folder in self.full else self._full_percent)
            or self._is_still_full(folder, space)
        )
        return spaces

    def _is_still_full(self, folder: str, space: DiskSpace) -> bool:
        before = self._failed_at.get(folder)
        if before is None:
            return False
        if space.free_bytes > before.free_bytes or space.free_files > before.free_files:
            del self._failed_at[folder]
            return False
        return True

    def leave_out(self, path: str) -> None:
        """Exclude the folder of a file that could not grow, whatever free space its disk reports.

        It stays excluded until the disk has more free space than now, in bytes or in files.
        """
        for folder in self.folders:
            if path.startswith(folder + os.sep):
                self.full |= {folder}
                with suppress(StoreIOError):  # `check` finds a disk that is gone
                    self._failed_at[folder] = disk_space(folder)

    def avoids(self, folder: str) -> bool:
        """Whether a file that grows in a folder should continue in another one."""
        return folder in self.full and not self.all_full

    def choose(self) -> str:
        """Return the folder for a new file: round robin over those not full, else the one with most space."""
        if self.all_full:
            return max(self.folders, key=lambda folder: disk_space(folder).free_bytes)
        while True:
            folder = self.folders[self._next % len(self.folders)]
            self._next += 1
            if not self.avoids(folder):
                return folder

    def write_everywhere(self, name: str, data: bytes) -> None:
        """Write a small file, durably, in every folder whose disk has space for it, in one at least.

        Raises:
            StoreFullError: No disk has.
            StoreIOError: An I/O error occurred.
        """
        full: StoreFullError | None = None
        written = False
        for folder in self.folders:
            path = os.path.join(folder, name)
            try:
                file = open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
                try:
                    write_at(file, data, 0)
                    flush_file(file)
                finally:
                    os.close(file)
                written = True
            except OSError as error:
                failure = disk_error(path, "write", error)
                if not isinstance(failure, StoreFullError):
                    raise failure from error
                full = failure
        if full is not None and not written:
            raise full

    def space(self) -> DiskSpace:
        """Return the space of all disks together; a disk of several folders counts once.

        Raises:
            StoreIOError: An I/O error occurred.
        """
        spaces = {os.stat(folder).st_dev: disk_space(folder) for folder in self.folders}.values()
        return DiskSpace(sum(one.total_bytes for one in spaces), sum(one.free_bytes for one in spaces))


def disk_space(folder: str) -> DiskSpace:
    """Return the space of the disk that a folder is on.

    Raises:
        StoreIOError: An I/O error occurred.
    """
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise StoreIOError(folder, "stat", error.strerror or str(error)) from error
    return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_favail)


def write_at(file: int, data: bytes | memoryview, position: int) -> None:
    """Write all data at a position (bytes), also where one call writes a part: the disk is nearly full."""
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, position)
        view, position = view[done:], position + done
