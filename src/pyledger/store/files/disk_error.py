"""Errors of the operating system about files and folders, as errors of the store."""

import errno
import os

from pyledger.errors import StoreFullError, StoreIOError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def disk_error(path: str | os.PathLike[str], doing: str, error: OSError) -> StoreIOError | StoreFullError:
    """Convert an `OSError`; `doing` is a verb, such as `write`."""
    if error.errno in NO_ROOM:
        return StoreFullError(os.fspath(path), doing)
    return StoreIOError(os.fspath(path), doing, error.strerror or str(error))
