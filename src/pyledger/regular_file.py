"""Opening files of a store, of a node and of a bookie by their names.

Only a regular file is one: opening a FIFO would wait for its other end for ever. To write it must stand there
itself: through a symbolic link bytes would be cut off or zeroed in a file that may belong to anybody. Folders
may be links, and who only reads follows them. `src/_core/base/store_file.h` does the same natively.
"""

import errno
import os
import stat
from pathlib import Path

from pyledger.errors import reason_of


def open_regular(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file as `os.open` does; also the `opener` of `open`.

    Raises:
        OSError: the system refused; ELOOP of a link, ENXIO of anything else that is no regular file.
    """
    kept = 0 if flags & os.O_ACCMODE == os.O_RDONLY else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | kept | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            error.strerror = reason_of(error.errno)
        raise
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    number = errno.EISDIR if stat.S_ISDIR(kind) else errno.ENXIO
    raise OSError(number, reason_of(number), os.fspath(path))


def read_regular(path: Path) -> bytes:
    """All of a file."""
    with open(path, "rb", opener=open_regular) as file:
        return file.read()
