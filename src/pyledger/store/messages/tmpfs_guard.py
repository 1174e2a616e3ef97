"""Room that a store needs before a byte of it is read: on tmpfs a page that was never written takes some.

A full tmpfs answers the first look at such a page with SIGBUS, which ends the process. Others give
zeroes, so of them nothing is asked.
"""

import os

from pyledger.errors import StoreFullError

MEMORY_DISK = "tmpfs"
PLENTY_BYTES = 1 << 30
LOOK_BYTES = 16 << 10
"""So much behind its data is looked at in a file: the page where that ends, and a few around it."""
BLOCK_BYTES = 512


def check_room(path: str) -> None:
    """See that all files of a store, or of any folder, can be read.

    Raises:
        StoreFullError: they lie on a tmpfs that is too full.

    Cost: a look at the free space; where it is short and that of a tmpfs, one at each file.
    """
    free_bytes = bytes_left(path)
    if free_bytes >= PLENTY_BYTES or file_system_of(path) != MEMORY_DISK:
        return
    if free_bytes < holes_bytes(path):
        raise StoreFullError(path, "open")


def bytes_left(path: str) -> int:
    """Free room of the file system of a path."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def holes_bytes(path: str) -> int:
    """What reading the ends of all files below a path may take at most."""
    needed = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                found = os.stat(os.path.join(folder, name))
            except OSError:
                continue
            needed += min(max(0, found.st_size - found.st_blocks * BLOCK_BYTES), LOOK_BYTES)
    return needed


def file_system_of(path: str) -> str:
    """Kind of the file system of a path; empty where the kernel does not tell."""
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
