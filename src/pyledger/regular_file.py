"""Open files of stores, DLedger nodes and bookies by name.

Only regular files are opened: opening a FIFO could block forever. Writers do not follow a symbolic link: that
could truncate or overwrite a file outside the folder. Folders may be links, and readers follow links.
`src/_core/base/store_file.h` does the same natively.
"""

import errno
import os
import stat
from pathlib import Path

from pyledger.errors import reason_of


def open_regular(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file as `os.open` does; also the `opener` of `open`.

    Raises:
        OSError: The system call failed; ELOOP for a link, ENXIO for any other file that is not regular.
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
    """Return the content of a file."""
    with open(path, "rb", opener=open_regular) as file:
        return file.read()
