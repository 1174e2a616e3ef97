"""The `lock` file: one writer at a time on a store folder, the same lock that a Java broker takes.

A POSIX record lock on bytes [0, 1), as a broker's `FileChannel.tryLock` takes it; the file then holds the
word `lock`. Such a lock belongs to the process: closing the file anywhere in the process releases the lock,
and a second lock by the same process succeeds. A table of held locks prevents the second; no other code in
the project opens the file.
"""

import fcntl
import os
import threading
from types import TracebackType
from typing import Self

from pyledger.errors import StoreIOError, StoreLockedError
from pyledger.regular_file import open_regular
from pyledger.store.files.disk_error import NO_ROOM, disk_error
from pyledger.store.files.folder import LOCK_FILE, reject_foreign_parts

_held: dict[tuple[int, int], int] = {}
"""Locks of this process: device and inode of the file to the process id that took it."""
# The system's lock belongs to the process: only this keeps two threads from both taking it.
_guard = threading.Lock()
os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release)


def lock_store(path: str) -> "StoreLock":
    """Return the lock of a store, not taken yet: for writers and for commands that change the folder.

    Raises:
        StoreFormatError: the store has parts that only a Java broker can write.
    """
    reject_foreign_parts(path)
    return StoreLock(path)


def write_word(descriptor: int) -> None:
    """Write the content that upstream writes. It is never read, so a full disk is no error."""
    try:
        os.pwrite(descriptor, b"lock", 0)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise


class StoreLock:
    """Lock of one store folder, held from `acquire` to `release`."""

    def __init__(self, store_path: str) -> None:
        self.path = os.path.join(store_path, LOCK_FILE)
        self._descriptor = -1
        self._key = (0, 0)
        self._owner_pid = 0

    @property
    def held(self) -> bool:
        """Whether this process holds the lock; a fork's child does not."""
        return self._descriptor >= 0 and self._owner_pid == os.getpid()

    def acquire(self) -> Self:
        """Take the lock without waiting.

        Raises:
            StoreLockedError: another process, or another store object of this one, holds it.
            StoreIOError: the file cannot be created or locked.
        """
        with _guard:
            return self._acquire()

    def _acquire(self) -> Self:
        try:
            # By stat: opening and closing a file that this process has locked would unlock it.
            self._raise_if_held()
            descriptor = open_regular(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise disk_error(self.path, "open", error) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            write_word(descriptor)
            facts = os.fstat(descriptor)
        except (BlockingIOError, PermissionError) as error:
            os.close(descriptor)
            raise StoreLockedError(os.path.dirname(self.path)) from error
        except OSError as error:
            os.close(descriptor)
            raise StoreIOError(self.path, "lock", error.strerror or str(error)) from error
        self._descriptor, self._owner_pid = descriptor, os.getpid()
        self._key = (facts.st_dev, facts.st_ino)
        _held[self._key] = self._owner_pid
        return self

    def release(self) -> None:
        """Release the lock, if it is held. The file stays, as upstream leaves it."""
        if self._descriptor < 0:
            return
        if self.held:
            _held.pop(self._key, None)
        os.close(self._descriptor)
        self._descriptor = -1

    def _raise_if_held(self) -> None:
        try:
            facts = os.stat(self.path)
        except FileNotFoundError:
            return
        if _held.get((facts.st_dev, facts.st_ino)) == os.getpid():
            raise StoreLockedError(os.path.dirname(self.path))

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
