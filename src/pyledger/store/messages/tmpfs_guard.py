"""Check for free space on tmpfs before a store is read.

Reading a page of a sparse file allocates it on tmpfs. On a full tmpfs that is a SIGBUS, which ends the
process. Other file systems return zeroes and need no space.
"""

import os

from pyledger.errors import StoreFullError

MEMORY_DISK = "tmpfs"
PLENTY_BYTES = 1 << 30
READ_AHEAD_BYTES = 16 << 10
"""Bytes that are read after the data of a file at most: the page where it ends, and a few around it."""
BLOCK_BYTES = 512


def check_free_space(path: str) -> None:
    """Check that all files of a folder can be read.

    Raises:
        StoreFullError: they are on a tmpfs that is too full.

    Cost: reads the free space; on a tmpfs with little of it, the size of each file, too.
    """
    free_bytes = bytes_left(path)
    if free_bytes >= PLENTY_BYTES or file_system_of(path) != MEMORY_DISK:
        return
    if free_bytes < holes_bytes(path):
        raise StoreFullError(path, "open")


def bytes_left(path: str) -> int:
    """Free space (bytes) of the file system of a path."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def holes_bytes(path: str) -> int:
    """Limit of the bytes that reading the ends of all files below a path allocates."""
    needed = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                found = os.stat(os.path.join(folder, name))
            except OSError:
                continue
            needed += min(max(0, found.st_size - found.st_blocks * BLOCK_BYTES), READ_AHEAD_BYTES)
    return needed


def file_system_of(path: str) -> str:
    """Type of the file system of a path; empty when it is not known."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                words = line.split()
                if words[2] == wanted:
                    return words[words.index("-") + 1]
    except OSError:
        pass
    return ""
