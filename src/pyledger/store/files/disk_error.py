"""Errors of the operating system about files and folders, as errors of the store."""

import contextlib
import errno
import os
from collections.abc import Iterator

from pyledger.errors import StoreFullError, StoreIOError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def disk_error(path: str | os.PathLike[str], doing: str, error: OSError) -> StoreIOError | StoreFullError:
    """Convert an `OSError`; `doing` is a verb, such as `write`."""
    if error.errno in NO_ROOM:
        return StoreFullError(os.fspath(path), doing)
    return StoreIOError(os.fspath(path), doing, error.strerror or str(error))


@contextlib.contextmanager
def disk_errors(path: str | os.PathLike[str], doing: str) -> Iterator[None]:
    """Convert each `OSError` of a block; `path` is named by those that name no file."""
    try:
        yield
    except OSError as error:
        raise disk_error(error.filename or path, doing, error) from error
