"""What Linux and macOS do by different system calls; `src/_core/base/platform.h` does the same natively.

The side for macOS is checked by mypy and has never run.
"""

import errno
import os
import sys

if sys.platform == "darwin":
    import fcntl


def flush_file(file: int) -> None:
    """Make a file durable, or the names in a folder.

    Raises:
        OSError: The disk reported an error; what was written may be lost.

    Durability: on return content and attributes survive a power failure.
    """
    if sys.platform == "darwin":
        _flush_drive(file)
    else:
        os.fsync(file)


def flush_data(file: int) -> None:
    """Make content and size of a file durable; its times may be lost.

    Raises:
        OSError: The disk reported an error; what was written may be lost.

    Durability: on return content and size survive a power failure.
    """
    if sys.platform == "darwin":
        _flush_drive(file)
    else:
        os.fdatasync(file)


def next_data(file: int, position: int) -> int:
    """Return where the next data of a file begins at or after a position (bytes); -1: the rest is a hole.

    Raises:
        OSError: The file system reported an error.
    """
    if sys.platform == "darwin":
        # APFS reports holes where data is that has not been written back: here a file has none.
        found = position if position < os.fstat(file).st_size else -1
    else:
        try:
            found = os.lseek(file, position, os.SEEK_DATA)
        except OSError as error:
            # An I/O error must not pass for a file without data.
            if error.errno != errno.ENXIO:
                raise
            found = -1
    return found


def next_hole(file: int, position: int) -> int:
    """Return where the data at a position (bytes) of a file ends.

    Raises:
        OSError: The file system reported an error; ENXIO: the file ends before the position.
    """
    if sys.platform == "darwin":
        end = os.fstat(file).st_size
        if position >= end:
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    else:
        end = os.lseek(file, position, os.SEEK_HOLE)
    return end


if sys.platform == "darwin":

    def _flush_drive(file: int) -> None:
        """Empty the drive's cache, too: fsync leaves bytes there. Not every file system can do that."""
        try:
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
                raise
            os.fsync(file)
