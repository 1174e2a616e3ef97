"""Small files of a store, each replaced as a whole; see `pyledger.atomic_file` for how.

As upstream, the `.bak` is read when the file itself is missing, empty or broken. Nothing is deleted.

Source: RocketMQ common/.../ConfigManager.java, MixAll.java (string2File).
"""

import errno
from pathlib import Path
from typing import Any

from pyledger.atomic_file import backup_of, replace_file
from pyledger.errors import MalformedJsonError, StoreFormatError, StoreIOError
from pyledger.regular_file import read_regular
from pyledger.store.files.disk_error import disk_error
from pyledger.wire import fastjson

_IN_THE_WAY = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""Something that is not a regular file has the name of the file, of its `.bak` or of its `.tmp`."""


def write_file(path: Path, content: bytes, *, backup: bool = True) -> None:
    """Replace a file; its folder must exist.

    Args:
        path: The file.
        content: The complete new content.
        backup: Keep the old content as `<name>.bak`.

    Raises:
        StoreFullError: the disk is full; the old file is unchanged.
        StoreIOError: another system call failed.

    Durability: on return the new content survives a power failure; before that, the old or new one.
    """
    try:
        replace_file(path, content, backup=backup)
    except OSError as error:
        in_the_way = (error.filename2 or error.filename) if error.errno in _IN_THE_WAY else None
        raise disk_error(in_the_way or path, "write", error) from error


def make_folder(path: Path) -> None:
    """Create a folder and its parents where they are missing.

    Raises:
        StoreFullError: the disk is full.
        StoreIOError: another system call failed.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(path, "make", error) from error


def read_json(path: Path) -> Any:
    """Return the document in a file or, if that is missing, empty or broken, in its `.bak`; else None.

    Raises:
        StoreFormatError: neither can be parsed.
        StoreIOError: a file cannot be read.
    """
    broken: MalformedJsonError | UnicodeDecodeError | None = None
    for candidate in (path, backup_of(path)):
        try:
            text = read_regular(candidate).decode()
            if text.strip():
                return fastjson.parse(text)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise StoreIOError(str(candidate), "read", error.strerror or str(error)) from error
        except (MalformedJsonError, UnicodeDecodeError) as error:
            broken = broken or error
    if broken is not None:
        problem = f"is not a config file of a store ({broken})"
        raise StoreFormatError(
            str(path), problem, "restore it, or remove it and its .bak to start afresh"
        ) from broken
    return None


def write_json(path: Path, document: object) -> None:
    """Write a document in Java's JSON dialect; see `write_file`."""
    write_file(path, fastjson.dump(document).encode())
